"""Planning: the marks of a snapshot's parts that have to be read for a request.

1. Parts are excluded by conditions on their virtual columns (`_part`, `_partition_id`),
2. by the minima and maxima of the partition key's columns (*Min-Max*),
3. and by their partition value (*Partition*).
4. The primary index of the others selects granules that may hold matching rows (*PrimaryKey*). The index of a part
   that its first and last key already exclude is not fetched.
5. Skip indexes exclude more granules (*Skip*, `scan.prune.skip`).

Only steps 4 and 5 do I/O. The plan is a value: it pickles, holds no open resources, and any process can read its items
(`scan.read.read`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.engines.rules.modes import final_mode
from mergelake.expr.bound import BoundNode, EvaluationContext, columns_of
from mergelake.format.serializations.names import streams_by_column
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import PendingMutation
from mergelake.parts.read.ahead import open_parts
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.fetch import is_remote
from mergelake.parts.read.flight import Limits
from mergelake.parts.read.reader import PartReader
from mergelake.scan.prune.analyze import Key, analyze
from mergelake.scan.prune.by_key import parts_by_key
from mergelake.scan.prune.condition import Condition, is_never, is_useless
from mergelake.scan.prune.describe import describe
from mergelake.scan.prune.hyperrectangles import KeyConditionEvaluator, KeyTable
from mergelake.scan.prune.keys import ScanKeys, key_ends, minmax_columns, partition_values, scan_keys
from mergelake.scan.prune.predicate import bound_conjuncts, conjunction, requested_columns, split_by_key
from mergelake.scan.prune.prune import (
    MarkRange,
    mark_ranges,
    mark_ranges_of_parts,
    parts_by_minmax,
    parts_by_partition,
    search_algorithm,
)
from mergelake.scan.prune.request import VIRTUAL_COLUMNS, ScanRequest
from mergelake.scan.prune.skip import COMBINED, PartSkips, SkipPlan, skip_in_part, skip_plan
from mergelake.scan.read.source import of_part, open_part
from mergelake.store.interface.protocol import Store
from mergelake.store.metering.meter import Pool
from mergelake.table.handle.snapshot import Snapshot, without_merged
from mergelake.table.handle.volatile_choice import MergedPart, VolatileRead
from mergelake.table.pending.bound import bind_steps
from mergelake.table.volatile.volatile_reads import OwnerGone
from mergelake.table.volatile.volatile_store import volatile_store

_MANY_PARTS = 64
"""Minimum number of parts whose indexes are searched together."""


@dataclass(frozen=True, slots=True)
class ScanItem:
    """A part and the marks of it that have to be read."""

    info: PartInfo
    manifest: PartManifest
    ranges: tuple[MarkRange, ...]
    lacks: tuple[PendingMutation, ...] = ()
    """The mutations that are applied to the rows on reading."""
    merged: MergedPart | None = None
    """Of a volatile part: where its bytes are, and which parts are read if they cannot be had."""

    @property
    def marks(self) -> int:
        """Granules in the ranges."""
        return sum(end - begin for begin, end in self.ranges)

    @property
    def rows_estimate(self) -> int:
        """Estimated number of rows in the ranges."""
        return self.manifest.rows * self.marks // max(1, self.manifest.marks)


@dataclass(frozen=True, slots=True)
class IndexStep:
    """Parts and granules before and after one index: a block of EXPLAIN indexes = 1."""

    type: str
    """`Min-Max`, `Partition`, `PrimaryKey`, `Skip`."""
    keys: tuple[str, ...]
    condition: str
    parts: int
    parts_total: int
    granules: int
    granules_total: int
    algorithm: str = ""
    name: str = ""
    """Of a skip index."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The marks to read and the conditions to filter their rows by."""

    version: int
    """Of the snapshot."""
    schema: TableSchema
    columns: tuple[str, ...]
    """Columns of the result."""
    request: ScanRequest
    items: tuple[ScanItem, ...]
    steps: tuple[IndexStep, ...] = ()
    column_bytes: Mapping[str, int] = field(default_factory=dict)
    """Estimated bytes by column: decide which condition is evaluated first."""
    volatile: tuple[VolatileRead, ...] = ()
    """What is read of Live volatile parts, and why."""
    pruned_by: ScanRequest | None = None
    """The request by which parts and marks were chosen, if it has more conditions than `request`."""
    schemas: Mapping[int, TableSchema] = field(default_factory=dict)
    """The older schemas, by version, with which some parts were written."""

    @property
    def marks(self) -> int:
        """Granules to read."""
        return sum(item.marks for item in self.items)

    @property
    def ranges(self) -> int:
        """Ranges of marks to read."""
        return sum(len(item.ranges) for item in self.items)

    @property
    def rows_estimate(self) -> int:
        """Estimated number of rows to read."""
        return sum(item.rows_estimate for item in self.items)

    def with_items(self, items: Sequence[ScanItem]) -> ScanPlan:
        """The plan for some of its items: the share of one task."""
        return replace(self, items=tuple(items))


