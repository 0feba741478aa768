"""Reading by ranges of keys over all parts: SELECT … FINAL (the rows that a merge of all parts would leave) and reads
in the order of the sorting key.

1. Parts are grouped by overlap of their key ranges. A group is cut at marks into *layers*, disjoint ranges of keys of
   about `LAYER_ROWS` rows. All rows of a key are in one layer, so layers are independent tasks, and a few of them
   bound the memory.
2. In a layer the key columns of each part are read, and the columns that the engine compares. Conditions on the
   sorting key alone drop rows at once: they have the same value for all rows of a key.
3. All rows are sorted by (key, part, row), and the rule of the engine selects those that stay.
4. The other conditions are evaluated, and the other columns are read for granules with surviving rows.

Rows are returned part by part, each in the order of its part. As in ClickHouse, rows of different partitions replace
each other. An ordered read has the same layers, smaller where rows are wide, skips step 3 unless it is FINAL too, and
sorts each layer. With a limit the first layers are small, the columns of step 4 are read only for the first rows, and
no layer is begun once there are enough.

From a far store all parts of a layer are opened in one round and read in one or two (`fetch_ahead`), and as many layers
are read at a time as its limits allow (`parts.read.flight`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import DataType, is_nullable
from mergelake.engines.order.normalized_keys import normalized_keys, same_as_previous
from mergelake.engines.order.sorting import sort_order
from mergelake.engines.rules.modes import final_rows, mode_of
from mergelake.expr.bound import BoundNode, columns_of
from mergelake.parts.read.ahead import open_parts
from mergelake.parts.read.flight import CoreSlots, Limits
from mergelake.scan.prune.keys import decode_keys, scan_keys
from mergelake.scan.prune.ordered import Value, orderable, ordered
from mergelake.scan.prune.predicate import all_types, bound_conjuncts, split_by_key
from mergelake.scan.prune.prune import MarkRange
from mergelake.scan.read.combined import Combiner
from mergelake.scan.read.filter import TOGETHER_BYTES, RowSelection, fetch_ahead
from mergelake.scan.read.plan import ScanItem
from mergelake.scan.read.prewhere import FilterStep, filter_steps
from mergelake.scan.read.run import ReadRun
from mergelake.scan.read.source import Arrays, PartSource, evaluate, joined
from mergelake.store.metering.meter import Pool

LAYER_ROWS = 1 << 20
"""Approximate number of rows in a layer."""
LAYER_BYTES = 64 << 20
"""Approximate bytes of a layer of which all columns are held in memory: ordered, or of an engine that combines rows."""

Point = tuple[Value | None, ...]
"""A primary key."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Rows of some items whose primary key is at least `low` and below `high` (None: no limit)."""

    items: tuple[ScanItem, ...]
    low: Point | None = None
    high: Point | None = None


