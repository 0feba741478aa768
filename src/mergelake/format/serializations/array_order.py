"""Arrays as bytes in the order of the arrays: element by element, and an array before those of which it is a prefix.

The bytewise order of the encoded values is ClickHouse's order of the arrays, so sorting and merging treat an Array
as a String. No encoded element is a prefix of another one::

    integers, dates …        most significant byte first, the sign bit inverted; floats so that they count upwards
    UUID                     as the 128-bit number; FixedString and IPv6 as they are
    String                   00 becomes 00 FF, and the end is 00 00
    Nullable(T)              01 for NULL (last), or 00 and the value
    Tuple                    its elements
    Array(T) in an Array     01 before each element, and 00 at the end

A Map is an Array of pairs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.format.serializations import ragged
from mergelake.format.serializations.ragged import VarBinaryColumn
from mergelake.format.serializations.values import binary_cells, fixed_bytes

_BYTES_MAX = (1 << 31) - 1


def array_key_bytes(array: pa.Array, data_type: t.Array | t.Map, *, nulls_last: bool = True) -> pa.BinaryArray:
    """The encoded value of each row of an Array or Map column in the storage form.

    `nulls_last` says where elements that are NULL or NaN stand.
    """
    cells = _elements(array, data_type, nulls_last)
    size = int(cells.offsets[-1])
    if size > _BYTES_MAX:
        message = f"{len(array)} rows of a sorting key of type {data_type} take {size} bytes, and {_BYTES_MAX} can be"
        raise error("LIMIT_EXCEEDED", message, "Insert smaller blocks")
    buffers = [None, pa.py_buffer(cells.offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(cells.data))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(array), buffers)


def order_cells(array: pa.Array, data_type: t.DataType, nulls_last: bool = True) -> VarBinaryColumn:
    """The encoded value of each row, none of which is a prefix of another.

    Raises DATA_TYPE_CANNOT_BE_USED_IN_KEY for a type without an order.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    match data_type:
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return order_cells(array, inner, nulls_last)
        case t.Nullable(inner):
            null = pc.is_null(array).to_numpy(zero_copy_only=False)
            flags = ragged.fixed((null == nulls_last).astype(np.uint8).reshape(-1, 1))
            return ragged.join([flags, ragged.take(order_cells(array, inner, nulls_last), ~null)])
        case t.String():
            return _escaped(binary_cells(array))
        case t.Tuple(elements) if elements:
            pairs = zip(array.flatten(), elements, strict=True)
            return ragged.join([order_cells(part, kind, nulls_last) for part, kind in pairs])
        case t.Array() | t.Map():
            return ragged.join([_elements(array, data_type, nulls_last, b"\x01"), ragged.repeat(b"\x00", len(array))])
        case t.Float() | t.BFloat16():
            return ragged.fixed(_float_bytes(array, nulls_last))
        case t.FixedString() | t.IPv6():
            return ragged.fixed(fixed_bytes(array))
        case t.AggregateFunction() | t.Nothing() | t.Variant() | t.Dynamic() | t.Json() | t.Tuple():
            raise error("DATA_TYPE_CANNOT_BE_USED_IN_KEY", f"A sorting key of type {data_type} is not supported")
        case _:
            signed = pa.types.is_signed_integer(array.type) or _is_signed_wide(data_type)
            return ragged.fixed(big_endian(fixed_bytes(array), signed=signed))


def _elements(
    array: pa.Array, data_type: t.Array | t.Map, nulls_last: bool, before_each: bytes = b""
) -> VarBinaryColumn:
    """The encoded elements of each list, one after the other, `before_each` before each of them."""
    if not len(array):
        return VarBinaryColumn(np.empty(0, np.uint8), np.zeros(1, np.int64))
    inner = t.Tuple((data_type.key, data_type.value)) if isinstance(data_type, t.Map) else data_type.inner
    values, offsets = ragged.list_elements(array)
    cells = order_cells(values, inner, nulls_last)
    if before_each:
        cells = ragged.join([ragged.repeat(before_each, len(values)), cells])
    return ragged.regroup(cells, offsets)


def _escaped(cells: VarBinaryColumn) -> VarBinaryColumn:
    """Strings with an end that sorts before every byte of a longer string: 00 becomes 00 FF, and the end is 00 00."""
    lengths = cells.lengths()
    zeros = cells.data == 0
    rows = np.repeat(np.arange(len(lengths)), lengths)
    # Where each byte goes: past a byte for each zero before it, and the two end bytes of each row before.
    places = np.arange(len(zeros)) + np.cumsum(zeros) - zeros + 2 * rows
    added = np.bincount(rows[zeros], minlength=len(lengths))
    offsets = ragged.offsets_of(lengths + added + 2)
    out = np.zeros(int(offsets[-1]), np.uint8)
    out[places] = cells.data
    out[places[zeros] + 1] = 0xFF
    return VarBinaryColumn(out, offsets)


def _is_signed_wide(data_type: t.DataType) -> bool:
    return isinstance(data_type, t.Decimal) or (isinstance(data_type, t.Int) and data_type.signed)


def big_endian(matrix: NDArray[np.uint8], *, signed: bool) -> NDArray[np.uint8]:
    """Little-endian numbers, one a row, as bytes whose bytewise order is the order of the numbers."""
    flipped = matrix[:, ::-1].copy()
    if signed:
        flipped[:, 0] ^= 0x80
    return flipped


def _float_bytes(array: pa.Array, nan_last: bool) -> NDArray[np.uint8]:
    """Floats as bytes in their order: -0 is 0, and NaN the greatest (or the least).

    Bits of positive floats count upwards as they are, those of negative ones downwards: these are inverted, and of the
    others the sign bit is set.
    """
    matrix = big_endian(fixed_bytes(array), signed=False)
    width = matrix.shape[1]
    bits = np.ascontiguousarray(matrix).view(f">u{width}")[:, 0].astype(f"u{width}")
    sign = bits.dtype.type(1 << (8 * width - 1))
    infinity = bits.dtype.type({2: 0x7F80, 4: 0x7F800000, 8: 0x7FF0000000000000}[width])
    bits[bits == sign] = 0
    ordered = np.where(bits & sign, ~bits, bits | sign)
    ordered[(bits & ~sign) > infinity] = np.iinfo(bits.dtype).max if nan_last else 0
    return np.ascontiguousarray(ordered.astype(f">u{width}")).view(np.uint8).reshape(-1, width)
