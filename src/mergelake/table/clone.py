"""Clones: a new table that refers to the objects of another, without copying. Both are independent afterwards.

1. **Hold.** Every table whose objects the clone will refer to (the source and, if that is a clone itself, the owners of
   the objects it refers to) records in its own log that the clone needs these directories. A hold is refused if one of
   them is no longer kept there: it may be deleted at any moment.
2. **Begin.** The first entry of the clone has schema and parts: new ids over the old extents; and the mutations that
   some of them lack.
3. **Check again.** A collector removes the hold of a table that does not begin within a grace period. A process that
   slept so long finds the holds gone, and gives up before the table gets its name.

The holds are released when the clone refers to none of the objects any more (`gc.holds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from msgspec import structs

from mergelake.core.errors import ConflictError, MergelakeError, error
from mergelake.core.ids import IdSource
from mergelake.core.manifest import Extent, FileTable, PartFile, PartManifest, encode_files
from mergelake.core.schema import TableSchema
from mergelake.log.operations import AddParts, AddReference, AlterMetadata, Mutation, TableOp
from mergelake.log.retention import refers
from mergelake.log.state import PendingMutation, State
from mergelake.log.volatile import lacking, unfinished
from mergelake.table.handle import OpenTable, TableHandle


@dataclass(frozen=True, slots=True)
class ClonePlan:
    """The first entry of a clone."""

    schema: TableSchema
    """The first schema; later ones follow in `more`."""
    more: tuple[TableOp, ...]
    holds: dict[str, tuple[str, ...]]
    """Directory of an owner -> its directories that the clone refers to."""


def plan_clone(state: State, directory: str, ids: IdSource) -> ClonePlan:
    """The clone of a state of the table in `directory`. Pure, except for the ids of its parts.

    Raises UNFINISHED as `restored` does.
    """
    schemas = [state.schemas[version] for version in sorted(state.schemas) if version <= state.schema_version]
    ops = restored(state, ids, base_version=0, table=directory)
    parts = [part for op in ops if isinstance(op, AddParts) for part in op.parts]
    holds: dict[str, list[str]] = {}
    for name in sorted({name for part in parts for name in refers(part)}):
        _, owner, inner = name.split("/", 2)
        holds.setdefault(owner, []).append(inner)
    more = [*(AlterMetadata(schema) for schema in schemas[1:]), *ops]
    return ClonePlan(schemas[0], tuple(more), {owner: tuple(inner) for owner, inner in holds.items()})


def restored(state: State, ids: IdSource, base_version: int, table: str = "", level_min: int = 0) -> list[TableOp]:
    """The operations that add the parts of a state under new ids, with the same files and mutations.

    Blocks are numbered anew: parts that lack a mutation are added before it, the others after it. Raises UNFINISHED if
    the order of the blocks of a partition does not allow that, as some of its parts were mutated already and later
    ones were not. For a clone, `table` is the table that owns the files.
    """
    mutations = unfinished(state)
    stages: list[list[PartManifest]] = [[] for _ in range(len(mutations) + 1)]
    for partition_id, parts in groupby(state.parts(), key=lambda part: part.info.partition_id):
        scope = [(n, m) for n, m in enumerate(mutations) if m.partition_ids is None or partition_id in m.partition_ids]
        stage = 0
        for part in parts:
            due = lacking(mutations, part.info)
            stage = max((stage, *(number + 1 for number, m in scope if m not in due)))
            if any(number < stage for number, m in scope if m in due):
                raise _half_done(mutations)
            manifest = replace(
                part.manifest,
                id=ids.new_id(),
                base_version=base_version,
                level=max(part.info.level, level_min),
                files=_seen_from_outside(part.manifest, table) if table else part.manifest.files,
            )
            stages[stage].append(manifest)
    ops: list[TableOp] = []
    for number, added in enumerate(stages):
        if added:
            ops.append(AddParts(tuple(added)))
        if number < len(mutations):
            m = mutations[number]
            ops.append(Mutation(ids.new_id(), m.commands, m.partition_ids, m.drops_rows))
    return ops


def _half_done(mutations: Sequence[PendingMutation]) -> MergelakeError:
    names = ", ".join(mutation.name for mutation in mutations[:3])
    message = f"Some parts of this version are mutated already, and others not yet ({names})"
    return error("UNFINISHED", message, "Table.apply_mutations() ends it; of old versions, take one before or after it")


def _seen_from_outside(manifest: PartManifest, table: str) -> FileTable:
    def absolute(extent: Extent) -> Extent:
        return extent if extent.key.startswith("/") else structs.replace(extent, key=f"/{table}/{extent.key}")

    def moved(file: PartFile) -> PartFile:
        return structs.replace(file, extents=tuple(map(absolute, file.extents)))

    return encode_files(map(moved, manifest.file_table().values()))


def take_holds(holder: str, plan: ClonePlan, open_table: OpenTable) -> list[TableHandle]:
    """Hold the directories of the plan for the future table `holder`; returns their owners. May raise ConflictError."""
    owners = []
    for owner, directories in plan.holds.items():
        handle = open_table(owner)
        hold = AddReference(holder, directories)
        handle.log.commit(lambda _, hold=hold: (hold,))  # type: ignore[misc]
        owners.append(handle)
    return owners


def check_holds(holder: str, owners: Sequence[TableHandle]) -> None:
    """Raise ConflictError unless all holds still exist, after the holder has begun."""
    for owner in owners:
        if holder not in owner.refresh().holds:
            raise ConflictError(
                f"Table {owner.directory} did not wait for its clone any longer",
                name="ABORTED",
                hint="Clone it again; if that takes longer than gc_grace_seconds, raise that setting",
            )
