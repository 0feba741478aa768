"""Types of the columns of a new table for Arrow data, as ClickHouse infers them from a file of such data.

If the values are known, a column is Nullable if it has a NULL; else if the schema says so. Structs are never Nullable.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.types import types as t

_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_INTERVALS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def inferred_types(schema: pa.Schema, table: pa.Table | None = None) -> dict[str, t.DataType]:
    """The type of each column; `table` has the values, if known. Raises NOT_IMPLEMENTED for unsupported Arrow types."""
    out: dict[str, t.DataType] = {}
    for index, field in enumerate(schema):
        values = None if table is None else table.column(index)
        kind = _type_of(field.type, None if values is None else values.chunks, field.name)
        out[field.name] = _nullable(kind, field.nullable, None if values is None else values.chunks)
    if len(out) < len(schema):
        raise error("DUPLICATE_COLUMN", f"Two columns have one name among {', '.join(schema.names)}")
    return out


def _nullable(kind: t.DataType, allowed: bool, chunks: Iterable[pa.Array] | None) -> t.DataType:
    if not (allowed if chunks is None else any(chunk.null_count for chunk in chunks)):
        return kind
    if isinstance(kind, t.LowCardinality):
        return t.LowCardinality(t.Nullable(kind.inner))
    return kind if isinstance(kind, (t.Array, t.Map, t.Tuple)) else t.Nullable(kind)


def _type_of(kind: pa.DataType, chunks: list[pa.Array] | None, name: str) -> t.DataType:
    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return t.UUID()
        stored = None if chunks is None else [chunk.storage for chunk in chunks]
        return _type_of(kind.storage_type, stored, name)
    if is_.is_dictionary(kind):
        return t.LowCardinality(_type_of(kind.value_type, None, name))
    if is_.is_map(kind):
        keys = _type_of(kind.key_type, _children(chunks, "keys"), name)
        return t.Map(keys, _element(kind.item_field, _children(chunks, "items"), name))
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        flat = None if chunks is None else [chunk.flatten() for chunk in chunks]
        return t.Array(_element(kind.value_field, flat, name))
    if is_.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        columns = [None if chunks is None else [chunk.field(i) for chunk in chunks] for i in range(kind.num_fields)]
        elements = tuple(_element(field, column, name) for field, column in zip(fields, columns, strict=True))
        return t.Tuple(elements, tuple(field.name for field in fields))
    return _leaf(kind, name)


def _element(field: pa.Field, chunks: list[pa.Array] | None, name: str) -> t.DataType:
    return _nullable(_type_of(field.type, chunks, name), field.nullable, chunks)


def _children(chunks: list[pa.Array] | None, which: str) -> list[pa.Array] | None:
    return None if chunks is None else [getattr(chunk, which) for chunk in chunks]


def _leaf(kind: pa.DataType, name: str) -> t.DataType:
    is_ = pa.types
    if is_.is_boolean(kind):
        return t.Bool()
    if is_.is_integer(kind):
        return t.Int(kind.bit_width, signed=is_.is_signed_integer(kind))
    if is_.is_floating(kind):
        return t.Float(64 if kind.bit_width == 64 else 32)
    if is_.is_fixed_size_binary(kind):
        return t.FixedString(kind.byte_width)
    if is_.is_decimal(kind):
        return t.Decimal(kind.precision, kind.scale)
    if is_.is_date32(kind):
        return t.Date32()
    if is_.is_date64(kind):
        return t.DateTime()
    if is_.is_timestamp(kind):
        return t.DateTime64(_UNITS[kind.unit], kind.tz or "")
    if is_.is_time(kind):
        return t.Time64(_UNITS[kind.unit])
    if is_.is_duration(kind):
        return t.Interval(_INTERVALS[kind.unit])
    if any(test(kind) for test in (is_.is_string, is_.is_large_string, is_.is_string_view)):
        return t.String()
    if any(test(kind) for test in (is_.is_binary, is_.is_large_binary, is_.is_binary_view)):
        return t.String()
    raise error("NOT_IMPLEMENTED", f"Column {name} is {kind}, for which there is no type", "Give its type by name")
