"""FREEZE: a version, or some partitions of it, is kept under a name, copying nothing. It is a tag."""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.core.base.errors import error
from mergelake.log.model.operations import TableOp, Tag, Untag
from mergelake.log.model.state import State
from mergelake.table.handle.handle import TableHandle


def check_tag_name(name: object) -> None:
    """Raise BAD_ARGUMENTS for what cannot be the name of a tag."""
    if not isinstance(name, str) or not name.strip() or name.isdecimal():
        raise error("BAD_ARGUMENTS", f"'{name}' cannot be the name of a tag", "It is a word, such as 'release-1'")


def freeze(handle: TableHandle, name: str = "", partition_id: str | None = None) -> str:
    """Tag the newest version, or of one partition of it; returns the name, by default `freeze_<version>`.

    DIRECTORY_ALREADY_EXISTS, as in ClickHouse, for a name that is taken.
    """
    if name:
        check_tag_name(name)
    handle.refresh()
    chosen = name

    def build(state: State) -> Sequence[TableOp]:
        nonlocal chosen
        chosen = name or f"freeze_{state.version}"
        if chosen in state.tags:
            message = f"There is a tag {chosen} already, of version {state.tags[chosen]}"
            raise error("DIRECTORY_ALREADY_EXISTS", message, "UNFREEZE WITH NAME removes it")
        return [Tag(chosen, state.version, None if partition_id is None else (partition_id,))]

    handle.log.commit(build)
    return chosen


def unfreeze(handle: TableHandle, name: str, partition_id: str | None = None) -> int:
    """Remove a tag, or a partition from what it keeps; returns the version. One that is not there is no error."""
    handle.refresh()

    def build(state: State) -> Sequence[TableOp]:
        if name not in state.tags:
            return ()
        version, held = state.tags[name], state.tagged_partitions.get(name)
        if partition_id is None:
            return [Untag(name)]
        there = {*handle.whole_state(version).partitions} if held is None else {*held}
        left = tuple(sorted(there - {partition_id}))
        return [Tag(name, version, left)] if left else [Untag(name)]

    return handle.log.commit(build).version
