"""Conversion of values into ClickHouse and back: storage form -> ClickHouse -> public form.

Input: chdb reads an Arrow column as the ClickHouse type of its numbers: `uint32` as UInt32, `binary` as String (any
bytes), `fixed_size_binary(16)` as FixedString(16), a dictionary as LowCardinality. So the storage form is passed
unchanged, and `exact_expression` converts a column to its type in the table:

===========================================  ==================================================
Already exact                                 integers to 64 bits, floats, String, FixedString,
                                              arrays, nullable and LowCardinality columns of these
CAST (the value is kept, 1-3 ns a row)        Bool, Date, Date32, DateTime, Enum, IPv4, IPv6, Time,
                                              Interval, tuples, maps
reinterpret (the bits are kept)               UUID, Decimal, DateTime64, (U)Int128 and 256, BFloat16
===========================================  ==================================================

Output: ClickHouse writes DateTime as uint32, Enum as its number, UUID as an extension; `to_public` converts them to the
public form of `core.types.arrow`. Measured with chdb 4.4; every type is tested in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.convert.storage import to_public as storage_to_public
from mergelake.core.types import types as t
from mergelake.core.types.arrow import arrow_type

_EXACT, _CAST, _REBUILD = range(3)


def exact_expression(name: str, data_type: t.DataType) -> str:
    """ClickHouse expression that converts the storage column `name` to exactly `data_type`."""
    try:
        return _exact(back_quote(name), data_type, 0)
    except MergelakeError as refused:
        refused.message = f"Column {name}: {refused.message}"
        raise


def _effort(data_type: t.DataType) -> int:
    match data_type:
        case t.Int(bits):
            return _EXACT if bits <= 64 else _REBUILD
        case t.Float() | t.String() | t.FixedString() | t.Nothing():
            return _EXACT
        case t.UUID() | t.Decimal() | t.DateTime64() | t.Time64() | t.BFloat16():
            return _REBUILD
        case t.Variant() | t.Dynamic() | t.Json():
            return _REBUILD
        case t.Nullable(inner) | t.LowCardinality(inner) | t.Array(inner):
            return _effort(inner)
        case t.SimpleAggregateFunction(_, inner):
            return max(_CAST, _effort(inner))
        case t.Tuple(elements):
            return max([_CAST, *(_effort(element) for element in elements)])
        case t.Map(key, value):
            return max(_CAST, _effort(key), _effort(value))
        case _:
            return _CAST


def _exact(expression: str, data_type: t.DataType, depth: int) -> str:
    effort = _effort(data_type)
    if effort == _EXACT:
        return expression
    if effort == _CAST:
        return _cast(expression, data_type)
    match data_type:
        case t.Nullable(inner):
            # reinterpret keeps NULL, a CAST to T does not
            built = _exact(expression, inner, -1 if isinstance(inner, t.Time64) else depth)
            return _cast(built, data_type) if isinstance(inner, t.Time64 | t.Tuple) else built
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return _cast(_exact(expression, inner, depth), data_type)
        case t.Array(inner):
            return f"arrayMap(x{depth} -> {_exact(f'x{depth}', inner, depth + 1)}, {expression})"
        case t.Tuple(elements):
            built = ", ".join(_exact(f"{expression}.{i + 1}", e, depth) for i, e in enumerate(elements))
            return _cast(f"tuple({built})", data_type)
        case t.Map(key, value):
            pair = f"tuple({_exact(f'x{depth}.1', key, depth + 1)}, {_exact(f'x{depth}.2', value, depth + 1)})"
            return _cast(f"arrayMap(x{depth} -> {pair}, {expression})", data_type)
        case t.Variant(alternatives):
            return _variant(expression, alternatives, data_type, depth)
        case t.Dynamic() | t.Json():
            raise _not_exact(data_type)
        case t.Time64(precision):
            ticks = f"reinterpret({expression}, {quote_string(f'Decimal(18, {precision})')})"
            return ticks if depth < 0 else _cast(ticks, data_type)
        case _:
            return f"reinterpret({expression}, {quote_string(str(data_type))})"


def _variant(expression: str, alternatives: Sequence[t.DataType], data_type: t.Variant, depth: int) -> str:
    if any(isinstance(t.inner_type(each), (t.Array, t.Map, t.Tuple, t.Variant, t.Json)) for each in alternatives):
        raise _not_exact(data_type)  # NULL and empty could not be distinguished
    cases = []
    for number, each in enumerate(alternatives, 1):
        value = _cast(_exact(f"assumeNotNull({expression}.{number})", each, depth), each)
        cases.append(f"isNotNull({expression}.{number}), {_cast(value, data_type)}")
    return f"multiIf({', '.join(cases)}, {_cast('NULL', data_type)})"


def _not_exact(data_type: t.DataType) -> MergelakeError:
    return error(
        "NOT_IMPLEMENTED",
        f"a SELECT cannot compute with values of type {data_type}, which do not reach ClickHouse unchanged",
        "Name the other columns, read it whole (SELECT of plain columns, or Table.scan()), "
        "or let a ClickHouse attach the published table (Table.attach_statement())",
    )


def _cast(expression: str, data_type: t.DataType) -> str:
    return _cast_text(expression, str(data_type))


def _cast_text(expression: str, kind: str) -> str:
    return f"CAST({expression}, {quote_string(kind)})"


def parse_types(names: Sequence[str]) -> list[t.DataType | None]:
    """Parse ClickHouse's type names; None for a type that `core.types.types` does not support."""
    out: list[t.DataType | None] = []
    for name in names:
        try:
            out.append(t.parse_type(name))
        except MergelakeError:
            out.append(None)
    return out


