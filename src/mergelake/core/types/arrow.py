"""Two Arrow forms of every ClickHouse type: the storage form for internal use, the public form for users.

All wings pass values in the **storage form**: Arrow arrays of the numbers as they are on disk, so that decoding,
comparing and passing them to ClickHouse copy nothing.

====================  =======================  ============================
ClickHouse            storage form             public form
====================  =======================  ============================
(U)Int8…64, Float     the same                 the same
(U)Int128, 256        fixed_size_binary(16|32) the same
Bool                  uint8                    bool
String                binary                   string (bytes not checked)
FixedString(N)        fixed_size_binary(N)     the same
Date                  uint16                   date32
Date32                int32                    date32
DateTime              uint32                   timestamp[s, zone or UTC]
DateTime64(p)         int64                    timestamp[s|ms|us|ns, zone or UTC]
Time, Time64          int32, int64             the same
Enum8, Enum16         int8, int16              dictionary(int8|int16, string)
UUID                  fixed_size_binary(16)    string (canonical text)
IPv4                  uint32                   string
IPv6                  fixed_size_binary(16)    string
Decimal               int32, int64,            decimal128 | decimal256
                      fixed_size_binary(16|32)
Nullable(T)           T with validity          T, nullable
LowCardinality(T)     dictionary(int32, T)     dictionary(int32, T)
Array, Map, Tuple     list, list of struct,    list, map, struct
                      struct
AggregateFunction     binary, a state a row    the same
Variant               struct, a nullable field the same
                      for each of its types
Dynamic               binary, nullable: type   arrow.json (text)
                      and value as bytes
JSON                  list of struct (path,    arrow.json (text)
                      value as for Dynamic)
====================  =======================  ============================

UUID bytes are in stored order (each 8-byte half reversed). A dictionary in storage form has no value twice and no NULL,
as ClickHouse demands: a row is NULL by its index. Struct fields of an unnamed tuple are `1`, `2`, …; those
of a Variant have the names of its types, like its subcolumns in ClickHouse, and at most one of them is not NULL.
The paths of a JSON value are ascending and include all paths that its type declares.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.types import types as t

_INTS = {
    (8, True): pa.int8(),
    (16, True): pa.int16(),
    (32, True): pa.int32(),
    (64, True): pa.int64(),
    (8, False): pa.uint8(),
    (16, False): pa.uint16(),
    (32, False): pa.uint32(),
    (64, False): pa.uint64(),
}


STORED_DYNAMIC = pa.opaque(pa.binary(), "Dynamic", "mergelake")
"""Arrow type of values of a Dynamic column in storage form, where the public form is expected."""


def storage_type(data_type: t.DataType) -> pa.DataType:
    """The Arrow type of the storage form."""
    match data_type:
        case t.Int(bits, signed):
            return _INTS.get((bits, signed)) or pa.binary(bits // 8)
        case t.Float(bits):
            return pa.float32() if bits == 32 else pa.float64()
        case t.Bool():
            return pa.uint8()
        case t.String() | t.AggregateFunction() | t.Dynamic():
            return pa.binary()
        case t.FixedString(length):
            return pa.binary(length)
        case t.Date() | t.BFloat16():
            return pa.uint16()
        case t.DateTime() | t.IPv4():
            return pa.uint32()
        case t.Date32() | t.Time():
            return pa.int32()
        case t.DateTime64() | t.Time64() | t.Interval():
            return pa.int64()
        case t.Enum(bits):
            return _INTS[bits, True]
        case t.UUID() | t.IPv6():
            return pa.binary(16)
        case t.Decimal():
            return _INTS.get((data_type.bits, True)) or pa.binary(data_type.bits // 8)
        case t.Nothing():
            return pa.null()
        case t.Nullable(inner) | t.SimpleAggregateFunction(_, inner):
            return storage_type(inner)
        case t.LowCardinality(inner):
            return pa.dictionary(pa.int32(), storage_type(inner))
        case t.Array(inner):
            return pa.list_(_field("item", inner))
        case t.Map(key, value):
            return storage_type(t.Array(t.Tuple((key, value), ("keys", "values"))))
        case t.Tuple(elements):
            named = zip(tuple_names(data_type), elements, strict=True)
            return pa.struct([_field(name, element) for name, element in named])
        case t.Variant(alternatives, names):
            return pa.struct([pa.field(n, storage_type(e)) for n, e in zip(names, alternatives, strict=True)])
        case t.Json():
            entry = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("path", "value")])
            return pa.list_(pa.field("item", entry, nullable=False))
        case t.Unknown():
            raise unreadable(data_type)


def _field(name: str, data_type: t.DataType) -> pa.Field:
    nullable = t.is_nullable(data_type) or isinstance(data_type, t.Nothing)
    return pa.field(name, storage_type(data_type), nullable=nullable)


def unreadable(data_type: t.Unknown) -> MergelakeError:
    """The error for reading a column of an unknown type."""
    return error(
        "NOT_IMPLEMENTED",
        f"Columns of type {data_type} cannot be read here",
        "Leave the column out of the query; the part can be copied, and read with ClickHouse",
    )


def arrow_type(data_type: t.DataType) -> pa.DataType:
    """The Arrow type of the public form."""
    match data_type:
        case t.Bool():
            return pa.bool_()
        case t.String() | t.UUID() | t.IPv4() | t.IPv6():
            return pa.string()
        case t.Dynamic() | t.Json():
            return pa.json_(pa.string())
        case t.Date() | t.Date32():
            return pa.date32()
        case t.DateTime(zone):
            return pa.timestamp("s", zone or "UTC")
        case t.DateTime64(precision, zone):
            return pa.timestamp(("s", "ms", "us", "ns")[(precision + 2) // 3], zone or "UTC")
        case t.Enum(bits):
            return pa.dictionary(_INTS[bits, True], pa.string())
        case t.Decimal(precision, scale):
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        case t.Nullable(inner) | t.SimpleAggregateFunction(_, inner):
            return arrow_type(inner)
        case t.LowCardinality(inner):
            return pa.dictionary(pa.int32(), arrow_type(inner))
        case t.Array(inner):
            return pa.list_(pa.field("item", arrow_type(inner), nullable=t.is_nullable(inner)))
        case t.Map(key, value):
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value), nullable=t.is_nullable(value)))
        case t.Tuple(elements):
            named = zip(tuple_names(data_type), elements, strict=True)
            return pa.struct([pa.field(name, arrow_type(e), nullable=t.is_nullable(e)) for name, e in named])
        case t.Variant(alternatives, names):
            return pa.struct([pa.field(n, arrow_type(e)) for n, e in zip(names, alternatives, strict=True)])
        case _:
            return storage_type(data_type)


def tuple_names(data_type: t.Tuple) -> tuple[str, ...]:
    """Names of a tuple's elements; `1`, `2`, … for an unnamed tuple."""
    return data_type.names or tuple(str(i + 1) for i in range(len(data_type.elements)))


def storage_schema(columns: Mapping[str, t.DataType]) -> pa.Schema:
    """The Arrow schema of the storage form of `columns`."""
    return pa.schema([pa.field(name, storage_type(c), nullable=t.is_nullable(c)) for name, c in columns.items()])


def arrow_schema(columns: Mapping[str, t.DataType]) -> pa.Schema:
    """The Arrow schema of the public form of `columns`."""
    return pa.schema([pa.field(name, arrow_type(c), nullable=t.is_nullable(c)) for name, c in columns.items()])
