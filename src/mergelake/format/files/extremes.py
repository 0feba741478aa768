"""Smallest and largest value of a column, in ClickHouse's order: what `minmax_*.idx` and pruning hold.

Numbers compare as numbers, strings and IPv6 addresses bytewise, UUIDs and wide integers as little-endian
numbers of their stored bytes. NaN is passed over unless all values are NaN; NULL is greater than all values.

Source: ClickHouse, `IColumn::getExtremes`, `ColumnNullable::getExtremesNullLast`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.format.serializations.array_order import array_key_bytes, big_endian, order_cells
from mergelake.format.serializations.values import decode_values, encode_values, fixed_bytes, plain_type, value_cells


def extremes(array: pa.Array, data_type: t.DataType) -> tuple[bytes, bytes]:
    """Minimum and maximum of at least one value, each in single value binary form.

    Those of a Tuple are those of its elements, where NULL is passed over unless all values are NULL.
    """
    kind = plain_type(data_type)
    if pa.types.is_dictionary(array.type):
        used = array.indices.unique().drop_null()
        plain = array.dictionary.take(used)
        null_count = array.null_count + plain.null_count
        array = plain if null_count == 0 else pa.concat_arrays([plain, pa.nulls(1, plain.type)])
    low, high = _bounds(array, kind)
    return encode_values([low], [kind]), encode_values([high], [kind])


def extremes_each(array: pa.Array, data_type: t.DataType, ends: NDArray[np.int64]) -> list[tuple[bytes, bytes]]:
    """`extremes` of each piece of `array`; the pieces end at `ends` (ascending, none empty)."""
    kind = plain_type(data_type)
    if array.null_count or not pa.types.is_integer(array.type) or not isinstance(kind, t.Int | t.Date | t.DateTime):
        begins = [0, *ends[:-1].tolist()]
        return [extremes(array.slice(at, end - at), data_type) for at, end in zip(begins, ends.tolist(), strict=True)]
    values = array.to_numpy()
    starts = np.concatenate([[0], ends[:-1]])
    low, high = (
        value_cells([pa.array(pick.reduceat(values, starts), array.type)], [kind]) for pick in (np.minimum, np.maximum)
    )
    return [(low.row(at), high.row(at)) for at in range(len(ends))]


def merge_extremes(pairs: Iterable[tuple[bytes, bytes]], data_type: t.DataType) -> tuple[bytes, bytes]:
    """The extremes of several parts together."""
    kind = plain_type(data_type)
    values = [value for pair in pairs for value in pair]
    (column,) = decode_values(b"".join(values), [kind], len(values))
    if isinstance(kind, t.Tuple):  # of whole tuples, as ClickHouse does it here
        order = order_cells(column, kind).to_arrow()
        return values[_first(order, "min")], values[_first(order, "max")]
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
        case t.Array():
            return array_key_bytes(array, kind)
        case t.Nothing():
            return array
        case t.BFloat16():
            wide = fixed_bytes(array).reshape(-1).view(np.uint16).astype(np.uint32) << 16
            missing = pc.is_null(array).to_numpy(zero_copy_only=False) if array.null_count else None
            return pa.array(wide.view(np.float32), mask=missing)
        case t.Map() | t.Tuple() | t.AggregateFunction() | t.Variant() | t.Dynamic() | t.Json():
            raise error("NOT_IMPLEMENTED", f"Minimum and maximum of type {data_type} are not supported")
        case _:
            return array


def _bounds(array: pa.Array, kind: t.DataType, *, null_last: bool = True) -> tuple[pa.Array, pa.Array]:
    """Minimum and maximum as arrays of one value each; a NULL is the maximum if `null_last`, else passed over."""
    if isinstance(kind, t.Tuple) and kind.elements:
        pairs = [_bounds(a, e, null_last=False) for a, e in zip(array.flatten(), kind.elements, strict=True)]
        low, high = (
            pa.StructArray.from_arrays(list(ends), fields=list(array.type)) for ends in zip(*pairs, strict=True)
        )
        return low, high
    if isinstance(kind, t.Array):
        return _array_bounds(array, kind)
    keys = order_keys(array, kind)
    present = np.flatnonzero(pc.is_valid(array).to_numpy(zero_copy_only=False))
    null = pa.nulls(1, storage_type(kind))
    if len(present) == 0:
        return null, null
    if pa.types.is_floating(keys.type):
        numbers = keys.to_numpy(zero_copy_only=False)
        present = present[~np.isnan(numbers[present])] if np.isnan(numbers[present]).any() else present
        at = present if len(present) else np.flatnonzero(pc.is_valid(array).to_numpy(zero_copy_only=False))[:1]
        first, last = int(at[np.argmin(numbers[at])]), int(at[np.argmax(numbers[at])])
    else:
        first, last = _first(keys, "min"), _first(keys, "max")
    return array.slice(first, 1), null if array.null_count and null_last else array.slice(last, 1)


def _array_bounds(array: pa.Array, kind: t.Array) -> tuple[pa.Array, pa.Array]:
    """As ClickHouse: NULL and NaN in arrays sort last for the minimum and first for the maximum.

    It looks for the maximum only among values that are not a new minimum, the first value excepted.

    Source: ClickHouse, `ColumnArray::getExtremes`.
    """
    falling, rising = (
        pc.rank(array_key_bytes(array, kind, nulls_last=last), tiebreaker="dense").to_numpy() for last in (True, False)
    )
    lowest = np.minimum.accumulate(falling)
    candidates = np.flatnonzero(np.concatenate([[True], falling[1:] >= lowest[:-1]]))
    high = int(candidates[np.argmax(rising[candidates])])
    return array.slice(int(np.argmin(falling)), 1), array.slice(high, 1)


def _first(keys: pa.Array, end: str) -> int:
    """The first place of the least (`min`) or greatest (`max`) value."""
    place: int = pc.index(keys, pc.min_max(keys)[end]).as_py()
    return place


def _big_endian(array: pa.Array, signed: bool) -> pa.Array:
    """Wide numbers as an array that Arrow compares as the numbers."""
    flipped = big_endian(fixed_bytes(array), signed=signed)
    validity = None
    if array.null_count:
        validity = pc.is_valid(array).cast(pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(flipped)])
