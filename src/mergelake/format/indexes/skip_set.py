"""set(n) indexes: the distinct values of a granule, or none if there are more than n.

A granule is u64 rows, then each expression's values in bulk form, the streams of a column one behind the other
(LowCardinality with its version and keys of its own). Rows are distinct as tuples, in order of appearance. No rows: the
granule had too many, the index says nothing about it.

Source: ClickHouse, `MergeTreeIndexSet.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.types import types as t
from mergelake.format.columns.reader import concatenate
from mergelake.format.indexes.skip_builder import GranuleBuilder, Rows, segments
from mergelake.format.indexes.skip_types import ValueSet
from mergelake.format.kernels.kernels_skip import first_rows
from mergelake.format.kernels.memory import Region
from mergelake.format.serializations import ragged
from mergelake.format.serializations.lowcardinality import VERSION, LowCardinalitySerialization
from mergelake.format.serializations.ragged import VarBinaryColumn
from mergelake.format.serializations.serialization import Bounds, OneCursor, Serialization, StreamCursor, as_numpy
from mergelake.format.serializations.tree import build_serialization

_NEEDS_UPDATE = 0x400
"""Flag of a LowCardinality block that ClickHouse sets where no dictionary came before."""


class SetBuilder(GranuleBuilder[list[pa.Array]]):
    """Granules of a set index."""

    def __init__(self, kind: ValueSet, types: Sequence[t.DataType], granularity: int) -> None:
        super().__init__(granularity)
        self._limit = kind.rows_max
        self._types = types

    def _take(self, arrays: Sequence[pa.Array], cuts: Rows, ends: Rows) -> tuple[bytes, Rows]:
        if self._open is not None:
            ends = ends + len(self._open[0])
            arrays = [concatenate([before, array]) for before, array in zip(self._open, arrays, strict=True)]
        bounds, goes_on = segments(ends, len(arrays[0]))
        rows, counts = distinct_rows(arrays, bounds)
        self._open = None
        if goes_on:
            kept = int(counts[-1])
            tail = rows[len(rows) - kept :]
            tail = tail[: self._limit + 1] if self._limit else tail  # one more tells that there are too many
            self._open = [array.take(pa.array(tail)) for array in arrays]
            rows, counts = rows[: len(rows) - kept], counts[:-1]
        if self._limit:
            over = counts > self._limit
            rows = rows[~np.repeat(over, counts)]
            counts = np.where(over, 0, counts)
        return encode_sets([array.take(pa.array(rows)) for array in arrays], self._types, counts)

    def _encode_open(self, summary: list[pa.Array]) -> tuple[bytes, Rows]:
        count = len(summary[0])
        if self._limit and count > self._limit:
            summary, count = [array.slice(0, 0) for array in summary], 0
        return encode_sets(summary, self._types, np.array([count], np.int64))


def distinct_rows(arrays: Sequence[pa.Array], ends: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """Rows at which a tuple of values appears for the first time in its segment; how many each segment has."""
    codes, count = _codes(arrays[0])
    for array in arrays[1:]:
        other, width = _codes(array)
        codes, count = _codes(pa.array(codes * width + other))
    out, counts = np.empty(len(codes), np.int64), np.empty(len(ends), np.int64)
    written = first_rows(codes, np.ascontiguousarray(ends), np.full(count, -1, np.int64), out, counts)
    return out[:written], counts


def _codes(array: pa.Array) -> tuple[NDArray[np.int64], int]:
    """A number for each value, equal for equal bytes; and how many numbers there are."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_floating(array.type):
        array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
    encoded = array.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64), max(len(encoded.dictionary), 1)


def encode_sets(
    arrays: Sequence[pa.Array], types: Sequence[t.DataType], counts: NDArray[np.int64]
) -> tuple[bytes, Rows]:
    """Granules of so many rows of the arrays each: bytes, and where each granule ends. 0 rows: no information."""
    if not len(counts):
        return b"", np.zeros(0, np.int64)
    bounds = np.cumsum(counts)
    cells = [ragged.fixed(counts.astype("<u8").view(np.uint8).reshape(-1, 8))]
    for array, kind in zip(arrays, types, strict=True):
        node = build_serialization("v", kind)
        sink = _Pieces()
        if isinstance(node, LowCardinalitySerialization):
            version = ragged.repeat(VERSION.to_bytes(8, "little"), len(counts))
            cells.append(ragged.take(version, counts > 0))
            node.encode_alone(array, bounds, sink)
            (blocks,) = sink.streams.values()
            data = blocks.data.copy()
            data[blocks.offsets[:-1][counts > 0] + 1] |= _NEEDS_UPDATE >> 8
            cells.append(VarBinaryColumn(data, blocks.offsets))
        else:
            node.encode(array, bounds, sink)
            cells += sink.streams.values()
    joined = ragged.join(cells)
    return joined.data.tobytes(), joined.offsets[1:]


class _Pieces:
    """A sink that keeps every stream, cut at granules."""

    def __init__(self) -> None:
        self.streams: dict[str, VarBinaryColumn] = {}

    def put(self, stream: str, data: Region, ends: Bounds | None) -> None:
        """The only bytes of a stream."""
        if ends is not None:
            offsets = np.concatenate((np.zeros(1, np.int64), ends))
            self.streams[stream] = VarBinaryColumn(as_numpy(data, np.uint8).copy(), offsets)


@dataclass(frozen=True, slots=True)
class SetGranules:
    """Decoded granules, all values together."""

    columns: tuple[pa.Array, ...]
    """The values of each expression, in storage form."""
    counts: NDArray[np.int64]
    """How many of them each granule has; 0: nothing is known about it."""


def decode_sets(plain: Region, types: Sequence[t.DataType], granules: int) -> SetGranules:
    """The first `granules` granules. Raises CorruptDataError for bytes that are not what they should be."""
    cursor = StreamCursor(plain, 0, 0)
    source = OneCursor(cursor)
    nodes: list[Serialization] = [build_serialization("v", kind) for kind in types]
    counts = np.zeros(granules, np.int64)
    pieces: list[list[pa.Array]] = [[node_slice(node)] for node in nodes]
    for g in range(granules):
        rows = cursor.word()
        if rows > cursor.left:  # a value takes a byte at least
            raise CorruptDataError("A granule of a set index has too many rows", offset=-1, found=str(rows))
        counts[g] = rows
        if rows:
            for node, values in zip(nodes, pieces, strict=True):
                node.prefix(source)
                values.append(node.decode(source, rows, counts[g : g + 1]))
    return SetGranules(tuple(concatenate(values) for values in pieces), counts)


def node_slice(node: Serialization) -> pa.Array:
    """No values of a node's type."""
    return pa.array([], node.arrow)
