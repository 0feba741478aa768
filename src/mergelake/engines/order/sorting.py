"""The order of rows by a sorting key: exactly ClickHouse's, a whole column at a time.

Each key column becomes one or more *words*: unsigned 64-bit integers whose order is the order of the
values, together with the number of bits that they need.

1. Integers, dates and the like are taken relative to their minimum, so a day of timestamps needs 17 bits.
2. Floats are mapped to integers of the same order, with -0.0 = 0.0 and NaN last.
3. Dictionary columns, and strings with few distinct values, become ranks in the sorted dictionary.
4. Other strings become their bytes, eight to a word, and then their length; very long ones become ranks.
5. Arrays become bytes of the same order (`format.serializations.array_order`).
6. NULLs come last. A descending key complements its words, so there they come first.

Words are packed into as few as possible. If the packed sequence is in order already, there is nothing to do.
If key and row number fit into 64 bits together, one plain sort (vectorised in numpy) gives the order.

Equal keys keep the order of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.format.serializations.array_order import array_key_bytes

Words = list[tuple[NDArray[np.uint64], int]]
"""Most significant word first; each with the number of low bits that may be set."""

_LONG_STRING = 40
"""Strings longer than this are compared by Arrow, shorter ones by words."""
_ALL = (1 << 64) - 1


def sort_order(
    arrays: Sequence[pa.Array], types: Sequence[t.DataType], descending: Sequence[bool] = ()
) -> NDArray[np.int64] | None:
    """Row numbers in the order of the key, equal keys in row order; None if the rows are in order already.

    `arrays` are the key's columns in the storage form, of equal length; `descending` is empty or has a
    flag for each. Raises NOT_IMPLEMENTED for a type without an order here.
    """
    if not arrays or len(arrays[0]) < 2:
        return None
    flags = tuple(descending) or (False,) * len(arrays)
    words: Words = []
    for array, data_type, down in zip(arrays, types, flags, strict=True):
        for word, bits in _words(array, data_type):
            if bits:
                words.append((np.uint64((1 << bits) - 1) - word if down else word, bits))
    packed = _pack(words)
    return None if _in_order(packed) else _order(packed)


def _pack(words: Words) -> Words:
    """Neighbouring words joined while they fit into 64 bits."""
    out: Words = []
    for word, bits in words:
        if out and out[-1][1] + bits <= 64:
            high, high_bits = out[-1]
            out[-1] = ((high << np.uint64(bits)) | word, high_bits + bits)
        else:
            out.append((word, bits))
    return out


def _in_order(words: Words) -> bool:
    tied: NDArray[np.bool_] | None = None
    for word, _ in words:
        left, right = word[:-1], word[1:]
        falls = left > right
        if (falls if tied is None else falls & tied).any():
            return False
        same = left == right
        tied = same if tied is None else same & tied
        if not tied.any():
            return True
    return True


def _order(words: Words) -> NDArray[np.int64]:
    rows = len(words[0][0])
    row_bits = (rows - 1).bit_length()
    if len(words) == 1:
        word, bits = words[0]
        if bits + row_bits <= 64:
            keyed = (word << np.uint64(row_bits)) | np.arange(rows, dtype=np.uint64)
            keyed.sort()
            return (keyed & np.uint64((1 << row_bits) - 1)).astype(np.int64)
        return word.argsort(kind="stable")
    return np.lexsort([word for word, _ in reversed(words)])


def _words(array: pa.Array, data_type: t.DataType) -> Words:
    """The words of one column."""
    if isinstance(data_type, (t.Nullable, t.SimpleAggregateFunction)):
        return _words(array, data_type.inner)
    if pa.types.is_dictionary(array.type):
        return _dictionary_words(array, data_type)
    if isinstance(data_type, t.LowCardinality):  # as in `normalized_keys`
        return _words(array, data_type.inner)
    valid = _valid(array)
    match data_type:
        case t.String():
            return _string_words(array, valid)
        case t.FixedString() | t.IPv6():
            return _with_nulls(_byte_words(array), valid)
        case t.UUID():
            return _with_nulls(_wide_words(array, signed=False), valid)
        case t.Int(bits, signed) if bits > 64:
            return _with_nulls(_wide_words(array, signed=signed), valid)
        case t.Decimal() if data_type.bits > 64:
            return _with_nulls(_wide_words(array, signed=True), valid)
        case t.Float():
            return _narrowed(_float_word(array), valid)
        case t.Tuple(elements):
            return [word for part, kind in zip(array.flatten(), elements, strict=True) for word in _words(part, kind)]
        case t.BFloat16():
            return _narrowed(_bfloat_word(array), valid)
        case t.Array() | t.Map():
            return _string_words(array_key_bytes(array, data_type), None)
        case t.Nothing():
            return []
        case t.AggregateFunction() | t.Variant() | t.Dynamic() | t.Json():
            raise error("NOT_IMPLEMENTED", f"A sorting key of type {data_type} is not supported")
        case _:
            return _narrowed(_fixed(array, array.type.to_pandas_dtype()), valid)


def _valid(array: pa.Array) -> NDArray[np.bool_] | None:
    """Which rows are not NULL; None if all are."""
    if not array.null_count:
        return None
    valid: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _fixed(array: pa.Array, dtype: Any) -> NDArray[Any]:
    """The values of a fixed-width array as they lie in memory; those of NULL rows are arbitrary."""
    kind = np.dtype(dtype)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def _narrowed(values: NDArray[Any], valid: NDArray[np.bool_] | None) -> Words:
    """The word of integers of up to 64 bits, relative to the least; NULL is one more than the greatest."""
    held = values if valid is None else values[valid]
    if len(held) == 0:
        return []
    low, high = int(held.min()), int(held.max())
    wide = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    word = wide - np.uint64(low & _ALL)
    span = high - low
    if valid is None:
        return [(word, span.bit_length())]
    if span == _ALL:  # no room for NULL
        return _with_nulls([(word, 64)], valid)
    word[~valid] = span + 1
    return [(word, (span + 1).bit_length())]


def _with_nulls(words: Words, valid: NDArray[np.bool_] | None) -> Words:
    if valid is None:
        return words
    return [((~valid).astype(np.uint64), 1), *((np.where(valid, word, np.uint64(0)), bits) for word, bits in words)]


def _float_word(array: pa.Array) -> NDArray[Any]:
    single = array.type.bit_width == 32
    values = _fixed(array, "f4" if single else "f8").copy()
    values[values == 0] = 0  # -0.0 becomes 0.0
    raw: NDArray[Any] = values.view(np.uint32 if single else np.uint64)
    sign: Any = raw.dtype.type(1 << (array.type.bit_width - 1))
    ordered: NDArray[Any] = np.where(raw & sign, np.invert(raw), raw | sign)
    ordered[np.isnan(values)] = np.iinfo(raw.dtype).max
    return ordered


def _bfloat_word(array: pa.Array) -> NDArray[np.uint16]:
    """As `_float_word`, for the upper halves of single floats."""
    raw: NDArray[np.uint16] = _fixed(array, np.uint16).copy()
    raw[raw == 0x8000] = 0  # -0.0 becomes 0.0
    ordered = np.where(raw & np.uint16(0x8000), np.invert(raw), raw | np.uint16(0x8000))
    ordered[(raw & np.uint16(0x7FFF)) > 0x7F80] = 0xFFFF
    return ordered


def _wide_words(array: pa.Array, *, signed: bool) -> Words:
    """Words of little-endian integers of 128 or 256 bits (a UUID is one)."""
    count = array.type.byte_width // 8
    parts = _fixed(array, f"V{array.type.byte_width}").view("<u8").reshape(-1, count)
    words = [np.ascontiguousarray(parts[:, at]).astype(np.uint64) for at in reversed(range(count))]
    if signed:
        words[0] = words[0] ^ np.uint64(1 << 63)
    return [(word, 64) for word in words]


def _byte_words(array: pa.Array) -> Words:
    """Words of byte strings of one length."""
    width = array.type.byte_width
    padded = np.zeros((len(array), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = _fixed(array, f"V{width}").view(np.uint8).reshape(-1, width)
    words = padded.view(">u8").astype(np.uint64)
    return [(np.ascontiguousarray(words[:, at]), 64) for at in range(words.shape[1])]


def _dictionary_words(array: pa.DictionaryArray, data_type: t.DataType) -> Words:
    """Ranks of the dictionary's values: one narrow word."""
    indices = array.indices
    valid = _valid(indices)
    places = _fixed(indices, indices.type.to_pandas_dtype()).astype(np.int64)
    if valid is not None:
        places = np.where(valid, places, 0)
    if len(array.dictionary) == 0:
        return []
    inner = t.inner_type(data_type)
    ranks, null_rank = _ranks(array.dictionary, inner)
    row_ranks = ranks[places]
    if null_rank >= 0:
        held = row_ranks != null_rank
        valid = held if valid is None else valid & held
    return _narrowed(row_ranks, valid)


