"""Writing a part: column by column, in bounded memory, invisible until it is complete.

A merge determines the order of rows from the key columns and then writes one column after the other, so the writer
takes columns rather than rows::

    writer = PartWriter(target, PartSpec(granules=8192, …))
    writer.append_keys([...])                 # primary key of all rows, in as many batches as you like
    writer.write_column("ts", batches)        # every stored column once, in any order, from any thread
    for index in writer.indexes: ...          # `writer.index(index)` takes the rows of each skip index
    manifest = writer.finish()                # or writer.abort()

`write_part` does all of this for a sorted block in memory. The result is a Wide part in the classic profile, which any
ClickHouse since 20.x reads, unless the table's settings select another (`format.files.profile`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import InternalError, error
from mergelake.core.model.manifest import Extent, FileTable, PartFile, PartManifest, ProjectionPart, encode_files
from mergelake.core.model.schema import Column
from mergelake.core.model.settings import TableSettings
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.codecs.hashes import FileDigest, digest
from mergelake.format.columns.compact import CompactColumn, compact_files
from mergelake.format.columns.many import Files
from mergelake.format.columns.reader import concatenate
from mergelake.format.columns.wide import ColumnWriter, pieces
from mergelake.format.files.checksums import encode_checksums
from mergelake.format.files.columns_txt import encode_columns
from mergelake.format.files.extremes import extremes
from mergelake.format.files.granules import block_bytes, cut_granules, granule_size
from mergelake.format.files.partition import WHOLE_TABLE, Partition
from mergelake.format.files.profile import Profile
from mergelake.format.files.ttl_txt import TTL_FILE
from mergelake.format.indexes.skip_files import is_index_file
from mergelake.format.serializations.names import escape_for_file_name, stream_file_name
from mergelake.format.serializations.values import encode_values
from mergelake.parts.read.default_codec import CODEC_FILE, default_codec
from mergelake.parts.write.indexing import BoundIndex, IndexSink, table_indexes, whole_array
from mergelake.parts.write.part_spec import PartSpec, PartTarget, ProjectionRows, SortedRows, TakenFiles
from mergelake.parts.write.projected import (
    WrittenProjection,
    projection_entries,
    projection_facts,
    projection_files,
    projection_folder,
)
from mergelake.parts.write.spool import Spool, SpoolFolder
from mergelake.store.metering.meter import Pool

UNLISTED = frozenset({"columns.txt", CODEC_FILE, "checksums.txt"})
"""Files that `checksums.txt` does not list."""
_PIECE_ROWS = 1 << 17
"""Rows that are encoded before their bytes are passed to the spool."""


class PartWriter:
    """Writes one part. Several threads may write columns, one thread each column."""

    def __init__(self, target: PartTarget, spec: PartSpec) -> None:
        schema, settings = target.schema, target.settings
        self.target, self.spec = target, spec
        self.part_id = spec.part_id or target.ids.new_id()
        self.rows = 0
        """Number of rows of the columns written so far."""
        self.created_ms = target.clock.now_ms()
        self._marks = _MarkRows(spec.granules)
        self._keys: list[list[pa.Array]] = []
        self._last_key: list[pa.Array] = []
        self._taken_keys: tuple[bytes, bytes] | None = None
        self._taken: TakenFiles | None = None
        self._columns = {column.name: column for column in schema.stored if column.name not in spec.without}
        self._written: dict[str, int] = {}
        self._digests: dict[str, FileDigest] = {}
        self.indexes: tuple[BoundIndex, ...] = table_indexes(schema)
        """Skip indexes of the table: each must be written with a sink, unless the part has no rows."""
        self._indexed: list[int] = []
        self._lock = threading.Lock()
        self.profile = Profile(settings.text("part_profile") == "modern", spec.compact, spec.continues)
        """Format options of the part."""
        self.codec = spec.codec or default_codec(settings)
        """Default codec of the part."""
        self._held: dict[str, CompactColumn] = {}
        limit = settings.integer("min_bytes_for_full_part_storage")
        self._spool: Spool | SpoolFolder = Spool(
            target.store, target.directory, self.part_id, limit=limit, objects=target.objects
        )
        self._projections: dict[str, WrittenProjection] = {}

    def append_keys(self, arrays: Sequence[pa.Array]) -> None:
        """Append the primary key (storage form) of the next rows; only values at marks are stored."""
        if not self.target.key_types or len(arrays[0]) == 0:
            return
        at = pa.array(self._marks.advance(len(arrays[0])))
        self._keys.append([_plain(array.take(at)) for array in arrays])
        self._last_key = [_plain(array.take(pa.array([len(array) - 1]))) for array in arrays]

    def take_keys(self, first: bytes, last: bytes) -> None:
        """Set the primary key of the first and the last row instead of `append_keys`; all rows are one granule."""
        self._taken_keys = first, last

    def write_column(self, name: str, batches: Iterable[pa.Array]) -> None:
        """Write one column from arrays in storage form, which need not end at granules."""
        sink = self.column(name)
        for batch in batches:
            sink.append(batch)
        sink.finish()

    def take_columns(self, columns: Mapping[str, Files], rows: int) -> None:
        """Add files of columns that were encoded together with those of other parts; all rows are one granule."""
        for files in columns.values():
            self._spool.take({file: data for file, (data, _) in files.items()})
            self._digests.update({file: file_digest for file, (_, file_digest) in files.items()})
        self._written.update(dict.fromkeys(columns, rows))
        if columns:
            self.rows = rows

    def take_files(self, taken: TakenFiles) -> None:
        """Set all columns and indexes, whose files are stored already or written as bytes, instead of writing them."""
        self._taken, self.rows = taken, taken.rows
        self._digests.update({file.name: digest_of(file) for file in taken.files})
        self._written = dict.fromkeys(self._columns, taken.rows)
        self._indexed = [taken.rows] * len(self.indexes)

    def column(self, name: str) -> ColumnSink:
        """A sink for one column, for callers that cannot use `write_column`."""
        column = self._columns.get(name)
        if column is None:
            raise error("NO_SUCH_COLUMN_IN_TABLE", f"Column {name} is not stored in this table")
        return ColumnSink(self, column)

    def index(self, index: BoundIndex) -> IndexSink:
        """A sink for the rows of one of `indexes`."""
        return IndexSink(
            index, self.target, self.spec.granules, self.codec, self.profile, self.write_bytes, self.index_done
        )

    def write_bytes(self, name: str, data: bytes | memoryview) -> None:
        """Append bytes to a file that no column sink writes."""
        if name not in self._spool:
            self._spool.claim(name)
        self._spool.write(name, data)

    def file_done(self, digests: Mapping[str, FileDigest]) -> None:
        """End and register files of `write_bytes`."""
        for name in digests:
            self._spool.claim(name)  # an empty file was not claimed by a write
            self._spool.close(name)
        with self._lock:
            self._digests.update(digests)

    def index_done(self, digests: Mapping[str, FileDigest], rows: int) -> None:
        """End and register the files of an index that has been written from `rows` rows."""
        self.file_done(digests)
        with self._lock:
            self._indexed.append(rows)

    def projection(self, name: str, digest: str, target: PartTarget, spec: PartSpec) -> ProjectionWriter:
        """A writer of a projection of this part, which must finish before it; `target` has the projection's schema."""
        own = replace(spec, part_id=f"{self.part_id}/{projection_folder(name)[:-1]}")
        return ProjectionWriter(self, name, digest, target, own)

    def projection_done(self, name: str, written: WrittenProjection) -> None:
        """Register a projection whose files are in the spool."""
        with self._lock:
            self._projections[name] = written

    def _completed(self) -> tuple[list[str], int, tuple[str, str]]:
        """Write the small files but `checksums.txt`; their names, the marks and the keys of first and last row."""
        missing = [name for name in self._columns if name not in self._written]
        if missing or len(set(self._written.values())) > 1:
            self.abort()
            raise InternalError(f"Columns differ in rows or are missing: {self._written}, without {missing}")
        if self.rows and self._indexed != [self.rows] * len(self.indexes):
            self.abort()
            raise InternalError(f"{len(self.indexes)} skip indexes have {self._indexed} rows, the part {self.rows}")
        granules = self.spec.granules
        if isinstance(granules, int):
            granules = cut_granules(self.rows, granules)
        marks = len(granules) if self.rows else 0
        if self._taken is not None:
            marks = self._taken.marks
        keys, key_range = self._primary_index(marks)
        if self.profile.compact:
            self._write_compact(granules[:marks])
        files = self._small_files(keys)
        for name, data in files.items():
            self._write_small(name, data)
        return list(files), marks, key_range

    def _checksums(self) -> bytes:
        listed = {name: d for name, d in self._digests.items() if name not in UNLISTED}
        return encode_checksums({**listed, **projection_entries(self._projections)})

    def finish(self) -> PartManifest:
        """Write the small files, `checksums.txt` last, and store all remaining files."""
        files, marks, key_range = self._completed()
        minmax = self.spec.minmax if self.rows else {}
        checksums = self._checksums()
        self._digests["checksums.txt"] = FileDigest(len(checksums), "")
        if self._spool.storage == "full":
            self._spool.put_last("checksums.txt", checksums)
        else:
            self._write_small("checksums.txt", checksums)
        front = ["checksums.txt", *files, *(n for n in self._digests if n.endswith(self.profile.mark_extension))]
        places = self._spool.finish(front)
        if self._taken is not None:
            places |= {file.name: file.extents for file in self._taken.files}
        table = table_rows(self._digests | projection_files(self._projections), places)
        return PartManifest(
            id=self.part_id,
            partition_id=self.spec.partition.id,
            rows=self.rows,
            files=encode_files(table),
            partition=self.spec.partition.data.hex(),
            minmax={name: (low.hex(), high.hex()) for name, (low, high) in minmax.items()},
            key_range=key_range,
            marks=marks,
            bytes_on_disk=sum(file.size for file in table),
            bytes_uncompressed=plain_bytes_of(table),
            columns=tuple(column.id for column in self._columns.values()),
            schema_version=self.target.schema.version,
            part_type="Compact" if self.profile.compact else "Wide",
            storage="full" if self._taken is not None and self._taken.files else self._spool.storage,
            level=self.spec.level,
            created_ms=self.created_ms,
            projections=projection_facts(self._projections),
            ttl=self.spec.ttl.infos,
        )

    @property
    def projections(self) -> Mapping[str, WrittenProjection]:
        """The projections that were written so far."""
        return self._projections

    @property
    def digests(self) -> Mapping[str, FileDigest]:
        """Digests of the files that were written so far."""
        return self._digests

    def store_files(self, small: Mapping[str, bytes]) -> dict[str, tuple[Extent, ...]]:
        """Store what was written and some small files more, without those of a whole part; returns all places."""
        checksums = "checksums.txt"
        self._spool.take({name: data for name, data in small.items() if name != checksums})
        if self._spool.storage == "full":
            self._spool.put_last(checksums, small[checksums])
        else:
            self._spool.take({checksums: small[checksums]})
        return self._spool.finish(small)

    def abort(self, *, delete: bool = True) -> None:
        """Stop uploads and delete stored objects (`delete=False` if others may be writing the same part)."""
        self._spool.abort(delete=delete)

    def _primary_index(self, marks: int) -> tuple[bytes, tuple[str, str]]:
        """The bytes of `primary.idx`, and the keys of the first and the last row."""
        if not self.target.key_types or not self.rows:
            return b"", ("", "")
        if self._taken is not None:
            return self._taken.primary, self._taken.key_range
        if self._taken_keys is not None:
            first, last = self._taken_keys
            return first + last, (first.hex(), last.hex())
        picked = [pa.concat_arrays([batch[i] for batch in self._keys]) for i in range(len(self.target.key_types))]
        if len(picked[0]) != marks or self._marks.rows != self.rows:
            self.abort()
            raise InternalError(f"The key columns have {self._marks.rows} rows, the others {self.rows}")
        last = encode_values(self._last_key, self.target.key_types)
        first = encode_values([array.slice(0, 1) for array in picked], self.target.key_types)
        return encode_values(picked, self.target.key_types) + last, (first.hex(), last.hex())

    def _small_files(self, primary: bytes) -> dict[str, bytes]:
        files = {self.profile.primary_index: primary} if self.target.key_types else {}
        if self.profile.serialization is not None:
            files["serialization.json"] = self.profile.serialization
        if self.target.schema.partition_by:
            files["partition.dat"] = self.spec.partition.data
        if self.rows:
            for name, (low, high) in self.spec.minmax.items():
                files[f"minmax_{stream_file_name(escape_for_file_name(name))}.idx"] = low + high
        files["count.txt"] = str(self.rows).encode()
        if self.spec.ttl.file:
            files[TTL_FILE] = self.spec.ttl.file
        types = {name: column.type for name, column in self._columns.items()}
        files["columns.txt"] = self.spec.listed or encode_columns(types)
        files[CODEC_FILE] = f"CODEC({self.codec})".encode()
        return files

    def _write_small(self, name: str, data: bytes) -> None:
        file_digest = digest(data)
        if name == self.profile.primary_index:
            data, file_digest = self.profile.pack(data)
        self._write_file(name, data, file_digest)

    def _write_file(self, name: str, data: bytes, file_digest: FileDigest) -> None:
        self._spool.take({name: data})
        self._digests[name] = file_digest

    def _write_compact(self, granules: NDArray[np.int64]) -> None:
        """The one data file of a Compact part, and its marks."""
        columns = [self._held[name] for name in self._columns]
        files, digests = compact_files(columns, granules, self.profile)  # max_compress_block_size is for Wide parts
        for name, data in files.items():
            self._write_file(name, data, digests[name])

    def column_writer(self, column: Column) -> ColumnWriter | CompactColumn:
        """The encoder of a column, by the table's settings and the type of the part."""
        settings = self.target.settings
        codec = parse_codec(column.codec, self.codec)
        if self.profile.compact:
            held = CompactColumn(column.name, column.type, codec, self.profile)
            self._held[column.name] = held
            return held
        return ColumnWriter(
            column.name,
            column.type,
            codec,
            min_block=settings.integer("min_compress_block_size"),
            max_block=settings.integer("max_compress_block_size"),
            profile=self.profile,
        )

    def _column_done(self, column: Column, rows: int, digests: Mapping[str, FileDigest]) -> None:
        with self._lock:
            for name, file_digest in digests.items():
                if self._digests.get(name, file_digest) != file_digest:
                    raise error(
                        "SIZES_OF_ARRAYS_DONT_MATCH",
                        f"Elements of the nested data structure of column {column.name} have different array sizes",
                    )
                self._digests[name] = file_digest
            self._written[column.name] = rows
            self.rows = rows