def needs_types(schema: pa.Schema, kinds: Sequence[t.DataType | None] = ()) -> bool:
    """Whether the Arrow schema of a result is ambiguous (uint32: UInt32, DateTime or IPv4)."""
    return any(not _is_plain(field.type) for field in schema) or any(isinstance(k, t.AggregateFunction) for k in kinds)


def _is_plain(arrow: pa.DataType) -> bool:
    return (
        pa.types.is_string(arrow)
        or pa.types.is_floating(arrow)
        or pa.types.is_boolean(arrow)
        or arrow in (pa.uint8(), pa.uint16(), pa.uint64(), pa.date32())
        # Time64 is passed as Decimal(18, p), see `_without_time`.
        or (pa.types.is_decimal(arrow) and arrow.precision != 18)
    )


def without_nothing(text: str, names: Sequence[str], kinds: Sequence[str]) -> str:
    """The statement with casts of columns that ClickHouse's Arrow output does not support.

    Array(Nothing), the type of `[]`, is cast to Array(String); Time and Time64, of which only values within a day are
    supported, to Int32 and Decimal; LowCardinality(UUID) to UUID; aggregate states to their bytes.
    """
    casts = [
        f"{_cast_text(back_quote(name), outgoing)} AS {back_quote(name)}"
        for name, kind in zip(names, kinds, strict=True)
        if (outgoing := _outgoing(kind)) != kind
    ]
    return f"SELECT * REPLACE ({', '.join(casts)}) FROM ({text}\n)" if casts else text


def _outgoing(kind: str) -> str:
    """The type that a column of type `kind` is cast to for output."""
    if "(Nothing)" in kind.replace("Nullable(Nothing)", ""):
        kind = kind.replace("(Nothing)", "(String)")
    if "Time" not in kind.replace("DateTime", "") and "LowCardinality(" not in kind and "AggregateF" not in kind:
        return kind
    (parsed,) = parse_types([kind])
    if parsed is None or (plain := _without_time(parsed)) == parsed:
        return kind
    return str(plain)


def _without_time(kind: t.DataType) -> t.DataType:
    match kind:
        case t.LowCardinality(t.UUID() | t.Nullable(t.UUID()) as inner):
            return inner
        case t.AggregateFunction():
            return t.STRING
        case t.Time():
            return t.Int(32, signed=True)
        case t.Time64(precision):
            return t.Decimal(18, precision)
        case t.Nullable(inner) | t.Array(inner) | t.LowCardinality(inner):
            return replace(kind, inner=_without_time(inner))
        case t.SimpleAggregateFunction(_, inner) if (plain := _without_time(inner)) != inner:
            return plain
        case t.Map(key, value):
            return t.Map(_without_time(key), _without_time(value))
        case t.Tuple(elements, names):
            return t.Tuple(tuple(map(_without_time, elements)), names)
        case _:
            return kind


