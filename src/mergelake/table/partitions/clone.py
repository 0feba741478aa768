"""Clones: a new table that refers to the objects of another, without copying. Both are independent afterwards.

1. **Hold.** Every table whose objects the clone will refer to (the source and, if that is a clone itself, the owners of
   the objects it refers to) records in its own log that the clone needs these directories. A hold is refused if one of
   them is no longer kept there: it may be deleted at any moment.
2. **Begin.** The first entry of the clone has schema and parts: new ids over the old extents; and the mutations that
   some of them lack.
3. **Check again.** A collector removes the hold of a table that does not begin within a grace period. A process that
   slept so long finds the holds gone, and gives up before the table gets its name.

The holds are released when the clone refers to none of the objects any more (`jobs.gc.holds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from msgspec import structs

from mergelake.core.base.errors import ConflictError
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import Extent, FileTable, PartFile, PartManifest, encode_files
from mergelake.core.model.schema import TableSchema
from mergelake.log.model.operations import AddParts, AddReference, AlterMetadata, Mutation, TableOp
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.retention import refers
from mergelake.log.model.state import PendingMutation, State
from mergelake.log.model.volatile import lacking, unfinished
from mergelake.table.handle.handle import OpenTable, TableHandle


@dataclass(frozen=True, slots=True)
class ClonePlan:
    """The first entry of a clone."""

    schema: TableSchema
    """The first schema; later ones follow in `more`."""
    more: tuple[TableOp, ...]
    holds: dict[str, tuple[str, ...]]
    """Directory of an owner -> its directories that the clone refers to."""


def plan_clone(state: State, directory: str, ids: IdSource) -> ClonePlan:
    """The clone of a state of the table in `directory`. Pure, except for the ids of its parts."""
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
    """The operations that add the parts of a state under new ids, with the same files and the mutations they lack.

    Blocks are numbered anew, in the same order. For a clone, `table` is the table that owns the files.
    """
    mutations = unfinished(state)

    def added(part: ActivePart) -> PartManifest:
        files = _seen_from_outside(part.manifest, table) if table else part.manifest.files
        level = max(part.info.level, level_min)
        return replace(part.manifest, id=ids.new_id(), base_version=base_version, level=level, files=files)

    stages = _stages(state, mutations)
    if stages is None:
        return with_lacks([(added(part), lacking(mutations, part.info)) for part in state.parts()], ids)
    ops: list[TableOp] = []
    for number, parts in enumerate(stages):
        if parts:
            ops.append(AddParts(tuple(map(added, parts))))
        if number < len(mutations):
            m = mutations[number]
            ops.append(Mutation(ids.new_id(), m.commands, m.partition_ids, m.drops_rows))
    return ops


def _stages(state: State, mutations: Sequence[PendingMutation]) -> list[list[ActivePart]] | None:
    """The parts to be added before each mutation, which they lack, and after the last one.

    None if the order of the blocks of a partition does not allow that: some of its parts were mutated already and
    later ones were not, or a mutation concerns some parts only, or was written for an older schema.
    """
    stages: list[list[ActivePart]] = [[] for _ in range(len(mutations) + 1)]
    if any(m.since or m.schema_version != state.schema_version for m in mutations):
        return None
    for partition_id, parts in groupby(state.parts(), key=lambda part: part.info.partition_id):
        scope = [(n, m) for n, m in enumerate(mutations) if m.partition_ids is None or partition_id in m.partition_ids]
        stage = 0
        for part in parts:
            due = lacking(mutations, part.info)
            stage = max((stage, *(number + 1 for number, m in scope if m not in due)))
            if any(number < stage for number, m in scope if m in due):
                return None
            stages[stage].append(part)
    return stages


def with_lacks(
    parts: Sequence[tuple[PartManifest, Sequence[PendingMutation]]],
    ids: IdSource,
    detached: Mapping[str, str] | None = None,
    schema_version: int = 0,
) -> list[TableOp]:
    """The operations that add parts which each lack some mutations: these are logged again, for these parts alone.

    The order of parts of one partition is kept. Neighbours that lack the same, in all partitions, share the mutations.
    `detached`: by id of a part that of the detached part which it takes back. `schema_version`: that of the schema for
    which they are added.
    """
    runs: dict[str, list[tuple[tuple[PendingMutation, ...], list[PartManifest]]]] = {}
    for manifest, lacks in parts:
        held = runs.setdefault(manifest.partition_id, [])
        if not held or held[-1][0] != tuple(lacks):
            held.append((tuple(lacks), []))
        held[-1][1].append(manifest)
    ops: list[TableOp] = []
    for number in range(max(map(len, runs.values()), default=0)):
        alike: dict[tuple[str, ...], tuple[tuple[PendingMutation, ...], list[PartManifest]]] = {}
        for held in runs.values():
            for lacks, added in held[number : number + 1]:
                alike.setdefault(tuple(m.id for m in lacks), (lacks, []))[1].extend(added)
        for lacks, added in alike.values():
            aside = tuple(detached[part.id] for part in added) if detached else ()
            ops.append(AddParts(tuple(added), detached=aside, schema_version=schema_version))
            only = tuple(part.id for part in added)
            scope = tuple(dict.fromkeys(part.partition_id for part in added))
            ops += [Mutation(ids.new_id(), m.commands, scope, m.drops_rows, only, m.schema_version) for m in lacks]
    return ops


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