def plan_scan(
    store: Store,
    directory: str,
    snapshot: Snapshot,
    request: ScanRequest,
    caches: PartCache | None = None,
    *,
    count_steps: bool = True,
) -> ScanPlan:
    """Decide what a scan of `snapshot` reads. Fetches primary indexes that are needed and not in `caches`.

    A volatile part of the snapshot whose index its node does not send is replaced by its sources.

    `count_steps=False` leaves out `ScanPlan.steps` (for EXPLAIN); the items are the same, but parts of partitions that
    cannot match are not looked at.

    Raises NO_SUCH_COLUMN_IN_TABLE, ILLEGAL_FINAL, SAMPLING_NOT_SUPPORTED, and the errors of binding the conditions.
    """
    store = volatile_store(store, directory, snapshot.merged)
    while True:
        try:
            return _plan(store, directory, snapshot, request, caches, count_steps=count_steps)
        except OwnerGone as gone:
            snapshot = without_merged(snapshot, (gone.id,), gone.why)


def _plan(
    store: Store,
    directory: str,
    snapshot: Snapshot,
    request: ScanRequest,
    caches: PartCache | None,
    *,
    count_steps: bool,
) -> ScanPlan:
    schema = snapshot.schema
    columns = requested_columns(request, schema)
    if request.final:
        final_mode(schema)
    first, rest = bound_conjuncts(request, schema)
    pieces = (*first, *rest)
    keys = scan_keys(schema)
    predicate = _pruning_predicate(request, schema, pieces)
    candidates = snapshot.parts if count_steps else _candidates(snapshot, predicate, keys)
    parts = [part for part in candidates if part.manifest.rows > 0]
    parts = _by_virtual_columns(parts, pieces, schema)
    steps: list[IndexStep] = []
    items: tuple[ScanItem, ...] = ()
    condition = analyze(predicate, keys.primary)
    if not (keys.primary.nodes and is_never(condition)):
        if keys.partition.nodes:
            parts = _partition_steps(parts, predicate, keys, steps)
        read = [*columns, *(name for piece in pieces for name in columns_of(piece))]
        named = [name for name in dict.fromkeys(read) if schema.has(name)]
        search = _IndexSearch(store, directory, snapshot, predicate, caches)
        items = search.primary(condition, parts, keys, named, steps)
        if items and schema.indices:
            items = search.skip(items, steps if count_steps else None)
    sizes: Mapping[str, int] = {}
    if pieces and items:  # sizes only decide the order of conditions
        largest = max((item.manifest for item in items), key=lambda manifest: manifest.rows)
        sizes = column_bytes(open_part(store, directory, largest, schema, caches, snapshot.schemas), schema)
    counted = tuple(steps) if count_steps else ()
    versions = {item.manifest.schema_version for item in items} - {schema.version}
    older = {version: snapshot.schemas[version] for version in versions if version in snapshot.schemas}
    return ScanPlan(snapshot.version, schema, columns, request, items, counted, sizes, snapshot.volatile, schemas=older)


def partitions_that_fit(snapshot: Snapshot, request: ScanRequest) -> Sequence[str]:
    """Ids of the partitions that a scan may read, by the partitions' values alone: without requests."""
    first, rest = bound_conjuncts(request, snapshot.schema)
    return _in_partitions(
        snapshot, _pruning_predicate(request, snapshot.schema, (*first, *rest)), scan_keys(snapshot.schema)
    )


