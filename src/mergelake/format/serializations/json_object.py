"""JSON columns: each path a column of its own, as far as a part's limit goes, the others together.

`.object_structure` tells the paths: u64 version (0, 2 or 4), in version 0 a varuint limit; varuint count and paths
that are columns of type Dynamic, ascending; in version 4 a varuint form of the shared data and, but for form 0, a
varuint of buckets; then statistics, as of Dynamic. Data are the paths that the type names, in order, those Dynamic
columns, and the shared data: paths and values (type and value as bytes) of each row, paths ascending, strings
inline::

    0 map            .object_shared_data.size0, %2Epaths, %2Evalues: an array of pairs
    1 buckets        the same for each bucket, .object_shared_data.<n>: a path lies in one of them
    2, 3 advanced    for each bucket what finds single paths, for chunks of rows; and a copy of everything:
                     .object_shared_data.copy.sizes, .paths_indexes (in the list of the chunk's paths), .values

We write every path that the type does not name as shared data of form 0.

Source: ClickHouse, `SerializationObject.cpp`, `SerializationObjectSharedData.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.type_binary import encode_type
from mergelake.core.types.varuint import write_varuint
from mergelake.format.kernels.memory import region
from mergelake.format.serializations import ragged
from mergelake.format.serializations.defaults import default_array
from mergelake.format.serializations.nested import ArraySerialization
from mergelake.format.serializations.ragged import VarBinaryColumn
from mergelake.format.serializations.scalars import INT32_MAX, InlineString
from mergelake.format.serializations.serialization import (
    Bounds,
    OneCursor,
    Serialization,
    Sink,
    StreamCursor,
    StreamSource,
    as_numpy,
    coerced,
    refuse_nulls,
)
from mergelake.format.serializations.values import binary_cells, decode_values, encode_cells
from mergelake.format.serializations.variant import (
    NULL,
    DynamicSerialization,
    read_count,
    read_text,
    read_varuint,
    skip_statistics,
)

_LIMITED, _NAMES, _FORMS = 0, 2, 4
"""Versions of a structure: with the limit of paths, with their names, with the form of shared data as well."""
_MAP, _BUCKETS, _ADVANCED, _CHUNKED = range(4)
_BUCKETS_MAX = 256
_CHUNK_MARKS = 48
"""Bytes of positions behind each list of paths of a chunk, which only readers of single paths need."""


@dataclass(frozen=True, slots=True)
class _Paths:
    """The content of `.object_structure`."""

    dynamic: tuple[tuple[bytes, DynamicSerialization], ...]
    """Paths that are columns of their own."""
    form: int
    """Of the shared data."""
    buckets: int


@dataclass(slots=True)
class _Entries:
    """Paths and values of many rows, collected piece by piece in any order."""

    # Piece i has a row, a path (a number by `names`) and the bytes of type and value for each of its entries.

    names: dict[bytes, int] = field(default_factory=dict)
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    paths: list[NDArray[np.int64]] = field(default_factory=list)
    cells: list[VarBinaryColumn] = field(default_factory=list)

    def add(
        self, rows: NDArray[np.int64], names: Sequence[bytes], at: NDArray[np.int64], cells: VarBinaryColumn
    ) -> None:
        """Values of the paths `names[at]` in `rows`."""
        known = np.array([self.names.setdefault(name, len(self.names)) for name in names], np.int64)
        self.rows.append(rows)
        self.paths.append(known[at])
        self.cells.append(cells)

    def array(self, kind: pa.DataType, rows: int) -> pa.Array:
        """All entries as one object a row, the paths of each in ascending order."""
        row = np.concatenate([np.zeros(0, np.int64), *self.rows])
        path = np.concatenate([np.zeros(0, np.int64), *self.paths])
        names = sorted(self.names)
        rank = np.empty(len(names), np.int64)
        rank[[self.names[name] for name in names]] = np.arange(len(names))
        order = np.lexsort((rank[path], row))
        sizes = np.bincount(row, minlength=rows)
        whole = ragged.pick(ragged.concat(self.cells), order)
        texts = pa.array(names, pa.binary()).take(pa.array(rank[path][order]))
        entries = pa.StructArray.from_arrays([texts, _binary(whole)], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(pa.array(ragged.offsets_of(sizes).astype(np.int32)), entries, type=kind)


def _binary(cells: VarBinaryColumn) -> pa.Array:
    if cells.offsets[-1] > INT32_MAX:
        raise error("TOO_LARGE_STRING_SIZE", "More than 2 GiB of JSON values in one piece", "Read fewer rows at once")
    buffers = [None, pa.py_buffer(cells.offsets.astype(np.int32)), pa.py_buffer(cells.data)]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers)


class Pairs:
    """Shared data as an array of paths and one of values, under one stream of sizes."""

    def __init__(self, path: str, depth: int) -> None:
        self.sizes = ArraySerialization(f"{path}.size{depth}", InlineString(f"{path}%2Epaths"), pa.list_(pa.binary()))
        self.values = InlineString(f"{path}%2Evalues")

    def streams(self) -> Iterator[str]:
        """Names of the streams, in the order of a Compact part."""
        yield from self.sizes.streams()
        yield from self.values.streams()

    def encode(self, offsets: pa.Array, paths: pa.Array, values: pa.Array, bounds: Bounds, out: Sink) -> None:
        """Write rows of `paths` and `values`; row i has those from `offsets[i]` to `offsets[i + 1]`."""
        self.sizes.encode(pa.ListArray.from_arrays(offsets, paths), bounds, out)
        self.values.encode(values, np.asarray(offsets).astype(np.int64)[bounds], out)

    def read(self, source: StreamSource, rows: int, into: _Entries) -> None:
        """Read `rows` rows."""
        paths = self.sizes.decode(source, rows, np.array([rows], np.int64))
        values = self.values.decode(source, len(paths.values), np.array([len(paths.values)], np.int64))
        at = paths.values.dictionary_encode()
        row = np.repeat(np.arange(rows), np.diff(np.asarray(paths.offsets)))
        into.add(row, at.dictionary.to_pylist(), np.asarray(at.indices).astype(np.int64), binary_cells(values))


class JsonSerialization(Serialization):
    """Path and value of everything in each object, `list<struct<path, value>>`."""

    def __init__(
        self,
        path: str,
        kind: t.Json,
        depth: int,
        typed: Sequence[Serialization],
        dynamic: Callable[[str], DynamicSerialization],
    ) -> None:
        self.structure = path + ".object_structure"
        self.kind = kind
        self.arrow = storage_type(kind)
        self.shared = path + ".object_shared_data"
        self._depth = depth
        self._typed = [
            (name.encode(errors="surrogateescape"), encode_type(each), each, node)
            for (name, each), node in zip(kind.typed, typed, strict=True)
        ]
        self.own_streams, self.children = (self.structure,), tuple(typed)
        self._dynamic = dynamic
        self._pairs = Pairs(self.shared, depth)
        self._begun = False

    def streams(self) -> Iterator[str]:
        """Names of the streams that we write; a part that ClickHouse wrote has those of its paths, too."""
        yield from super().streams()
        yield from self._pairs.streams()

    # -- writing

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        refuse_nulls(array, nulls=nulls)
        if nulls and array.null_count:
            array = array.fill_null([])
        array = coerced(array, self.arrow)
        if not self._begun:
            # version 0, the limit, no paths that are columns, and empty statistics
            body = bytes(8) + write_varuint(self.kind.max_paths) + b"\0\0"
            out.put(self.structure, region(body), None)
            self._begun = True
        out.put(self.structure, region(b""), bounds * 0)
        entries, edges = ragged.list_elements(array)
        row = np.repeat(np.arange(len(array)), np.diff(edges))
        paths, values = entries.field("path"), entries.field("value")
        untyped = np.ones(len(row), np.bool_)
        for name, head, kind, node in self._typed:
            at_path = np.asarray(pa.compute.equal(paths, pa.scalar(name, pa.binary())))
            untyped &= ~at_path
            column = _typed_values(values.filter(pa.array(at_path)), row[at_path], len(array), head, kind)
            node.encode(column, bounds, out)
        keep = pa.array(untyped)
        offsets = ragged.offsets_of(np.bincount(row[untyped], minlength=len(array)))
        self._pairs.encode(pa.array(offsets.astype(np.int32)), paths.filter(keep), values.filter(keep), bounds, out)

    # -- reading

    def prefix(self, source: StreamSource) -> None:
        """Read what comes before a granule of a Compact part."""
        cursor = source.stream(self.structure)
        paths, version = self._paths(cursor)
        if version != _FORMS or cursor.take(1).byte(0):
            skip_statistics(cursor, len(paths.dynamic))
        source.notes[self.structure] = paths
        super().prefix(source)
        for _, dynamic in paths.dynamic:
            dynamic.prefix(source)

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        if self.structure not in source.notes:
            source.notes[self.structure], _ = self._paths(source.start(self.structure))
        paths: _Paths = source.notes[self.structure]
        entries = _Entries()
        every = np.arange(rows)
        for name, head, kind, node in self._typed:
            cells = encode_cells(node.decode(source, rows, np.array([rows], np.int64)), kind)
            whole = ragged.join([ragged.repeat(head, rows), cells])
            entries.add(every, [name], np.zeros(rows, np.int64), whole)
        for name, dynamic in paths.dynamic:
            which, cells = dynamic.cells(source, rows)
            present = every[which != NULL]
            ends = np.append(cells.offsets[:-1][present], cells.offsets[-1])  # what is NULL has no bytes
            entries.add(present, [name], np.zeros(len(present), np.int64), VarBinaryColumn(cells.data, ends))
        if paths.form == _MAP:
            self._pairs.read(source, rows, entries)
        elif paths.form == _BUCKETS:
            for bucket in range(paths.buckets):
                Pairs(f"{self.shared}.{bucket}", self._depth).read(source, rows, entries)
        else:
            self._read_copy(source, rows, paths.buckets, entries)
        return entries.array(self.arrow, rows)

    def _paths(self, cursor: StreamCursor) -> tuple[_Paths, int]:
        version = cursor.word()
        if version not in (_LIMITED, _NAMES, _FORMS):
            raise cursor.corrupt("Unknown version of the structure of a JSON column", found=str(version))
        if version == _LIMITED:
            read_varuint(cursor)
        names = [read_text(cursor) for _ in range(read_count(cursor))]
        form, buckets = (read_varuint(cursor), 1) if version == _FORMS else (_MAP, 1)
        if form > _CHUNKED:
            raise cursor.corrupt("Unknown form of the shared data of a JSON column", found=str(form))
        if form != _MAP:
            buckets = read_varuint(cursor)
        if not 1 <= buckets <= _BUCKETS_MAX:
            raise cursor.corrupt(
                "Shared data of a JSON column have an impossible number of buckets", found=str(buckets)
            )
        dynamic = tuple((name.encode(errors="surrogateescape"), self._dynamic(name)) for name in names)
        return _Paths(dynamic, form, buckets), version

    def _read_copy(self, source: StreamSource, rows: int, buckets: int, into: _Entries) -> None:
        """Read the copy of advanced shared data; lists of paths are those of the buckets of a chunk, in order."""
        lists: list[list[tuple[int, list[bytes]]]] = []
        for bucket in range(buckets):
            cursor, marks = source.chunks(f"{self.shared}.{bucket}.structure", _CHUNK_MARKS)
            lists.append(_chunks(cursor, marks, rows))
        counts = [[count for count, _ in chunks] for chunks in lists]
        if any(each != counts[0] for each in counts):
            raise cursor.corrupt("Buckets of shared data have chunks of different rows")
        sizes = source.seek(f"{self.shared}.copy.sizes").take(8 * rows)
        lengths = as_numpy(sizes, np.uint64)
        indexes = source.seek(f"{self.shared}.copy.paths_indexes")
        if len(lengths) and (int(lengths.max()) > indexes.left or int(lengths.sum()) > indexes.left):
            raise indexes.corrupt("Shared data has fewer paths than its sizes say", f"{lengths.sum()} paths")
        ends = np.cumsum(lengths.astype(np.int64))
        row, at, start = np.repeat(np.arange(rows), lengths.astype(np.int64)), 0, 0
        pieces: list[tuple[NDArray[np.int64], list[bytes], NDArray[np.int64]]] = []
        for number, count in enumerate(counts[0]):
            names = [name for chunks in lists for name in chunks[number][1]]
            width = next(w for w in (1, 2, 4, 8) if len(names) <= 1 << (8 * w))
            at += count
            end = int(ends[at - 1]) if at else 0
            places = as_numpy(indexes.take((end - start) * width), f"<u{width}").astype(np.int64)
            if len(places) and int(places.max()) >= len(names):
                raise indexes.corrupt("An index of a path of shared data is past its list", f"below {len(names)}")
            pieces.append((row[start:end], names, places))
            start = end
        node = InlineString("")
        values = binary_cells(
            node.decode(OneCursor(source.seek(f"{self.shared}.copy.values")), start, np.zeros(0, np.int64))
        )
        done = 0
        for piece_rows, names, places in pieces:
            offsets = values.offsets[done : done + len(places) + 1]
            into.add(
                piece_rows, names, places, VarBinaryColumn(values.data[offsets[0] : offsets[-1]], offsets - offsets[0])
            )
            done += len(places)


def _chunks(cursor: StreamCursor, marks: int, rows: int) -> list[tuple[int, list[bytes]]]:
    """Rows and paths of each chunk; `marks` bytes behind each are stepped over. No rows have a chunk, too."""
    out: list[tuple[int, list[bytes]]] = []
    done = 0
    while done < rows or (marks and cursor.left):
        count = read_varuint(cursor)
        names = [cursor.take(read_varuint(cursor)).tobytes() for _ in range(read_count(cursor))]
        cursor.take(marks)
        if count > rows - done or (not marks and not count):
            raise cursor.corrupt("A chunk of shared data does not fit its rows", f"at most {rows - done}", str(count))
        if count:
            out.append((count, names))
        done += count
    return out


def _typed_values(cells: pa.Array, rows: NDArray[np.int64], count: int, head: bytes, kind: t.DataType) -> pa.Array:
    """The column of a path that the type names: values where it is there, the default elsewhere."""
    if not bool(pa.compute.all(pa.compute.starts_with(cells, pattern=head), min_count=0).as_py()):
        raise error("TYPE_MISMATCH", f"A value of a path of type {kind} is of another type")
    whole = binary_cells(cells)
    offsets = ragged.offsets_of(whole.lengths() - len(head))
    body = np.empty(int(offsets[-1]), np.uint8)
    ragged.gather(whole.data, whole.offsets[:-1] + len(head), offsets, body)
    (values,) = decode_values(body.tobytes(), [kind], len(cells))
    target = storage_type(kind)
    if values.type != target:
        values = values.dictionary_encode().cast(target) if pa.types.is_dictionary(target) else values.cast(target)
    if len(rows) == count and np.array_equal(rows, np.arange(count)):
        return values
    missing = default_array(kind, 1)
    at = np.full(count, len(values), np.int64)
    at[rows] = np.arange(len(values))
    return pa.concat_arrays([values, missing]).take(pa.array(at))