class ProjectionWriter(PartWriter):
    """Writes one projection of a part, into the files `<name>.proj/…` of that part."""

    def __init__(self, part: PartWriter, name: str, digest: str, target: PartTarget, spec: PartSpec) -> None:
        super().__init__(target, spec)
        self._part, self._name, self._definition = part, name, digest
        self._spool = SpoolFolder(part._spool, projection_folder(name))

    def finish(self) -> PartManifest:
        """Write the small files and register the projection with its part; the manifest is without files."""
        _, marks, key_range = self._completed()
        checksums = self._checksums()
        self._spool.take({"checksums.txt": checksums})
        self._digests["checksums.txt"] = FileDigest(len(checksums), "")
        facts = ProjectionPart(self._definition, self.rows, marks)
        self._part.projection_done(self._name, WrittenProjection(facts, self._digests))
        return PartManifest(self.part_id, self.spec.partition.id, self.rows, FileTable("[[],[]]"), key_range=key_range)


def table_rows(digests: Mapping[str, FileDigest], places: Mapping[str, tuple[Extent, ...]]) -> list[PartFile]:
    """The rows of a file table, by name."""
    return [
        PartFile(n, d.size, places[n], d.hash, d.uncompressed_size, d.uncompressed_hash)
        for n, d in sorted(digests.items())
    ]


