"""Reading by ranges of keys over all parts: SELECT … FINAL, the rows that would be left if all parts were merged now,
and rows in the order of the sorting key.

1. Parts are grouped by overlap of their key ranges; a group is cut at marks into *layers*, disjoint ranges of
   keys of about `LAYER_ROWS` rows. Rows with one key lie in one layer, so layers are independent: each is one
   task, and memory is bounded by a few of them.
2. In a layer the key columns of each part are read (and what the engine compares), conditions that look at
   nothing but the sorting key drop rows early: they say the same of all rows of a key.
3. All rows are put in the order (key, part, row) and the engine's rule tells which ones stay.
4. Only then the other conditions run, and the other columns are read, for the granules with survivors.

Rows come out part by part, each in the order of its part. As in ClickHouse, partitions are merged with each
other. An ordered read has the same layers, smaller where rows are wide, skips step 3 unless it is FINAL too, and sorts
each layer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.arrow import storage_type
from mergelake.core.cancel import Cancel
from mergelake.core.types import DataType, is_nullable
from mergelake.expr.bound import BoundNode, columns_of
from mergelake.parts.cache import PartCache
from mergelake.scan.filter import Survivors
from mergelake.scan.keys import decode_keys, scan_keys
from mergelake.scan.ordered import Value, orderable, ordered
from mergelake.scan.plan import ScanItem, ScanPlan
from mergelake.scan.predicate import all_types, bound_conjuncts, split_by_key
from mergelake.scan.prewhere import FilterStep, filter_steps
from mergelake.scan.prune import MarkRange
from mergelake.scan.source import Arrays, PartSource, evaluate, joined, of_part, open_part
from mergelake.scan.stats import ScanStats
from mergelake.store.protocol import Store
from mergelake.table.key_words import key_words, same_as_previous
from mergelake.table.replacing import final_rows, replacing_mode
from mergelake.table.sorting import sort_order

LAYER_ROWS = 1 << 20
"""Rows of one layer, about."""
LAYER_BYTES = 64 << 20
"""Bytes of one layer of an ordered read, about: all its rows are held at once."""

Point = tuple[Value | None, ...]
"""A primary key."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Rows of some items whose primary key is at least `low` and below `high` (None: no limit)."""

    items: tuple[ScanItem, ...]
    low: Point | None = None
    high: Point | None = None


