"""The interface of serialisers: a tree of nodes, one for each level of a type.

A node writes an array to streams and reads it back. Writing, an array comes with `bounds`: for each granule the
last row (exclusive), so that every stream knows where its granules end. Reading, the node takes its bytes from cursors:
in a Wide part each stream has its own, in a Compact part all streams of a column share one, in the order in which the
node asks. What comes from a cursor is bounds-checked there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.format.kernels.kernels_nulls import null_map
from mergelake.format.kernels.memory import Region, allocate

Bounds = NDArray[np.int64]
"""Row or byte positions, one a granule."""
Ids = NDArray[np.int32]
"""Numbers of keys in a dictionary, one a row."""


class Sink(Protocol):
    """What a `Serialization` writes to."""

    def put(self, stream: str, data: Region, ends: Bounds | None) -> None:
        """The next bytes of a stream; `ends` says where each granule ends in them (None: they belong to no granule)."""


class StreamCursor:
    """Plain bytes of a stream, read from front to back."""

    __slots__ = ("file_offset", "plain", "position")

    def __init__(self, plain: Region, position: int, file_offset: int) -> None:
        self.plain = plain
        self.position = position
        self.file_offset = file_offset
        """Where the compressed blocks of these bytes start in their file, for messages."""

    @property
    def left(self) -> int:
        """Bytes not yet taken."""
        return self.plain.size - self.position

    def take(self, size: int) -> Region:
        """The next `size` bytes; CorruptDataError if there are fewer."""
        if size < 0 or size > self.left:
            raise self.corrupt("The stream ends early", f"{size} bytes", f"{self.left} bytes")
        data = self.plain.part(self.position, self.position + size)
        self.position += size
        return data

    def rest(self) -> Region:
        """All bytes that are not taken yet; they are not taken."""
        return self.plain.part(self.position, self.plain.size)

    def word(self) -> int:
        """The next u64."""
        return int.from_bytes(self.take(8).tobytes(), "little")

    def corrupt(self, message: str, expected: str = "", found: str = "") -> CorruptDataError:
        """An error that says where these bytes are."""
        return CorruptDataError(
            f"{message} (byte {self.position} of the plain data)",
            name="CANNOT_READ_ALL_DATA",
            offset=self.file_offset,
            expected=expected,
            found=found,
        )


class StreamSource(Protocol):
    """What a `Serialization` reads from."""

    def stream(self, name: str) -> StreamCursor:
        """The cursor of a stream."""

    notes: dict[str, Any]
    """By stream, what nodes have read of streams that describe the others (structures, modes of discriminators)."""
    joined: bool
    """Whether granules are whole parts one behind the other, each with the prefixes of its streams."""

    def start(self, name: str) -> StreamCursor:
        """A cursor at the start of a stream's file; in a Compact part, where each granule repeats it, as `stream`."""

    def seek(self, name: str) -> StreamCursor:
        """The cursor of a stream; in a Compact part moved to where the stream starts, if its marks say that."""

    def chunks(self, name: str, marks: int) -> tuple[StreamCursor, int]:
        """The cursor of a stream of chunks, and how many of the `marks` bytes behind each chunk lie in it."""

    def origin(self, name: str) -> tuple[int, int] | None:
        """A key for the place in the part at which the stream's cursor starts; None if places cannot be told apart."""


class OneCursor:
    """A source with one cursor for all streams."""

    joined = False

    def __init__(self, cursor: StreamCursor) -> None:
        self._cursor = cursor
        self.notes: dict[str, Any] = {}

    def stream(self, name: str) -> StreamCursor:
        """The one cursor."""
        return self._cursor

    start = seek = stream

    def chunks(self, name: str, marks: int) -> tuple[StreamCursor, int]:
        """The one cursor, which holds everything."""
        return self._cursor, marks

    def origin(self, name: str) -> tuple[int, int] | None:
        """None: the cursor may be one of anything."""
        return None


class Serialization(ABC):
    """One level of a type."""

    arrow: pa.DataType
    """Storage form of the arrays."""
    own_streams: tuple[str, ...] = ()
    """Names of the streams that this level has itself."""
    children: tuple[Serialization, ...] = ()
    """The levels below it; their streams come after its own."""

    def streams(self) -> Iterator[str]:
        """Names of the streams, in the order in which a Compact part holds them."""
        yield from self.own_streams
        for child in self.children:
            yield from child.streams()

    @abstractmethod
    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`. With `nulls` a NULL is written as the default, without it refused."""

    def finish(self, out: Sink) -> None:
        """Write what had to wait for the end."""
        for child in self.children:
            child.finish(out)

    def prefix(self, source: StreamSource) -> None:
        """Read what a Compact part holds before the data of each granule."""
        for child in self.children:
            child.prefix(source)

    @abstractmethod
    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values; `granules` has the rows of each granule (for top level and tuple elements)."""


def refuse_nulls(array: pa.Array, *, nulls: bool) -> None:
    """CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN for a NULL where none may be."""
    if not nulls and array.null_count:
        raise error(
            "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN",
            f"There are {array.null_count} NULLs in values of a type that is not Nullable",
            "Make the column Nullable or replace the NULLs",
        )


def coerced(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """`array` as the Arrow type `arrow`, cast if need be; TYPE_MISMATCH if that cannot be."""
    if array.type == arrow:
        return array
    try:
        return array.cast(arrow)
    except pa.ArrowException as refused:
        raise mismatch(array, str(arrow)) from refused


def mismatch(array: pa.Array, expected: str) -> Exception:
    """The error for an array that is not in storage form."""
    return error("TYPE_MISMATCH", f"Values that are stored as Arrow {expected} came as {array.type}")


def validity(array: pa.Array) -> tuple[int, int]:
    """Address of the validity bitmap (0 if nothing is NULL) and the array's first bit in it."""
    bitmap = array.buffers()[0] if array.null_count else None
    return (bitmap.address, array.offset) if bitmap is not None else (0, 0)


def null_bytes(array: pa.Array) -> NDArray[np.uint8]:
    """1 for each NULL, 0 for each value."""
    if not array.null_count:
        return np.zeros(len(array), np.uint8)
    out = np.empty(len(array), np.uint8)
    null_map(array.buffers()[0].address, array.offset, len(array), out.ctypes.data)
    return out


def as_numpy(data: Region, dtype: Any) -> NDArray[Any]:
    """A region as a numpy array that keeps it alive, nothing copied."""
    return np.frombuffer(data.buffer(), dtype) if data.size else np.empty(0, dtype)


def aligned(data: Region, width: int) -> Region:
    """`data`, copied if its address is not aligned for values of `width` bytes."""
    step = width & -width if width < 8 else 8
    if data.address % step == 0:
        return data
    fresh = allocate(data.size)
    offset = fresh.address - np.asarray(fresh.owner).ctypes.data
    np.asarray(fresh.owner)[offset : offset + data.size] = as_numpy(data, np.uint8)
    return fresh
