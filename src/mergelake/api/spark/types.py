"""The mapping of ClickHouse types to Spark, and its losses.

========================  ==================  =============================================
ClickHouse                Spark               loss
========================  ==================  =============================================
Int8 … Int64, Float, Bool the same            none
UInt8, UInt16, UInt32     the next wider      none
UInt64                    decimal(20,0)       none, but slow to aggregate: cast to bigint where it fits
String, UUID, IPv4, IPv6  string              bytes that are not UTF-8 are passed on unchecked
FixedString(N)            binary              none
Date, Date32              date                none
DateTime, DateTime64      timestamp           the zone; ticks below a microsecond are cut off
Enum8, Enum16             string              the numbers
Decimal(P <= 38, S)       decimal(P, S)       none
Nullable(T)               T, nullable         none
LowCardinality(T)         T                   the dictionary
Array, Map, Tuple         array, map, struct  none
BFloat16                  float               none
Time, Time64, Interval    int or bigint       what they count
Variant                   struct              none: a nullable field for each of its types
Dynamic, JSON             string              JSON text: the widths of numbers, what was a date
AggregateFunction         binary              none: the bytes are the state
========================  ==================  =============================================

128- and 256-bit integers and Decimal of more than 38 digits are refused; the error names the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.convert.storage import to_public, to_storage
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type, tuple_names
from mergelake.table.rows.blocks import check_given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType as SparkType, StructType

_WIDER = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}


def spark_arrow_type(data_type: t.DataType) -> pa.DataType:
    """The Arrow type of a column of `data_type` in Spark. Raises NOT_IMPLEMENTED for unsupported types."""
    match data_type:
        case t.Nullable(inner) | t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return spark_arrow_type(inner)
        case t.Interval() | t.Time() | t.Time64() | t.AggregateFunction():
            return storage_type(data_type)
        case t.BFloat16():
            return pa.float32()
        case t.Dynamic() | t.Json():
            return pa.string()
        case t.Variant(alternatives, names):
            return pa.struct([pa.field(n, spark_arrow_type(e)) for n, e in zip(names, alternatives, strict=True)])
        case t.Int(bits, signed) if bits <= 64:
            return getattr(pa, f"int{bits}")() if signed else _WIDER[bits]
        case t.Float(bits):
            return pa.float32() if bits == 32 else pa.float64()
        case t.Bool():
            return pa.bool_()
        case t.String() | t.UUID() | t.IPv4() | t.IPv6() | t.Enum():
            return pa.string()
        case t.FixedString():
            return pa.binary()
        case t.Date() | t.Date32():
            return pa.date32()
        case t.DateTime() | t.DateTime64():
            return pa.timestamp("us", "UTC")
        case t.Decimal(precision, scale) if precision <= 38:
            return pa.decimal128(precision, scale)
        case t.Array(inner):
            return pa.list_(pa.field("element", spark_arrow_type(inner), nullable=t.is_nullable(inner)))
        case t.Map(key, value):
            return pa.map_(
                spark_arrow_type(key), pa.field("value", spark_arrow_type(value), nullable=t.is_nullable(value))
            )
        case t.Tuple(elements):
            named = zip(tuple_names(data_type), elements, strict=True)
            return pa.struct([pa.field(n, spark_arrow_type(e), nullable=t.is_nullable(e)) for n, e in named])
        case _:
            raise error("NOT_IMPLEMENTED", f"Spark has no type for {data_type}", "Leave the column out of the scan")


def spark_schema(columns: Mapping[str, t.DataType]) -> StructType:
    """The Spark schema of `columns`; types that are not Nullable are NOT NULL."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(spark_arrow_schema(columns))


def frame_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow schema of a frame's columns; timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
    return schema


def spark_arrow_schema(columns: Mapping[str, t.DataType]) -> pa.Schema:
    """The Arrow schema of `columns` in Spark."""
    return pa.schema([pa.field(n, spark_arrow_type(c), nullable=t.is_nullable(c)) for n, c in columns.items()])


def to_spark(
    batch: pa.RecordBatch, columns: Mapping[str, t.DataType], shown: pa.Schema | None = None
) -> pa.RecordBatch:
    """Convert a batch from storage form to Spark's Arrow types, with columns in the order of `columns`.

    `shown` is the target schema (see `shown_as`), if it is not `spark_arrow_schema`.
    """
    shown = spark_arrow_schema(columns) if shown is None else shown
    arrays = [
        _cast(to_public(batch.column(name), data_type), shown.field(i).type)
        for i, (name, data_type) in enumerate(columns.items())
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shown)