class _Layers:
    """State of one read, shared by its layers."""

    def __init__(self, run: ReadRun) -> None:
        plan = run.plan
        self._shared, self._plan = run, plan
        schema = plan.schema
        self._types = all_types(schema)
        self._sorting: tuple[BoundNode, ...] = scan_keys(schema, whole=True).primary.nodes
        self._descending = schema.order_desc or (False,) * len(self._sorting)
        self._primary = scan_keys(schema).primary
        mode = mode_of(schema) if plan.request.final else None
        self._collapses = mode is not None
        self._judged = mode.judged if mode else ()
        self._key_columns = tuple(dict.fromkeys(name for node in self._sorting for name in columns_of(node)))
        first, rest = bound_conjuncts(plan.request, schema)
        early, late = split_by_key((*first, *rest), self._sorting)
        self._early = filter_steps((), early, plan.column_bytes, self._key_columns)
        self._late = filter_steps((), late, plan.column_bytes, self._key_columns)
        fields = [pa.field(n, storage_type(self._types[n]), nullable=is_nullable(self._types[n])) for n in plan.columns]
        self._schema = pa.schema(fields)
        self._sources: dict[str, PartSource] = {}
        self._lock = threading.Lock()
        self._slots = CoreSlots(run.workers)
        self._ended = False
        self._limit = plan.request.limit if plan.request.ordered else None
        steps = [name for step in (*self._early, *self._late) for name in step.columns]
        self._first = tuple(dict.fromkeys([*self._key_columns, *self._judged, *steps]))
        self.names = tuple(dict.fromkeys([*self._first, *plan.columns]))
        self._combiner: Combiner | None = None
        if mode is not None and mode.combination is not None:
            self._combiner = Combiner(schema, plan.columns, self._late, run.states)
            self.names = self._first = tuple(dict.fromkeys([*self._key_columns, *self._combiner.names]))

    @property
    def _row_bytes(self) -> int:
        items = self._plan.items
        return sum(i.manifest.bytes_uncompressed for i in items) // max(1, sum(i.manifest.rows for i in items))

    @property
    def _layer_rows(self) -> int:
        if not self._plan.request.ordered and self._combiner is None:
            return LAYER_ROWS
        return min(LAYER_ROWS, LAYER_BYTES // max(1, self._row_bytes) or 1)

    def bytes_of(self, layer: Layer) -> int:
        """Approximate memory of a layer."""
        return self._row_bytes * sum(item.rows_estimate for item in layer.items)

    def source(self, item: ScanItem) -> PartSource:
        with self._lock:
            part_source = self._sources.get(item.manifest.id)
        if part_source is None:
            opened = self._shared.source(item)
            with self._lock:
                part_source = self._sources.setdefault(item.manifest.id, opened)
        return part_source

    def _open(self, items: Sequence[ScanItem], *, key: bool = False) -> None:
        """Load what has to be known of some parts before their data is read; with `key`, their primary indexes."""
        sources = [self.source(item) for item in items]
        named = dict.fromkeys(name for source in sources for name in source.stored_columns(self.names))
        open_parts([source.reader for source in sources], list(named), key=self._primary.types if key else None)

    # --- layers

    def layers(self) -> Iterator[Layer]:
        """Independent pieces of the work, in key order within a group."""
        for group in self._groups():
            rows = sum(item.rows_estimate for item in group)
            enough = 2 * self._layer_rows
            if self._limit is not None and self._primary.nodes:
                enough = min(enough, 2 * self._limit)
            if rows <= enough or not all(map(orderable, self._primary.types)):
                yield Layer(tuple(group))
                continue
            yield from self._cut(group, rows)

    def _groups(self) -> list[list[ScanItem]]:
        """Items whose key ranges overlap, directly or through others.

        Items of a group are ordered by partition id, then block: of equal versions the last one wins.
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

    def _places(self, marks: int, rows: int, parts: int) -> list[int]:
        """Positions, among the marks of a group in key order, at which layers begin."""
        if self._limit is None:
            count = -(-rows // self._layer_rows)
            return [int(place) for place in np.linspace(0, marks, count + 1)[1:-1]]
        step_max = max(1, marks * self._layer_rows // rows)
        step = min(step_max, -(-self._limit * marks // rows) + parts)
        places, at = [], step
        while at < marks:
            places.append(at)
            step = min(2 * step, step_max)
            at += step
        return places

    def _cut(self, group: list[ScanItem], rows: int) -> Iterator[Layer]:
        types = self._primary.types
        flags = self._descending[: len(types)]
        self._open(group, key=True)
        indexes = [self.source(item).primary_index(types) for item in group]
        keys = [joined([index[c] for index in indexes]) for c in range(len(types))]
        order = sort_order(keys, types, flags)
        sorted_keys = keys if order is None else [key.take(pa.array(order)) for key in keys]
        forms = [ordered(key, data_type) for key, data_type in zip(sorted_keys, types, strict=True)]
        points: list[Point | None] = [None]
        for place in self._places(len(forms[0]), rows, len(group)):
            point = tuple(form.item(place) for form in forms)
            if point != points[-1]:
                points.append(point)
        points.append(None)
        for low, high in pairwise(points):
            items = []
            for item, index in zip(group, indexes, strict=True):
                ranges = _granules_between(index, types, flags, item.ranges, low, high)
                if ranges:
                    items.append(replace(item, ranges=ranges))
            if items:
                yield Layer(tuple(items), low, high)

    # --- one layer

    def end(self) -> None:
        """Stop: layers being read return without decoding more."""
        self._ended = True

    def read(self, layer: Layer) -> list[pa.RecordBatch]:
        """The rows of the layer that stay and pass the conditions."""
        self._shared.check()
        self._open(layer.items)
        every = [RowSelection(self.source(item), item.ranges, self._shared.stats) for item in layer.items]
        self._shared.stats.add(parts=len(every))
        if self._shared.is_far:
            fetch_ahead(every, self.names if self._at_once(every) else self._first)
        with self._slots.computing():
            batches = [] if self._ended else self._read(layer, every)
        for rows in every:
            rows.source.reader.let_go()  # another layer loads it again from the caches
        return batches

    def _at_once(self, every: Sequence[RowSelection]) -> bool:
        """Whether to fetch all columns together: most rows will stay, or another round trip would take longer."""
        if self._limit is None and not self._early and not self._late:
            return True
        return sum(part.end - part.start for rows in every for part in rows.needs(self.names)) <= TOGETHER_BYTES

    def _read(self, layer: Layer, every: Sequence[RowSelection]) -> list[pa.RecordBatch]:
        alive: list[RowSelection] = []
        for rows in every:
            self._shared.check()
            self._within(rows, layer)
            if self._run(rows, self._early):
                alive.append(rows)
        if not alive:
            return []
        if self._combiner is not None:
            return self._combined(alive, self._combiner)
        if self._collapses:
            for rows, keep in zip(alive, self._staying(alive), strict=True):
                rows.keep(keep)
        passing = [rows for rows in alive if self._run(rows, self._late)]
        if self._limit is not None:
            passing = self._first_rows(passing, self._limit)
        if self._shared.is_far:
            fetch_ahead(passing, self._plan.columns)
        batches = [rows.batch(self._plan.columns, self._schema) for rows in passing]
        return self._sorted(passing, batches) if self._plan.request.ordered and passing else batches

    def _combined(self, alive: Sequence[RowSelection], combiner: Combiner) -> list[pa.RecordBatch]:
        """The rows that an engine makes of several, filtered, in the order of the sorting key."""
        if self._shared.is_far:
            fetch_ahead(alive, self.names)
        read = [rows.fetch(self.names) for rows in alive]
        columns = {name: joined([arrays[name] for arrays in read]) for name in self.names}
        keys, types = self._joined_keys(alive)
        order = sort_order(keys, types, self._descending)
        if order is not None:
            places = pa.array(order)
            keys = [key.take(places) for key in keys]
            columns = {name: array.take(places) for name, array in columns.items()}
        arrays = combiner.combine(columns, sum(rows.count for rows in alive), keys, types)
        whole = [pa.RecordBatch.from_arrays(arrays, schema=self._schema)] if arrays else []
        return whole if self._limit is None else [batch.slice(0, self._limit) for batch in whole]

    def _first_rows(self, selections: Sequence[RowSelection], limit: int) -> list[RowSelection]:
        """The first `limit` rows of the layer in key order; the others are dropped."""
        total = sum(rows.count for rows in selections)
        if total <= limit:
            return list(selections)
        order = sort_order(*self._joined_keys(selections), self._descending)
        keep = np.zeros(total, dtype=bool)
        keep[np.arange(limit) if order is None else order[:limit]] = True
        for rows, mask in zip(
            selections, np.split(keep, np.cumsum([rows.count for rows in selections])[:-1]), strict=True
        ):
            rows.keep(mask)
        return [rows for rows in selections if rows.count]

    def _sorted(self, selections: Sequence[RowSelection], batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The rows of the layer as one batch, in the order of the sorting key."""
        order = sort_order(*self._joined_keys(selections), self._descending)
        columns = [joined([batch.column(at) for batch in batches]) for at in range(len(self._schema))]
        if order is not None:
            columns = [column.take(pa.array(order)) for column in columns]
        return [pa.RecordBatch.from_arrays(columns, schema=self._schema)]

    def _joined_keys(self, rows: Sequence[RowSelection]) -> tuple[list[pa.Array], list[DataType]]:
        """(values of the sorting key's expressions in all of the parts, their types)."""
        per_part = [self._keys(each) for each in rows]
        types = [node.type for node in self._sorting]
        return [joined([part[k] for part in per_part]) for k in range(len(types))], types

    def _run(self, rows: RowSelection, steps: Sequence[FilterStep]) -> bool:
        for step in steps:
            if rows.count:
                rows.filter(step, self._types)
        return rows.count > 0

    def _within(self, rows: RowSelection, layer: Layer) -> None:
        """Drop rows of the first and the last granules that belong to adjacent layers."""
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

    def _keys(self, rows: RowSelection) -> list[pa.Array]:
        """Values of the sorting key's expressions."""
        arrays: Arrays = rows.fetch(self._key_columns)
        return [evaluate(node, arrays, self._types, rows.count) for node in self._sorting]

    def _staying(self, alive: Sequence[RowSelection]) -> list[NDArray[np.bool_]]:
        """For each part a mask of the rows that FINAL returns."""
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
        parts = [at if rows.source.level else -1 for at, rows in enumerate(alive)]
        merged = np.repeat(np.array(parts, np.int64), counts)
        staying = final_rows(block, self._plan.schema, keys, types, merged if order is None else merged[order])
        out = np.empty(total, dtype=bool)
        out[slice(None) if order is None else order] = staying
        return np.split(out, np.cumsum(counts)[:-1])


def columns_of_layers(run: ReadRun) -> tuple[str, ...]:
    """The columns that `read_layers` reads, those of keys and of the engine's rule included."""
    return tuple(dict.fromkeys([*_Layers(run).names, *run.plan.columns]))


def read_layers(run: ReadRun) -> Iterator[pa.RecordBatch]:
    """The rows of the plan's items, with FINAL or ordered or both, in storage form."""
    reader = _Layers(run)
    layers = reader.layers()
    if run.workers == 1 and not run.is_far:
        for layer in layers:
            yield from reader.read(layer)
        return
    limits = Limits.of(run.store) if run.is_far else Limits(run.workers, 1 << 62)
    limited = run.plan.request.limit is not None
    layers_max = 1 if limited else limits.requests
    ahead: deque[tuple[Future[list[pa.RecordBatch]], int]] = deque()
    following = next(layers, None)
    with Pool(limits.requests, "mergelake-layers") as pool:

        def begin() -> None:
            nonlocal following
            while following is not None and len(ahead) < layers_max:
                size = reader.bytes_of(following)
                if ahead and sum(held for _, held in ahead) + size > limits.bytes:
                    break
                ahead.append((pool.submit(reader.read, following), size))
                following = next(layers, None)

        try:
            begin()
            while ahead:
                batches = ahead.popleft()[0].result()
                if not limited:
                    begin()
                yield from batches
                layers_max = min(2 * layers_max, limits.requests)
                begin()
        finally:
            reader.end()
            pool.shutdown(wait=True, cancel_futures=True)


def _ranks(keys: Sequence[pa.Array], types: Sequence[DataType], descending: Sequence[bool]) -> NDArray[np.int64]:
    """Dense ranks of rows by their keys, in key order."""
    rows = len(keys[0])
    order = sort_order(keys, types, descending)
    at = np.arange(rows) if order is None else order
    sorted_keys = [key.take(pa.array(at)) for key in keys]
    fresh = ~same_as_previous(normalized_keys(sorted_keys, types))
    fresh[:1] = False
    ranks = np.empty(rows, dtype=np.int64)
    ranks[at] = np.cumsum(fresh)
    return ranks


def _precedes(
    keys: Sequence[pa.Array], types: Sequence[DataType], descending: Sequence[bool], point: Point
) -> NDArray[np.bool_]:
    """For each row whether its key comes strictly before `point` in key order."""
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
    """The granules of `ranges` that may hold keys from `low` up to `high`."""
    marks = len(index[0])
    first, end = 0, marks - 1
    if low is not None:
        # A granule may end with the key at the next mark, so the granule before `low` is included.
        first = max(0, int(_precedes(index, types, descending, low).sum()) - 1)
    if high is not None:
        end = min(end, int(_precedes(index, types, descending, high).sum()))
    return tuple((max(a, first), min(b, end)) for a, b in ranges if max(a, first) < min(b, end))
