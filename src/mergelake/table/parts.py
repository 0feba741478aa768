"""Single parts of a table, by name: drop, detach, attach. Their objects are neither read nor written."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace

from mergelake.core.errors import error
from mergelake.core.names import PartInfo
from mergelake.log.operations import AddParts, DropDetached, DropParts, TableOp
from mergelake.log.state import DetachedPart, State
from mergelake.log.volatile import lacking
from mergelake.table.handle import TableHandle
from mergelake.table.refit import commit_judged


def drop_part(handle: TableHandle, name: str, kind: str = "drop") -> int:
    """Drop or detach an active part; returns the version. Volatile parts built on it are cancelled.

    UNFINISHED for the detachment of a part that lacks a mutation: attached again, it would never get it.
    """
    if PartInfo.try_parse(name) is None:
        raise error("BAD_DATA_PART_NAME", f"'{name}' is not the name of a part", "Names look like all_1_5_1")

    def build(state: State) -> Sequence[TableOp]:
        part = state.find(name)
        if part is None:
            near = difflib.get_close_matches(name, [part.name for part in state.parts()], n=1)
            hint = f"Maybe you meant {near[0]}" if near else "system.parts lists those that are active"
            raise error("NO_SUCH_DATA_PART", f"No part {name} in committed state", hint)
        lacks = lacking(state.mutations, part.info) if kind == "detach" else ()
        if lacks:
            message = f"Part {name} lacks {lacks[0].name}, which would be lost when it is attached again"
            raise error("UNFINISHED", message, "Table.apply_mutations() applies it, and gives the part a new name")
        return [DropParts(part.info.partition_id, (part.manifest.id,), kind)]

    return _commit(handle, build)


def attach_part(handle: TableHandle, name: str) -> int:
    """Attach a detached part again, with a new block number and a new id over the same objects; returns the version."""
    part_id = handle.ids.new_id()

    def build(state: State) -> Sequence[TableOp]:
        part = _detached(state, name)
        attached = replace(part.manifest, id=part_id, base_version=state.version, level=part.info.level)
        return [AddParts((attached,), detached=(part.manifest.id,), schema_version=state.schema_version)]

    handle.refresh()
    return commit_judged(handle, build).version


def drop_detached_part(handle: TableHandle, name: str) -> int:
    """Drop a detached part; returns the version."""
    return _commit(handle, lambda state: [DropDetached((_detached(state, name).manifest.id,))])


def _detached(state: State, name: str) -> DetachedPart:
    """The last detached part with a name."""
    matching = [part for part in state.detached if str(part.info) == name]
    if not matching:
        names = ", ".join(str(part.info) for part in state.detached[:20])
        raise error("BAD_DATA_PART_NAME", f'Detached part "{name}" not found', f"There are {names or 'none'}")
    return matching[-1]


def _commit(handle: TableHandle, build: Callable[[State], Sequence[TableOp]]) -> int:
    """Refresh, then commit, so that the first try is on the newest state."""
    handle.refresh()
    return handle.log.commit(build).version
