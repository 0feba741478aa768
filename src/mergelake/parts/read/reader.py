"""Reading a part: columns and mark ranges in, record batches out.

A read takes at most three rounds of requests: the small files with the part's layout, the marks of the columns (both
are cached), and the ranges of the data files. Batches are decoded one after the other; while one window of bytes is
decoded the next is fetched.

A part is read by column *id*, because it keeps the names that its columns had when it was written. A column that the
part does not have is read as the default value of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError, UnsupportedError
from mergelake.core.model.manifest import PartFile, PartManifest
from mergelake.core.model.schema import Column, TypeChange, unknown_column
from mergelake.core.types import types as t
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.columns.reader import ColumnReader, concatenate
from mergelake.format.files.columns_txt import decode_columns
from mergelake.format.files.layout import Layout, detect_layout
from mergelake.format.files.marks import Marks, start_marks
from mergelake.format.serializations.defaults import default_array, default_elements
from mergelake.format.serializations.streams import shared_sizes_stream
from mergelake.format.serializations.values import decode_values
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.evolve import converted
from mergelake.parts.read.fetch import FileRange, PartRanges, begin_parts, fetch_whole, is_remote, verified
from mergelake.parts.read.held import Held, held_key, is_data
from mergelake.parts.read.layout import locate
from mergelake.parts.read.steps import MarkRange, ReadStep, join_ranges, plan_steps, plan_windows
from mergelake.parts.read.window import ReadWindow, fetch_window, merge_ranges, plain_bytes
from mergelake.store.cache.cached import forget
from mergelake.store.interface.protocol import Buffer, Store
from mergelake.store.metering.meter import Pool

BATCH_ROWS = 65536
WINDOW_BYTES = 32 << 20
"""Bytes of data files that are requested together; two windows are in memory at a time."""
BATCH_PLAIN_BYTES = 1 << 30
"""Maximum uncompressed bytes of one column of a batch: Arrow's offsets are 32 bits."""

ROW_EXISTS = "_row_exists"
"""The column of ClickHouse's lightweight DELETE: 0 for deleted rows."""
BLOCK_NUMBER, BLOCK_OFFSET = "_block_number", "_block_offset"
"""Block and place in it with which a row was inserted; ClickHouse keeps them through merges if a table wants it."""
SYSTEM_COLUMNS = (ROW_EXISTS, BLOCK_NUMBER, BLOCK_OFFSET)
"""Columns that a part may have and its table has not: `SELECT *` does not show them."""

_PREFIXED = (t.LowCardinality, t.Variant, t.Dynamic, t.Json)
"""Types with streams that have a prefix before the first value: the first mark points behind it."""
HEADER_FILES = ("columns.txt", "serialization.json", "columns_substreams.txt")


@dataclass(frozen=True, slots=True)
class _Source:
    """How a requested column is read."""

    wanted: t.DataType
    stored: t.DataType | None = None
    """Type in the part; None if the part does not have the column."""
    reader: ColumnReader | None = None
    changes: tuple[TypeChange, ...] = ()
    """Changes of the type since the part was written."""
    lengths_only: bool = False
    """Whether another column of the same Nested is read, for the array lengths, because the part lacks the column."""

    @property
    def converts(self) -> bool:
        """Whether values have to be converted."""
        return bool(self.changes) or self.stored != self.wanted


