"""From a snapshot and a request to the marks that have to be read.

1. parts whose virtual columns (`_part`, `_partition_id`) do not fit go;
2. parts go whose minima and maxima of the partition's columns do not fit (*Min-Max*);
3. parts go whose partition value does not fit (*Partition*);
4. the primary index of the others tells which granules may hold matching rows (*PrimaryKey*). Parts whose
   first and last key already exclude them are not asked, so their index is not fetched;
5. skip indexes that the conditions say something to drop more of them (*Skip*, `scan.skip`).

Only steps 4 and 5 do I/O. The plan is a value: it pickles, holds nothing that is open, and any process can read its
items (`scan.read`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.errors import error
from mergelake.core.manifest import PartManifest
from mergelake.core.names import PartInfo
from mergelake.core.schema import TableSchema
from mergelake.expr.bound import BoundNode, columns_of
from mergelake.expr.evaluate import Context
from mergelake.format.names import streams_by_column
from mergelake.log.state import ActivePart
from mergelake.order.replacing import replacing_mode
from mergelake.parts.ahead import open_parts
from mergelake.parts.cache import PartCache
from mergelake.parts.fetch import is_remote
from mergelake.parts.flight import Limits
from mergelake.parts.reader import PartReader
from mergelake.scan.analyze import Key, analyze
from mergelake.scan.by_key import parts_by_key
from mergelake.scan.condition import Condition, is_never, is_useless
from mergelake.scan.describe import describe
from mergelake.scan.hyperrectangles import KeyConditionEvaluator, KeyTable
from mergelake.scan.keys import ScanKeys, key_ends, minmax_columns, partition_values, scan_keys
from mergelake.scan.predicate import bound_conjuncts, conjunction, requested_columns, split_by_key
from mergelake.scan.prune import (
    MarkRange,
    mark_ranges,
    mark_ranges_of_parts,
    parts_by_minmax,
    parts_by_partition,
    search_algorithm,
)
from mergelake.scan.request import VIRTUAL_COLUMNS, ScanRequest
from mergelake.scan.skip import COMBINED, PartSkips, SkipPlan, skip_in_part, skip_plan
from mergelake.scan.source import of_part, open_part
from mergelake.store.protocol import Store
from mergelake.table.handle import Snapshot

_MANY_PARTS = 64
"""From so many parts on their indexes are searched together."""


@dataclass(frozen=True, slots=True)
class ScanItem:
    """A part and the marks of it that have to be read."""

    info: PartInfo
    manifest: PartManifest
    ranges: tuple[MarkRange, ...]

    @property
    def marks(self) -> int:
        """Granules in the ranges."""
        return sum(end - begin for begin, end in self.ranges)

    @property
    def rows_estimate(self) -> int:
        """About how many rows the ranges hold."""
        return self.manifest.rows * self.marks // max(1, self.manifest.marks)


@dataclass(frozen=True, slots=True)
class IndexStep:
    """What one index left over: a block of EXPLAIN indexes = 1."""

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
    """What to read and how to filter it."""

    version: int
    """Of the snapshot."""
    schema: TableSchema
    columns: tuple[str, ...]
    """Columns of the result."""
    request: ScanRequest
    items: tuple[ScanItem, ...]
    steps: tuple[IndexStep, ...] = ()
    column_bytes: Mapping[str, int] = field(default_factory=dict)
    """About how many bytes a column takes: decides which condition runs first."""

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
        """About how many rows will be looked at."""
        return sum(item.rows_estimate for item in self.items)

    def with_items(self, items: Sequence[ScanItem]) -> ScanPlan:
        """The same plan over some of its items, as one task gets it."""
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

    `count_steps=False`: who does not ask what each index left over (`ScanPlan.steps`, EXPLAIN) gets the same items, and
    only the parts of partitions that fit are looked at.

    Raises NO_SUCH_COLUMN_IN_TABLE, what binding the conditions raises, ILLEGAL_FINAL, SAMPLING_NOT_SUPPORTED.
    """
    schema = snapshot.schema
    columns = requested_columns(request, schema)
    if request.final and replacing_mode(schema) is None:
        raise error("ILLEGAL_FINAL", f"Storage {schema.engine} does not support FINAL", "Leave out FINAL")
    first, rest = bound_conjuncts(request, schema)
    pieces = (*first, *rest)
    keys = scan_keys(schema)
    predicate = _judged(request, schema, pieces)
    candidates = snapshot.parts if count_steps else _candidates(snapshot, predicate, keys)
    parts = [part for part in candidates if part.manifest.rows > 0]
    parts = _by_virtual_columns(parts, (*first, *rest), schema)
    steps: list[IndexStep] = []
    items: tuple[ScanItem, ...] = ()
    if not (keys.primary.nodes and is_never(analyze(predicate, keys.primary))):
        if keys.partition.nodes:
            parts = _partition_steps(parts, predicate, keys, steps)
        read = [*columns, *(name for piece in (*first, *rest) for name in columns_of(piece))]
        named = [name for name in dict.fromkeys(read) if schema.has(name)]
        search = _IndexSearch(store, directory, snapshot, predicate, caches)
        items = search.primary(parts, keys, named, steps)
        if items and schema.indices:
            items = search.skip(items, steps if count_steps else None)
    sizes: Mapping[str, int] = {}
    if pieces and items:  # else there is no order of conditions to decide
        largest = max((item.manifest for item in items), key=lambda manifest: manifest.rows)
        sizes = column_bytes(open_part(store, directory, largest, schema, caches), schema)
    counted = tuple(steps) if count_steps else ()
    return ScanPlan(snapshot.version, schema, columns, request, items, counted, sizes)


