"""Single parts of a table, by name: dropped, put aside, taken back. Their objects are neither read nor written."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace

from mergelake.core.errors import error
from mergelake.core.names import PartInfo
from mergelake.log.operations import AddParts, DropDetached, DropParts, TableOp
from mergelake.log.state import DetachedPart, State
from mergelake.table.handle import TableHandle


def drop_part(handle: TableHandle, name: str, kind: str = "drop") -> int:
    """Drop or (`detach`) put aside an active part; the version. What nodes meant to merge with it is given up."""
    if PartInfo.try_parse(name) is None:
        raise error("BAD_DATA_PART_NAME", f"'{name}' is not the name of a part", "Names look like all_1_5_1")

    def build(state: State) -> Sequence[TableOp]:
        part = state.find(name)
        if part is None:
            near = difflib.get_close_matches(name, [part.name for part in state.parts()], n=1)
            hint = f"Maybe you meant {near[0]}" if near else "system.parts lists those that are active"
            raise error("NO_SUCH_DATA_PART", f"No part {name} in committed state", hint)
        return [DropParts(part.info.partition_id, (part.manifest.id,), kind)]

    return _commit(handle, build)


def attach_part(handle: TableHandle, name: str) -> int:
    """Take a detached part back: it gets a new block number, and an id of its own over the objects that it has."""

    def build(state: State) -> Sequence[TableOp]:
        part = _detached(state, name)
        made = replace(part.manifest, id=handle.ids.new_id(), base_version=state.version, level=part.info.level)
        return [AddParts((made,), detached=(part.manifest.id,))]

    return _commit(handle, build)


def drop_detached_part(handle: TableHandle, name: str) -> int:
    """Give a detached part up."""
    return _commit(handle, lambda state: [DropDetached((_detached(state, name).manifest.id,))])


def _detached(state: State, name: str) -> DetachedPart:
    """The part that was detached last under a name."""
    found = [part for part in state.detached if str(part.info) == name]
    if not found:
        there = ", ".join(str(part.info) for part in state.detached[:20])
        raise error("BAD_DATA_PART_NAME", f'Detached part "{name}" not found', f"There are {there or 'none'}")
    return found[-1]


def _commit(handle: TableHandle, build: Callable[[State], Sequence[TableOp]]) -> int:
    """Commit what is judged on the newest state."""
    handle.refresh()
    return handle.log.commit(build).version