def _ranks(values: pa.Array, data_type: t.DataType) -> tuple[NDArray[np.int64], int]:
    """Rank of each value among the distinct ones, and the rank of NULL (-1 if there is none)."""
    if isinstance(data_type, t.String):
        order, fresh = _string_ranking(values)
    else:
        packed = _pack([(word, bits) for word, bits in _words(values, data_type) if bits])
        order = _order(packed) if packed else np.arange(len(values))
        fresh = np.zeros(max(len(values) - 1, 0), np.bool_)
        for word, _ in packed:
            fresh |= np.diff(word[order]) != 0
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.concatenate([[0], np.cumsum(fresh)])
    nulls = np.flatnonzero(~np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_))
    return ranks, int(ranks[nulls[0]]) if len(nulls) else -1


def _string_ranking(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The order of strings, NULL last, and for each but the first whether it differs from the one before."""
    order = pc.array_sort_indices(values, null_placement="at_end").to_numpy().astype(np.int64)
    ordered = values.take(pa.array(order))
    differs = pc.not_equal(ordered[1:], ordered[:-1])
    nulls = pc.not_equal(pc.is_null(ordered[1:]), pc.is_null(ordered[:-1]))
    return order, pc.coalesce(differs, nulls).to_numpy(zero_copy_only=False)


def _string_words(array: pa.Array, valid: NDArray[np.bool_] | None) -> Words:
    encoded = array.dictionary_encode()
    longest = pc.max(pc.binary_length(encoded.dictionary)).as_py() or 0
    if len(encoded.dictionary) * 4 < len(array) or longest > _LONG_STRING:
        return _dictionary_words(encoded, t.STRING)
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = array.buffers()[2]
    # Padded by eight bytes, so that a word may be read at any start; bytes beyond a string are masked off.
    padded = np.zeros((data.size if data else 0) + longest + 16, np.uint8)
    if data:
        padded[: data.size] = np.frombuffer(data, np.uint8)
    at_any_byte = np.ndarray((len(padded) - 7,), ">u8", padded, strides=(1,))
    words: Words = []
    for first in range(0, longest, 8):
        word = at_any_byte[starts + first].astype(np.uint64)
        missing = (np.clip(first + 8 - lengths, 0, 8) * 8).astype(np.uint64)
        word = np.where(missing == 64, np.uint64(0), (word >> (missing % 64)) << (missing % 64))
        words.append((word, 64))
    words.append((lengths.astype(np.uint64), int(longest).bit_length()))
    return _with_nulls(words, valid)
