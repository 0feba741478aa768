"""Entries -> state. Pure: no I/O, no clock, the same answer on every machine.

`fold(state, entries)` takes a private, mutable draft of the parts of the state that it touches, applies
all entries to it and freezes it once, so replaying ten thousand entries copies nothing ten thousand times.

An entry was checked by its writer against the state just before it (`conflict`), so nothing is checked again here; an
entry that does not fit all the same means that the log was tampered with: CorruptDataError.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.engines import precedes_merges
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo, merged_name
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.log.model.operations import (
    AddParts,
    AddReference,
    AddVolatile,
    AdoptVolatile,
    AdvanceGcHorizon,
    AlterMetadata,
    CancelVolatile,
    CreateTable,
    DropDetached,
    DropParts,
    DropRange,
    DropReference,
    DropTable,
    Entry,
    FinishMutations,
    KillMutation,
    KnownInsert,
    LogOp,
    MarkMutated,
    MoveLog,
    Mutation,
    MutationFailed,
    Prepare,
    Publish,
    ReleaseLease,
    RenewLease,
    RowsUnchanged,
    Tag,
    UndropTable,
    Untag,
)
from mergelake.log.model.parts import ActivePart, RetiredPart
from mergelake.log.model.retention import partial_versions, pins, refers
from mergelake.log.model.sequencer import Sequencer
from mergelake.log.model.state import (
    FINISHED_MUTATIONS_TO_KEEP,
    TOKENS_MAX,
    DetachedPart,
    Joint,
    Lease,
    MutationFailure,
    PendingMutation,
    RememberedInsert,
    State,
    VolatilePart,
    known_until,
    positions,
    shortened,
    window_of,
)
from mergelake.log.model.volatile import element_id, inside, lacking, pending, top_level

T = TypeVar("T")
_CHANGES = (
    AddParts, Mutation, KillMutation, DropRange, DropParts, CreateTable, AlterMetadata, DropTable, UndropTable,
)  # fmt: skip
"""Operations after which a reader may find other rows."""


def apply(state: State, entry: Entry) -> State:
    """The state after one entry."""
    return fold(state, (entry,))


def fold(state: State, entries: Iterable[Entry]) -> State:
    """The state after `entries`, which follow `state.version` without a gap."""
    draft = Draft(state)
    for entry in entries:
        draft.begin(entry)
        for op in entry.ops:
            draft.apply(op)
    return draft.freeze()


class Draft:
    """A state under change. Partitions are thawed into lists when first touched."""

    def __init__(self, state: State) -> None:
        self._version = state.version
        self._timestamp_ms = state.timestamp_ms
        self._schemas = state.schemas
        self._schema_version = state.schema_version
        self._dropped = state.dropped
        self._dropped_version = state.dropped_version
        self._block_counter = state.block_counter
        self._rows_version = state.rows_version
        self._partitions = state.partitions
        self._thawed: dict[str, list[ActivePart]] = {}
        self._appended: dict[str, list[ActivePart]] = {}  # of partitions that are not thawed, and need not be read
        self._gained: list[ActivePart] = []
        self._lost: list[ActivePart] = []
        self._floors = state.floors
        self._floor = state.floor
        self._drops, self._drop = state.drops, state.drop
        self._holes = state.holes
        self._firsts = state.firsts
        self._tokens = state.tokens
        self._hashes = state.hashes
        self._retired = state.retired
        self._newly_retired: list[RetiredPart] = []
        self._volatile = state.volatile
        self._mutations = state.mutations
        self._detached = state.detached
        self._tags, self._holds, self._leases = state.tags, state.holds, state.leases
        self._tagged_partitions = state.tagged_partitions
        self._fence, self._history = state.fence, state.history
        self._sequencer = state.sequencer
        self._written = state.written
        self._joint = state.joint
        self._owned = set[str]()
        self._window = _window(self._schemas.get(self._schema_version))

    def begin(self, entry: Entry) -> None:
        """Enter the next position."""
        if entry.version != self._version + 1:
            raise CorruptDataError(
                "A log entry stands at the wrong position", expected=str(self._version + 1), found=str(entry.version)
            )
        self._version = entry.version
        self._timestamp_ms = max(entry.timestamp_ms, self._timestamp_ms)

    def apply(self, op: LogOp) -> None:
        """Apply one operation of the entry that was begun."""
        if isinstance(op, _CHANGES) and not (isinstance(op, AddParts) and not op.parts):
            self._rows_version = self._version
        match op:
            case AddParts():
                self._add_parts(op)
            case Publish():
                self._publish(op)
            case DropRange():
                self._drop_range(op)
            case AddVolatile():
                self._add_volatile(op)
            case CancelVolatile(ids):
                self._cancel(ids)
            case AdoptVolatile(id, owner):
                self._adopt(id, owner)
            case RenewLease(node):
                lease = Lease(op.version, op.until_ms, op.address, op.token, op.disk)
                self._leases = {**self._leases, node: lease}
            case ReleaseLease(node):
                self._leases = _lacking(self._leases, node)
            case RowsUnchanged():
                pass
            case Mutation():
                self._mutate(op)
            case MarkMutated():
                self._mark_mutated(op)
            case MutationFailed():
                failure = MutationFailure(op.part, op.code, op.reason, self._timestamp_ms)
                failing = (replace(m, failure=failure) if m.version in op.mutations else m for m in self._mutations)
                self._mutations = tuple(failing)
            case FinishMutations(ids):
                self._finish(ids)
            case KillMutation(id):
                self._kill(id)
            case CreateTable(schema) | AlterMetadata(schema):
                self._own("_schemas")[schema.version] = schema
                self._schema_version = schema.version
                self._window = _window(schema)
                self._trim_hashes()
            case DropTable():
                self._drop_range(DropRange())
                self._take_from_detached(part.manifest.id for part in self._detached)
                self._mutations = ()
                self._dropped, self._dropped_version = True, self._version
            case UndropTable():
                # A dropped table keeps only the versions within its history, regardless of tags and leases.
                self._tags = {name: version for name, version in self._tags.items() if version >= self._history}
                self._tagged_partitions = {n: held for n, held in self._tagged_partitions.items() if n in self._tags}
                self._leases = {n: lease for n, lease in self._leases.items() if lease.version >= self._history}
                self._dropped, self._dropped_version = False, 0
            case DropParts():
                self._drop_parts(op)
            case DropDetached(ids):
                self._take_from_detached(ids)
            case Tag(name, version, partition_ids):
                self._tags = {**self._tags, name: version}
                if partition_ids is not None:
                    self._tagged_partitions = {**self._tagged_partitions, name: partition_ids}
            case Untag(name):
                self._tags = _lacking(self._tags, name)
                self._tagged_partitions = _lacking(self._tagged_partitions, name)
            case AddReference(holder, directories):
                self._holds = {**self._holds, holder: directories}
            case DropReference(holder):
                self._holds = _lacking(self._holds, holder)
            case AdvanceGcHorizon():
                self._collect(op)
            case MoveLog(sequencer):
                self._sequencer = Sequencer(sequencer, self._version)
            case Prepare():
                self._join(op)
            case _:
                raise CorruptDataError(f"A table's log holds {type(op).__name__}, which belongs into the catalog's")

    def freeze(self) -> State:
        """The state so far; the draft may be used further."""
        if self._thawed or self._appended:
            self._partitions = self._partitions.changed(
                self._thawed, self._gained, self._lost, self._version, self._appended
            )
            self._thawed, self._appended, self._gained, self._lost = {}, {}, [], []
        self._owned.clear()
        self._settle_retired()
        return State(
            version=self._version,
            timestamp_ms=self._timestamp_ms,
            schemas=self._schemas,
            schema_version=self._schema_version,
            dropped=self._dropped,
            dropped_version=self._dropped_version,
            block_counter=self._block_counter,
            rows_version=self._rows_version,
            partitions=self._partitions,
            floors=self._floors,
            floor=self._floor,
            drops=self._drops,
            drop=self._drop,
            holes=self._holes,
            firsts=self._firsts,
            tokens=self._tokens,
            hashes=self._hashes,
            retired=self._retired,
            volatile=self._volatile,
            mutations=self._mutations,
            detached=self._detached,
            tags=self._tags,
            tagged_partitions=self._tagged_partitions,
            holds=self._holds,
            leases=self._leases,
            fence=self._fence,
            history=self._history,
            sequencer=self._sequencer,
            written=self._written,
            joint=self._joint,
        )

    def _own(self, name: str) -> dict[Any, Any]:
        """A private copy of the mapping in attribute `name`, made at its first change."""
        if name not in self._owned:
            setattr(self, name, dict(getattr(self, name)))
            self._owned.add(name)
        held: dict[Any, Any] = getattr(self, name)
        return held

    def _settle_retired(self) -> None:
        if self._newly_retired:
            self._retired, self._newly_retired = self._retired.plus(self._newly_retired), []

    def _parts(self, partition_id: str) -> list[ActivePart]:
        parts = self._thawed.get(partition_id)
        if parts is None:
            parts = self._thawed[partition_id] = self._parts_in(partition_id)
            self._appended.pop(partition_id, None)
        return parts

    def _parts_in(self, partition_id: str) -> list[ActivePart]:
        """The parts of a partition, without thawing it; the list must not be changed."""
        if partition_id in self._thawed:
            return self._thawed[partition_id]
        return [*self._partitions.get(partition_id, ()), *self._appended.get(partition_id, ())]

    def _every_partition(self) -> list[str]:
        """All partition ids, sorted: the order of retirement is part of the state, and must be deterministic."""
        return sorted({*self._partitions, *self._thawed, *self._appended})

    def _append(self, partition_id: str, part: ActivePart) -> None:
        """Add a part after all others of its partition."""
        parts = self._thawed.get(partition_id)
        (self._appended.setdefault(partition_id, []) if parts is None else parts).append(part)

    def _activate(self, info: PartInfo, manifest: PartManifest) -> ActivePart:
        part = ActivePart(info, manifest, self._version, self._timestamp_ms)
        self._gained.append(part)
        return part

    def _leave(self, parts: Iterable[ActivePart], kind: str) -> None:
        """Parts are active no more: they are detached, or else retired."""
        if kind != "detach":
            for part in parts:
                self._retire(part)
            return
        gone: list[DetachedPart] = []
        for part in parts:
            self._lost.append(part)
            lacks = tuple(replace(m, failure=None) for m in lacking(self._mutations, part.info))
            gone.append(DetachedPart(part.info, part.manifest, self._version, self._timestamp_ms, lacks))
        self._detached = (*self._detached, *gone)

    def _retire(self, part: ActivePart) -> None:
        self._lost.append(part)
        self._remember(part.manifest, part.info, part.added, self._version, self._timestamp_ms)

    def _remember(self, m: PartManifest, info: PartInfo, added: int, retired: int, retired_ms: int) -> None:
        version = self._version
        gone = RetiredPart(m.id, info, m.rows, m.bytes_on_disk, added, retired, retired_ms, refers(m), version)
        self._newly_retired.append(gone)

    def _take_from_detached(self, ids: Iterable[str]) -> None:
        # Versions before the detachment may still be read. They show a part after `base_version` at the earliest.
        taken, left = {*ids}, list[DetachedPart]()
        for part in self._detached:
            m = part.manifest
            if m.id in taken:
                self._remember(m, part.info, m.base_version + 1, part.detached, part.detached_ms)
            else:
                left.append(part)
        self._detached = tuple(left)

    def _join(self, op: Prepare) -> None:
        """The share of a transaction: nothing if it was given up."""
        if op.decision is None:
            raise CorruptDataError(f"Nobody has decided transaction {op.transaction} of entry {self._version}")
        if op.decision.committed:
            # Later entries are not older than it, so what counts from when on has the order of the log.
            self._timestamp_ms = max(self._timestamp_ms, op.decision.timestamp_ms)
            for each in op.ops:
                self.apply(each)
            for name, version in op.decision.others:
                self._own("_joint")[name] = Joint(self._version, version, op.decision.timestamp_ms)

    def _add_parts(self, op: AddParts) -> None:
        for manifest in op.parts:
            self._block_counter += 1
            number = self._block_counter
            info = PartInfo(manifest.partition_id, number, number, manifest.level)
            if self._is_emptied(manifest.partition_id):
                self._own("_firsts")[manifest.partition_id] = number
            self._append(manifest.partition_id, self._activate(info, manifest))
        if op.detached:
            self._take_from_detached(op.detached)
        else:  # parts of other tables, too: they are merged here like inserted ones
            size = sum(manifest.bytes_on_disk for manifest in op.parts)
            self._written = replace(self._written, inserted=self._written.inserted + size)
        insert = RememberedInsert(self._version, tuple(dict.fromkeys(part.partition_id for part in op.parts)))
        if op.dedup_token:
            tokens = self._own("_tokens")
            tokens[op.dedup_token] = insert
            if len(tokens) > TOKENS_MAX:
                del tokens[next(iter(tokens))]
        elif op.dedup_hash and self._window:
            self._own("_hashes")[op.dedup_hash] = insert
            self._trim_hashes()

    def _is_emptied(self, partition_id: str) -> bool:
        """Whether a partition had parts, and all of them were dropped. Reads none."""
        if not (self._drop or partition_id in self._drops or partition_id in self._holes):
            return False
        held = self._thawed.get(partition_id)
        if held is not None:
            return not held
        return partition_id not in self._partitions and partition_id not in self._appended

    def _publish(self, op: Publish) -> None:
        partition_id = op.part.partition_id
        parts = self._parts(partition_id)
        places = positions(parts, op.replaced)
        if not places or places[-1] - places[0] != len(places) - 1:
            raise CorruptDataError(f"Entry {self._version} replaces parts that are not active side by side")
        sources = parts[places[0] : places[-1] + 1]
        for source in sources:
            self._retire(source)
        if op.volatile:
            info = self._live(op.volatile, partition_id).info
            self._remove_volatile(partition_id, lambda part: inside(part.info, info))
        else:
            infos = [source.info for source in sources]
            info = infos[0] if op.kind == "mutation" else merged_name(infos, self._holes.get(partition_id, ()))
        if op.mutations:
            # A source may have later ones, of which some were killed before the others had them.
            info = replace(info, mutation=max(info.mutation, op.mutations[-1]))
        size, written = op.part.bytes_on_disk, self._written
        if op.kind in ("direct", "volatile"):
            self._written = replace(written, merged=written.merged + size)
        elif op.kind in ("optimize", "ttl"):
            self._written = replace(written, requested=written.requested + size)
        self._close_holes(partition_id, info.max_block, info.min_block)
        parts[places[0] : places[-1] + 1] = [self._activate(info, op.part)]

    def _live(self, volatile_id: str, partition_id: str | None = None) -> VolatilePart:
        partitions = self._volatile.values() if partition_id is None else [self._volatile.get(partition_id, ())]
        volatile = next((part for held in partitions for part in held if part.id == volatile_id), None)
        if volatile is None:
            raise CorruptDataError(f"Entry {self._version} speaks of volatile part {volatile_id}, which is not Live")
        return volatile

    def _remove_volatile(self, partition_id: str, goes: Callable[[VolatilePart], bool]) -> None:
        if partition_id in self._volatile:
            left = tuple(part for part in self._volatile[partition_id] if not goes(part))
            self._set_volatile(partition_id, left)

    def _set_volatile(self, partition_id: str, parts: tuple[VolatilePart, ...]) -> None:
        held = self._own("_volatile")
        held[partition_id] = parts
        if not parts:
            del held[partition_id]

    def _add_volatile(self, op: AddVolatile) -> None:
        held = self._volatile.get(op.partition_id, ())
        elements = top_level(self._parts(op.partition_id), held)
        by_id = {element_id(element): element.info for element in elements}
        if not op.sources or not all(source in by_id for source in op.sources):
            raise CorruptDataError(f"Entry {self._version} merges what is not there")
        sources = tuple((source, by_id[source]) for source in op.sources)
        info = merged_name([info for _, info in sources], self._holes.get(op.partition_id, ()))
        lacks = pending(self._mutations, info)
        if lacks:  # its bytes have them: they are applied to the sources first
            info = replace(info, mutation=lacks[-1])
        part = VolatilePart(op.id, info, sources, op.recipe, op.owner, self._version, self._timestamp_ms)
        ordered = sorted((*held, part), key=lambda p: (p.info.min_block, -p.info.max_block))
        self._set_volatile(op.partition_id, tuple(ordered))

    def _cancel(self, ids: tuple[str, ...]) -> None:
        for info in [self._live(volatile_id).info for volatile_id in ids]:
            self._remove_volatile(info.partition_id, partial(_built_on, info))

    def _adopt(self, volatile_id: str, owner: str) -> None:
        partition_id = self._live(volatile_id).info.partition_id
        held = self._volatile[partition_id]
        self._set_volatile(partition_id, tuple(replace(p, owner=owner) if p.id == volatile_id else p for p in held))

    def _mutate(self, op: Mutation) -> None:
        self._block_counter += 1
        scope = [part for name in op.partition_ids or () for part in self._parts_in(name)] if op.only else []
        since = min((part.info.min_block for part in scope if part.manifest.id in op.only), default=0)
        new = PendingMutation(
            op.id,
            self._block_counter,
            op.commands,
            op.partition_ids,
            op.schema_version or self._schema_version,
            self._version,
            self._timestamp_ms,
            drops_rows=op.drops_rows,
            since=since,
        )
        forgotten = set[int]()
        if len(self._mutations) > FINISHED_MUTATIONS_TO_KEEP:  # otherwise no part needs to be read
            infos = [part.info for name in self._every_partition() for part in self._parts_in(name)]
            lacking = {version for info in infos for version in pending(self._mutations, info)}
            done = [m.version for m in self._mutations if m.version not in lacking]
            forgotten = set(done[:-FINISHED_MUTATIONS_TO_KEEP])
        self._mutations = (*(m for m in self._mutations if m.version not in forgotten), new)
        if not op.only and precedes_merges(self._schemas[self._schema_version].engine, op.drops_rows):
            # Rows that it deletes may have displaced others in these parts, say: it comes before their merge.
            for name in [*self._volatile] if op.partition_ids is None else op.partition_ids:
                self._remove_volatile(name, lambda part: True)

    def _kill(self, id: str) -> None:
        """Mark a mutation as killed, and remove the volatile parts that apply it to rows that lack it."""
        for killed in [m for m in self._mutations if m.id == id]:
            for name in [*self._volatile] if killed.partition_ids is None else killed.partition_ids:
                for info in [p.info for p in self._volatile.get(name, ()) if _applies(p, killed)]:
                    self._remove_volatile(name, partial(_built_on, info))
        self._mutations = tuple(
            replace(m, killed=True, commands=shortened(m.commands)) if m.id == id else m for m in self._mutations
        )

    def _mark_mutated(self, op: MarkMutated) -> None:
        parts = self._parts(op.partition_id)
        places = positions(parts, op.ids)
        if not places:
            raise CorruptDataError(f"Entry {self._version} marks parts that are not active")
        for at in places:
            part = parts[at]
            # Versions before this one show it under its old name; its bytes are those of the active part.
            old = replace(part.manifest, bytes_on_disk=0)
            self._lost.append(part)
            self._remember(old, part.info, part.added, self._version, self._timestamp_ms)
            marked = replace(part, info=replace(part.info, mutation=op.mutations[-1]), added=self._version)
            self._gained.append(marked)
            parts[at] = marked

    def _finish(self, ids: tuple[str, ...]) -> None:
        now_ms = self._timestamp_ms
        self._mutations = tuple(
            replace(m, finished_ms=now_ms, commands=shortened(m.commands)) if m.id in ids else m
            for m in self._mutations
        )

    def _collect(self, op: AdvanceGcHorizon) -> None:
        self._history = max(self._history, op.history)
        # Parts that the history forgets must not be added again: the fence refuses those `known_ids` no longer knows.
        self._fence = max(self._fence, op.base_version, self._history)
        self._settle_retired()
        pinned = pins(self._history, self._tags, self._leases, self._dropped)
        in_part = partial_versions(self._tags, self._tagged_partitions, self._leases)
        self._retired = self._retired.still_shown(self._history, pinned, in_part)
        if self._joint:
            self._joint = {name: joint for name, joint in self._joint.items() if joint.version >= self._history}
            self._owned.discard("_joint")

    def _drop_range(self, op: DropRange) -> None:
        bound = self._block_counter if op.max_block is None else op.max_block
        touched = [op.partition_id] if op.partition_id is not None else self._every_partition()
        for partition_id in touched:
            parts = self._parts(partition_id)
            end = bisect_right(parts, bound, key=lambda part: part.info.max_block)
            self._leave(parts[:end], op.kind)
            del parts[:end]
            self._remove_volatile(partition_id, lambda part: part.info.min_block <= bound)
        # The floor includes all of a hole that the last block lies in: a part that covers the floor covers the hole.
        floors = {name: self._end_of_holes(name, bound) for name in self._holes if op.partition_id in (None, name)}
        for partition_id, floor in floors.items():
            self._close_holes(partition_id, floor)
        if bound >= self._block_counter:
            self._forget(op)
        if op.partition_id is None:
            if bound > self._floor:
                self._floor, self._drop = bound, self._version
            self._floors = {name: floor for name, floor in self._floors.items() if floor > self._floor}
            self._drops = {name: version for name, version in self._drops.items() if name in self._floors}
            self._firsts = {name: first for name, first in self._firsts.items() if first > self._floor}
        else:
            floors.setdefault(op.partition_id, bound)
        for partition_id, floor in floors.items():
            if floor > max(self._floor, self._floors.get(partition_id, 0)):
                self._own("_floors")[partition_id] = floor
                self._own("_drops")[partition_id] = self._version
            if self._firsts.get(partition_id, floor + 1) <= floor:
                del self._own("_firsts")[partition_id]

    def _drop_parts(self, op: DropParts) -> None:
        parts = self._parts(op.partition_id)
        places = positions(parts, op.ids)
        if not places:
            raise CorruptDataError(f"Entry {self._version} drops parts that are not active")
        gone = [parts[at] for at in places]
        holes = [merged_name([part.info]) for part in gone]
        self._own("_holes")[op.partition_id] = (*self._holes.get(op.partition_id, ()), *holes)
        for at in reversed(places):
            del parts[at]
        self._leave(gone, op.kind)
        for part in gone:
            self._remove_volatile(op.partition_id, partial(_built_on, part.info))
            if op.kind == "expire":
                continue
            self._tokens = _without(self._tokens, op.partition_id, part)
            self._hashes = _without(self._hashes, op.partition_id, part)

    def _end_of_holes(self, partition_id: str, bound: int) -> int:
        """The last block of the hole that a block lies in; the block itself if it lies in none."""
        holes = self._holes[partition_id]
        return max((hole.max_block for hole in holes if hole.min_block <= bound < hole.max_block), default=bound)

    def _close_holes(self, partition_id: str, last: int, first: int = 0) -> None:
        """Remove the holes within the blocks `first` to `last`."""
        if partition_id in self._holes:
            holes = self._holes[partition_id]
            left = tuple(hole for hole in holes if not (first <= hole.min_block and hole.max_block <= last))
            held = self._own("_holes")
            held[partition_id] = left
            if not left:
                del held[partition_id]

    def _forget(self, op: DropRange) -> None:
        """Forget inserts whose rows are all gone: the same rows may be inserted again after a drop."""
        if op.partition_id is None:
            self._tokens = _left(self._tokens, op.remember, op.tokens)
            # Not trimmed here: the schema with the size of the window may follow in the same entry.
            self._hashes = _left(self._hashes, op.remember, op.hashes)
            return
        self._tokens = _without(self._tokens, op.partition_id)
        self._hashes = _without(self._hashes, op.partition_id)

    def _trim_hashes(self) -> None:
        excess = max(len(self._hashes) - self._window, 0)
        for name in [*islice(self._hashes, excess)]:
            del self._own("_hashes")[name]


def _built_on(info: PartInfo, part: VolatilePart) -> bool:
    return inside(info, part.info)


def _applies(part: VolatilePart, mutation: PendingMutation) -> bool:
    version = mutation.version
    return any(mutation.since <= info.data_version < version <= part.info.mutation for _, info in part.sources)


def _lacking(held: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in held.items() if key != name}


def _left(
    window: Mapping[str, RememberedInsert], remember: int | None, inserts: tuple[KnownInsert, ...] | None
) -> dict[str, RememberedInsert]:
    return known_until(window, remember or 0) if inserts is None else window_of(inserts)


def _without(
    inserts: Mapping[str, RememberedInsert], partition_id: str, part: ActivePart | None = None
) -> Mapping[str, RememberedInsert]:
    """Inserts, without `partition_id` in those whose rows are gone: all, or those that may have rows in `part`.

    An unmutated part of level 0 has the rows of one insert; any other may have those of all inserts up to it.
    """
    if not any(partition_id in insert.partition_ids for insert in inserts.values()):
        return inserts
    alone = part is not None and not part.info.level and not part.info.mutation
    out: dict[str, RememberedInsert] = {}
    for name, insert in inserts.items():
        if part is not None and (insert.version > part.added or (alone and insert.version < part.added)):
            out[name] = insert
            continue
        left = tuple(p for p in insert.partition_ids if p != partition_id)
        if left or not insert.partition_ids:
            out[name] = insert if len(left) == len(insert.partition_ids) else RememberedInsert(insert.version, left)
    return out


def _window(schema: TableSchema | None) -> int:
    if schema is None:
        return 0
    return TableSettings(schema.settings).integer("non_replicated_deduplication_window")
