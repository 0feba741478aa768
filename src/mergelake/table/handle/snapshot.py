"""`Snapshot`: a table at one version, as reads see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import PendingMutation, State
from mergelake.log.model.volatile import lacking
from mergelake.table.handle.volatile_choice import MergedPart, VolatileRead


@dataclass(frozen=True)
class Snapshot:
    """A table at one version: an immutable value, which pickles."""

    version: int
    timestamp_ms: int
    """Timestamp of the commit of this version."""
    schema: TableSchema
    partitions: Partitions
    """Active parts by partition id, in block order."""
    schemas: Mapping[int, TableSchema] = field(default_factory=dict)
    """Every schema by version: a part is read by the one that it was written with."""
    mutations: tuple[PendingMutation, ...] = ()
    """Mutations that parts may lack, in order: reading a part applies those that it lacks (`lacking`)."""
    merged: tuple[MergedPart, ...] = ()
    """Volatile parts among the parts, in place of active ones: their objects are in no store (`volatile_store`)."""
    volatile: tuple[VolatileRead, ...] = ()
    """What is read of Live volatile parts, and why; empty if nobody asked."""

    @staticmethod
    def of(state: State) -> Snapshot:
        """The snapshot of a state. UNKNOWN_TABLE if there is no table (any more)."""
        mutations = tuple(m for m in state.mutations if not (m.killed or m.finished_ms))
        return Snapshot(state.version, state.timestamp_ms, state.schema, state.partitions, state.schemas, mutations)

    @cached_property
    def parts(self) -> tuple[ActivePart, ...]:
        """Active parts, sorted by partition id and block number."""
        return tuple(self.partitions.all_parts())

    @property
    def settings(self) -> TableSettings:
        """The table's settings at this version."""
        return TableSettings(self.schema.settings)

    @property
    def rows(self) -> int:
        """Rows of all parts, with those that are deleted and not removed yet."""
        return self.partitions.totals.rows

    @cached_property
    def exact_rows(self) -> int | None:
        """Number of rows; None if rows may be deleted in some part."""
        if self.partitions.totals.masked:
            return None
        deleting = tuple(mutation for mutation in self.mutations if mutation.drops_rows)
        if deleting and any(lacking(deleting, part.info) for part in self.parts):
            return None
        return self.rows

    def lacking(self, info: PartInfo) -> tuple[PendingMutation, ...]:
        """The mutations that the rows of a part lack, in order."""
        return lacking(self.mutations, info) if self.mutations else ()

    def partition(self, partition_id: str) -> tuple[ActivePart, ...]:
        """The parts of one partition, in block order."""
        return self.partitions.get(partition_id, ())


def with_merged(snapshot: Snapshot, merged: Sequence[MergedPart], reads: Sequence[VolatileRead]) -> Snapshot:
    """The snapshot with these parts in place of their sources."""
    if not merged:
        return replace(snapshot, merged=(), volatile=tuple(reads))
    by_partition: dict[str, list[MergedPart]] = {}
    for part in merged:
        by_partition.setdefault(part.info.partition_id, []).append(part)
    changed: dict[str, Sequence[ActivePart]] = {}
    for partition_id, taken in by_partition.items():
        gone = {source.manifest.id for part in taken for source in part.sources}
        kept = [part for part in snapshot.partitions[partition_id] if part.manifest.id not in gone]
        changed[partition_id] = sorted([*kept, *taken], key=lambda part: part.info.min_block)
    lost = [source for part in merged for source in part.sources]
    partitions = snapshot.partitions.changed(changed, merged, lost)
    return replace(snapshot, partitions=partitions, merged=tuple(merged), volatile=tuple(reads))


def beside_merged(snapshot: Snapshot) -> Snapshot:
    """The stored parts of the snapshot alone, without the rows of its merged ones."""
    if not snapshot.merged:
        return snapshot
    changed: dict[str, Sequence[ActivePart]] = {}
    for partition_id in {part.info.partition_id for part in snapshot.merged}:
        changed[partition_id] = [p for p in snapshot.partitions[partition_id] if not isinstance(p, MergedPart)]
    partitions = snapshot.partitions.remembered(
        "beside", lambda: snapshot.partitions.changed(changed, (), snapshot.merged)
    )
    return replace(snapshot, partitions=partitions, merged=())


def without_merged(snapshot: Snapshot, ids: Collection[str], why: str) -> Snapshot:
    """The snapshot with the sources of some merged parts, given by `MergedPart.id`, in their place again."""
    gone = [part for part in snapshot.merged if part.id in ids]
    if not gone:
        return snapshot
    left = tuple(part for part in snapshot.merged if part.id not in ids)
    changed: dict[str, Sequence[ActivePart]] = {}
    for part in gone:
        partition_id = part.info.partition_id
        held = changed.get(partition_id, snapshot.partitions[partition_id])
        changed[partition_id] = [other for each in held for other in (part.sources if each == part else (each,))]
    partitions = snapshot.partitions.changed(changed, [s for part in gone for s in part.sources], gone)
    names = {part.name for part in gone}
    volatile = tuple(replace(read, why_not=why) if read.name in names else read for read in snapshot.volatile)
    return replace(snapshot, partitions=partitions, merged=left, volatile=volatile)