def partitions_that_fit(snapshot: Snapshot, request: ScanRequest) -> Sequence[str]:
    """Ids of the partitions that a scan would read parts of, by their values alone: no request, no look at parts."""
    first, rest = bound_conjuncts(request, snapshot.schema)
    return _in_partitions(snapshot, _judged(request, snapshot.schema, (*first, *rest)), scan_keys(snapshot.schema))


def _judged(request: ScanRequest, schema: TableSchema, pieces: tuple[BoundNode, ...]) -> BoundNode | None:
    """The conditions by which parts may be left out, of all of them (`pieces`)."""
    if request.final:  # what else it asks may hold for a row that is replaced by one for which it does not
        return conjunction(split_by_key(pieces, scan_keys(schema, whole=True).primary.nodes)[0])
    return conjunction(pieces)


def _candidates(snapshot: Snapshot, predicate: BoundNode | None, keys: ScanKeys) -> Iterable[ActivePart]:
    """The parts that partition values, and for many parts their first and last keys, leave."""
    held, names = snapshot.partitions, _in_partitions(snapshot, predicate, keys)
    count = held.totals.parts if len(names) == len(held) else sum(len(held.held(name)) for name in names)
    if count >= _MANY_PARTS and keys.primary.nodes:
        condition = analyze(predicate, keys.primary)
        if not is_useless(condition):
            return parts_by_key(held, names, condition, keys)
    if len(names) == len(held):
        every: tuple[ActivePart, ...] = snapshot.parts
        return every
    held.read(names)
    return [part for name in names for part in held[name]]


def _in_partitions(snapshot: Snapshot, predicate: BoundNode | None, keys: ScanKeys) -> Sequence[str]:
    """The partitions whose value fits: all parts of one have the same. In order of their ids."""
    held = snapshot.partitions
    condition = analyze(predicate, keys.partition) if keys.partition.nodes and held else None
    if condition is None or is_useless(condition):
        return tuple(held)

    def values() -> tuple[list[str], tuple[pa.Array, ...]]:
        names = list(held)
        return names, partition_values([held.partition_value(name) for name in names], keys)

    names, known = held.remembered((keys.partition_types, keys.partition.types), values)
    fits = parts_by_partition(condition, known, keys.partition.types)
    return [names[at] for at in np.flatnonzero(fits).tolist()]


def column_bytes(reader: PartReader, schema: TableSchema) -> dict[str, int]:
    """Bytes that each column takes in a part, from its file table; its objects are not asked."""

    def load() -> tuple[dict[str, int], int]:
        files = reader.files
        streams = streams_by_column(files, schema.names)
        sizes = {name: sum(files[f"{stream}.bin"].size for stream in own) for name, own in streams.items()}
        return sizes, 200 * len(sizes)

    return reader.caches.get_or((*reader.cache_key, "sizes", schema.version), load)


def _by_virtual_columns(parts: list[ActivePart], pieces: Sequence[BoundNode], schema: TableSchema) -> list[ActivePart]:
    """Parts whose name and partition fit the conjuncts that ask for nothing else; a column of that name hides them."""
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
    context = Context.of_block(block, VIRTUAL_COLUMNS)
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
            kept = [part for part, yes in zip(parts, fits, strict=True) if yes]
        steps.append(_step(name, condition, key, kept, parts))
        parts = kept
    return parts


def _step(name: str, condition: Condition, key: Key, kept: list[ActivePart], parts: list[ActivePart]) -> IndexStep:
    text, used = describe(condition, key.names)
    granules, total = (sum(part.manifest.marks for part in some) for some in (kept, parts))
    return IndexStep(name, used, text, len(kept), len(parts), granules, total)