def shown_as(requested: StructType, columns: Mapping[str, t.DataType]) -> pa.Schema:
    """The Arrow schema of a read with a user's schema, which must have the same types and be at least as nullable.

    Raises TYPE_MISMATCH for another type, because Spark would not convert the values.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted: pa.Schema = to_arrow_schema(requested, timezone="UTC")
    for field, own, column in zip(wanted, spark_arrow_schema(columns), requested.fields, strict=True):
        if not _may_show(own, field):
            kind = f"{column.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
            message = f"Column {own.name} of type {columns[own.name]} cannot be read as {kind}"
            raise error("TYPE_MISMATCH", message, "Leave .schema(…) out, or cast the column of the frame")
    return wanted


def _may_show(own: pa.Field, wanted: pa.Field) -> bool:
    if own.nullable and not wanted.nullable:
        return False
    if not own.type.num_fields or own.type.id != wanted.type.id or own.type.num_fields != wanted.type.num_fields:
        return bool(own.type == wanted.type)
    pairs = [(own.type.field(i), wanted.type.field(i)) for i in range(own.type.num_fields)]
    named = pa.types.is_struct(own.type)
    return all(_may_show(a, b) and (not named or a.name == b.name) for a, b in pairs)


def check_frame(schema: TableSchema, frame_type: StructType) -> None:
    """Check by names and types that rows of a frame can be inserted.

    Raises the errors of `check_given`, and TYPE_MISMATCH for a type without values that fit the column.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    check_given(schema, list(frame_type.names))
    for field in frame_type.fields:
        column = schema.column(field.name)
        kind = field.dataType.simpleString()
        try:
            arrow = to_arrow_type(field.dataType, timezone="UTC")
        except PySparkException:
            raise _no_values(kind, column, "Cast it first") from None
        if _is_opaque(field.dataType):
            raise _no_values(kind, column, "Cast it first: a variant with to_json, a geometry with ST_AsBinary")
        to_storage(pa.array([], arrow), column.type, column.name)


def _is_opaque(kind: SparkType) -> bool:
    """Whether the type has values in Spark's internal form, which are structs of bytes in Arrow."""
    from pyspark.sql import types as s

    if isinstance(kind, s.StructType):
        return any(_is_opaque(field.dataType) for field in kind.fields)
    if isinstance(kind, s.ArrayType):
        return _is_opaque(kind.elementType)
    if isinstance(kind, s.MapType):
        return _is_opaque(kind.keyType) or _is_opaque(kind.valueType)
    return isinstance(kind, (s.VariantType, s.GeometryType, s.GeographyType))


def _no_values(kind: str, column: Column, hint: str) -> MergelakeError:
    return error("TYPE_MISMATCH", f"Spark's type {kind} does not fit {column.type} (column {column.name})", hint)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """`array.cast(target)`, recursively for lists, maps and structs, in which Arrow does not decode dictionaries."""
    if array.type == target:
        return array
    if pa.types.is_dictionary(array.type):
        return _cast(array.dictionary_decode(), target)
    if isinstance(array.type, pa.BaseExtensionType):
        return _cast(array.storage, target)
    if pa.types.is_struct(target):
        fields = [_cast(array.field(i), target.field(i).type) for i in range(target.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(target), mask=mask)
    if pa.types.is_list(target) or pa.types.is_map(target):
        values = _cast(array.values, target.value_type if pa.types.is_list(target) else _pairs(target))
        return pa.Array.from_buffers(
            target, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
        )
    if pa.types.is_timestamp(target):
        # Spark's timestamp has microseconds: finer ticks are cut off, as the table above says.
        return pc.cast(array, target, safe=False)
    if pa.types.is_floating(target) and array.type == pa.uint16():  # the upper half of a float
        wide = pc.shift_left(array.cast(pa.uint32()), pa.scalar(16, pa.uint32()))
        return wide.view(pa.float32())
    return array.cast(target)


def _pairs(target: pa.MapType) -> pa.StructType:
    return pa.struct([target.key_field, target.item_field])
