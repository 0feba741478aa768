"""Reading a range of granules of one column, from any kind of part.

The reader does no I/O: it says which bytes it needs (`byte_ranges`) and turns them into an Arrow array (`decode`).
Checksums of compressed blocks are verified; offsets, lengths and indexes are checked before they are used. What does
not hold raises CorruptDataError with the offset in the file; the caller fills in the object's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.types import types as t
from mergelake.format.codecs.compressed_blocks import decode_range, plain_before
from mergelake.format.files.layout import Layout
from mergelake.format.files.marks import Marks
from mergelake.format.kernels.memory import Bytes, Region, region
from mergelake.format.serializations.names import stream_file_name
from mergelake.format.serializations.serialization import OneCursor, StreamCursor

STRUCTURES = (".dynamic_structure", ".object_structure")
"""Ends of the names of streams that say how others lie: they are read whole, whatever is wanted."""


class _Span:
    """The bytes between two positions of a stream: where they lie in the file, and how to cut them out when plain."""

    __slots__ = ("end", "end_skip", "first", "inclusive", "skip", "start", "stop")

    def __init__(self, start: int, skip: int, end: int, stop: int, end_skip: int) -> None:
        self.start, self.end = start, end
        """File bytes [start, end)."""
        self.skip = skip
        """Plain bytes before the first wanted."""
        self.stop = stop
        """File offset of the compressed block in which the wanted bytes end, or of the first that is not needed."""
        self.end_skip = end_skip
        """Wanted plain bytes of that block; 0: it is not needed."""
        self.inclusive = end_skip > 0
        self.first = start
        """File offset of the block in which the wanted bytes start; those before it come along."""

    def from_start(self) -> _Span:
        """The span that also has everything before it in the file, from which `first` on the bytes are wanted."""
        whole = _Span(0, self.skip, self.end, self.stop, self.end_skip)
        whole.first = self.start
        return whole

    def decode(self, data: Region, base: int) -> StreamCursor:
        """A cursor over the wanted bytes; `data` starts at file offset `base`."""
        source = data.part(self.start - base, self.end - base)
        plain, before = decode_range(
            source, self.stop - self.start, inclusive=self.inclusive, lead=self.skip, offset=self.start
        )
        size = before + self.end_skip
        skip = self.skip + (plain_before(source, self.first - self.start) if self.first > self.start else 0)
        if size > plain.size or skip > size:
            raise CorruptDataError(
                "A mark points past the end of its compressed block",
                offset=self.start,
                expected=f"at most {plain.size} bytes",
                found=f"{max(size, skip)} bytes",
            )
        return StreamCursor(plain.part(0, size), skip, self.start)


class ColumnReader:
    """One column of a part of any layout; marks and bytes are handed in.

    `marks` has the parsed mark files of the column (`Layout.mark_files`, `Layout.parse_marks`) by file name, `sizes`
    the size of each of its data files (`Layout.data_files`). Safe for many threads.
    """

    def __init__(
        self, name: str, data_type: t.DataType, layout: Layout, marks: Mapping[str, Marks], sizes: Mapping[str, int]
    ) -> None:
        self.name = name
        self.data_type = data_type
        self._compact, self._joined = layout.compact, layout.joined
        self._serialization = layout.node(name, data_type)
        stems = layout.stems(name, data_type)
        self._files = {stream: stem + ".bin" for stream, stem in stems.items()}
        self._marks = {stream: marks[stem + layout.mark_extension] for stream, stem in stems.items()}
        self._sizes = {file: sizes[file] for file in self._files.values()}
        self._columns = layout.compact_span(name) if self._compact else (0, 1)
        self._substreams = layout.substreams.get(name, ())
        self._changes: dict[str, NDArray[np.int64]] = {}
        first = next(iter(self._marks.values()))
        self.granule_rows: NDArray[np.int64] = first.granule_rows
        """Rows of each granule, the final mark left out."""
        for stream, each in self._marks.items():
            self._check(stream, each)

    def _check(self, stream: str, marks: Marks) -> None:
        """Marks of all streams agree, go forward and stay in the file."""
        size = self._sizes[self._files[stream]]
        flat = marks.offset.reshape(-1)
        if len(flat) and (flat[-1] > size or (flat[1:] < flat[:-1]).any()):
            raise CorruptDataError(f"Marks of {stream} go backwards or leave the file of {size} bytes")
        rows = marks.granule_rows
        if rows is not self.granule_rows and not np.array_equal(rows, self.granule_rows):
            raise CorruptDataError(f"Marks of {stream} have other granules than those of its column")

    def files(self) -> tuple[str, ...]:
        """The data files that the column needs."""
        return tuple(self._sizes)

    def byte_ranges(self, first: int, end: int) -> dict[str, tuple[int, int]]:
        """File -> bytes [start, end) that granules [first, end) need."""
        self._check_range(first, end)
        if self._compact:
            file = next(iter(self._sizes))
            return {file: (self._compact_span(first).start, self._compact_span(end - 1).end)}
        return {file: (span.start, span.end) for file, span in self._spans(first, end).items()}

    def _check_range(self, first: int, end: int) -> None:
        if not 0 <= first < end <= len(self.granule_rows):
            raise error("BAD_ARGUMENTS", f"Granules [{first}, {end}) of a part with {len(self.granule_rows)}")

    def _spans(self, first: int, end: int) -> dict[str, _Span]:
        """The span of granules [first, end) of each file of a Wide part."""
        return {self._files[stream]: self._span(stream, first, end) for stream in self._files}

    def _span(self, stream: str, first: int, end: int) -> _Span:
        marks, size = self._marks[stream], self._sizes[self._files[stream]]
        offset, skip = marks.offset[:, 0], marks.skip[:, 0]
        if stream.endswith(STRUCTURES):
            return _Span(0, 0, size, size, 0)
        if stream.endswith(".dict"):
            # The dictionary that starts at the mark of `end` may serve the last granule already: read on to the next.
            starts = self._dictionary_starts(stream)
            later = int(np.searchsorted(starts, end, side="right"))
            end = int(starts[later]) if later < len(starts) else len(offset)
        span = _between(offset, skip, first, end, size)
        # A Variant says at the start of its stream how its discriminators lie.
        return span.from_start() if stream.endswith(".variant_discr") else span

    def _dictionary_starts(self, stream: str) -> NDArray[np.int64]:
        """Numbers of the marks at which the position in a `.dict` stream changes."""
        if stream not in self._changes:
            marks = self._marks[stream]
            moved = (np.diff(marks.offset[:, 0]) != 0) | (np.diff(marks.skip[:, 0]) != 0)
            self._changes[stream] = np.flatnonzero(moved) + 1
        return self._changes[stream]

    def _compact_span(self, granule: int) -> _Span:
        """The span of the column in one granule of a Compact part."""
        marks, size = next(iter(self._marks.values())), self._sizes["data.bin"]
        width = marks.offset.shape[1]
        first, end = self._columns
        return _between(
            marks.offset.reshape(-1), marks.skip.reshape(-1), granule * width + first, granule * width + end, size
        )

    def _place(self, granule: int, body: Region, base: int, stream: str) -> int:
        """The position of a stream in the plain bytes of the column in one granule of a Compact part."""
        marks, (first, end) = next(iter(self._marks.values())), self._columns
        if stream not in self._substreams or len(self._substreams) != end - first:
            raise error(
                "NOT_IMPLEMENTED",
                f"Shared data of the JSON column {self.name} lies in a form that needs a mark for each stream",
                "Merge the part with write_marks_for_substreams_in_compact_parts = 1",
            )
        at = first + self._substreams.index(stream)
        start, offset = int(marks.offset[granule, first]), int(marks.offset[granule, at])
        return plain_before(body.part(start - base, body.size), offset - start) + int(marks.skip[granule, at])

    def decode(self, first: int, end: int, data: Mapping[str, Bytes]) -> pa.Array:
        """The values of granules [first, end) in storage form; `data[file]` holds exactly the bytes of `byte_ranges`.

        Raises CorruptDataError for bytes that are not what they should be, UnsupportedError for an unknown codec.
        """
        self._check_range(first, end)
        rows = self.granule_rows[first:end]
        if not self._compact:
            source = _WideSource(self._files, self._spans(first, end), data, joined=self._joined)
            values = self._serialization.decode(source, int(rows.sum()), rows)
            source.check_end()
            return values
        body = region(data["data.bin"])
        base = self._compact_span(first).start
        pieces = []
        for granule in range(first, end):
            span = self._compact_span(granule)
            _check_size("data.bin", body, span.end - base, at_least=True)
            shared = _CompactSource(span.decode(body, base), partial(self._place, granule, body, base))
            self._serialization.prefix(shared)
            count = self.granule_rows[granule : granule + 1]
            pieces.append(self._serialization.decode(shared, int(count[0]), count))
            shared.check_end()
        return concatenate(pieces)


def _between(offset: NDArray[np.int64], skip: NDArray[np.int64], first: int, end: int, size: int) -> _Span:
    """The span from mark `first` to mark `end` (the end of the file if there is none)."""
    start = int(offset[first])
    if end >= len(offset):
        return _Span(start, int(skip[first]), size, size, 0)
    stop, end_skip = int(offset[end]), int(skip[end])
    if end_skip == 0:
        return _Span(start, int(skip[first]), stop, stop, 0)
    # The compressed block at `stop` is needed as well: it ends where some later mark starts another, or with the file.
    later = int(np.searchsorted(offset, stop, side="right"))
    after = int(offset[later]) if later < len(offset) else size
    return _Span(start, int(skip[first]), after, stop, end_skip)


def _check_size(file: str, data: Region, size: int, *, at_least: bool = False) -> None:
    if data.size != size and not (at_least and data.size > size):
        raise CorruptDataError(f"{file} is cut short", expected=f"{size} bytes", found=f"{data.size} bytes")


class _WideSource:
    """A cursor for each stream, opened on first use."""

    def __init__(
        self, files: Mapping[str, str], spans: Mapping[str, _Span], data: Mapping[str, Bytes], *, joined: bool
    ) -> None:
        self._files, self._spans, self._data, self.joined = files, spans, data, joined
        self._open: dict[str, StreamCursor] = {}
        self.notes: dict[str, Any] = {}

    def stream(self, name: str) -> StreamCursor:
        """The cursor of a stream, its compressed blocks decompressed now."""
        if name not in self._open:
            # Long names are hashed; ClickHouse 24 did not escape paths of JSON columns.
            head, _, rest = name.partition(".")
            spelled = (name, stream_file_name(name), f"{head}.{unquote(rest)}")
            file = next((self._files[each] for each in spelled if each in self._files), None)
            if file is None:
                raise CorruptDataError(f"The part has no file {name}.bin", name="NO_FILE_IN_DATA_PART")
            span = self._spans[file]
            body = region(self._data[file])
            _check_size(file, body, span.end - span.start)
            self._open[name] = span.decode(body, span.start)
        return self._open[name]

    seek = stream

    def start(self, name: str) -> StreamCursor:
        """A cursor at the start of the stream's file."""
        opened = self.stream(name)
        return StreamCursor(opened.plain, 0, opened.file_offset)

    def chunks(self, name: str, marks: int) -> tuple[StreamCursor, int]:
        """The stream, in which `marks` bytes of positions follow the list of each chunk."""
        return self.stream(name), marks

    def origin(self, name: str) -> tuple[int, int] | None:
        """File offset and offset in the plain bytes at which the stream's bytes start."""
        span = self._spans[self._files[name]]
        return span.start, span.skip

    def check_end(self) -> None:
        """Every stream but the dictionaries has been read to the mark that ends the range."""
        for name, cursor in self._open.items():
            if cursor.left and not name.endswith((".dict", *STRUCTURES)):
                raise _left_over(cursor)