def _pruning_predicate(request: ScanRequest, schema: TableSchema, pieces: tuple[BoundNode, ...]) -> BoundNode | None:
    """The conjunction of those conditions in `pieces` that parts may be excluded by."""
    # FINAL: a part that holds no match of another condition may hold the row that replaces a match, so it is read.
    if request.final:
        return conjunction(split_by_key(pieces, scan_keys(schema, whole=True).primary.nodes)[0])
    return conjunction(pieces)


def _candidates(snapshot: Snapshot, predicate: BoundNode | None, keys: ScanKeys) -> Iterable[ActivePart]:
    """The parts that partition values do not exclude, nor, if there are many parts, their first and last keys."""
    partitions, names = snapshot.partitions, _in_partitions(snapshot, predicate, keys)
    count = (
        partitions.totals.parts if len(names) == len(partitions) else sum(len(partitions.held(name)) for name in names)
    )
    if count >= _MANY_PARTS and keys.primary.nodes:
        condition = analyze(predicate, keys.primary)
        if not is_useless(condition):
            return parts_by_key(partitions, names, condition, keys)
    if len(names) == len(partitions):
        every: tuple[ActivePart, ...] = snapshot.parts
        return every
    partitions.read(names)
    return [part for name in names for part in partitions[name]]


def _in_partitions(snapshot: Snapshot, predicate: BoundNode | None, keys: ScanKeys) -> Sequence[str]:
    """Ids, ascending, of the partitions whose value may match."""
    partitions = snapshot.partitions
    condition = analyze(predicate, keys.partition) if keys.partition.nodes and partitions else None
    if condition is None or is_useless(condition):
        return tuple(partitions)

    def values() -> tuple[list[str], tuple[pa.Array, ...]]:
        names = list(partitions)
        return names, partition_values([partitions.partition_value(name) for name in names], keys)

    names, values_of = partitions.remembered((keys.partition_types, keys.partition.types), values)
    fits = parts_by_partition(condition, values_of, keys.partition.types)
    return [names[at] for at in np.flatnonzero(fits).tolist()]


def column_bytes(reader: PartReader, schema: TableSchema) -> dict[str, int]:
    """Stored bytes of each column in a part, from its file table: without requests."""

    def load() -> tuple[dict[str, int], int]:
        files = reader.files
        streams = streams_by_column(files, schema.names)
        sizes = {name: sum(files[f"{stream}.bin"].size for stream in own) for name, own in streams.items()}
        return sizes, 200 * len(sizes)

    return reader.caches.get_or((*reader.cache_key, "sizes", schema.version), load)


def _by_virtual_columns(parts: list[ActivePart], pieces: Sequence[BoundNode], schema: TableSchema) -> list[ActivePart]:
    """The parts that pass the conjuncts on `_part` and `_partition_id` alone, unless the table has such columns."""
    virtual = {"_part", "_partition_id"}.difference(schema.names)
    wanted = [p for p in pieces if columns_of(p) and set(columns_of(p)) <= virtual]
    if not wanted or not parts:
        return parts
    block = pa.table(
        {
            "_part": pa.array([str(part.info).encode() for part in parts], pa.binary()).dictionary_encode(),
            "_partition_id": pa.array([p.info.partition_id.encode() for p in parts], pa.binary()).dictionary_encode(),
        }
    )
    context = EvaluationContext.of_block(block, VIRTUAL_COLUMNS)
    keep = np.ones(len(parts), dtype=bool)
    for piece in wanted:
        keep &= context.mask(piece)
    return [part for part, fits in zip(parts, keep, strict=True) if fits]


def _partition_steps(
    parts: list[ActivePart], predicate: BoundNode | None, keys: ScanKeys, steps: list[IndexStep]
) -> list[ActivePart]:
    for name, key in (("Min-Max", keys.minmax), ("Partition", keys.partition)):
        condition = analyze(predicate, key)
        kept = parts
        if parts and not is_useless(condition):
            if name == "Min-Max":
                low, high = minmax_columns(parts, keys)
                fits = parts_by_minmax(condition, low, high, key.types)
            else:
                values = partition_values([part.manifest.partition for part in parts], keys)
                fits = parts_by_partition(condition, values, key.types)
            kept = [part for part, fit in zip(parts, fits, strict=True) if fit]
        steps.append(_step(name, condition, key, kept, parts))
        parts = kept
    return parts


