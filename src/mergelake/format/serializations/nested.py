"""Serialisers of types around types: Nullable, Array (and Map, an array of pairs), Tuple, and sparse columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import InternalError
from mergelake.format.kernels.kernels_strings import sparse_positions, sum_lengths
from mergelake.format.kernels.memory import allocate, region
from mergelake.format.serializations.ragged import list_elements
from mergelake.format.serializations.scalars import INT32_MAX
from mergelake.format.serializations.serialization import (
    Bounds,
    Serialization,
    Sink,
    StreamSource,
    as_numpy,
    coerced,
    mismatch,
    null_bytes,
    refuse_nulls,
)


class NullableSerialization(Serialization):
    """A byte a row, 1 for NULL, and a value for every row."""

    def __init__(self, stream: str, inner: Serialization) -> None:
        self.stream = stream + ".null"
        self.own_streams, self.children = (self.stream,), (inner,)
        self.inner = inner
        self.arrow = inner.arrow

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        out.put(self.stream, region(null_bytes(array)), bounds)
        self.inner.encode(array, bounds, out, nulls=True)

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        flags = as_numpy(source.stream(self.stream).take(rows), np.uint8)
        values = self.inner.decode(source, rows, granules)
        if not flags.any():
            return values
        bits = pa.py_buffer(np.packbits(flags == 0, bitorder="little"))
        if pa.types.is_struct(values.type):
            children = [values.field(i) for i in range(values.type.num_fields)]
            return pa.Array.from_buffers(values.type, rows, [bits], children=children)
        if pa.types.is_list(values.type):
            return pa.Array.from_buffers(values.type, rows, [bits, values.buffers()[1]], children=[values.values])
        return pa.Array.from_buffers(values.type, rows, [bits, *values.buffers()[1:]])


class ArraySerialization(Serialization):
    """A u64 length a row, then the elements of all rows."""

    def __init__(self, sizes: str, inner: Serialization, arrow: pa.DataType) -> None:
        self.sizes = sizes
        self.own_streams, self.children = (sizes,), (inner,)
        self.inner = inner
        self.arrow = arrow

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        refuse_nulls(array, nulls=nulls)
        if not pa.types.is_list(array.type):
            array = coerced(array, self.arrow)
        values, edges = list_elements(array)
        out.put(self.sizes, region(np.diff(edges)), bounds * 8)
        self.inner.encode(values, edges[bounds], out)

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        cursor = source.stream(self.sizes)
        lengths = cursor.take(8 * rows)
        offsets = allocate(4 * rows + 4)
        total = sum_lengths(lengths.address, rows, INT32_MAX, offsets.address)
        if total < 0:
            raise cursor.corrupt("Arrays of more than 2^31 elements in one piece", "fewer elements")
        values = self.inner.decode(source, total, np.array([total], np.int64))
        return pa.Array.from_buffers(self.arrow, rows, [None, offsets.buffer()], children=[values])


class TupleSerialization(Serialization):
    """Each element as a column of its own."""

    def __init__(self, elements: Sequence[Serialization], arrow: pa.DataType) -> None:
        self.children = tuple(elements)
        self.arrow = arrow

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        refuse_nulls(array, nulls=nulls)
        if not pa.types.is_struct(array.type) or array.type.num_fields != len(self.children):
            raise mismatch(array, str(self.arrow))
        for i, element in enumerate(self.children):
            element.encode(array.field(i), bounds, out, nulls=nulls)

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        children = [element.decode(source, rows, granules) for element in self.children]
        return pa.Array.from_buffers(self.arrow, rows, [None], children=children)


class Sparse(Serialization):
    """Only the values that are not default, with their distances in `.sparse.idx`. Read, never written."""

    def __init__(self, stream: str, inner: Serialization, *, nullable: bool = False) -> None:
        """`nullable`: the default, which is left out, is NULL."""
        self.stream = stream + ".sparse.idx"
        self.own_streams, self.children = (self.stream,), (inner,)
        self.inner = inner
        self.nullable = nullable
        self.arrow = inner.arrow

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        raise InternalError("sparse columns are not written")

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        cursor = source.stream(self.stream)
        rest = cursor.rest()
        counts = np.ascontiguousarray(granules, np.int64)
        at, used = np.empty(min(rest.size, rows), np.int64), np.empty(1, np.int64)
        count = sparse_positions(
            rest.address, rest.size, counts.ctypes.data, len(counts), at.ctypes.data, len(at), used.ctypes.data
        )
        if count < 0:
            raise cursor.corrupt("Offsets of sparse values do not fit the rows", f"{rows} rows")
        cursor.take(int(used[0]))
        values = self.inner.decode(source, count, np.array([count], np.int64))
        return scatter(values, at[:count], rows, nullable=self.nullable)


def scatter(values: pa.Array, at: Bounds, rows: int, *, nullable: bool = False) -> pa.Array:
    """`rows` values: `values[i]` at row `at[i]` (ascending), elsewhere the default, or NULL if `nullable`."""
    validity = None
    if nullable:
        valid = np.zeros(rows, bool)
        valid[at] = True
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_binary(values.type):
        lengths = np.zeros(rows, np.int32)
        edges = as_numpy(region(values.buffers()[1]), np.int32)[: len(values) + 1]
        lengths[at] = np.diff(edges)
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.Array.from_buffers(values.type, rows, [validity, pa.py_buffer(offsets), values.buffers()[2]])
    width = values.type.bit_width // 8
    kind = np.dtype(f"V{width}") if width not in (1, 2, 4, 8) else np.dtype(f"u{width}")
    out = np.zeros(rows, kind)
    out[at] = as_numpy(region(values.buffers()[1]), kind)[: len(values)]
    return pa.Array.from_buffers(values.type, rows, [validity, pa.py_buffer(out.view(np.uint8))])
