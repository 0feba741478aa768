"""Sorting keys as words: numbers whose unsigned order is ClickHouse's order of the values.

Every key column becomes one or more uint64 words per row, so that comparing two rows is comparing a few
integers, whatever the types. Only strings may need more than their words: the first eight bytes stand in a
word, and where two of them are equal the rest of the bytes decides.

===========================  ============================================================================
unsigned, Date, Bool, IPv4   the number
signed, Enum, Decimal        the number with its sign bit flipped (wide ones: several words, highest first)
Float                        the bits, negative ones inverted, so that they count upwards; -0 = 0; NaN last
UUID                         second half, then first half: ClickHouse compares the 128-bit number
IPv6, FixedString            the bytes, most significant first
String                       the first eight bytes, zero-padded; then the bytes themselves
Nullable(T)                  a word 1 for NULL (last), then T
LowCardinality(T)            as T
Array, Map                   as a String of bytes that have the same order (`format.serializations.array_order`)
===========================  ============================================================================

A descending column has its words inverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.jit.intrinsics import kernel
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.format.serializations.array_order import array_key_bytes

_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class StringColumn:
    """Bytes of one String key column: row i is `data[starts[i]:ends[i]]`."""

    word: int
    """Which word holds its first eight bytes."""
    descending: bool
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NormalizedKeys:
    """The sorting key of some rows."""

    words: NDArray[np.uint64]
    """Shape (rows, words), row-major."""
    strings: tuple[StringColumn, ...]
    """In order of `word`."""


def normalized_keys(
    arrays: Sequence[pa.Array], types: Sequence[t.DataType], desc: Sequence[bool] = ()
) -> NormalizedKeys:
    """The key columns `arrays` (storage form, equal lengths) as words.

    `desc` says for each column whether it descends; empty is all ascending. Raises DATA_TYPE_CANNOT_BE_USED_IN_KEY
    for a type without words (states, Variant).
    """
    words: list[NDArray[np.uint64]] = []
    strings: list[StringColumn] = []
    for at, (array, data_type) in enumerate(zip(arrays, types, strict=True)):
        descending = bool(desc) and desc[at]
        first = len(words)
        _add(array, data_type, words, strings, descending)
        if descending:
            words[first:] = [~word for word in words[first:]]
    rows = len(arrays[0]) if arrays else 0
    # One column needs no interleaving: (rows, 1) is the same memory.
    if len(words) == 1:
        matrix = np.ascontiguousarray(words[0]).reshape(-1, 1)
    else:
        matrix = np.stack(words, axis=1) if words else np.empty((rows, 0), np.uint64)
    return NormalizedKeys(matrix, tuple(strings))


def word_count(types: Sequence[t.DataType]) -> int:
    """How many words the key columns take."""
    return int(normalized_keys([pa.array([], storage_type(data_type)) for data_type in types], types).words.shape[1])


def number_words(array: pa.Array, data_type: t.DataType) -> NDArray[np.uint64]:
    """One word a row for a type that fits one (numbers, dates): what version columns are compared by."""
    words = normalized_keys([array], [data_type])
    if words.words.shape[1] != 1 or words.strings:
        raise error("BAD_TYPE_OF_FIELD", f"A column of type {data_type} cannot be compared as one number")
    return words.words[:, 0]


def same_as_previous(key: NormalizedKeys) -> NDArray[np.bool_]:
    """For each row whether its key equals that of the row before; False for the first."""
    same = np.zeros(len(key.words), np.bool_)
    same[1:] = (key.words[1:] == key.words[:-1]).all(axis=1)
    for column in key.strings:
        _same_strings(column.data, column.starts, column.ends, same)
    return same


def _add(
    array: pa.Array,
    data_type: t.DataType,
    words: list[NDArray[np.uint64]],
    strings: list[StringColumn],
    descending: bool,
) -> None:
    match data_type:
        case t.SimpleAggregateFunction(_, inner):
            _add(array, inner, words, strings, descending)
        case t.LowCardinality(inner) if pa.types.is_dictionary(array.type):
            _add_dictionary(array, inner, words, strings, descending)
        case t.LowCardinality(inner):  # key values of manifests and primary indexes come without dictionary
            _add(array, inner, words, strings, descending)
        case t.Nullable(inner):
            missing = np.asarray(array.is_null())
            words.append(missing.astype(np.uint64))
            if array.null_count and not isinstance(inner, t.Nothing):
                array = _fill(array, data_type)
            _add(array, inner, words, strings, descending)
        case t.Tuple(elements):
            for at, element in enumerate(elements):
                _add(array.field(at), element, words, strings, descending)
        case t.String():
            _add_string(array, words, strings, descending)
        case t.FixedString(length):
            raw = fixed_bytes(array, length)
            padded = np.zeros((len(array), -(-length // 8) * 8), np.uint8)
            padded[:, :length] = raw
            words.extend(_big_endian(padded))
        case t.IPv6():
            words.extend(_big_endian(fixed_bytes(array, 16)))
        case t.UUID():
            halves = fixed_bytes(array, 16).view("<u8")
            words += [halves[:, 1].copy(), halves[:, 0].copy()]
        case t.Int(bits, signed) if bits > 64:
            words.extend(_wide(fixed_bytes(array, bits // 8), signed))
        case t.Decimal() if data_type.bits > 64:
            words.extend(_wide(fixed_bytes(array, data_type.bits // 8), True))
        case t.Float():
            words.append(_float_words(numpy_values(array)))
        case t.BFloat16():
            words.append(_float_words((numpy_values(array).astype(np.uint32) << np.uint32(16)).view(np.float32)))
        case t.Array() | t.Map():
            _add_string(array_key_bytes(array, data_type), words, strings, descending)
        case t.Nothing():
            pass
        case t.AggregateFunction() | t.Variant() | t.Dynamic() | t.Json():
            raise error("DATA_TYPE_CANNOT_BE_USED_IN_KEY", f"A sorting key of type {data_type} is not supported")
        case _:
            values = numpy_values(array)
            if values.dtype.kind == "i":
                words.append(values.astype(np.int64).view(np.uint64) ^ _SIGN)
            else:
                words.append(values.astype(np.uint64))


def _add_dictionary(
    array: pa.Array,
    inner: t.DataType,
    words: list[NDArray[np.uint64]],
    strings: list[StringColumn],
    descending: bool,
) -> None:
    """The dictionary's words, spread by the codes: a dictionary is small, so nothing is decoded row by row."""
    codes = array.indices
    dictionary = array.dictionary
    if t.is_nullable(inner):
        # One more entry, NULL, for the rows without a code.
        dictionary = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
        codes = pc.fill_null(codes, len(dictionary) - 1)
    own_words: list[NDArray[np.uint64]] = []
    own_strings: list[StringColumn] = []
    _add(dictionary, inner, own_words, own_strings, descending)
    at = numpy_values(codes)
    for column in own_strings:
        where = len(words) + column.word
        strings.append(StringColumn(where, descending, column.data, column.starts[at], column.ends[at]))
    words.extend(word[at] for word in own_words)


