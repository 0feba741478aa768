"""bloom_filter indexes: a filter for each expression, sized by the number of distinct values in the granule.

A value becomes one hash (numbers: ClickHouse's intHash64 without salt; strings: CityHash64; wide numbers: of their
words XORed), and each of a fixed list of seeds makes a bit position of it. A granule is the number n of distinct hashes
(of the expression that has most) as a varuint, then a filter of n * bits / 8 bytes for each expression. NULL is
hashed as the type's default. An array gives the hashes of its elements; a granule without any element gives hash 0.

Source: ClickHouse, `MergeTreeIndexBloomFilter.cpp`, `BloomFilterHash.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.types import types as t
from mergelake.core.types.varuint import read_varuint
from mergelake.format.indexes.skip_builder import GranuleBuilder, Rows, segments
from mergelake.format.indexes.skip_types import FILTER_BYTES_MAX, Bloom
from mergelake.format.kernels.kernels_skip import distinct_by_segment, fill_filters, hash_rows, probe_filters
from mergelake.format.kernels.memory import Region
from mergelake.format.serializations.ragged import fixed, list_elements, varuints
from mergelake.format.serializations.values import binary_cells, fixed_bytes

Hashes = NDArray[np.uint64]

SEEDS = np.array(
    [
        13635471485423070496, 10336109063487487899, 17779957404565211594, 8988612159822229247, 4954614162757618085,
        12980113590177089081, 9263883436177860930, 3656772712723269762, 10362091744962961274, 7582936617938287249,
        15033938188484401405, 18286745649494826751, 6852245486148412312, 8886056245089344681, 10151472371158292780,
    ],
    np.uint64,
)  # fmt: skip
"""One for each hash function. Source: ClickHouse, `BloomFilterHash.h`, `bf_hash_seed`."""


_MIX_FACTORS = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_MIX_SHIFT = np.uint64(33)


def mix64(x: Hashes) -> Hashes:
    """The finaliser of MurmurHash3. Source: ClickHouse, `src/Common/HashTable/Hash.h`, `intHash64`."""
    for factor in _MIX_FACTORS:
        x = (x ^ (x >> _MIX_SHIFT)) * factor
    return x ^ (x >> _MIX_SHIFT)


def hash_values(array: pa.Array, data_type: t.DataType) -> Hashes:
    """The hash of each value (storage form, no arrays); NULL as the type's default."""
    if pa.types.is_dictionary(array.type):
        codes = array.indices
        entries = hash_values(array.dictionary, data_type)
        null = hash_values(pa.nulls(1, array.dictionary.type), data_type)
        hashes: Hashes = np.concatenate((entries, null))[np.asarray(codes.fill_null(len(entries)))]
        return hashes
    plain = t.inner_type(data_type)
    if isinstance(plain, t.String):
        cells = binary_cells(array)
        out = np.empty(len(array), np.uint64)
        data = np.ascontiguousarray(cells.data)
        hash_rows(data.ctypes.data, cells.offsets, out)
        return _defaulted(out, array, b"")
    matrix = np.ascontiguousarray(fixed_bytes(array))
    width = matrix.shape[1]
    if isinstance(plain, t.FixedString):
        out = np.empty(len(array), np.uint64)
        hash_rows(matrix.ctypes.data, fixed(matrix).offsets, out)
        return _defaulted(out, array, b"\0" * width)
    if array.null_count:
        matrix = matrix.copy()
        matrix[np.asarray(array.is_null())] = 0
    if isinstance(plain, t.Float):
        wide = matrix.view(np.float32 if plain.bits == 32 else np.float64).ravel().astype(np.float64)
        return mix64(wide.view(np.uint64))
    if width > 8:
        words = matrix.view(np.uint64)
        folded = words[:, 0] ^ words[:, 1]
        return mix64(folded ^ words[:, 2] if width == 32 else folded)  # the top word of 256 bits is left out
    return mix64(matrix.view(f"<u{width}").ravel().astype(np.uint64))


def _defaulted(hashes: Hashes, array: pa.Array, default: bytes) -> Hashes:
    """`hashes`, where `array` is NULL replaced by the hash of `default`."""
    if array.null_count:
        default_hash = np.empty(1, np.uint64)
        data = np.frombuffer(default or b"\0", np.uint8)
        hash_rows(data.ctypes.data, np.array([0, len(default)], np.int64), default_hash)
        hashes[np.asarray(array.is_null())] = default_hash[0]
    return hashes


