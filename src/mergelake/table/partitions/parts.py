"""Parts and partitions of a table, by name: drop, detach, attach. Their objects are neither read nor written.

A detached part remembers the mutations that it lacked (`DetachedPart.lacks`). Attached, it has a new id and a new block
number, and these mutations are logged again in the same entry, for it alone: its rows are those that were visible when
it was detached, whatever happened to the mutations in between.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace

from mergelake.core.base.errors import error
from mergelake.core.model.names import PartInfo
from mergelake.log.model.operations import DropDetached, DropParts, DropRange, TableOp
from mergelake.log.model.state import DetachedPart, PendingMutation, State
from mergelake.table.definition.refit import commit_judged
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.clone import with_lacks


def drop_part(handle: TableHandle, name: str, kind: str = "drop") -> int:
    """Drop or detach an active part, as `DropParts.kind` says; returns the version.

    Volatile parts built on it are cancelled.
    """
    _require_name(name)

    def build(state: State) -> Sequence[TableOp]:
        part = state.find(name)
        if part is None:
            near = difflib.get_close_matches(name, [part.name for part in state.parts()], n=1)
            hint = f"Maybe you meant {near[0]}" if near else "system.parts lists those that are active"
            raise error("NO_SUCH_DATA_PART", f"No part {name} in committed state", hint)
        return [DropParts(part.info.partition_id, (part.manifest.id,), kind)]

    return _commit(handle, build)


def drop_partition(handle: TableHandle, partition_id: str | None, kind: str = "drop") -> int:
    """Drop or detach all parts of a partition (None: of all); returns the version. Volatile parts in it are cancelled.

    Nothing is logged if there are none to detach.
    """

    def build(state: State) -> Sequence[TableOp]:
        there = bool(state.partitions) if partition_id is None else partition_id in state.partitions
        return [DropRange(partition_id, kind)] if there or kind != "detach" else []

    return _commit(handle, build)


def attach_part(handle: TableHandle, name: str) -> int:
    """Attach a detached part again, with a new block number and a new id over the same objects; returns the version."""
    _require_name(name)
    return _attach(handle, lambda state: [_detached(state, name)])


def attach_partition(handle: TableHandle, partition_id: str | None) -> int:
    """Attach all detached parts of a partition (None: of all), in the order of their blocks; returns the version.

    Nothing is logged if there are none.
    """
    return _attach(handle, lambda state: _detached_of(state, partition_id))


def drop_detached_part(handle: TableHandle, name: str) -> int:
    """Drop a detached part; returns the version."""
    if not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
        raise error("INCORRECT_FILE_NAME", f"Invalid part name '{name}'", "system.detached_parts has the names")
    return _commit(handle, lambda state: [DropDetached((_detached(state, name).manifest.id,))])


def drop_detached_partition(handle: TableHandle, partition_id: str | None) -> int:
    """Drop all detached parts of a partition (None: of all); returns the version. Nothing is logged without any."""

    def build(state: State) -> Sequence[TableOp]:
        ids = tuple(part.manifest.id for part in _detached_of(state, partition_id))
        return [DropDetached(ids)] if ids else []

    return _commit(handle, build)


def _attach(handle: TableHandle, choose: Callable[[State], Sequence[DetachedPart]]) -> int:
    """Attach detached parts. Those of an older schema are judged first, so each keeps its new id meanwhile."""
    new_ids: dict[str, str] = {}

    def build(state: State) -> Sequence[TableOp]:
        added, detached = [], {}
        for part in choose(state):
            new_id = new_ids.setdefault(part.manifest.id, handle.ids.new_id())
            new = replace(part.manifest, id=new_id, base_version=state.version, level=part.info.level)
            added.append((new, _as_of_now(part, state)))
            detached[new_id] = part.manifest.id
        return with_lacks(added, handle.ids, detached, state.schema_version)

    handle.refresh()
    return commit_judged(handle, build).version


def _as_of_now(part: DetachedPart, state: State) -> list[PendingMutation]:
    """The mutations that a detached part lacks, for the current schema: columns were perhaps renamed or dropped since.

    INCOMPATIBLE_COLUMNS if one that a mutation reads was dropped, or one that it uses was changed.
    """
    now = state.schema
    out: list[PendingMutation] = []
    for mutation in part.lacks:
        before = state.schemas[mutation.schema_version]
        if before.columns == now.columns:
            out.append(mutation)
            continue
        from mergelake.table.definition.needs import affected_column  # loads kernels that opening a table does not need
        from mergelake.table.definition.renaming import renamed_alike, renamed_commands, without_assignments

        by_id = {column.id: column.name for column in now.columns}
        names = {column.name: by_id.get(column.id, f"{column.name} (dropped)") for column in before.columns}
        commands = renamed_commands(mutation.commands, names, before.types)
        commands = without_assignments(commands, {new for new in names.values() if not now.has(new)})
        if not commands:
            continue
        renamed = replace(mutation, commands=commands, schema_version=state.schema_version)
        changed = affected_column(renamed, renamed_alike(before, names), now)
        if changed is not None:
            message = f"Part {part.info} lacks {mutation.name}, and its column {changed} has been altered since"
            raise error("INCOMPATIBLE_COLUMNS", message, "AS OF the version before DETACH shows its rows")
        out.append(renamed)
    return out


def _detached(state: State, name: str) -> DetachedPart:
    """The last detached part with a name."""
    matching = [part for part in state.detached if str(part.info) == name]
    if not matching:
        names = ", ".join(str(part.info) for part in state.detached[:20])
        raise error("BAD_DATA_PART_NAME", f'Detached part "{name}" not found', f"There are {names or 'none'}")
    return matching[-1]


def _detached_of(state: State, partition_id: str | None) -> list[DetachedPart]:
    """The detached parts of a partition, or all, in the order of their names."""
    parts = [part for part in state.detached if partition_id in (None, part.info.partition_id)]
    return sorted(parts, key=lambda part: part.info)


def _require_name(name: str) -> None:
    if not isinstance(name, str) or PartInfo.try_parse(name) is None:
        raise error("BAD_DATA_PART_NAME", f"'{name}' is not the name of a part", "Names look like all_1_5_1")


def _commit(handle: TableHandle, build: Callable[[State], Sequence[TableOp]]) -> int:
    """Refresh, then commit, so that the first try is on the newest state."""
    handle.refresh()
    return handle.log.commit(build).version