class _Layers:
    """One read: the plan with everything that its layers share."""

    def __init__(
        self, store: Store, directory: str, plan: ScanPlan, caches: PartCache, stats: ScanStats, cancel: Cancel | None
    ) -> None:
        self._cancel = cancel
        self._store = store
        self._directory = directory
        self._plan = plan
        self._caches = caches
        self._stats = stats
        schema = plan.schema
        self._types = all_types(schema)
        self._sorting: tuple[BoundNode, ...] = scan_keys(schema, whole=True).primary.nodes
        self._descending = schema.order_desc or (False,) * len(self._sorting)
        self._primary = scan_keys(schema).primary
        mode = replacing_mode(schema) if plan.request.final else None
        self._collapses = mode is not None
        self._judged = tuple(name for name in (mode.version, mode.is_deleted) if name is not None) if mode else ()
        self._key_columns = tuple(dict.fromkeys(name for node in self._sorting for name in columns_of(node)))
        first, rest = bound_conjuncts(plan.request, schema)
        early, late = split_by_key((*first, *rest), self._sorting)
        self._early = filter_steps((), early, plan.column_bytes, self._key_columns)
        self._late = filter_steps((), late, plan.column_bytes, self._key_columns)
        fields = [pa.field(n, storage_type(self._types[n]), nullable=is_nullable(self._types[n])) for n in plan.columns]
        self._schema = pa.schema(fields)
        self._sources: dict[str, PartSource] = {}
        self._lock = threading.Lock()

    @property
    def _layer_rows(self) -> int:
        if not self._plan.request.ordered:
            return LAYER_ROWS
        items = self._plan.items
        row_bytes = sum(i.manifest.bytes_uncompressed for i in items) // max(1, sum(i.manifest.rows for i in items))
        return min(LAYER_ROWS, LAYER_BYTES // max(1, row_bytes) or 1)

    def source(self, item: ScanItem) -> PartSource:
        with self._lock:
            found = self._sources.get(item.manifest.id)
        if found is None:
            plan = self._plan
            with of_part(item.info):
                reader = open_part(self._store, self._directory, item.manifest, plan.schema, self._caches)
                found = PartSource(reader, item.info, plan.schema)
            with self._lock:
                self._sources[item.manifest.id] = found
        return found

    # --- layers

    def layers(self) -> Iterator[Layer]:
        """Independent pieces of the work, in key order within a group."""
        for group in self._groups():
            rows = sum(item.rows_estimate for item in group)
            if rows <= 2 * self._layer_rows or not all(map(orderable, self._primary.types)):
                yield Layer(tuple(group))
                continue
            yield from self._cut(group, -(-rows // self._layer_rows))

    def _groups(self) -> list[list[ScanItem]]:
        """Items whose key ranges overlap, directly or through others; items of a group in the order that settles ties.

        That is the partition's id before the block: of equal versions the greatest id wins, whenever it was inserted.
        """
        items = sorted(self._plan.items, key=lambda item: item.info)
        if not self._primary.nodes or len(items) < 2:
            return [items] if items else []
        types = self._primary.types
        ends = [item.manifest.key_range[i] for i in (0, 1) for item in items]
        keys = decode_keys(ends, types)
        ranks = _ranks(keys, types, self._descending[: len(types)])
        first, last = ranks[: len(items)], ranks[len(items) :]
        groups: list[list[int]] = []
        reach = -1
        for i in np.argsort(first, kind="stable").tolist():
            if first[i] > reach or not groups:
                groups.append([])
            groups[-1].append(i)
            reach = max(reach, int(last[i]))
        return [[items[i] for i in sorted(group)] for group in groups]

    def _cut(self, group: list[ScanItem], wanted: int) -> Iterator[Layer]:
        types = self._primary.types
        flags = self._descending[: len(types)]
        indexes = [self.source(item).primary_index(types) for item in group]
        keys = [joined([index[c] for index in indexes]) for c in range(len(types))]
        order = sort_order(keys, types, flags)
        sorted_keys = keys if order is None else [key.take(pa.array(order)) for key in keys]
        forms = [ordered(key, data_type) for key, data_type in zip(sorted_keys, types, strict=True)]
        places = np.linspace(0, len(forms[0]), wanted + 1)[1:-1].astype(np.int64)
        points: list[Point | None] = [None]
        for place in places.tolist():
            point = tuple(form.item(place) for form in forms)
            if point != points[-1]:
                points.append(point)
        points.append(None)
        for low, high in pairwise(points):
            items = []
            for item, index in zip(group, indexes, strict=True):
                ranges = _granules_between(index, types, flags, item.ranges, low, high)
                if ranges:
                    items.append(ScanItem(item.info, item.manifest, ranges))
            if items:
                yield Layer(tuple(items), low, high)

    # --- one layer

    def read(self, layer: Layer) -> list[pa.RecordBatch]:
        """The rows of the layer that stay and pass the conditions."""
        alive: list[Survivors] = []
        for item in layer.items:
            if self._cancel is not None:
                self._cancel.check()
            self._stats.add(parts=1)
            rows = Survivors(self.source(item), item.ranges, self._stats)
            self._within(rows, layer)
            if self._run(rows, self._early):
                alive.append(rows)
        if not alive:
            return []
        if self._collapses:
            for rows, keep in zip(alive, self._staying(alive), strict=True):
                rows.keep(keep)
        left = [rows for rows in alive if self._run(rows, self._late)]
        batches = [rows.batch(self._plan.columns, self._schema) for rows in left]
        return self._sorted(left, batches) if self._plan.request.ordered and left else batches

    def _sorted(self, left: Sequence[Survivors], batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The rows of the layer as one batch, in the order of the sorting key."""
        order = sort_order(*self._joined_keys(left), self._descending)
        columns = [joined([batch.column(at) for batch in batches]) for at in range(len(self._schema))]
        if order is not None:
            columns = [column.take(pa.array(order)) for column in columns]
        return [pa.RecordBatch.from_arrays(columns, schema=self._schema)]

    def _joined_keys(self, rows: Sequence[Survivors]) -> tuple[list[pa.Array], list[DataType]]:
        """(values of the sorting key's expressions in all of the parts, their types)."""
        per_part = [self._keys(each) for each in rows]
        types = [node.type for node in self._sorting]
        return [joined([part[k] for part in per_part]) for k in range(len(types))], types

    def _run(self, rows: Survivors, steps: Sequence[FilterStep]) -> bool:
        for step in steps:
            if rows.count:
                rows.filter(step, self._types)
        return rows.count > 0

    def _within(self, rows: Survivors, layer: Layer) -> None:
        """Drop the rows of the first and the last granules that belong to the layers next to this one."""
        if layer.low is None and layer.high is None:
            return
        length = len(self._primary.nodes)
        keys = self._keys(rows)[:length]
        flags = self._descending[:length]
        keep = np.ones(rows.count, dtype=bool)
        if layer.low is not None:
            keep &= ~_precedes(keys, self._primary.types, flags, layer.low)
        if layer.high is not None:
            keep &= _precedes(keys, self._primary.types, flags, layer.high)
        rows.keep(keep)

    def _keys(self, rows: Survivors) -> list[pa.Array]:
        """Values of the sorting key's expressions."""
        arrays: Arrays = rows.fetch(self._key_columns)
        return [evaluate(node, arrays, self._types, rows.count) for node in self._sorting]

    def _staying(self, alive: Sequence[Survivors]) -> list[NDArray[np.bool_]]:
        """For each part which of its rows FINAL shows."""
        counts = [rows.count for rows in alive]
        total = sum(counts)
        keys, types = self._joined_keys(alive)
        judged = [rows.fetch(self._judged) for rows in alive]
        columns = {name: joined([arrays[name] for arrays in judged]) for name in self._judged}
        order = sort_order(keys, types, self._descending)
        if order is not None:
            places = pa.array(order)
            keys = [key.take(places) for key in keys]
            columns = {name: array.take(places) for name, array in columns.items()}
        block = pa.RecordBatch.from_pydict(columns or {"": pa.nulls(total)})
        staying = final_rows(block, self._plan.schema, keys, types)
        out = np.empty(total, dtype=bool)
        out[slice(None) if order is None else order] = staying
        return np.split(out, np.cumsum(counts)[:-1])


def read_layers(
    store: Store,
    directory: str,
    plan: ScanPlan,
    caches: PartCache,
    workers: int,
    stats: ScanStats,
    cancel: Cancel | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the plan's items as FINAL shows them, in order, or both; in storage form."""
    reader = _Layers(store, directory, plan, caches, stats, cancel)
    layers = reader.layers()
    if workers == 1:
        for layer in layers:
            yield from reader.read(layer)
        return
    with ThreadPoolExecutor(workers, "mergelake-layers") as pool:
        ahead = [pool.submit(reader.read, layer) for layer in islice(layers, workers)]
        try:
            while ahead:
                batches = ahead.pop(0).result()
                following = next(layers, None)
                if following is not None:
                    ahead.append(pool.submit(reader.read, following))
                yield from batches
        finally:
            for future in ahead:
                future.cancel()


def _ranks(keys: Sequence[pa.Array], types: Sequence[DataType], descending: Sequence[bool]) -> NDArray[np.int64]:
    """Dense ranks of rows by their keys, in key order."""
    rows = len(keys[0])
    order = sort_order(keys, types, descending)
    at = np.arange(rows) if order is None else order
    taken = [key.take(pa.array(at)) for key in keys]
    fresh = ~same_as_previous(key_words(taken, types))
    fresh[:1] = False
    ranks = np.empty(rows, dtype=np.int64)
    ranks[at] = np.cumsum(fresh)
    return ranks


def _precedes(
    keys: Sequence[pa.Array], types: Sequence[DataType], descending: Sequence[bool], point: Point
) -> NDArray[np.bool_]:
    """Which rows' keys come strictly before `point` in key order."""
    before = np.zeros(len(keys[0]), dtype=bool)
    tied = np.ones(len(keys[0]), dtype=bool)
    for key, data_type, down, value in zip(keys, types, descending, point, strict=False):
        form = ordered(key, data_type)
        cells = form.cells([] if value is None else [value])
        equal = cells == 1
        less = cells > 1 if down else cells < 1
        before |= tied & less
        tied &= equal
    return before


def _granules_between(
    index: Sequence[pa.Array],
    types: Sequence[DataType],
    descending: Sequence[bool],
    ranges: Sequence[MarkRange],
    low: Point | None,
    high: Point | None,
) -> tuple[MarkRange, ...]:
    """Those granules of `ranges` that may hold keys from `low` up to `high`; they lie next to each other."""
    marks = len(index[0])
    first, end = 0, marks - 1
    if low is not None:
        # A granule may end with the key that the next mark begins with, so the one before `low` counts too.
        first = max(0, int(_precedes(index, types, descending, low).sum()) - 1)
    if high is not None:
        end = min(end, int(_precedes(index, types, descending, high).sum()))
    return tuple((max(a, first), min(b, end)) for a, b in ranges if max(a, first) < min(b, end))
