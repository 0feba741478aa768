"""Conversion of a column from the type that it had when its part was written to its current type.

Only lossless conversions are done while reading: wider numbers, Nullable around a type, LowCardinality added or
removed, other time zones, more Enum values. Others need a rewrite of the part and are refused.
"""

from __future__ import annotations

import pyarrow as pa

from mergelake.core import types as t
from mergelake.core.arrow import storage_type
from mergelake.core.errors import error


def evolve(array: pa.Array, stored: t.DataType, wanted: t.DataType) -> pa.Array:
    """`array` of type `stored` as `wanted`, both in storage form. Raises NOT_IMPLEMENTED where values could change."""
    if stored == wanted:
        return array
    if not can_evolve(stored, wanted):
        raise error(
            "NOT_IMPLEMENTED",
            f"A part holds the column as {stored}, the table as {wanted}, and this is not converted while reading",
            "Rewrite the table, or read the part with its own type",
        )
    target = storage_type(wanted)
    if pa.types.is_dictionary(target) and not pa.types.is_dictionary(array.type):
        return array.cast(target.value_type).dictionary_encode().cast(target)
    return array if array.type == target else array.cast(target)


def can_evolve(stored: t.DataType, wanted: t.DataType) -> bool:
    """Whether every value of `stored` is a value of `wanted` with the same meaning."""
    if t.is_nullable(stored) and not t.is_nullable(wanted):
        return False
    match t.inner_type(stored), t.inner_type(wanted):
        case t.Int(a, True), t.Int(b, True) if max(a, b) <= 64:
            return a <= b
        case t.Int(a, False), t.Int(b, signed) if max(a, b) <= 64:
            return a < b or (a == b and not signed)
        case t.Float(a), t.Float(b):
            return a <= b
        case t.DateTime(), t.DateTime():
            return True
        case t.DateTime64(a), t.DateTime64(b):
            return a == b
        case t.Enum(a, before), t.Enum(b, after):
            return a <= b and set(before) <= set(after)
        case before, after:
            return before == after