def _step(name: str, condition: Condition, key: Key, kept: list[ActivePart], parts: list[ActivePart]) -> IndexStep:
    text, used = describe(condition, key.names)
    granules, total = (sum(part.manifest.marks for part in some) for some in (kept, parts))
    return IndexStep(name, used, text, len(kept), len(parts), granules, total)


@dataclass(frozen=True, slots=True)
class _IndexSearch:
    """Selects marks by the indexes of parts, for one predicate."""

    store: Store
    directory: str
    snapshot: Snapshot
    predicate: BoundNode | None
    caches: PartCache | None

    def primary(
        self,
        condition: Condition,
        parts: list[ActivePart],
        keys: ScanKeys,
        columns: Sequence[str],
        steps: list[IndexStep],
    ) -> tuple[ScanItem, ...]:
        """Select marks by the primary index and append its step to `steps`.

        `condition` is the predicate's on the primary key. `columns` will be read from the selected marks: what they
        need is prefetched from a far store.
        """
        key = keys.primary
        if not key.nodes or is_useless(condition) or not parts:
            items = [self._item(part) for part in parts]
        else:
            items = self._search(parts, condition, keys, columns)
        if key.nodes:
            text, used = describe(condition, key.names)
            marks, total = sum(item.marks for item in items), sum(part.manifest.marks for part in parts)
            algorithm = search_algorithm(condition, len(key.nodes)) if parts else ""
            steps.append(IndexStep("PrimaryKey", used, text, len(items), len(parts), marks, total, algorithm))
        return tuple(items)

    def _search(
        self, parts: list[ActivePart], condition: Condition, keys: ScanKeys, columns: Sequence[str]
    ) -> list[ScanItem]:
        """The items of parts that may match, by their primary indexes."""
        types = keys.primary.types
        # Adopted parts whose last key is not known are read whole.
        unjudged = [self._item(part) for part in parts if not part.manifest.key_range[1]]
        parts = [part for part in parts if part.manifest.key_range[1]]
        first, last = key_ends(parts, keys)
        ends = [pa.concat_arrays([a, b]) for a, b in zip(first, last, strict=True)]
        rows = np.arange(len(parts))
        alive = KeyConditionEvaluator(condition, KeyTable(ends, types, keys.descending)).ranges(
            rows, rows + len(parts)
        )[0]
        bounded = keys.bounded
        limits = minmax_columns(parts, keys) if bounded else ([], [])

        readers: dict[int, PartReader] = {}

        def load(i: int) -> list[pa.Array]:
            part = parts[i]
            if part.manifest.marks == 1:
                return [pa.concat_arrays([a.slice(i, 1), b.slice(i, 1)]) for a, b in zip(first, last, strict=True)]
            with of_part(part.info):
                reader = readers.get(i) or self._open(part.manifest)
                index = reader.primary_index(types)
            if len(index[0]) == part.manifest.marks:  # written without a final mark
                return [pa.concat_arrays([a, b.slice(i, 1)]) for a, b in zip(index, last, strict=True)]
            return list(index)

        marks = np.array([part.manifest.marks for part in parts])
        # A part of one granule has no keys but its ends, which `alive` has tested, unless minima and maxima are known.
        single = np.flatnonzero(alive & (marks == 1)) if not bounded else rows[:0]
        wanted = np.setdiff1d(np.flatnonzero(alive), single, assume_unique=True)
        opened = wanted[marks[wanted] > 1].tolist()
        if is_remote(self.store) and opened:
            readers = {i: self._open(parts[i].manifest) for i in opened}
            # Selected marks are read next: with a cache, what their columns need is fetched in the same round.
            open_parts(list(readers.values()), columns if self.caches is not None else (), key=types)
        if len(opened) < 3 or readers:
            indexes = [load(i) for i in wanted.tolist()]
        else:
            with Pool(min(len(wanted), 4 * (os.cpu_count() or 1)), "mergelake-plan") as pool:
                indexes = list(pool.map(load, wanted.tolist()))
        if len(wanted) < _MANY_PARTS:
            part_ranges = []
            for i, index in zip(wanted.tolist(), indexes, strict=True):
                keys_of = KeyTable(index, types, keys.descending, _bounds(limits, bounded, np.array([i])))
                part_ranges.append(mark_ranges(keys_of, condition))
        else:
            part_ranges = mark_ranges_of_parts(
                indexes, condition, types, keys.descending, _bounds(limits, bounded, wanted)
            )
        ranges = [*zip(single, [((0, 1),)] * len(single), strict=True), *zip(wanted, part_ranges, strict=True)]
        judged = [replace(self._item(parts[i]), ranges=r) for i, r in ranges if r]
        return sorted(unjudged + judged, key=lambda item: item.info)

    def skip(self, items: tuple[ScanItem, ...], steps: list[IndexStep] | None) -> tuple[ScanItem, ...]:
        """Select marks of the items by the skip indexes, and append their steps to `steps`."""
        schema = self.snapshot.schema
        plan = skip_plan(schema, self.predicate)
        if plan is None:
            return items

        def skips_of(item: ScanItem) -> PartSkips:
            with of_part(item.info):
                reader = self._open(item.manifest)
                order = plan.order(reader)
                steps = bind_steps(item.lacks, schema, item.info.partition_id)
                if steps is not None:  # an index does not know values that are updated on reading
                    touched = steps.touched
                    fits = [not touched.isdisjoint(plan.indexes[i].index.columns) for i in order]
                    if any(fits) and plan.combines:
                        return PartSkips([], item.ranges)
                    order = [i for i, unfit in zip(order, fits, strict=True) if not unfit]
                return skip_in_part(reader, plan, item.ranges, order)

        if len(items) < 3:
            part_skips = [skips_of(item) for item in items]
        else:
            threads = Limits.of(self.store).requests if is_remote(self.store) else 4 * (os.cpu_count() or 1)
            with Pool(min(len(items), threads), "mergelake-plan") as pool:
                part_skips = list(pool.map(skips_of, items))
        if steps is not None:
            self._count_skips(items, plan, part_skips, steps)
        skipped = zip(items, part_skips, strict=True)
        return tuple(replace(item, ranges=skips.final) for item, skips in skipped if skips.final)

    def _count_skips(
        self, items: tuple[ScanItem, ...], plan: SkipPlan, part_skips: Sequence[PartSkips], steps: list[IndexStep]
    ) -> None:
        """Append a step for each index. As in ClickHouse, the n-th step counts the n-th index of each part."""
        first = next(part for part in self.snapshot.parts if part.manifest.rows > 0)
        named = plan.order(self._open(first.manifest))
        before = [item.ranges for item in items]
        for slot, i in enumerate(named):
            remaining = [skips.left[slot] if slot < len(skips.left) else () for skips in part_skips]
            useful = plan.indexes[i]
            steps.append(_skip_counts(useful.shown, useful.index.name, useful.description, remaining, before))
            before = remaining
        if plan.combines:
            final = [skips.final for skips in part_skips]
            step = _skip_counts("", COMBINED, "Final set of granules after AND/OR processing", final, before)
            steps.append(replace(step, parts=len(items)))  # ClickHouse does not count parts again

    def _item(self, part: ActivePart) -> ScanItem:
        """The whole of a part."""
        manifest = part.manifest
        merged = part if isinstance(part, MergedPart) else None
        return ScanItem(part.info, manifest, ((0, manifest.marks),), self.snapshot.lacking(part.info), merged)

    def _open(self, manifest: PartManifest) -> PartReader:
        snapshot = self.snapshot
        return open_part(self.store, self.directory, manifest, snapshot.schema, self.caches, snapshot.schemas)


def _skip_counts(
    condition: str,
    name: str,
    description: str,
    left: Sequence[tuple[MarkRange, ...]],
    before: Sequence[tuple[MarkRange, ...]],
) -> IndexStep:
    parts, total = (sum(1 for ranges in some if ranges) for some in (left, before))
    granules, marks = (sum(e - b for ranges in some for b, e in ranges) for some in (left, before))
    return IndexStep("Skip", (), condition, parts, total, granules, marks, name=name, description=description)


def _bounds(
    limits: tuple[list[pa.Array], list[pa.Array]], bounded: Mapping[int, int], parts: NDArray[np.int64]
) -> dict[int, pa.Array]:
    """Minima, then maxima, of `parts`, by those key columns for which manifests have them."""
    rows = pa.array(parts)
    return {k: pa.concat_arrays([limits[0][m].take(rows), limits[1][m].take(rows)]) for k, m in bounded.items()}