def to_public(table: pa.Table, types: Sequence[t.DataType | None]) -> pa.Table:
    """Convert a result of ClickHouse to the public form; columns of unknown types are unchanged."""
    columns, fields = [], []
    for field, column, data_type in zip(table.schema, table.columns, types, strict=True):
        if data_type is None or (_is_plain(field.type) and not isinstance(data_type, t.AggregateFunction)):
            columns.append(column)
        else:
            target = arrow_type(data_type)
            chunks = [_public(chunk, data_type) for chunk in column.chunks]
            columns.append(pa.chunked_array(chunks, type=chunks[0].type if chunks else target))
        nullable = field.nullable or isinstance(data_type, t.Dynamic)
        fields.append(pa.field(field.name, columns[-1].type, nullable=nullable))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _public(array: pa.Array, data_type: t.DataType) -> pa.Array:
    """Convert an array of ClickHouse's output to the public form of `data_type`."""
    match data_type:
        case t.Nullable(inner) | t.SimpleAggregateFunction(_, inner):
            return _public(array, inner)
        case t.LowCardinality(inner):
            if not isinstance(array, pa.DictionaryArray):
                return _public(array, inner).dictionary_encode().cast(arrow_type(data_type))
            indices = array.indices.cast(pa.int32())
            return pa.DictionaryArray.from_arrays(indices, _public(array.dictionary, inner))
        case t.DateTime():
            return array.cast(pa.int64()).view(arrow_type(data_type))
        case t.DateTime64():
            return array.view(pa.int64()).view(arrow_type(data_type))
        case t.Time() | t.Interval():
            return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
        case t.Time64(precision):
            return _ticks(array, precision)
        case t.BFloat16():
            return _words(array)
        case t.AggregateFunction():
            return array.cast(pa.binary())
        case t.Variant():
            return _fields(array, data_type)
        case t.Dynamic() | t.Json():
            texts = (array.storage if isinstance(array, pa.ExtensionArray) else array).cast(pa.string())
            if isinstance(data_type, t.Dynamic):  # NULL is written as text; a String is quoted
                texts = pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts)
            return pa.ExtensionArray.from_storage(arrow_type(data_type), texts)
        case t.UUID():
            return storage_to_public(_stored_uuid(array), data_type)
        case t.IPv4() | t.IPv6() | t.Enum():
            return storage_to_public(array, data_type)
        case t.Array(inner):
            values = _public(array.flatten(), inner)
            field = pa.field("item", values.type, nullable=t.is_nullable(inner))
            return pa.ListArray.from_arrays(_offsets(array), values, type=pa.list_(field))
        case t.Map(key, value):
            entries = array.values.slice(array.offsets[0].as_py(), array.offsets[-1].as_py() - array.offsets[0].as_py())
            return pa.MapArray.from_arrays(
                _offsets(array), _public(entries.field(0), key), _public(entries.field(1), value)
            ).cast(arrow_type(data_type))
        case t.Tuple(()):
            return pa.StructArray.from_buffers(pa.struct([]), len(array), [None], children=[])
        case t.Tuple(elements):
            built = [_public(child, element) for child, element in zip(array.flatten(), elements, strict=True)]
            target = arrow_type(data_type)
            fields = [target.field(i).with_type(child.type) for i, child in enumerate(built)]
            return pa.StructArray.from_arrays(built, fields=fields, mask=array.is_null() if array.null_count else None)
        case _:
            return array


def _fields(array: pa.Array, data_type: t.Variant) -> pa.Array:
    """Convert ClickHouse's union of a Variant to a struct with a field for each type."""
    if not len(array):  # PyArrow crashes on such a union without buffers
        return pa.array([], arrow_type(data_type))
    codes, offsets = np.asarray(array.type_codes), np.asarray(array.offsets)
    fields = []
    # Fields of the union are in the order of the types, then NULL; their names omit the types' parameters.
    for number, each in enumerate(data_type.alternatives):
        here = codes == array.type.type_codes[number]
        values = _public(array.field(number), each)
        fields.append(values.take(pa.array(offsets, mask=~here)))
    return pa.StructArray.from_arrays(fields, fields=list(arrow_type(data_type)))


def _offsets(array: pa.Array) -> pa.Array:
    offsets = array.offsets
    return pc.subtract(offsets, offsets[0]).cast(pa.int32())


def _ticks(array: pa.Array, precision: int) -> pa.Array:
    if pa.types.is_decimal(array.type):  # Time64 is passed as a Decimal of the same ticks, which fit into the low word
        words = np.frombuffer(array.buffers()[1] or b"", np.int64).reshape(-1, array.type.byte_width // 8)
        ticks = np.ascontiguousarray(words[array.offset : array.offset + len(array), 0])
        valid = pc.is_valid(array) if array.null_count else None
        out = pa.array(ticks)
        return out if valid is None else pc.if_else(valid, out, pa.scalar(None, pa.int64()))
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[array.type.unit]
    numbers = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    return pc.divide(numbers, 10 ** (digits - precision)) if digits > precision else numbers


def _words(array: pa.Array) -> pa.Array:
    return array.cast(pa.binary(2)).view(pa.uint16())


def _stored_uuid(array: pa.Array) -> pa.Array:
    """Convert the big-endian bytes of Arrow's extension to the stored order: each half reversed."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    flat = np.frombuffer(storage.buffers()[1], np.uint8)[storage.offset * 16 : (storage.offset + len(storage)) * 16]
    turned = np.ascontiguousarray(flat.reshape(-1, 2, 8)[:, :, ::-1])
    validity = pc.is_valid(storage) if storage.null_count else None
    out = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(storage), [None, pa.py_buffer(turned)])
    return out if validity is None else pc.if_else(validity, out, pa.scalar(None, pa.binary(16)))
