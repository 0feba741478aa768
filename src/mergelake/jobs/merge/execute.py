"""Builds the result of a merge: vertically, one column after the other, in bounded memory.

1. **Order.** The sorting key's columns (and the column by which the engine decides: a version, a sign) of all sources
   are read batch by batch and merged; one byte a row is recorded: the source of the next row, and whether it stays.
2. **Primary key.** The columns that the primary key reads are gathered by that order and written, with the index.
3. **Every other column** is gathered and written, a few at a time in threads. Small ones are read together, so that a
   part of thousands of columns does not take thousands of requests.

So each file is read from start to end, the key columns twice, and memory holds one batch per source and thread
(`merge_max_chunk_bytes` in all), whatever the size of the parts. Packed sources in a far store are fetched first, each
by one request, as far as they fit into as much memory. Nothing is committed here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from mergelake.core.base.clock import Clock
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.settings import TableSettings
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import DataType, Tuple
from mergelake.engines.order.keys import TableKeys, table_keys
from mergelake.engines.order.merging import MergeStep, merge_runs
from mergelake.engines.order.normalized_keys import numpy_values, word_count
from mergelake.engines.projections.projections import BoundProjection
from mergelake.engines.rules.combining import together as joined_columns
from mergelake.engines.rules.mode import Mode
from mergelake.engines.rules.modes import working_mode
from mergelake.engines.rules.states import StateFunctions
from mergelake.format.files.granules import aligned_granules, granule_size
from mergelake.jobs.merge.combine import aligned, combine_column, removed_rows, without_removed
from mergelake.jobs.merge.concatenate import Concatenation, concatenate, plan_concatenation
from mergelake.jobs.merge.deduplicate import Repetitions
from mergelake.jobs.merge.gather import gather_column
from mergelake.jobs.merge.order import RowOrder, record_order
from mergelake.jobs.merge.plan import MergeTask, check_engine
from mergelake.jobs.merge.projections import ProjectionWork, Rebuilder, check_states, inputs_of, projection_work
from mergelake.jobs.merge.result import THREAD_BYTES, Meter, Progress, result_minmax, result_partition, side_by_side
from mergelake.jobs.merge.source import SourceReader
from mergelake.jobs.merge.spans import restrict_to_slice
from mergelake.jobs.merge.ttl import Expiry, plan_expiry, written_never
from mergelake.jobs.merge.ttl_apply import TtlWork
from mergelake.parts.read.ahead import hold_packed, open_parts
from mergelake.parts.read.default_codec import asks_sources, merged_codec
from mergelake.parts.read.fetch import is_remote
from mergelake.parts.read.listing import projection_names
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.assemble import alignment
from mergelake.parts.write.indexing import BoundIndex
from mergelake.parts.write.part_spec import PartSpec, PartTarget
from mergelake.parts.write.writer import PartWriter, is_compact
from mergelake.store.interface.protocol import Store

_BATCH_ROWS_MAX = 65536
_TOGETHER_MAX = 256
"""Maximum number of columns that are read together."""
SLICE_GAP_BYTES = 32 << 10
"""Ranges of an object that are further apart are requested apart for a slice: what lies between is of other slices."""
_logger = logging.getLogger("mergelake.merge")


def execute_merge(
    store: Store,
    task: MergeTask,
    ids: IdSource,
    clock: Clock,
    on_progress: Progress | None = None,
    threads: int = 2,
    disk: Store | None = None,
    states: StateFunctions | None = None,
) -> PartManifest:
    """Write the result of `task` and return its manifest; nothing is committed.

    `disk` is the node's own, for local sources and a local result. `states` merges aggregate states.
    The objects lie under a new id, so any number of attempts may run at once. A failed one deletes its own objects.
    Raises `CorruptDataError` for a damaged source, NOT_IMPLEMENTED for an engine without merges, SUPPORT_IS_DISABLED
    for aggregate states that only `states` could merge.
    """
    check_engine(task.schema)
    check_states(task, states)
    # The encoded text is searched first, as decoding thousands of files takes long.
    manifests = [source.manifest for source in task.sources if ".proj/" in source.manifest.files.text]
    dropped = {
        name for each in manifests for name in projection_names(each.file_table()) if name not in each.projections
    }
    dropped -= {projection.name for projection in task.schema.projections}
    if dropped:
        _logger.warning("a merge of %s drops projections %s: the table has none such", task.directory, sorted(dropped))
    concatenation = plan_concatenation(task)
    if concatenation is not None:
        return _concatenated(
            store, task, concatenation, ids, clock, on_progress, max(1, threads), disk or store, states
        )
    expiry = plan_expiry(task)
    if expiry is not None and expiry.empties and task.slice is None:
        return _empty_part(disk if task.local and disk is not None else store, task, expiry, ids, clock)
    merge = _Merge(store, task, max(1, threads), on_progress, disk or store, states, expiry)
    order = merge.settled(merge.record())
    writer = merge.open_writer(order, ids, clock)
    try:
        merge.write(writer, order)
        merge.write_projections(writer, order)
        return replace(writer.finish(), base_version=task.base_version)
    except BaseException:
        writer.abort()
        raise


def _empty_part(store: Store, task: MergeTask, expiry: Expiry, ids: IdSource, clock: Clock) -> PartManifest:
    """The result of a merge of which no row stays; no source is read."""
    keys, settings = table_keys(task.schema), TableSettings(task.schema.settings)
    target = PartTarget(store, task.directory, task.schema, settings, [key.type for key in keys.primary], ids, clock)
    gone = written_never(task.schema, expiry.gone)
    spec = PartSpec(
        settings.integer("index_granularity"),
        result_partition(task),
        level=task.result.level,
        codec=expiry.codec,
        ttl=expiry.part_ttl(expiry.emptied()),
        without=gone,
    )
    writer = PartWriter(target, spec)
    try:
        for column in task.schema.stored:
            if column.name not in gone:
                writer.write_column(column.name, ())
        return replace(writer.finish(), base_version=task.base_version)
    except BaseException:
        writer.abort()
        raise


def _concatenated(
    store: Store,
    task: MergeTask,
    found: Concatenation,
    ids: IdSource,
    clock: Clock,
    on_progress: Progress | None,
    threads: int,
    disk: Store,
    states: StateFunctions | None,
) -> PartManifest:
    """`execute_merge` by copying."""
    keys, settings = table_keys(task.schema), TableSettings(task.schema.settings)
    columns = {column.name: column for column in task.schema.stored}
    readers = [PartReader(disk if s.local else store, task.directory, s.manifest, columns) for s in found.sources]
    key_types = [key.type for key in keys.primary]
    target = PartTarget(disk if task.local else store, task.directory, task.schema, settings, key_types, ids, clock)
    spec = PartSpec(
        settings.integer("index_granularity"),
        result_partition(task),
        result_minmax(task, keys),
        task.result.level,
        codec=found.codec,
        ttl=found.ttl,
        without=found.absent,
    )
    writer = PartWriter(target, spec)
    try:
        meter = Meter(on_progress, task.rows, sum(source.manifest.bytes_on_disk for source in found.sources))
        concatenate(writer, found, readers, meter, threads)
        write_merged_projections(writer, projection_work(task), store, threads, disk, states)
        return replace(writer.finish(), base_version=task.base_version)
    except BaseException:
        writer.abort()
        raise


def write_merged_projections(
    writer: PartWriter,
    work: Sequence[ProjectionWork],
    store: Store,
    threads: int = 2,
    disk: Store | None = None,
    states: StateFunctions | None = None,
) -> None:
    """Write the projections of a part that are merged from those of its sources."""
    for each in work:
        if each.task is not None:
            merge_projection(store, threads, disk or store, states, writer, each.projection, each.task, None)


def merge_projection(
    store: Store,
    threads: int,
    disk: Store,
    states: StateFunctions | None,
    part: PartWriter,
    projection: BoundProjection,
    task: MergeTask,
    pieces: Store | None,
) -> None:
    """Write a projection of a part by a merge, of sources in the store, or else in `pieces`."""
    merge = _Merge(pieces or store, task, threads, None, disk, states, None)
    order = merge.settled(merge.record())
    writer = merge.open_writer(order, part.target.ids, part.target.clock, (part, projection))
    merge.write(writer, order)
    writer.finish()


class _Merge:
    def __init__(
        self,
        store: Store,
        task: MergeTask,
        threads: int,
        on_progress: Progress | None,
        disk: Store,
        states: StateFunctions | None,
        expiry: Expiry | None,
    ) -> None:
        self._target = disk if task.local else store
        self._store, self._disk, self._states = store, disk, states
        self._task = task
        self._threads = threads
        self._settings = TableSettings(task.schema.settings)
        self._keys: TableKeys = table_keys(task.schema)
        self._mode: Mode | None = working_mode(task.schema, states) if task.kind != "mutation" else None
        combination = self._mode.combination if self._mode is not None else None
        self._maps = combination.maps if combination is not None else {}
        self._combines = combination is not None
        self._expiry = expiry
        self._ttl = (
            TtlWork(expiry, task.schema, self._rows_of, states, combines=self._combines) if expiry is not None else None
        )
        self._sources = [
            SourceReader(disk if s.local else store, task.directory, task.schema, s.manifest, s.lacks)
            for s in task.sources
        ]
        readers = [source.reader for source in self._sources]
        far = [reader for reader in readers if is_remote(reader.store)]
        budget = self._settings.integer("merge_max_chunk_bytes")
        held = hold_packed(far, budget) if task.slice is None else 0
        for reader in readers if task.slice is not None else ():
            reader.gap = SLICE_GAP_BYTES
        far = [reader for reader in far if not reader.complete]
        key = [key.type for key in self._keys.primary] if task.slice is not None else None
        stored = [column.name for column in task.schema.stored]
        open_parts(far, stored, key=key, codec=asks_sources(self._settings, readers))
        if task.slice is not None:
            restrict_to_slice(task, self._sources, self._keys)
        self._rows = sum(source.rows for source in self._sources)
        self._sizes = {
            column.name: sum(source.column_bytes(column.name) for source in self._sources)
            for column in task.schema.stored
        }
        local = not is_remote(store) and not is_remote(self._target)
        if local and sum(self._sizes.values()) < THREAD_BYTES * len(self._sizes):
            self._threads = 1  # many small columns: most of the time is spent in Python, where threads do not help
        windows = self._threads * max(1, sum(not reader.complete for reader in readers))
        self._window_bytes = max(budget - held, budget // 4) // windows
        key_bytes = sum(self._sizes[name] for name in self._order_columns())
        self._progress = Meter(on_progress, self._rows, key_bytes + sum(self._sizes.values()))
        for source in self._sources:
            source.find_matches(_BATCH_ROWS_MAX, self._window_bytes)

    def record(self) -> RowOrder:
        """The order of the result's rows."""
        names = self._order_columns()
        decides = self._mode.decides if self._mode else None
        decides_type = self._task.schema.column(decides).type if decides else None
        if not self._keys.sorting and decides_type is None:
            # Without a key and such a column the order is that of the parts.
            steps = _in_turn([source.rows for source in self._sources])
            return self._recorded(steps)
        types = [key.type for key in self._keys.sorting]
        # The merger holds a batch of every source as words: a word is 8 bytes, and 16 more where it begins a string.
        row_bytes = (24 * word_count(types) + 8) * len(self._sources)
        words_budget = self._settings.integer("merge_max_chunk_bytes") // row_bytes
        rows = max(1, min(self._batch_rows(names, len(self._sources)), words_budget))
        steps = merge_runs(
            [self._key_batches(source, names, decides, rows) for source in self._sources],
            types,
            self._keys.descending,
            decides_type,
        )
        return self._recorded(steps)

    def _recorded(self, steps: Iterable[MergeStep]) -> RowOrder:
        if self._mode is None:
            return record_order(steps, len(self._sources))
        parts = None
        if self._mode.splits:
            parts = np.array([at if s.info.level else -1 for at, s in enumerate(self._task.sources)], np.int64)
        return record_order(steps, len(self._sources), self._mode.begin(False), parts)

    def settled(self, order: RowOrder) -> RowOrder:
        """The order without the rows that the engine removes once they are combined, the task, and the TTL."""
        order = self._combined(order)
        return order if self._ttl is None else self._ttl.apply(order)

    def _combined(self, order: RowOrder) -> RowOrder:
        combination = self._mode.combination if self._mode else None
        if combination is None:
            return self._narrowed(order)
        if not combination.nothing:
            return order
        sums = ((self._gather(order, name, [name]), judge) for name, judge in combination.nothing.items())
        removed = removed_rows(sums)
        return order if removed is None else without_removed(order, removed, combines=True)

    def _narrowed(self, order: RowOrder) -> RowOrder:
        """The order without the rows that CLEANUP and DEDUPLICATE remove; an engine that combines rows has none."""
        tombstone = self._mode.tombstone if self._mode else None
        if self._task.cleanup and tombstone is not None:
            flags = [numpy_values(array) == 1 for array in self._gather(order, tombstone, [tombstone])]
            order = without_removed(order, np.concatenate(flags)) if flags else order
        names = self._task.deduplicate
        if names is not None:
            repetitions = Repetitions(self._task.schema, names)
            columns = [self._gather(order, name, names) for name in names]
            found = [
                repetitions.push(pa.RecordBatch.from_arrays(list(arrays), list(names)))
                for arrays in zip(*columns, strict=True)
            ]
            order = without_removed(order, np.concatenate(found)) if found else order
        return order

    def open_writer(
        self,
        order: RowOrder,
        ids: IdSource,
        clock: Clock,
        within: tuple[PartWriter, BoundProjection] | None = None,
    ) -> PartWriter:
        """The writer of the result, with granules by ClickHouse's rule for the average row.

        `within`: the result is this projection of that part.
        """
        task, settings = self._task, self._settings
        share = order.rows / task.rows if task.rows else 0
        plain_bytes = int(sum(source.manifest.bytes_uncompressed for source in task.sources) * share)
        granule = granule_size(
            order.rows,
            plain_bytes,
            settings.integer("index_granularity"),
            settings.integer("index_granularity_bytes"),
        )
        key_types = [key.type for key in self._keys.primary]
        target = PartTarget(self._target, task.directory, task.schema, settings, key_types, ids, clock)
        spec = PartSpec(
            granule if task.slice is None else aligned_granules(order.rows, granule, alignment(task.schema)),
            result_partition(task),
            result_minmax(task, self._keys) if order.rows else {},
            task.result.level,
            compact=task.slice is None and is_compact(settings, order.rows, plain_bytes),
            continues=task.slice is not None,
            expected_rows=order.rows,
            codec=merged_codec(settings, [source.reader for source in self._sources]),
        )
        if within is not None:
            part, projection = within
            return part.projection(projection.name, projection.digest, target, spec)
        if not (self._combines and spec.compact):
            spec = replace(spec, without=absent_columns(task, self._sources))
        if self._expiry is not None and self._ttl is not None:
            gone = self._expiry.gone if spec.continues else self._ttl.gone  # the same for all slices
            spec = replace(
                spec,
                codec=self._expiry.codec or spec.codec,
                ttl=self._expiry.part_ttl(self._ttl.infos),
                without=spec.without | (frozenset() if spec.compact else written_never(task.schema, gone)),
            )
        return PartWriter(target, spec)

    def write(self, writer: PartWriter, order: RowOrder) -> None:
        """Write all columns, the largest first, so that all threads end at about the same time."""
        key_columns = list(dict.fromkeys(name for key in self._keys.primary for name in key.columns))
        leave = writer.spec.without.union(key_columns)
        others = [column.name for column in self._task.schema.stored if column.name not in leave]
        others.sort(key=lambda name: -self._sizes[name])
        alone: dict[str, list[BoundIndex]] = {name: [] for name in others}
        apart: list[BoundIndex] = []
        for index in writer.indexes if order.rows else ():
            if len(index.columns) == 1 and index.columns[0] in alone:
                alone[index.columns[0]].append(index)
            elif not set(index.columns) <= set(key_columns):
                apart.append(index)
        if self._threads == 1 or len(others) < 2:
            self._write_key(writer, order, key_columns)
            for names in self._groups(others):
                self._write_columns(writer, order, names, alone)
            for index in apart:
                self._write_index(writer, order, index)
            return
        calls = [partial(self._write_columns, writer, order, names, alone) for names in self._groups(others)]
        calls.append(partial(self._write_key, writer, order, key_columns))
        calls += [partial(self._write_index, writer, order, index) for index in apart]
        side_by_side(self._threads, calls)

    def write_projections(self, writer: PartWriter, order: RowOrder) -> None:
        """Write the projections of the result."""
        work = projection_work(self._task) if order.rows else []
        write_merged_projections(writer, work, self._store, self._threads, self._disk, self._states)
        merge = partial(merge_projection, self._store, self._threads, self._disk, self._states)
        budget = self._settings.integer("merge_max_chunk_bytes")
        for each in work:
            if each.task is None:
                names = inputs_of(each.projection, [column.name for column in self._task.schema.stored])
                with Rebuilder(writer, each.projection, budget, merge, self._states) as rebuilder:
                    columns = [self._without_expired(order, n, self._gather(order, n, names)) for n in names]
                    for arrays in aligned(columns):
                        rebuilder.push(pa.RecordBatch.from_arrays(list(arrays), names))
                    rebuilder.finish()

    def _write_key(self, writer: PartWriter, order: RowOrder, names: Sequence[str]) -> None:
        if not names:
            return
        sinks = [writer.column(name) for name in names]
        within = [index for index in writer.indexes if order.rows and set(index.columns) <= set(names)]
        indexes = [writer.index(index) for index in within]
        for arrays in zip(*(self._gather(order, name, names) for name in names), strict=True):
            block = pa.RecordBatch.from_arrays(list(arrays), list(names))
            writer.append_keys([key.evaluate(block) for key in self._keys.primary])
            for sink, array in zip(sinks, arrays, strict=True):
                sink.append(array)
            for index in indexes:
                index.append(block)
        for sink in sinks:
            sink.finish()
        for index in indexes:
            index.finish()

    def _groups(self, names: Sequence[str]) -> list[list[str]]:
        """Groups of columns that are read together: each fits into the memory of a thread, and all threads get some."""
        room = self._settings.integer("merge_max_chunk_bytes") // self._threads
        columns_max = min(_TOGETHER_MAX, -(-len(names) // (2 * self._threads)))
        groups: list[list[str]] = []
        held = 0
        for name in names:
            # A sparse or computed column takes more than its files; lists and strings have offsets.
            width = _fixed_width(self._task.schema.column(name).type)
            weight = max(self._sizes[name], width * self._rows) + 16 * self._rows
            if groups and held + weight <= room and len(groups[-1]) < columns_max:
                groups[-1].append(name)
                held += weight
            else:
                groups.append([name])
                held = weight
        return groups

    def _write_columns(
        self, writer: PartWriter, order: RowOrder, names: Sequence[str], alone: Mapping[str, Sequence[BoundIndex]]
    ) -> None:
        """Write the columns of one group, and the skip indexes that read one of them alone."""
        if len(names) == 1:
            self._write_column(writer, order, names[0], self._gather(order, names[0], names), alone[names[0]])
            return
        rows = self._batch_rows(names, self._threads * len(self._sources))
        begun = [self._batches(source, names, rows) for source in self._sources]
        read = [list(batches) for batches in begun]
        for at, name in enumerate(names):
            if name in self._maps or (self._ttl is not None and self._ttl.regroups(name, order)):
                self._write_column(writer, order, name, self._gather(order, name, [name]), alone[name])
                continue
            sources = [iter([batch.column(at) for batch in batches]) for batches in read]
            arrays = self._ordered(name, sources, order)
            self._write_column(writer, order, name, arrays, alone[name])

    def _write_column(
        self, writer: PartWriter, order: RowOrder, name: str, arrays: Iterator[pa.Array], alone: Sequence[BoundIndex]
    ) -> None:
        arrays = self._without_expired(order, name, arrays)
        indexes = [writer.index(index) for index in alone]

        def passing() -> Iterator[pa.Array]:
            for array in arrays:
                for index in indexes:
                    index.append(pa.RecordBatch.from_arrays([array], [name]))
                yield array

        writer.write_column(name, passing())
        for index in indexes:
            index.finish()

    def _write_index(self, writer: PartWriter, order: RowOrder, index: BoundIndex) -> None:
        """Write an index over several columns, which are gathered once more, together."""
        sink, names = writer.index(index), list(index.columns)
        for arrays in aligned([self._without_expired(order, n, self._gather(order, n, names)) for n in names]):
            sink.append(pa.RecordBatch.from_arrays(list(arrays), names))
        sink.finish()

    def _without_expired(self, order: RowOrder, name: str, arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """The values of a column, of which those that have expired are the default."""
        if self._ttl is None or not self._ttl.is_changed(name):
            return arrays
        return self._ttl.without_expired(name, arrays, lambda other: self._gather(order, other, [name, other]))

    def _rows_of(self, order: RowOrder, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of the rows of an order, in blocks."""
        for arrays in aligned([self._gather(order, name, names) for name in names]):
            yield pa.RecordBatch.from_arrays(list(arrays), list(names))

    def _gather(self, order: RowOrder, name: str, together: Sequence[str]) -> Iterator[pa.Array]:
        """One column in order, in spans that are the same for all columns gathered `together`."""
        span = self._batch_rows(together, self._threads)
        rows = self._batch_rows(together, self._threads * len(self._sources))
        if self._ttl is not None and self._ttl.regroups(name, order):
            return self._ttl.regrouped(name)
        if name in self._maps:
            return self._gather_map(order, name, rows, span)
        begun = [self._batches(source, [name], rows) for source in self._sources]
        sources = [(batch.column(0) for batch in batches) for batches in begun]
        return self._ordered(name, sources, order, span)

    def _gather_map(self, order: RowOrder, name: str, rows: int, span: int) -> Iterator[pa.Array]:
        """One column of those that are combined together, of which all are read."""
        columns, mode = self._maps[name], self._mode
        assert mode is not None, name
        assert mode.combination is not None, name
        kind = Tuple(tuple(self._task.schema.column(each).type for each in columns), columns)
        begun = [self._batches(source, columns, rows) for source in self._sources]
        sources = [(joined_columns(batch, columns) for batch in batches) for batches in begun]
        groups, rule = order.combined or order, mode.combination.rules[name]
        whole = combine_column(kind, sources, groups, rule, span, order.removed)
        return (array.field(columns.index(name)) for array in whole)

    def _ordered(
        self, name: str, sources: Sequence[Iterator[pa.Array]], order: RowOrder, span: int = _BATCH_ROWS_MAX
    ) -> Iterator[pa.Array]:
        """The column of the result."""
        kind, combination = self._task.schema.column(name).type, self._mode.combination if self._mode else None
        if combination is not None and name in combination.rules:
            return combine_column(kind, sources, order.combined or order, combination.rules[name], span, order.removed)
        return gather_column(kind, sources, order, span)

    def _batches(self, source: SourceReader, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        weight = sum(source.column_bytes(name) for name in names) / max(source.rows, 1)

        def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
            self._progress.add(weight * batch.num_rows)
            return batch

        return map(counted, source.read(names, rows, self._window_bytes))  # reading begins now

    def _key_batches(
        self, source: SourceReader, names: Sequence[str], decides: str | None, rows: int
    ) -> Iterator[list[pa.Array]]:
        def keys(batch: pa.RecordBatch) -> list[pa.Array]:
            arrays = [key.evaluate(batch) for key in self._keys.sorting]
            return [*arrays, batch.column(decides)] if decides is not None else arrays

        return map(keys, self._batches(source, names, rows))

    def _order_columns(self) -> list[str]:
        """The columns that determine the order, and which rows stay."""
        names = [name for key in self._keys.sorting for name in key.columns]
        if self._mode is not None and self._mode.decides is not None:
            names.append(self._mode.decides)
        return list(dict.fromkeys(names))

    def _batch_rows(self, names: Sequence[str], batches: int) -> int:
        """Rows of a batch of these columns, so that `batches` of them fit into `merge_max_chunk_bytes`."""
        row_bytes = max(1, int(sum(self._sizes[name] for name in names) / max(1, self._rows)))
        budget: int = self._settings.integer("merge_max_chunk_bytes") // batches
        return min(_BATCH_ROWS_MAX, max(1, budget // row_bytes))


def absent_columns(task: MergeTask, sources: Sequence[SourceReader]) -> frozenset[str]:
    """The columns without which the result is written: it goes on to lack them, and readers compute their defaults.

    As in ClickHouse: of a merge those that no source has, without an expression for the default; of a mutation those
    that its part lacks, and no row of which it changes. (There an engine that combines rows writes all of them into a
    Compact part.)
    """
    stored = task.schema.stored
    # The slices of a merge have the same columns, whatever matches in each.
    held = [source.columns_after(matched=task.slice is None) for source in sources]
    known = frozenset[str]().union(*held)
    absent = [c.name for c in stored if c.name not in known and (task.kind == "mutation" or not c.default)]
    return frozenset(absent if len(absent) < len(stored) else absent[1:])


def _fixed_width(data_type: DataType) -> int:
    """Bytes of a value of a fixed-width type; 0 for other types."""
    kind = storage_type(data_type)
    return kind.bit_width // 8 if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind) else 0


def _in_turn(rows: Sequence[int]) -> Iterator[MergeStep]:
    """The order of runs whose rows all have one key: one run after the other."""
    started = False
    for run, left in enumerate(rows):
        while left:
            count = min(left, _BATCH_ROWS_MAX)
            repeats = np.ones(count, np.bool_)
            repeats[0] = started
            yield MergeStep(np.full(count, run, np.uint16), repeats, np.zeros(count, np.uint64))
            left -= count
            started = True
