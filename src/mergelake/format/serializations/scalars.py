"""Serialisers of values of fixed width and of strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mergelake.format.kernels.kernels_nulls import blank_nulls
from mergelake.format.kernels.kernels_strings import (
    SPARE_BYTES,
    VARINT_BYTES_MAX,
    join_inline,
    split_inline,
    sum_lengths,
)
from mergelake.format.kernels.memory import Region, allocate, region
from mergelake.format.serializations.ragged import arrow_offsets
from mergelake.format.serializations.serialization import (
    Bounds,
    Serialization,
    Sink,
    StreamSource,
    aligned,
    coerced,
    null_bytes,
    refuse_nulls,
    validity,
)

INT32_MAX = 0x7FFFFFFF


class Fixed(Serialization):
    """Values of `width` bytes, back to back: nothing is copied either way."""

    def __init__(self, stream: str, arrow: pa.DataType) -> None:
        self.stream = stream
        self.own_streams = (stream,)
        self.arrow = arrow
        self.width = arrow.bit_width // 8

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        refuse_nulls(array, nulls=nulls)
        array = coerced(array, self.arrow)
        out.put(self.stream, fixed_bytes(array, self.width), bounds * self.width)

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        data = aligned(source.stream(self.stream).take(rows * self.width), self.width)
        return pa.Array.from_buffers(self.arrow, rows, [None, data.buffer()])


def fixed_bytes(array: pa.Array, width: int) -> Region:
    """The values' bytes; where NULLs are, zeros in a copy."""
    buffer = array.buffers()[1]
    size = len(array) * width
    if buffer is None or not size:
        return region(bytes(size))
    start = array.offset * width
    values = region(buffer).part(start, start + size)
    if not array.null_count:
        return values
    nulls = null_bytes(array)
    copy = allocate(size)
    blank_nulls(values.address, nulls.ctypes.data, len(array), width, copy.address)
    return copy


class InlineString(Serialization):
    """Per value a varint length and the bytes."""

    arrow = pa.binary()

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.own_streams = (stream,)
        self._scratch = region(b"")

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        refuse_nulls(array, nulls=nulls)
        array = coerced(array, self.arrow)
        rows = len(array)
        _, offsets, data = array.buffers()
        ends = np.empty(len(bounds), np.int64)
        if not rows or offsets is None:
            out.put(self.stream, region(b""), ends * 0)
            return
        first = offsets.address + 4 * array.offset
        edges = np.frombuffer(offsets, np.int32)
        used = int(edges[array.offset + rows]) - int(edges[array.offset])
        room = used + VARINT_BYTES_MAX * rows + SPARE_BYTES
        if self._scratch.size < room:
            self._scratch = allocate(room)
        base, size = (data.address, data.size) if data is not None else (first, 0)
        bits, bit = validity(array)
        written = join_inline(
            first, base, base + size, rows, bits, bit, self._scratch.address, bounds.ctypes.data, len(bounds),
            ends.ctypes.data, 0,
        )  # fmt: skip
        out.put(self.stream, self._scratch.part(0, written), ends)

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        cursor = source.stream(self.stream)
        rest = cursor.rest()
        # Every string takes a byte at least; a row count that lies must not make us allocate.
        if rows > rest.size:
            raise cursor.corrupt("The stream ends early", f"{rows} strings", f"{rest.size} bytes")
        offsets, data = allocate(4 * rows + 4), allocate(rest.size)
        used = split_inline(rest.address, rest.size, rows, offsets.address, data.address)
        if used == -1:
            raise cursor.corrupt("A string leaves the stream")
        if used < 0:
            raise cursor.corrupt("More than 2 GiB of strings in one piece; read fewer granules at once")
        cursor.take(used)
        return pa.Array.from_buffers(self.arrow, rows, [None, offsets.buffer(), data.part(0, used - rows).buffer()])


class SizedString(Serialization):
    """Lengths in a stream of their own (ClickHouse 25.11 and newer); the bytes are taken as they are."""

    arrow = pa.binary()

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.sizes = stream + ".size"
        self.own_streams = (self.sizes, stream)

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        refuse_nulls(array, nulls=nulls)
        array = coerced(array, self.arrow)
        if nulls and array.null_count:
            array = array.fill_null(b"")
        edges = arrow_offsets(array)
        data = array.buffers()[2]
        out.put(self.sizes, region(np.diff(edges)), bounds * 8)
        body = region(data).part(int(edges[0]), int(edges[-1])) if data is not None else region(b"")
        out.put(self.stream, body, edges[bounds] - edges[0])

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        sizes = source.stream(self.sizes)
        lengths = sizes.take(8 * rows)
        cursor = source.stream(self.stream)
        offsets = allocate(4 * rows + 4)
        total = sum_lengths(lengths.address, rows, min(cursor.left, INT32_MAX), offsets.address)
        if total < 0:
            raise sizes.corrupt("Lengths of strings pass the end of their bytes", f"at most {cursor.left} bytes")
        return pa.Array.from_buffers(self.arrow, rows, [None, offsets.buffer(), cursor.take(total).buffer()])