def plain_bytes_of(files: Iterable[PartFile]) -> int:
    """Bytes of all columns before compression: skip indexes and projections are not counted."""
    return sum(
        f.uncompressed_size
        for f in files
        if f.uncompressed_size > 0 and not is_index_file(f.name) and ".proj/" not in f.name
    )


def digest_of(file: PartFile) -> FileDigest:
    """What `checksums.txt` says of a file."""
    return FileDigest(file.size, file.hash, file.uncompressed_size, file.uncompressed_hash)


class ColumnSink:
    """Writes one column of a `PartWriter`: arrays are cut at granules."""

    def __init__(self, part: PartWriter, column: Column) -> None:
        self._part = part
        self._column = column
        self._writer = part.column_writer(column)
        self._granules = part.spec.granules
        self._granule = 0
        self._pending: list[pa.Array] = []
        self._pending_rows = 0
        self._rows = 0
        self._own: set[str] = set()

    def append(self, array: pa.Array) -> None:
        """Append the next rows."""
        rows = len(array)
        self._rows += rows
        if self._pending_rows:
            wanted = self._granule_rows()
            head = min(rows, wanted - self._pending_rows)
            self._hold(array.slice(0, head))
            array = array.slice(head)
            if self._pending_rows == wanted:
                self._write(concatenate(self._pending), np.array([wanted], np.int64))
                self._pending, self._pending_rows = [], 0
        whole = self._whole_granules(len(array))
        if len(whole):
            count = int(whole.sum())
            self._write(array.slice(0, count), whole)
            array = array.slice(count)
        self._hold(array)

    def finish(self) -> None:
        """Write the last, shorter granule and the final marks."""
        if self._pending_rows:
            rest = concatenate(self._pending)
            self._write(rest, np.array([len(rest)], np.int64))
        self._pending, self._pending_rows = [], 0
        self._flush(self._writer.finish())
        digests = self._writer.digests()
        for name in digests:
            self._claim(name)
        for name in self._own:
            self._part._spool.close(name)
        self._part._column_done(self._column, self._rows, digests)

    def _granule_rows(self) -> int:
        """Rows of the current granule."""
        if isinstance(self._granules, int):
            return self._granules
        if self._granule >= len(self._granules):
            raise InternalError(f"Column {self._column.name} has more rows than the part's granules")
        return int(self._granules[self._granule])

    def _whole_granules(self, rows: int) -> NDArray[np.int64]:
        """Rows of the next granules that `rows` rows complete."""
        if isinstance(self._granules, int):
            granules = cut_granules(rows, self._granules)
            # An incomplete granule waits for more rows, unless no rows follow.
            return granules if self._rows == self._part.spec.expected_rows else granules[: rows // self._granules]
        rest = self._granules[self._granule :]
        filled: NDArray[np.int64] = rest[np.cumsum(rest) <= rows]
        return filled

    def _write(self, array: pa.Array, granule_rows: NDArray[np.int64]) -> None:
        """Encode whole granules in pieces that fit into the processor's cache."""
        self._granule += len(granule_rows)
        for start, stop, counts in pieces(granule_rows, _PIECE_ROWS):
            self._writer.append(array.slice(start, stop - start), counts)
            self._flush(self._writer.drain())

    def _hold(self, array: pa.Array) -> None:
        if len(array):
            self._pending.append(array)
            self._pending_rows += len(array)

    def _claim(self, name: str) -> bool:
        if name not in self._own and self._part._spool.claim(name):
            self._own.add(name)
        return name in self._own

    def _flush(self, drained: Iterable[tuple[str, bytes | memoryview]]) -> None:
        for name, data in drained:
            if self._claim(name):
                self._part._spool.write(name, data)


class _MarkRows:
    """Tracks which rows of a stream start a granule."""

    def __init__(self, granules: int | NDArray[np.int64]) -> None:
        self._granules = granules
        self.rows = 0

    def advance(self, rows: int) -> NDArray[np.int64]:
        """Positions of granule starts among the next `rows` rows."""
        first, self.rows = self.rows, self.rows + rows
        if isinstance(self._granules, int):
            return np.arange(-first % self._granules, rows, self._granules, dtype=np.int64)
        starts = np.cumsum(self._granules) - self._granules
        return starts[(starts >= first) & (starts < self.rows)] - first


def is_compact(settings: TableSettings, rows: int, plain_bytes: int) -> bool:
    """Whether a part of this size is written as Compact: ClickHouse's rule, with other defaults."""
    return plain_bytes < settings.integer("min_bytes_for_wide_part") or rows < settings.integer(
        "min_rows_for_wide_part"
    )


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def write_part(
    target: PartTarget,
    rows: SortedRows,
    *,
    partition: Partition = WHOLE_TABLE,
    level: int = 0,
    part_id: str | None = None,
    threads: int = 1,
    within: tuple[PartWriter, ProjectionRows] | None = None,
) -> PartManifest:
    """Write rows of one partition as a part; returns its manifest. `within`: they are a projection of that part."""
    settings, block, encoded = target.settings, rows.block, rows.encoded
    columns = {column.name: whole_array(block.column(column.name)) for column in target.schema.stored}
    plain_bytes = block_bytes(columns.values(), (column.type for column in target.schema.stored))
    settled = granule_size(
        block.num_rows,
        plain_bytes + block_bytes(rows.computed),
        settings.integer("index_granularity"),
        settings.integer("index_granularity_bytes"),
    )
    compact = is_compact(settings, block.num_rows, plain_bytes)
    codec = default_codec(settings, plain_bytes)
    if not block.num_rows:
        minmax: Mapping[str, tuple[bytes, bytes]] = {}
    elif encoded is not None:
        minmax = encoded.minmax
    else:
        minmax = {name: extremes(*source) for name, source in rows.partition_sources.items()}
    spec = PartSpec(
        cut_granules(block.num_rows, settled, compact=compact),
        partition,
        minmax,
        level,
        part_id,
        compact=compact,
        listed=encoded.listed if encoded is not None else None,
        codec=codec,
        ttl=rows.ttl,
    )
    if within is None:
        writer = PartWriter(target, spec)
    else:
        writer = within[0].projection(within[1].name, within[1].digest, target, spec)
    try:
        # What is encoded together has the codec of small parts.
        small = block.num_rows <= settled and codec == default_codec(settings)
        if encoded is not None and not compact and small:
            writer.take_keys(*encoded.keys)
            writer.take_columns(encoded.columns, block.num_rows)
            columns = {name: array for name, array in columns.items() if name not in encoded.columns}
        else:
            writer.append_keys(rows.primary)
        if threads > 1:
            with Pool(threads, thread_name_prefix="mergelake-column") as pool:
                work = [pool.submit(writer.write_column, name, [array]) for name, array in columns.items()]
                work += [pool.submit(_write_index, writer, index, block) for index in writer.indexes]
                for done in work:
                    done.result()
        else:
            for name, array in columns.items():
                writer.write_column(name, [array])
            for index in writer.indexes:
                _write_index(writer, index, block)
        for projection in rows.projections:
            write_projection(writer, projection)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


def write_projection(part: PartWriter, projection: ProjectionRows) -> None:
    """Write a projection of a part from rows in memory."""
    target = replace(part.target, schema=projection.schema, key_types=projection.key_types)
    write_part(target, projection.rows, partition=part.spec.partition, within=(part, projection))


def _write_index(writer: PartWriter, index: BoundIndex, block: pa.Table | pa.RecordBatch) -> None:
    if block.num_rows:
        sink = writer.index(index)
        sink.append(block)
        sink.finish()