class BloomBuilder(GranuleBuilder[list[Hashes]]):
    """Granules of a bloom_filter index."""

    def __init__(self, kind: Bloom, types: Sequence[t.DataType], granularity: int) -> None:
        super().__init__(granularity)
        self._kind = kind
        self._types = types

    def _take(self, arrays: Sequence[pa.Array], cuts: Rows, ends: Rows) -> tuple[bytes, Rows]:
        rows = len(arrays[0])
        bounds, goes_on = segments(ends, rows)
        pieces: list[tuple[Hashes, Rows]] = []
        for i, (array, kind) in enumerate(zip(arrays, self._types, strict=True)):
            hashes, at = self._hashes(array, kind, cuts, bounds, rows)
            if self._open is not None:
                hashes, at = np.concatenate((self._open[i], hashes)), at + len(self._open[i])
            pieces.append(_distinct(hashes, at))
        self._open = None
        if goes_on:
            self._open = [hashes[len(hashes) - int(counts[-1]) :] for hashes, counts in pieces]
            pieces = [(hashes[: len(hashes) - int(counts[-1])], counts[:-1]) for hashes, counts in pieces]
        return encode_filters(self._kind, pieces)

    def _hashes(self, array: pa.Array, kind: t.DataType, cuts: Rows, bounds: Rows, rows: int) -> tuple[Hashes, Rows]:
        """Hashes of the values or elements, and where each segment ends in them."""
        if not isinstance(kind, t.Array):
            return hash_values(array, kind), bounds
        elements, edges = list_elements(array)
        hashes = hash_values(elements, kind.inner)
        stops, _ = segments(cuts, rows)
        counts = np.diff(np.concatenate((np.zeros(1, np.int64), edges[stops])))
        empty = np.flatnonzero(counts == 0)  # granules of the part without elements
        hashes = np.insert(hashes, edges[stops[empty]], np.uint64(0))
        return hashes, edges[bounds] + np.searchsorted(stops[empty], bounds, side="right")

    def _encode_open(self, summary: list[Hashes]) -> tuple[bytes, Rows]:
        return encode_filters(self._kind, [(hashes, np.array([len(hashes)], np.int64)) for hashes in summary])


def _distinct(hashes: Hashes, ends: Rows) -> tuple[Hashes, Rows]:
    """The distinct hashes of each segment, and how many each has."""
    longest = int(np.diff(ends, prepend=0).max(initial=1))
    room = 1 << (2 * max(longest, 1) - 1).bit_length()
    out, counts = np.empty(len(hashes), np.uint64), np.empty(len(ends), np.int64)
    written = distinct_by_segment(
        np.ascontiguousarray(hashes), ends, out, counts, np.empty(room, np.uint64), np.full(room, -1, np.int64)
    )
    return out[:written], counts


def encode_filters(kind: Bloom, pieces: Sequence[tuple[Hashes, Rows]]) -> tuple[bytes, Rows]:
    """Granules from the distinct hashes of each expression: bytes, and where each granule ends."""
    counts = np.max([count for _, count in pieces], axis=0) if pieces else np.zeros(0, np.int64)
    sizes = (counts * kind.bits + 7) // 8
    heads = varuints(counts)
    lengths = heads.lengths() + sizes * len(pieces)
    ends = np.cumsum(lengths)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - lengths
    for i, length in enumerate(heads.lengths().tolist()):
        out[starts[i] : starts[i] + length] = heads.data[heads.offsets[i] : heads.offsets[i + 1]]
    at = starts + heads.lengths()
    for hashes, count in pieces:
        fill_filters(hashes, count, at, sizes, SEEDS[: kind.hashes], out.ctypes.data)
        at = at + sizes
    return out.tobytes(), ends


@dataclass(frozen=True, slots=True)
class BloomGranules:
    """Decoded granules: where the filters lie."""

    plain: Region
    starts: NDArray[np.int64]
    """(granules, expressions)."""
    sizes: NDArray[np.int64]
    """Bytes of each filter of a granule."""
    hashes: int

    def may_hold(self, expression: int, hashes: Hashes) -> NDArray[np.bool_]:
        """(granules, hashes): whether the filter may hold the hash."""
        out = np.zeros((len(self.sizes), len(hashes)), np.bool_)
        starts = np.ascontiguousarray(self.starts[:, expression])
        probe_filters(self.plain.address, starts, self.sizes, hashes, SEEDS[: self.hashes], out)
        return out


def decode_filters(plain: Region, kind: Bloom, expressions: int, granules: int) -> BloomGranules:
    """The first `granules` granules of `plain`. Raises CorruptDataError if they are cut short."""
    data = memoryview(plain.buffer())
    starts, sizes = np.empty((granules, expressions), np.int64), np.empty(granules, np.int64)
    at = 0
    for g in range(granules):
        count, at = _varuint(data, at)
        size = (count * kind.bits + 7) // 8
        if size > FILTER_BYTES_MAX or at + size * expressions > plain.size:
            raise CorruptDataError("A Bloom filter is cut short", name="CANNOT_READ_ALL_DATA", offset=at)
        starts[g] = at + size * np.arange(expressions)
        sizes[g] = size
        at += size * expressions
    return BloomGranules(plain, starts, sizes, kind.hashes)


def _varuint(data: memoryview, at: int) -> tuple[int, int]:
    value, used = read_varuint(bytes(data[at : at + 10]), 0)
    return value, at + used