def _add_string(
    array: pa.Array, words: list[NDArray[np.uint64]], strings: list[StringColumn], descending: bool
) -> None:
    offsets = string_offsets(array)
    data = array.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    prefix = np.empty(len(array), np.uint64)
    _prefix_words(flat, offsets, prefix)
    strings.append(StringColumn(len(words), descending, flat, offsets[:-1], offsets[1:]))
    words.append(prefix)


def string_offsets(array: pa.Array) -> NDArray[np.int64]:
    """Offsets of a binary or string array, int64, shape (rows + 1,), into the whole of its data buffer."""
    if len(array) == 0:
        return np.zeros(1, np.int64)
    raw = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    return raw.astype(np.int64)


def fixed_bytes(array: pa.Array, width: int) -> NDArray[np.uint8]:
    """A fixed-size binary array as a (rows, width) matrix of bytes; no copy."""
    if len(array) == 0:
        return np.empty((0, width), np.uint8)
    raw = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    return raw.reshape(len(array), width)


def numpy_values(array: pa.Array) -> NDArray[np.generic]:
    """The values of a primitive array, what lies under NULLs included; no copy."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    if len(array) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _fill(array: pa.Array, data_type: t.DataType) -> pa.Array:
    """NULLs replaced by one and the same value, so that what lies under them never decides."""
    kind = storage_type(data_type)
    if pa.types.is_fixed_size_binary(kind):
        return pc.if_else(array.is_valid(), array, pa.scalar(bytes(kind.byte_width), kind))
    return pc.fill_null(array, pa.scalar(b"" if pa.types.is_binary(kind) else 0, kind))


def _big_endian(matrix: NDArray[np.uint8]) -> list[NDArray[np.uint64]]:
    columns = np.ascontiguousarray(matrix).view(">u8")
    return [columns[:, i].astype(np.uint64) for i in range(columns.shape[1])]


def _wide(matrix: NDArray[np.uint8], signed: bool) -> list[NDArray[np.uint64]]:
    columns = np.ascontiguousarray(matrix).view("<u8")
    out = [columns[:, i].copy() for i in reversed(range(columns.shape[1]))]
    if signed:
        out[0] ^= _SIGN
    return out


def _float_words(values: NDArray[np.generic]) -> NDArray[np.uint64]:
    wide = values.astype(np.float64) + 0.0  # adding zero turns -0 into 0
    bits = wide.view(np.uint64)
    words = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    words[np.isnan(wide)] = np.uint64(0xFFFFFFFFFFFFFFFF)
    return words


@kernel
def _prefix_words(data: NDArray[np.uint8], offsets: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    for row in range(len(out)):
        start = offsets[row]
        length = min(8, offsets[row + 1] - start)
        word = np.uint64(0)
        for i in range(length):
            word |= np.uint64(data[start + i]) << np.uint64(56 - 8 * i)
        out[row] = word


@kernel
def _same_strings(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], same: NDArray[np.bool_]
) -> None:
    for row in range(1, len(same)):
        if not same[row]:
            continue
        left, right = starts[row - 1], starts[row]
        length = ends[row] - right
        if ends[row - 1] - left != length:
            same[row] = False
            continue
        for i in range(8, length):  # the first eight bytes are words, and equal
            if data[left + i] != data[right + i]:
                same[row] = False
                break
