"""One source of a merge: its columns, in order, in batches, in the form of the newest schema.

The mutations that the part lacks are applied: a merge merges views. A column that was added after the part was written
has no files in it: it is computed from the part's other columns by its DEFAULT expression, or is the type's default.
(Names and types that have changed since are handled by the reader, which finds columns by id.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mergelake.core.base.text import quote_string
from mergelake.core.model.manifest import PartFile, PartManifest
from mergelake.core.model.schema import Column, TableSchema
from mergelake.expr import Compiled, compile_expression
from mergelake.format.serializations.defaults import default_array
from mergelake.format.serializations.names import streams_by_column
from mergelake.jobs.merge.view import Matches, find_matches, packed
from mergelake.log.model.state import PendingMutation
from mergelake.parts.read.fetch import is_remote
from mergelake.parts.read.reader import ROW_EXISTS, PartReader
from mergelake.parts.read.window import ReadWindow
from mergelake.store.interface.protocol import Store
from mergelake.table.pending.bound import Steps, bind_steps
from mergelake.table.pending.commands import Delete, parse_commands

Evaluate = Callable[[pa.RecordBatch], pa.Array]
_Coming = tuple[tuple[int, int], Callable[[], ReadWindow | None]]
"""A run of granules, and a function that waits for its bytes."""


def defaults_that_read(names: Collection[str], part: PartManifest, schema: TableSchema) -> frozenset[str]:
    """The columns that a part lacks whose defaults read some of these, or read such a column."""
    lacking = [column for column in schema.stored if column.id not in part.columns and column.default]
    reads = {column.name: _default(column, schema).columns for column in lacking}
    found = frozenset[str]()
    while more := {name for name, read in reads.items() if not {*names, *found}.isdisjoint(read)} - found:
        found |= more
    return found


def _default(column: Column, schema: TableSchema) -> Compiled:
    return compile_expression(f"CAST({column.default}, {quote_string(str(column.type))})", schema.types)


def deletes_lightly(mutations: Sequence[PendingMutation]) -> bool:
    """Whether all deletes of some mutations are lightweight ones."""
    commands = [command for mutation in mutations for command in parse_commands(mutation.commands)]
    return all(command.lightweight for command in commands if isinstance(command, Delete))


class SourceReader:
    """Reads one source. Threads may share it."""

    def __init__(
        self,
        store: Store,
        directory: str,
        schema: TableSchema,
        manifest: PartManifest,
        lacks: Sequence[PendingMutation] = (),
    ) -> None:
        self.rows = manifest.rows
        """Rows that `read` returns; after `find_matches`, without those that are deleted."""
        self._span = (0, manifest.rows)
        self._steps = bind_steps(lacks, schema, manifest.partition_id)
        self._lacks = lacks
        self._matches: Matches | None = None
        self._schema = schema
        self._held = frozenset(manifest.columns)
        # All columns of a Compact part lie in one file.
        self._share = manifest.bytes_uncompressed // max(1, len(self._held)) if manifest.part_type == "Compact" else 0
        columns = {column.name: column for column in schema.stored}
        written = None
        if manifest.schema_version == schema.version:
            by_id = {column.id: column for column in schema.stored}
            written = {by_id[i].name: by_id[i].type for i in manifest.columns if i in by_id}
        self._reader = PartReader(store, directory, manifest, columns, written=written)
        files = self._reader.files
        self._data_files: dict[str, list[PartFile]] = {
            name: [files[f"{stream}.bin"] for stream in streams]
            for name, streams in streams_by_column(files, columns).items()
        }

    def restrict(self, first: int, end: int) -> None:
        """Read the rows from `first` to `end` (exclusive) of the part alone. Has to be called before `find_matches`."""
        self._span, self.rows = (first, end), end - first

    def read_granules(self, names: Sequence[str], first: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of granules `first` to `end` (exclusive) of these columns, before mutations."""
        return self._read(names, self.manifest.rows, 0, [(first, end)])

    def column_bytes(self, name: str) -> int:
        """Approximate bytes of the column in memory; 0 if the part does not have it (under this name)."""
        if self._share and self._schema.column(name).id in self._held:
            return self._of_span(self._share)
        return self._of_span(sum(max(file.size, file.uncompressed_size) for file in self._data_files[name]))

    def _of_span(self, size: int) -> int:
        """The share of the rows that are read in a number of bytes of the whole part."""
        first, end = self._span
        return size * (end - first) // max(1, self.manifest.rows)

    def _marks(self) -> tuple[int, int]:
        """The granules with the rows that are read."""
        first, end = self._span
        if first == end:
            return 0, 0
        ends = np.cumsum(self._reader.granule_rows)
        return int(np.searchsorted(ends, first, side="right")), int(np.searchsorted(ends, end)) + 1

    @property
    def reader(self) -> PartReader:
        """The reader of the part."""
        return self._reader

    @property
    def manifest(self) -> PartManifest:
        """The part's manifest."""
        return self._reader.manifest

    def columns_after(self, *, matched: bool) -> frozenset[str]:
        """The columns that the part would have if the mutations that it lacks were written down.

        `matched`: those alone that match some row, which `find_matches` has found. As in ClickHouse a part some rows of
        which are deleted is written with all columns.
        """
        held = frozenset(column.name for column in self._schema.stored if column.id in self._held)
        found = self._matches.steps if self._matches is not None else None
        steps = found if matched else self._steps
        if steps is None:
            return held
        if steps.deletes and not deletes_lightly(self._lacks):
            return frozenset(column.name for column in self._schema.stored)
        return held | steps.touched | defaults_that_read(steps.touched, self.manifest, self._schema)

    @property
    def matches(self) -> Matches | None:
        """The result of `find_matches`."""
        return self._matches

    def find_matches(
        self, batch_rows: int, window_bytes: int, ranges: Sequence[tuple[int, int]] | None = None
    ) -> Matches | None:
        """Find the rows that pending mutations change, or the part's mask hides; None if there can be none.

        Has to be called before `read`. `ranges` are the marks that the mutations may match, if that is known.
        """
        if not self.rows or (self._steps is None and not self.manifest.masked):
            return None
        steps = self._steps if self._steps is not None else Steps((), self._schema.types)
        hidden = None
        total, (first, end) = self.manifest.rows, self._span
        starts = np.concatenate(([0], np.cumsum(self._reader.granule_rows)))
        masked = None
        if end - first < total:
            ranges = masked = [self._marks()]
        if self.manifest.masked:
            masks = self._reader.read([ROW_EXISTS], masked, batch_rows=batch_rows, with_deleted=True)
            at = int(starts[masked[0][0]]) if masked else 0
            hidden = packed((batch.column(0).to_numpy() == 0 for batch in masks), total, at)
        places = None
        if ranges is not None:
            places = [(int(starts[begin]), int(starts[end])) for begin, end in ranges]
        batches: Iterator[pa.RecordBatch] = iter(())
        if steps.steps and places != []:
            batches = self._read(steps.for_matches(), batch_rows, window_bytes, ranges)
        matches = find_matches(steps, batches, total, places, hidden)
        if matches.steps.steps or matches.deleted is not None:
            self._matches, self.rows = matches, matches.count(first, end)
        return self._matches

    def read(self, names: Sequence[str], batch_rows: int, window_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows of these columns of the view; arguments as for a read of the part (see `_read`)."""
        matches = self._matches
        if not self.rows:
            return iter(())
        if matches is None:
            return self._read(names, batch_rows, window_bytes)
        return self._changed(names, matches, self._read(matches.steps.sources(names), batch_rows, window_bytes))

    def read_with_deleted(self, names: Sequence[str], batch_rows: int, window_bytes: int) -> Iterator[pa.RecordBatch]:
        """Like `read`, with the rows that are deleted: as many rows as the part has."""
        matches = self._matches
        if matches is None:
            return self._read(names, batch_rows, window_bytes)
        batches = self._read(matches.steps.sources(names), batch_rows, window_bytes)
        return self._changed(names, replace(matches, deleted=None), batches)

    def _changed(
        self, names: Sequence[str], matches: Matches, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        first = self._span[0]
        for batch in batches:
            rows = batch.num_rows
            alive = matches.alive(first, rows)
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            if alive is not None and not alive.all():
                keep = pa.array(np.flatnonzero(alive))
                arrays = {name: array.take(keep) for name, array in arrays.items()}
            count = rows if alive is None else int(alive.sum())
            known = matches.known(first, rows, alive)
            first += rows
            if count:
                changed, _ = matches.steps.apply(arrays, count, names, known=known)
                yield pa.RecordBatch.from_arrays([changed[name] for name in names], list(names))

    def _read(
        self,
        names: Sequence[str],
        batch_rows: int,
        window_bytes: int,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All rows of these columns in storage form, about `batch_rows` at a time.

        About `window_bytes` of data are fetched together (at least those of a batch), as many sources are open at once.
        From a far store, the first window is being fetched when this returns.
        """
        computed: dict[str, Evaluate] = {}
        needed = dict.fromkeys(names)
        for name in names:
            default = self._computed(self._schema.column(name))
            if default is not None:
                computed[name], reads = default
                needed.pop(name)
                needed |= dict.fromkeys(reads)
        # A default without columns still needs the number of rows.
        wanted = list(needed) or [next(c.name for c in self._schema.stored if c.id in self._held)]
        stored = sum(file.size for name in wanted for file in self._data_files[name])
        row_bytes = (stored or self._share * len(wanted)) / max(1, self.manifest.rows)
        if is_remote(self._reader.store):
            window_bytes //= 2  # the next window is fetched meanwhile
        window_rows = max(batch_rows, int(window_bytes / max(row_bytes, 1e-3)))
        if ranges is not None:
            batches = self._reader.read(wanted, ranges, batch_rows=batch_rows, with_deleted=True)
        else:
            batches = self._batches(wanted, batch_rows, window_rows)
        if not computed:
            return batches

        def arrays(batch: pa.RecordBatch) -> list[pa.Array]:
            return [computed[name](batch) if name in computed else batch.column(name) for name in names]

        return (pa.RecordBatch.from_arrays(arrays(batch), list(names)) for batch in batches)

    def _batches(self, names: Sequence[str], batch_rows: int, window_rows: int) -> Iterator[pa.RecordBatch]:
        windows = self._windows(window_rows)
        if not is_remote(self._reader.store):
            batches = self._near(names, windows, batch_rows)
        else:
            # The first window is requested now, as a merge begins with all of its sources.
            batches = self._far(names, windows, batch_rows, self._begin(names, next(windows, None)))
        first, end = self._span
        return batches if end - first == self.manifest.rows else self._within(batches, first, end)

    def _within(self, batches: Iterator[pa.RecordBatch], first: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows from `first` to `end` of batches that begin with their granule."""
        granule, _ = self._marks()
        at = int(self._reader.granule_rows[:granule].sum())
        for batch in batches:
            low, high = max(first - at, 0), min(end - at, batch.num_rows)
            at += batch.num_rows
            if low < high:
                yield batch.slice(low, high - low)

    def _windows(self, window_rows: int) -> Iterator[tuple[int, int]]:
        """Runs of granules of about `window_rows` rows."""
        first, last = self._marks()
        granules = self._reader.granule_rows[first:last].tolist() if last else []
        rows = 0
        for end, granule in enumerate(granules, first + 1):
            rows += granule
            if rows >= window_rows or end == last:
                yield first, end
                first, rows = end, 0

    def _near(
        self, names: Sequence[str], windows: Iterator[tuple[int, int]], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        granules = len(self._reader.granule_rows) if self.manifest.rows else 0
        for first, end in windows:
            ranges = None if end - first == granules else [(first, end)]
            yield from self._reader.read(names, ranges, batch_rows=batch_rows, with_deleted=True)

    def _far(
        self, names: Sequence[str], windows: Iterator[tuple[int, int]], batch_rows: int, coming: _Coming | None
    ) -> Iterator[pa.RecordBatch]:
        while coming is not None:
            window, bodies = coming
            ahead = bodies()
            coming = self._begin(names, next(windows, None))
            yield from self._reader.read(names, [window], batch_rows=batch_rows, ahead=ahead, with_deleted=True)

    def _begin(self, names: Sequence[str], window: tuple[int, int] | None) -> _Coming | None:
        if window is None:
            return None
        return window, self._reader.begin(self._reader.needs(names, [window]))

    def _computed(self, column: Column) -> tuple[Evaluate, tuple[str, ...]] | None:
        """How a missing column with a default is computed, and from which columns; None for other columns."""
        if column.id in self._held:
            return None
        if column.default_kind == "EPHEMERAL" and not column.default:
            return (lambda block: default_array(column.type, block.num_rows)), ()
        if not column.default:
            return None
        compiled = _default(column, self._schema)
        inner = {name: self._computed(self._schema.column(name)) for name in compiled.columns}
        reads: dict[str, None] = {}
        for name, default in inner.items():
            reads |= dict.fromkeys((name,) if default is None else default[1])

        def evaluate(block: pa.RecordBatch) -> pa.Array:
            arrays = [block.column(name) if default is None else default[0](block) for name, default in inner.items()]
            if not arrays:  # a constant: the block only says how many rows
                return compiled.evaluate(block)
            return compiled.evaluate(pa.RecordBatch.from_arrays(arrays, list(inner)))

        return evaluate, tuple(reads)
