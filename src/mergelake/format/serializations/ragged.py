"""Rows of bytes of different lengths, handled a column at a time.

Key values, partition keys and hashes are made of short runs of bytes, one run per row. `VarBinaryColumn` holds such
a column as one buffer and the offsets between rows, the way Arrow holds strings. `join` puts the runs of
several columns one behind the other in each row, which is all it takes to build `primary.idx`,
`partition.dat` and the input of the partition hash without a loop over rows in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.jit.intrinsics import kernel
from mergelake.format.kernels.kernels_bits import VARINT_BITS, VARINT_MORE


@dataclass(frozen=True, slots=True)
class VarBinaryColumn:
    """One run of bytes per row: row i is `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    """Length rows + 1, ascending, from 0."""
    width: int = -1
    """Length of every run where all are equal, else -1."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each row."""
        return np.diff(self.offsets)

    def tobytes(self) -> bytes:
        """All rows, one behind the other."""
        return self.data.tobytes()

    def row(self, index: int) -> bytes:
        """The bytes of one row."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def to_arrow(self) -> pa.LargeBinaryArray:
        """The rows as an Arrow array, for hashing and comparing."""
        buffers = [None, pa.py_buffer(np.ascontiguousarray(self.offsets)), pa.py_buffer(self.data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)


def fixed(matrix: NDArray[np.uint8]) -> VarBinaryColumn:
    """VarBinaryColumn of equal width from a (rows, width) matrix of bytes."""
    rows, width = matrix.shape
    return VarBinaryColumn(np.ascontiguousarray(matrix).reshape(-1), np.arange(rows + 1, dtype=np.int64) * width, width)


def repeat(value: bytes, rows: int) -> VarBinaryColumn:
    """The same bytes in every row."""
    return fixed(np.tile(np.frombuffer(value, np.uint8), (rows, 1)))


def join(columns: Sequence[VarBinaryColumn]) -> VarBinaryColumn:
    """Row by row, the runs of all columns one behind the other."""
    if len(columns) == 1:
        return columns[0]
    if all(c.width >= 0 for c in columns):
        return fixed(np.concatenate([c.data.reshape(len(c), c.width) for c in columns], axis=1))
    lengths = np.stack([c.lengths() for c in columns]).sum(axis=0)
    offsets = offsets_of(lengths)
    out = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for column in columns:
        _scatter(column.data, column.offsets, at, out)
        at += column.lengths()
    return VarBinaryColumn(out, offsets)


def take(cells: VarBinaryColumn, keep: NDArray[np.bool_]) -> VarBinaryColumn:
    """The rows of `cells`, those where `keep` is false without bytes."""
    lengths = np.where(keep, cells.lengths(), 0)
    offsets = offsets_of(lengths)
    out = np.empty(int(offsets[-1]), np.uint8)
    gather(cells.data, cells.offsets[:-1], offsets, out)
    return VarBinaryColumn(out, offsets)


def regroup(cells: VarBinaryColumn, bounds: NDArray[np.int64]) -> VarBinaryColumn:
    """Fewer, longer rows: new row i is the old rows `bounds[i]` to `bounds[i + 1]`, which follow each other."""
    offsets = cells.offsets[bounds]
    data = cells.data[offsets[0] : offsets[-1]] if len(offsets) else cells.data[:0]
    return VarBinaryColumn(data, offsets - offsets[0])


def concat(pieces: Sequence[VarBinaryColumn]) -> VarBinaryColumn:
    """The rows of all pieces, one piece after the other."""
    data = np.concatenate([np.zeros(0, np.uint8), *(cells.data for cells in pieces)])
    lengths = np.concatenate([np.zeros(0, np.int64), *(cells.lengths() for cells in pieces)])
    return VarBinaryColumn(data, offsets_of(lengths))


def pick(cells: VarBinaryColumn, rows: NDArray[np.int64]) -> VarBinaryColumn:
    """The rows of these numbers, -1 for a row without bytes."""
    offsets = offsets_of(np.append(cells.lengths(), 0)[rows])
    out = np.empty(int(offsets[-1]), np.uint8)
    gather(cells.data, cells.offsets[rows], offsets, out)
    return VarBinaryColumn(out, offsets)


def list_elements(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The elements of all lists, and where each list starts in them and the last ends."""
    offsets = arrow_offsets(array)
    return array.values.slice(offsets[0], offsets[-1] - offsets[0]), offsets - offsets[0]


def with_length(cells: VarBinaryColumn) -> VarBinaryColumn:
    """Each row preceded by its length as a varuint: ClickHouse's binary string."""
    return join([varuints(cells.lengths()), cells])


def varuints(values: NDArray[np.int64]) -> VarBinaryColumn:
    """Each value as a varuint (LEB128): 7 bits a byte, low group first. Values are not negative."""
    if len(values) == 0 or int(values.max()) < VARINT_MORE:
        return fixed(values.astype(np.uint8).reshape(-1, 1))
    lengths = np.ones(len(values), np.int64)
    rest = values >> 7
    while rest.any():
        lengths += rest > 0
        rest >>= 7
    offsets = offsets_of(lengths)
    out = np.empty(int(offsets[-1]), np.uint8)
    _write_varuints(values, offsets, out)
    return VarBinaryColumn(out, offsets)


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets of rows of these lengths: where each starts, and where the last ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def arrow_offsets(array: pa.Array) -> NDArray[np.int64]:
    """Where each row of a list or binary array starts in its values, and where the last ends; [0] without rows."""
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(1, np.int64)
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    edges = np.frombuffer(buffer, np.int64 if large else np.int32)
    return edges[array.offset : array.offset + len(array) + 1].astype(np.int64)


@kernel
def _scatter(source: Any, offsets: Any, at: Any, out: Any) -> None:
    """Copy row i, source[offsets[i]:offsets[i + 1]], to `out` from at[i] on."""
    for row in range(len(at)):
        start = offsets[row]
        target = at[row]
        for i in range(offsets[row + 1] - start):
            out[target + i] = source[start + i]


@kernel
def gather(source: Any, starts: Any, offsets: Any, out: Any) -> None:
    """Copy row i of `source`, from starts[i], to out[offsets[i]:offsets[i + 1]]. The caller has checked the bounds."""
    for row in range(len(starts)):
        start = starts[row]
        target = offsets[row]
        for i in range(offsets[row + 1] - target):
            out[target + i] = source[start + i]


@kernel
def _write_varuints(values: Any, offsets: Any, out: Any) -> None:
    """Write varuint i to `out` from offsets[i] on."""
    for row in range(len(values)):
        value = values[row]
        at = offsets[row]
        while value >= VARINT_MORE:
            out[at] = np.uint8(value & VARINT_BITS) | np.uint8(VARINT_MORE)
            value >>= 7
            at += 1
        out[at] = np.uint8(value)
