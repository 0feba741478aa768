"""Smallest and largest value of a column, in ClickHouse's order: what `minmax_*.idx` and pruning hold.

Numbers compare as numbers, strings and IPv6 addresses bytewise, UUIDs and wide integers as little-endian
numbers of their stored bytes. NaN counts for nothing unless there is nothing else; NULL is greater than all.

Source: ClickHouse, `IColumn::getExtremes`, `ColumnNullable::getExtremesNullLast`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core import types as t
from mergelake.core.arrow import storage_type
from mergelake.core.errors import error
from mergelake.format.values import decode_values, encode_values, fixed_bytes, plain_type


def extremes(array: pa.Array, data_type: t.DataType) -> tuple[bytes, bytes]:
    """Minimum and maximum of at least one value, each in single value binary form.

    Raises NOT_IMPLEMENTED for arrays, maps and tuples.
    """
    kind = plain_type(data_type)
    if pa.types.is_dictionary(array.type):
        used = array.indices.unique().drop_null()
        plain = array.dictionary.take(used)
        null_count = array.null_count + plain.null_count
        array = plain if null_count == 0 else pa.concat_arrays([plain, pa.nulls(1, plain.type)])
    low, high = _bounds(array, kind)
    return encode_values([low], [kind]), encode_values([high], [kind])


def merge_extremes(pairs: Iterable[tuple[bytes, bytes]], data_type: t.DataType) -> tuple[bytes, bytes]:
    """The extremes of several parts together."""
    kind = plain_type(data_type)
    values = [value for pair in pairs for value in pair]
    (column,) = decode_values(b"".join(values), [kind], len(values))
    return extremes(column, kind)


def order_keys(array: pa.Array, data_type: t.DataType) -> pa.Array:
    """An array that Arrow compares as ClickHouse compares `array` (plain types, NULLs kept)."""
    kind = data_type.inner if isinstance(data_type, t.Nullable) else data_type
    match kind:
        case t.Int(bits, signed) if bits > 64:
            return _big_endian(array, signed)
        case t.Decimal() if kind.bits > 64:
            return _big_endian(array, True)
        case t.UUID():
            return _big_endian(array, False)
        case t.BFloat16():
            wide = fixed_bytes(array).reshape(-1).view(np.uint16).astype(np.uint32) << 16
            missing = pc.is_null(array).to_numpy(zero_copy_only=False) if array.null_count else None
            return pa.array(wide.view(np.float32), mask=missing)
        case (
            t.Array() | t.Map() | t.Tuple() | t.AggregateFunction() | t.Nothing() | t.Variant() | t.Dynamic() | t.Json()
        ):
            raise error("NOT_IMPLEMENTED", f"Minimum and maximum of type {data_type} are not supported")
        case _:
            return array


def _bounds(array: pa.Array, kind: t.DataType) -> tuple[pa.Array, pa.Array]:
    """Arrays of one value each."""
    keys = order_keys(array, kind)
    present = np.flatnonzero(pc.is_valid(array).to_numpy(zero_copy_only=False))
    null = pa.nulls(1, storage_type(kind))
    if len(present) == 0:
        return null, null
    if pa.types.is_floating(keys.type):
        numbers = keys.to_numpy(zero_copy_only=False)
        present = present[~np.isnan(numbers[present])] if np.isnan(numbers[present]).any() else present
        at = present if len(present) else np.flatnonzero(pc.is_valid(array).to_numpy(zero_copy_only=False))[:1]
        low, high = int(at[np.argmin(numbers[at])]), int(at[np.argmax(numbers[at])])
    else:
        found = pc.min_max(keys)
        low, high = pc.index(keys, found["min"]).as_py(), pc.index(keys, found["max"]).as_py()
    return array.slice(low, 1), null if array.null_count else array.slice(high, 1)


def _big_endian(array: pa.Array, signed: bool) -> pa.Array:
    """Little-endian wide numbers as bytes whose bytewise order is the order of the numbers."""
    flipped = np.ascontiguousarray(fixed_bytes(array)[:, ::-1])
    if signed and len(flipped):
        flipped[:, 0] ^= 0x80
    validity = None
    if array.null_count:
        validity = pc.is_valid(array).cast(pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(flipped)])