@dataclass(frozen=True, slots=True)
class _IndexSearch:
    """Which marks the indexes of parts leave over, for one predicate."""

    store: Store
    directory: str
    snapshot: Snapshot
    predicate: BoundNode | None
    caches: PartCache | None

    def primary(
        self, parts: list[ActivePart], keys: ScanKeys, columns: Sequence[str], steps: list[IndexStep]
    ) -> tuple[ScanItem, ...]:
        """What the primary index leaves of the parts, counted in `steps`; `columns` will be read of them."""
        key = keys.primary
        condition = analyze(self.predicate, key)
        if not key.nodes or is_useless(condition) or not parts:
            items = [ScanItem(p.info, p.manifest, ((0, p.manifest.marks),)) for p in parts]
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
        """The items of parts that may match, after looking into their primary indexes."""
        types = keys.primary.types
        # Adopted parts whose last key nobody knows are read whole.
        unjudged = [
            ScanItem(p.info, p.manifest, ((0, p.manifest.marks),)) for p in parts if not p.manifest.key_range[1]
        ]
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
        # Of a part of one granule the ends are all there is, and have been asked, unless more is known of its keys.
        told = np.flatnonzero(alive & (marks == 1)) if not bounded else rows[:0]
        wanted = np.setdiff1d(np.flatnonzero(alive), told, assume_unique=True)
        asked = wanted[marks[wanted] > 1].tolist()
        if is_remote(self.store) and asked:
            readers = {i: self._open(parts[i].manifest) for i in asked}
            # What passes is read next: what its columns need comes in the same round, where it can be kept.
            open_parts(list(readers.values()), columns if self.caches is not None else (), key=types)
        if len(asked) < 3 or readers:
            indexes = [load(i) for i in wanted.tolist()]
        else:
            with ThreadPoolExecutor(min(len(wanted), 4 * (os.cpu_count() or 1)), "mergelake-plan") as pool:
                indexes = list(pool.map(load, wanted.tolist()))
        if len(wanted) < _MANY_PARTS:
            found = []
            for i, index in zip(wanted.tolist(), indexes, strict=True):
                keys_of = KeyTable(index, types, keys.descending, _bounds(limits, bounded, np.array([i])))
                found.append(mark_ranges(keys_of, condition))
        else:
            found = mark_ranges_of_parts(indexes, condition, types, keys.descending, _bounds(limits, bounded, wanted))
        ranges = [*zip(told, [((0, 1),)] * len(told), strict=True), *zip(wanted, found, strict=True)]
        judged = [ScanItem(parts[i].info, parts[i].manifest, r) for i, r in ranges if r]
        return sorted(unjudged + judged, key=lambda item: item.info)

    def skip(self, items: tuple[ScanItem, ...], steps: list[IndexStep] | None) -> tuple[ScanItem, ...]:
        """What skip indexes leave of the items, counted in `steps` where that is asked for."""
        plan = skip_plan(self.snapshot.schema, self.predicate)
        if plan is None:
            return items

        def ask(item: ScanItem) -> PartSkips:
            with of_part(item.info):
                reader = self._open(item.manifest)
                return skip_in_part(reader, plan, item.ranges, plan.order(reader))

        if len(items) < 3:
            found = [ask(item) for item in items]
        else:
            threads = Limits.of(self.store).requests if is_remote(self.store) else 4 * (os.cpu_count() or 1)
            with ThreadPoolExecutor(min(len(items), threads), "mergelake-plan") as pool:
                found = list(pool.map(ask, items))
        if steps is not None:
            self._count_skips(items, plan, found, steps)
        left = zip(items, found, strict=True)
        return tuple(replace(item, ranges=skips.final) for item, skips in left if skips.final)

    def _count_skips(
        self, items: tuple[ScanItem, ...], plan: SkipPlan, found: Sequence[PartSkips], steps: list[IndexStep]
    ) -> None:
        """As for ClickHouse the n-th step counts what each part's n-th index did."""
        first = next(part for part in self.snapshot.parts if part.manifest.rows > 0)
        named = plan.order(self._open(first.manifest))
        before = [item.ranges for item in items]
        for slot, i in enumerate(named):
            asked = [skips.left[slot] if slot < len(skips.left) else () for skips in found]
            useful = plan.indexes[i]
            steps.append(_skip_counts(useful.shown, useful.index.name, useful.description, asked, before))
            before = asked
        if plan.combines:
            final = [skips.final for skips in found]
            step = _skip_counts("", COMBINED, "Final set of granules after AND/OR processing", final, before)
            steps.append(replace(step, parts=len(items)))  # it does not count again

    def _open(self, manifest: PartManifest) -> PartReader:
        return open_part(self.store, self.directory, manifest, self.snapshot.schema, self.caches)


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
    """Minima, then maxima, of the key columns for which the manifests of `parts` have them."""
    rows = pa.array(parts)
    return {k: pa.concat_arrays([limits[0][m].take(rows), limits[1][m].take(rows)]) for k, m in bounded.items()}