class _CompactSource(OneCursor):
    """One cursor for all streams; `place` says where a stream starts in it."""

    def __init__(self, cursor: StreamCursor, place: Callable[[str], int]) -> None:
        super().__init__(cursor)
        self._place = place

    def seek(self, name: str) -> StreamCursor:
        """The one cursor, moved to where the stream starts."""
        position = self._place(name)
        if position > self._cursor.plain.size:
            raise self._cursor.corrupt("A mark points past the end of its column", found=str(position))
        self._cursor.position = position
        return self._cursor

    def chunks(self, name: str, marks: int) -> tuple[StreamCursor, int]:
        """The lists of all chunks, which lie in a stream of their own, without positions."""
        return self.seek(name + "_prefix"), 0

    def check_end(self) -> None:
        """The column has been read to the mark of the next."""
        if self._cursor.left:
            raise _left_over(self._cursor)


def _left_over(cursor: StreamCursor) -> CorruptDataError:
    return cursor.corrupt("A granule has more bytes than its rows need", "0 bytes", f"{cursor.left} bytes")


def concatenate(pieces: list[pa.Array]) -> pa.Array:
    """Arrays of one storage type as one; dictionaries are unified, also deep inside."""
    if len(pieces) == 1:
        return pieces[0]
    return (
        pa.chunked_array(pieces).unify_dictionaries().combine_chunks() if _plain(pieces[0].type) else _by_part(pieces)
    )


def _plain(kind: pa.DataType) -> bool:
    """Whether pyarrow itself can concatenate the type (it refuses dictionaries inside of lists and structs)."""
    if pa.types.is_dictionary(kind):
        return True
    return all(
        _plain(kind.field(i).type) and not pa.types.is_dictionary(kind.field(i).type) for i in range(kind.num_fields)
    )


def _by_part(pieces: list[pa.Array]) -> pa.Array:
    """`concatenate` of lists or structs with dictionaries inside: their children are concatenated, one by one."""
    kind, rows = pieces[0].type, sum(map(len, pieces))
    if pa.types.is_list(kind):
        sizes = np.concatenate([np.diff(np.asarray(piece.offsets)) for piece in pieces])
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        children = [concatenate([piece.flatten() for piece in pieces])]
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets)], children=children)
    children = [concatenate(list(parts)) for parts in zip(*(piece.flatten() for piece in pieces), strict=True)]
    return pa.Array.from_buffers(kind, rows, [None], children=children)