class PartReader:
    """One part, open for reading. Thread-safe.

    `columns` are the table's current columns by name; `caches` holds marks and indexes and should be shared by all
    readers of a process; `threads` decode columns concurrently. `granularity` is the table's `index_granularity`, which
    only parts of tables without adaptive granules need. `written` are the part's columns, in its order, if they are
    known without `columns.txt`.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        manifest: PartManifest,
        columns: Mapping[str, Column],
        caches: PartCache | None = None,
        *,
        threads: int = 1,
        granularity: int = 8192,
        written: Mapping[str, t.DataType] | None = None,
    ) -> None:
        self.store = store
        self.directory = directory
        self.manifest = manifest
        self.columns = columns
        self.caches = caches if caches is not None else PartCache()
        self._threads = threads
        self._granularity = granularity
        self._key = (store.url, directory, manifest.id)
        self._files: dict[str, PartFile] | None = None
        self._names: dict[int, str] | None = None
        self._siblings: dict[str | None, str] | None = None
        self.written = written if written and len(written) == len(manifest.columns) else None
        """The part's columns, if they are known without `columns.txt`."""
        self._prefetched: dict[str, Buffer] = {}  # small files, not decoded yet
        self._first = ""  # the column whose marks determine the granules; the part's first if empty
        self._held: Held | None = None
        self.gap: int | None = None
        """As of `PartRanges`, for readers of a share of the part."""
        if is_remote(store):
            self.regain()

    has_index = True
    """Whether `primary_index` is that of the marks."""

    # -- properties of the part ----------------------------------------------------------------

    @property
    def files(self) -> dict[str, PartFile]:
        """The part's files by name."""
        if self._files is None:
            self._files = self.caches.get_or((*self._key, "files"), self._load_files)
        return self._files

    @property
    def layout(self) -> Layout:
        """Layout of the part, with its columns under the names that they have in it."""
        return self.caches.get_or((*self._key, "layout"), self._load_layout)

    @property
    def granule_rows(self) -> NDArray[np.int64]:
        """Rows of each granule, without the final mark."""
        return self.caches.get_or((*self._key, "granules"), self._load_granules)

    def primary_index(self, types: Sequence[t.DataType]) -> tuple[pa.Array, ...]:
        """The primary key at each mark, the final one (the last row) included; plain arrays, not dictionaries.

        `types` are those of the primary key's columns. Parts that were written without final marks have one value less.
        Empty for ORDER BY tuple() and for a part without rows.
        """
        return self.caches.get_or((*self._key, "primary", tuple(map(str, types))), lambda: self._load_primary(types))

    def has_column(self, name: str) -> bool:
        """Whether the part itself holds the table's column `name`."""
        return self._stored_name(self._column(name)) is not None

    @property
    def masked(self) -> bool:
        """Whether some rows are deleted by a mask: `read` leaves them out, but granules count them."""
        return ROW_EXISTS in self.system_columns

    @property
    def system_columns(self) -> tuple[str, ...]:
        """Those of `SYSTEM_COLUMNS` that the part has; in a patch part they are columns as any."""
        held = self.layout.columns
        return tuple(name for name in SYSTEM_COLUMNS if name in held and name not in self.columns)

    @property
    def live_rows(self) -> int:
        """Number of rows that `read` returns; the mask is read if there is one."""
        return sum(batch.num_rows for batch in self.read([])) if self.masked else self.manifest.rows

    def layout_name(self, name: str) -> str | None:
        """The name that the table's column `name` has in the part; None if the part does not have it."""
        return self._stored_name(self._column(name))

    def column_bytes(self, name: str, first: int, end: int) -> dict[str, tuple[int, int]]:
        """Data file -> bytes [start, end) that hold granules [first, end) of a column of the part."""
        return self._readers([name])[name].byte_ranges(first, end)

    def warm(self, columns: Iterable[str]) -> None:
        """Load the layout and the marks of columns, by as few requests as possible."""
        self._readers([name for name in columns if self.has_column(name)])

    def needs(self, columns: Iterable[str], ranges: Sequence[MarkRange]) -> list[FileRange]:
        """The byte ranges of data files that `read` will fetch, in order and disjoint."""
        if self.complete:
            return []
        wanted = [name for name in columns if self.has_column(name)]
        if self.masked:
            wanted = list(dict.fromkeys([*wanted, ROW_EXISTS]))
        readers = {n: s.reader for n, s in self._sources(wanted).items() if s.reader is not None}
        step = ReadStep(join_ranges(ranges), 0)
        needed = merge_ranges([FileRange(*need) for reader in readers.values() for need in _needs(reader, step)])
        held = self.held
        return [part for part in needed if held is None or not held.covers(part)]

    def front_files(self) -> list[str]:
        """The small files, which are at the front of a packed part and are fetched together."""
        return [name for name in self.files if not is_data(name)]

    @property
    def held(self) -> ReadWindow | None:
        """Whole data files in memory."""
        return self._held.data if self._held is not None else None

    @property
    def complete(self) -> bool:
        """Whether all files of the part are in memory."""
        return self._held is not None and self._held.complete

    @property
    def held_files(self) -> Mapping[str, Buffer]:
        """Whole files in memory, by name."""
        return self._held.files if self._held is not None else {}

    def hold(self, files: Mapping[str, Buffer]) -> None:
        """Hold all files of the part in this reader, without caching them."""
        self._held = Held(files, complete=True)

    def part_ranges(self, ranges: Sequence[FileRange]) -> PartRanges:
        """Ranges of this part's files, as `fetch_parts` takes them."""
        return PartRanges(self.directory, self.files, ranges, self.gap)

    def begin(self, ranges: Sequence[FileRange]) -> Callable[[], ReadWindow | None]:
        """Request ranges of data files (see `needs`); the returned function waits for the window `ahead` of `read`."""
        if not ranges:
            return lambda: self.held
        bodies = begin_parts(self.store, [self.part_ranges(ranges)])
        return lambda: ReadWindow(ranges, bodies()[0], self.held)

    def fetch_file(self, name: str) -> bytes:
        """A whole file from the store; its hash is not checked."""
        return bytes(fetch_whole(self.store, self.directory, self.files, [name])[0])

    def bytes_of(self, ranges: Sequence[FileRange]) -> list[memoryview]:
        """The bytes of ranges of data files; those not in memory are fetched."""
        window = fetch_window(self.store, self.directory, self.files, ranges, self.held, self.gap)
        return [window.get(part.name, part.start, part.end) for part in ranges]

    def take(self, files: Mapping[str, Buffer], *, complete: bool, first: str = "") -> None:
        """Add prefetched whole files. Data files are cached, and if the files are `complete`, all of them.

        `first` is a column that will be read: its marks will determine the granules.
        """
        self._first = first
        kept = dict(files) if complete else {name: body for name, body in files.items() if is_data(name)}
        if not complete:
            self._prefetched |= {name: body for name, body in files.items() if not is_data(name)}
        if kept:
            self._held = Held({**self.held_files, **kept}, complete=complete)
            self.caches.data.put(held_key(self._key), self._held, self._held.bytes)

    def regain(self) -> None:
        """Hold the whole files of the part that are cached."""
        if self._held is None:
            kept = self.caches.data.get(held_key(self._key))
            self._held = kept if isinstance(kept, Held) else None

    def let_go(self) -> None:
        """Release all files; `regain` gets those back that are cached."""
        self._prefetched, self._held = {}, None

    def forget_small(self) -> None:
        """Release prefetched small files after they were decoded."""
        self._prefetched = {}

    @property
    def cache_key(self) -> tuple[str, str, str]:
        """Prefix of the keys of this part's entries in `caches`."""
        return self._key

    # -- reading -------------------------------------------------------------------------------

    def read(
        self,
        columns: Sequence[str],
        ranges: Sequence[MarkRange] | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        threads: int | None = None,
        ahead: ReadWindow | None = None,
        with_deleted: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of half-open mark ranges (default: all), as batches of about `batch_rows` rows in storage form.

        Ranges are ascending and disjoint; a batch may span several. `ahead` has prefetched bytes. `with_deleted`: also
        the rows that a mask deletes (`masked`). Raises
        `CorruptDataError`, with the object and the offset in it, for invalid bytes.
        """
        requested = list(columns)
        if masked := self.masked and not with_deleted:
            columns = list(dict.fromkeys([*columns, ROW_EXISTS]))
        whole = ranges is None and self.manifest.rows <= batch_rows and not self.layout.compact
        sources = self._sources(columns, whole=whole)
        granules = self._common_granules(sources)
        steps = plan_steps(granules, [(0, len(granules))] if ranges is None else ranges, batch_rows)
        readers = {name: source.reader for name, source in sources.items() if source.reader is not None}
        windows = [(0, 1)]
        if len(steps) != 1:
            sizes = [sum(end - start for r in readers.values() for _, start, end in _needs(r, step)) for step in steps]
            windows = plan_windows(sizes, WINDOW_BYTES)
        under = ahead if ahead is not None else self.held
        with ExitStack() as stack:
            behind = stack.enter_context(Pool(1)) if len(windows) > 1 else None
            workers = threads if threads is not None else self._threads
            pool = stack.enter_context(Pool(workers)) if workers > 1 and len(columns) > 1 else None
            following: Future[ReadWindow] | None = None
            for number, (start, stop) in enumerate(windows):
                window = following.result() if following is not None else self._fetch(readers, steps[start:stop], under)
                following = None
                if behind is not None and number + 1 < len(windows):
                    after = windows[number + 1]
                    following = behind.submit(self._fetch, readers, steps[after[0] : after[1]], under)
                for step in steps[start:stop]:
                    for piece in self._bounded(sources, window, step):
                        batch = self._batch(sources, window, piece, pool)
                        yield _alive(batch, requested) if masked else batch

    def _fetch(
        self, readers: Mapping[str, ColumnReader], steps: Sequence[ReadStep], under: ReadWindow | None
    ) -> ReadWindow:
        if under is not None and self.complete:
            return under
        wanted = [FileRange(*need) for step in steps for reader in readers.values() for need in _needs(reader, step)]
        return fetch_window(self.store, self.directory, self.files, wanted, under, self.gap)

    def _bounded(self, sources: Mapping[str, _Source], window: ReadWindow, step: ReadStep) -> list[ReadStep]:
        """The step, halved until the uncompressed bytes of every column are at most `BATCH_PLAIN_BYTES`."""
        if sum(end - first for first, end in step.ranges) < 2:
            return [step]
        for source in sources.values():
            if source.reader is None or source.stored is None or not _is_variable(source.stored):
                continue
            needs = _needs(source.reader, step)
            plain = sum(plain_bytes(window.get(file, start, end)) for file, start, end in needs)
            if plain > BATCH_PLAIN_BYTES:
                left, right = _halves(step, self.granule_rows)
                return self._bounded(sources, window, left) + self._bounded(sources, window, right)
        return [step]

    def _batch(
        self, sources: Mapping[str, _Source], window: ReadWindow, step: ReadStep, pool: Executor | None
    ) -> pa.RecordBatch:
        def column(source: _Source) -> pa.Array:
            return self._decode(source, window, step)

        arrays = list(pool.map(column, sources.values()) if pool is not None else map(column, sources.values()))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), step.rows, [None]))
        fields = [
            pa.field(name, array.type, nullable=t.is_nullable(source.wanted))
            for (name, source), array in zip(sources.items(), arrays, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _decode(self, source: _Source, window: ReadWindow, step: ReadStep) -> pa.Array:
        reader = source.reader
        if reader is None or source.stored is None:
            return default_array(source.wanted, step.rows)
        pieces: list[pa.Array] = []
        for first, end in step.ranges:
            ranges = reader.byte_ranges(first, end)
            data = {file: window.get(file, start, stop) for file, (start, stop) in ranges.items()}
            try:
                pieces.append(reader.decode(first, end, data))
            except CorruptDataError as problem:
                raise self._located(problem, ranges, data) from None
        if source.lengths_only:
            return default_elements(source.wanted, concatenate(pieces))
        array = concatenate(pieces)
        return converted(array, source.stored, source.wanted, source.changes) if source.converts else array

    def _located(
        self, problem: CorruptDataError, ranges: Mapping[str, tuple[int, int]], data: Mapping[str, memoryview]
    ) -> CorruptDataError:
        """Add the object that holds the bad bytes, and the offset in it, to the error.

        Decoding errors do not tell the file, so the first file with a bad compressed block is taken.
        """
        guilty, offset = next(iter(ranges)), max(problem.offset, 0)
        for file, body in data.items():
            try:
                decode_compressed_blocks(body)
            except CorruptDataError as broken:
                guilty, offset = file, ranges[file][0] + max(broken.offset, 0)
                break
            except UnsupportedError:
                continue  # not the error that was raised
        else:
            guilty = next((f for f, (low, high) in ranges.items() if low <= offset < high), guilty)
        problem.object_key, problem.offset = locate(self.directory, self.files[guilty], offset)
        forget(self.store, problem.object_key)
        problem.file = guilty
        return problem

    # -- columns -------------------------------------------------------------------------------

    def _column(self, name: str) -> Column:
        column = self.columns.get(name)
        if column is None and name in self.system_columns:
            place = list(self.layout.columns).index(name)
            return Column(self.manifest.columns[place], name, self.layout.columns[name])
        if column is None:
            raise unknown_column(name, list(self.columns))
        return column

    def _stored_name(self, column: Column) -> str | None:
        """The column's name in the part; None if the part does not have it."""
        if self._names is None:
            self._names = self._load_names()
        return self._names.get(column.id)

    def _load_names(self) -> dict[int, str]:
        """The names of the part's columns by their ids."""
        ids, names = self.manifest.columns, self.layout.columns
        if len(ids) != len(names):
            raise CorruptDataError(
                "columns.txt does not fit the manifest",
                object_key=locate(self.directory, self.files["columns.txt"], 0)[0],
                expected=f"{len(ids)} columns",
                found=f"{len(names)}",
            )
        return dict(zip(ids, names, strict=True))

    def _sources(self, names: Sequence[str], *, whole: bool = False) -> dict[str, _Source]:
        """How to read each column; `whole`: from the first row to the last at once."""
        columns = {name: self._column(name) for name in names}
        stored = {name: self._stored_name(column) for name, column in columns.items()}
        siblings = {name: self._sibling(column) for name, column in columns.items() if stored[name] is None}
        wanted = [name for name, stored_name in stored.items() if stored_name is not None]
        readers = self._readers(list(dict.fromkeys([*wanted, *filter(None, siblings.values())])), whole=whole)
        out: dict[str, _Source] = {}
        for name, column in columns.items():
            source = siblings.get(name, name)
            if source is None:
                out[name] = _Source(column.type)
            else:
                kind = self.layout.columns[str(self._stored_name(self._column(source)))]
                changes = column.changed_since(self.manifest.schema_version)
                out[name] = _Source(column.type, kind, readers[source], changes, lengths_only=source != name)
        return out

    def _sibling(self, column: Column) -> str | None:
        """A column of the same Nested that the part has, for a `column` that it lacks; None if there is none."""
        sizes = shared_sizes_stream(column.name, column.type)
        if not sizes:
            return None
        if self._siblings is None:
            present = [other for other in self.columns.values() if self._stored_name(other) is not None]
            self._siblings = {shared_sizes_stream(other.name, other.type): other.name for other in reversed(present)}
        return self._siblings.get(sizes)

    def _readers(self, names: Sequence[str], *, whole: bool = False) -> dict[str, ColumnReader]:
        """Readers of columns that the part has; loads missing marks in one round of requests.

        `whole`: marks are not loaded for columns of a Wide part whose streams begin with the first value.
        """
        layout = self.layout
        stored = {name: str(self._stored_name(self._column(name))) for name in names}
        readers = {name: self.caches.get((*self._key, "column", stored_name)) for name, stored_name in stored.items()}
        missing = [name for name, reader in readers.items() if reader is None]
        files = {name: layout.mark_files(stored[name], layout.columns[stored[name]]) for name in missing}
        unmarked = {name for name in missing if whole and self._needs_no_marks(layout.columns[stored[name]])}
        marks = self._marks(list({file: None for name in missing if name not in unmarked for file in files[name]}))
        start = start_marks(self.granule_rows) if unmarked else None
        for name in missing:
            stored_name = stored[name]
            kind = layout.columns[stored_name]
            own = {file: start if start and name in unmarked else marks[file] for file in files[name]}
            sizes = {file: self.files[file].size for file in layout.data_files(stored_name, kind)}
            if not own:
                raise CorruptDataError(f"Column {stored_name} of type {kind} has no files", object_key="columns.txt")
            with self._naming(next(iter(own))):
                reader = ColumnReader(stored_name, kind, layout, own, sizes)
            if name not in unmarked:
                size = sum(m.offset.nbytes + m.skip.nbytes + m.rows.nbytes for m in own.values())
                self.caches.put((*self._key, "column", stored_name), reader, size + 1000)
            readers[name] = reader
        return {name: reader for name, reader in readers.items() if isinstance(reader, ColumnReader)}

    def _needs_no_marks(self, kind: t.DataType) -> bool:
        """Whether a column can be read whole without marks."""
        return not t.holds(kind, *_PREFIXED)

    def _marks(self, names: Sequence[str]) -> dict[str, Marks]:
        layout = self.layout
        kept = {name: self.caches.get((*self._key, "marks", name)) for name in names}
        out = {name: marks for name, marks in kept.items() if isinstance(marks, Marks)}
        for name, data in self.small_files([name for name in names if name not in out]).items():
            with self._naming(name):
                out[name] = layout.parse_marks(name, data)
        return out

    # -- small files ---------------------------------------------------------------------------

    def small_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """Those of the small files that exist, after checking their hashes.

        All small files of a packed part are fetched by one request and cached.
        """
        present = [name for name in names if name in self.files]
        if self.manifest.storage == "packed" and present and not self.complete:
            front = self.caches.get_or((*self._key, "front"), self._load_front)
            return {name: front[name] for name in present}
        return self._whole(present)

    def _whole(self, names: Sequence[str]) -> dict[str, bytes]:
        in_memory = self._prefetched if self._held is None else {**self._held.small, **self._prefetched}
        bodies = {name: in_memory[name] for name in names if name in in_memory}
        missing = [name for name in names if name not in bodies]
        bodies |= zip(missing, fetch_whole(self.store, self.directory, self.files, missing), strict=True)
        return {name: verified(self.store, self.directory, self.files[name], bytes(bodies[name])) for name in names}

    def _load_front(self) -> tuple[dict[str, bytes], int]:
        front = self._whole(self.front_files())
        return front, sum(map(len, front.values())) + 200 * len(front)

    def _load_files(self) -> tuple[dict[str, PartFile], int]:
        return self.manifest.file_table(), 5 * len(self.manifest.files.text)  # estimated size of the decoded table

    def _load_layout(self) -> tuple[Layout, int]:
        known_columns = self.written
        small = self.small_files(HEADER_FILES if known_columns is None else HEADER_FILES[1:])
        if known_columns is None and "columns.txt" not in small:
            raise CorruptDataError("The part has no columns.txt", object_key=self._where("columns.txt"))
        with self._naming("columns.txt"):
            columns = known_columns if known_columns is not None else decode_columns(small["columns.txt"])
        with self._naming("serialization.json"):
            detected = detect_layout(
                self.files.keys(), small, columns, granularity=self._granularity, rows=self.manifest.rows
            )
        return detected, sum(map(len, small.values())) + 500 * len(columns) + 100 * len(self.files)

    def _load_granules(self) -> tuple[NDArray[np.int64], int]:
        """Rows of granules, from the marks of one column: all columns have the same."""
        layout = self.layout
        name, kind = next(iter(layout.columns.items()))
        if self._first in self.columns and (first_stored := self.layout_name(self._first)) is not None:
            name, kind = first_stored, layout.columns[first_stored]
        (file,) = layout.mark_files(name, kind)[:1]
        read = self.caches.get((*self._key, "column", name))
        if isinstance(read, ColumnReader):
            return read.granule_rows, read.granule_rows.nbytes + 100
        marks = self._marks([file])[file]
        rows = marks.granule_rows
        self._check_rows(rows, file)
        # Cached, because the column itself is often read next.
        self.caches.put((*self._key, "marks", file), marks, 3 * rows.nbytes + 100)
        return rows, rows.nbytes + 100

    def _check_rows(self, rows: NDArray[np.int64], file: str) -> None:
        if int(rows.sum()) != self.manifest.rows:
            raise CorruptDataError(
                "The marks have other rows than the part",
                object_key=self._where(file),
                expected=f"{self.manifest.rows} rows",
                found=f"{int(rows.sum())}",
            )

    def _common_granules(self, sources: Mapping[str, _Source]) -> NDArray[np.int64]:
        """Rows of granules, from the loaded marks of the columns. Raises `CorruptDataError` if they differ."""
        readers = [source.reader for source in sources.values() if source.reader is not None]
        if not readers:
            return self.granule_rows
        rows = readers[0].granule_rows
        self._check_rows(rows, readers[0].files()[0])
        for reader in readers:
            if reader.granule_rows is not rows and not np.array_equal(reader.granule_rows, rows):
                raise CorruptDataError(
                    f"Columns {readers[0].name} and {reader.name} have different granules",
                    object_key=self._where(reader.files()[0]),
                )
        return rows

    def _load_primary(self, types: Sequence[t.DataType]) -> tuple[tuple[pa.Array, ...], int]:
        name = next((name for name in ("primary.idx", "primary.cidx") if name in self.files), None)
        if name is None or not self.manifest.rows or not types:
            return (), 100
        data = self.small_files([name])[name]
        marks = self.manifest.marks
        with self._naming(name):
            plain = decode_compressed_blocks(data) if name.endswith(".cidx") else data
            try:
                columns = decode_values(plain, types, marks + 1)
            except CorruptDataError:
                if self.layout.mark_extension == ".mrk2":
                    raise
                columns = decode_values(plain, types, marks)  # a part without final marks
        return columns, sum(column.nbytes for column in columns) + 100

    def _where(self, name: str) -> str:
        if name in self.files:
            return locate(self.directory, self.files[name], 0)[0]
        return f"{self.directory}/{self.manifest.id}/{name}"

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Add the object (and the offset in it) of the small file `name` to errors that decoding it raises."""
        try:
            yield
        except CorruptDataError as problem:
            if not problem.object_key:
                if name in self.files and problem.offset >= 0:
                    problem.object_key, problem.offset = locate(self.directory, self.files[name], problem.offset)
                else:
                    problem.object_key = self._where(name)
                forget(self.store, problem.object_key)
                problem.file = name
            raise


def _alive(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The rows that are not deleted by the mask, with these columns."""
    mask = pc.not_equal(batch.column(ROW_EXISTS), 0)
    kept = batch.select(columns)
    if columns:
        return kept.filter(mask)
    rows = int(pc.sum(mask).as_py() or 0)
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))


def _needs(reader: ColumnReader, step: ReadStep) -> list[tuple[str, int, int]]:
    """(file, start, end) of the bytes that a column needs for a step."""
    return [(f, a, b) for first, end in step.ranges for f, (a, b) in reader.byte_ranges(first, end).items()]


def _halves(step: ReadStep, granule_rows: NDArray[np.int64]) -> tuple[ReadStep, ReadStep]:
    """Two steps with half of the granules each."""
    granules = [g for first, end in step.ranges for g in range(first, end)]
    middle = granules[len(granules) // 2]
    left = tuple((first, min(end, middle)) for first, end in step.ranges if first < middle)
    right = tuple((max(first, middle), end) for first, end in step.ranges if end > middle)
    rows = sum(int(granule_rows[first:end].sum()) for first, end in left)
    return ReadStep(left, rows), ReadStep(right, step.rows - rows)


def _is_variable(data_type: t.DataType) -> bool:
    nested = (t.Array, t.Map, t.Tuple, t.AggregateFunction, t.Variant, t.Dynamic, t.Json)
    return isinstance(data_type, nested) or isinstance(t.inner_type(data_type), t.String)
