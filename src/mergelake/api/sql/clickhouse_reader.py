"""Inline data read by ClickHouse itself, by `format(name, structure, data)`: computed values, and settings of formats.

The structure is the table's, so nothing is guessed. ClickHouse's readers wrap integers that are out of range and cut
fractions off; in the strict conversion, which is the default here, such values are refused:

1. integers are read as Int256 (UInt256 as it is) and cast with a check;
2. JSON's null, which ClickHouse reads as 0 or NaN into numbers and dates, is read as NULL and refused by the cast;
3. NULL does not mean the default (`input_format_null_as_default = 0`), and dates beyond their type's range become its
   first or last (`date_time_overflow_behavior = 'saturate'`), as in text, unless the statement sets these settings;
4. integers that were computed are read a second time as Float64: a fraction is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, UnavailableError, error
from mergelake.core.base.lexer import tokenize
from mergelake.core.base.text import back_quote, quote_string, unused_stem
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.query.embedded import engine
from mergelake.query.embedded.arrow_bridge import to_public, without_nothing
from mergelake.query.statement.settings import plain_value

CONVERSIONS = ("strict", "clickhouse")
"""What `insert_conversion` may be: refuse values that a conversion would change, or convert as ClickHouse does."""
_READING = re.compile(
    r"(input_format_(?!arrow|avro|binary|bson|capn|custom|geojson|hive|msgpack|mysql|native|orc|parquet|protobuf)"
    r"|format_(csv|tsv)_|date_time_(input_format|overflow_behavior)$|bool_(true|false)_representation$).*"
)
"""Settings that control how the formats supported here are read."""
_OF_FORMAT = re.compile(r"(?:input_)?format_(csv|tsv|json|values)_")
_REFUSED = {"input_format_record_errors_file_path": "rows in error are not written to a file"}
_FLOAT64, _INT256 = t.Float(64), t.Int(256, signed=True)
_STRICT = {
    "input_format_null_as_default": "0",
    "input_format_skip_unknown_fields": "0",
    "date_time_overflow_behavior": "'saturate'",
}


def reading_settings(settings: Mapping[str, str], format_name: str) -> dict[str, str]:
    """The settings that control how data of this format is read. Raises NOT_IMPLEMENTED for those of `_REFUSED`."""
    family = format_name.lower().replace("tabseparated", "tsv").replace("ndjson", "json")
    reading = {}
    for name, value in settings.items():
        if name in _REFUSED:
            raise error("NOT_IMPLEMENTED", f"The setting {name} is not supported: {_REFUSED[name]}", "Leave it out")
        only = _OF_FORMAT.match(name)
        if is_reading_setting(name) and (only is None or family.startswith(only.group(1))):
            reading[name] = value
    return reading


def is_reading_setting(name: str) -> bool:
    """Whether INSERT honours this setting if it concerns the format of its data."""
    return _READING.fullmatch(name) is not None


def conversion_of(settings: Mapping[str, str]) -> str:
    """The setting `insert_conversion`: one of `CONVERSIONS`."""
    conversion = settings.get("insert_conversion", "'strict'").strip("'")
    if conversion not in CONVERSIONS:
        raise error("BAD_ARGUMENTS", f"There is no insert_conversion '{conversion}'", "It is 'strict' or 'clickhouse'")
    return conversion


def read_cells(cells: Sequence[str], data_type: t.DataType, name: str) -> pa.Array:
    """One value for each of `cells`, as written in VALUES, strictly converted; in the public form."""
    data = ",".join(f"({cell}\n)" for cell in cells)
    return _strictly("Values", data, {name: data_type}, {}, {}).column(0).combine_chunks()


def read_all(
    format_name: str,
    data: str,
    columns: Mapping[str, t.DataType],
    schema: TableSchema,
    settings: Mapping[str, str],
    *,
    strict: bool,
) -> pa.Table:
    """All of an insert's data by ClickHouse's reader of the format, in the public form."""
    defaults = default_expressions(columns, schema)
    if strict:
        return _strictly(format_name, data, columns, settings, defaults)
    return _read(format_name, data, columns, columns, settings, defaults)


def _strictly(
    format_name: str,
    data: str,
    columns: Mapping[str, t.DataType],
    settings: Mapping[str, str],
    defaults: Mapping[str, str],
) -> pa.Table:
    settings = strict_settings(columns, settings)
    wide, defaults = strict_types(format_name, columns, settings, defaults)
    try:
        table = _read(format_name, data, columns, wide, settings, defaults)
    except MergelakeError as failure:
        if failure.name == "CANNOT_CONVERT_TYPE" and "cannot be safely converted" in failure.message:
            _refuse_outside(_read(format_name, data, wide, wide, settings, defaults), columns)
        _read(format_name, data, columns, columns, settings, defaults)  # for the same error, with the columns' types
        raise
    if format_name == "JSONEachRow" and "null" in data:
        _refuse_null_as_nan(table, columns)
    if format_name == "Values" and any(t.holds(kind, t.Int) for kind in columns.values()):
        floats = {name: _with_numbers(kind, lambda _: _FLOAT64) for name, kind in columns.items()}
        try:
            float_table = _read(format_name, data, floats, floats, settings, defaults)
        except MergelakeError:
            return table  # values that are not read as floats have no fractions
        _refuse_fractions(float_table, columns)
    return table


def _read(
    format_name: str,
    data: str,
    columns: Mapping[str, t.DataType],
    read_as: Mapping[str, t.DataType],
    settings: Mapping[str, str],
    defaults: Mapping[str, str],
) -> pa.Table:
    """The data read as columns of the types `read_as`, cast with a check to those of `columns`."""
    alias = unused_stem(columns)
    names = [f"{alias}{number}" for number in range(len(columns))]
    values = checked_casts(columns, read_as).values()
    chosen = [f"{value} AS {name}" for value, name in zip(values, names, strict=True)]
    source = f"format({format_name}, {quote_string(structure(read_as, defaults))}, {_literal(data)})"
    kinds = list(map(str, columns.values()))
    sql = without_nothing(f"SELECT {', '.join(chosen)} FROM {source}", names, kinds)
    limits = {"max_query_size": str(len(sql.encode()) + 1_000_000), "max_threads": "1"}
    if not engine.available():
        raise UnavailableError(
            "Computed and nested values and settings of formats are read by ClickHouse itself, "
            "and the package chdb is not installed",
            hint="pip install 'mergelake[sql]', or give plain numbers and strings without such settings",
        )
    try:
        answer = engine.run(sql, settings={**settings, **limits}).table()
    except MergelakeError as failure:
        raise explained(failure) from None
    return to_public(answer, list(columns.values())).rename_columns(list(columns))


def strict_settings(columns: Mapping[str, t.DataType], settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with those of the strict conversion added unless the statement sets them."""
    settings = {**_STRICT, **settings}
    if any(t.holds(kind, t.Variant, t.Dynamic) for kind in columns.values()):
        # With it set to 0, ClickHouse 26.9 reads NULL of these types as the value before it.
        settings = {name: value for name, value in settings.items() if name != "input_format_null_as_default"}
    return settings


def strict_types(
    format_name: str,
    columns: Mapping[str, t.DataType],
    settings: Mapping[str, str],
    defaults: Mapping[str, str],
) -> tuple[dict[str, t.DataType], dict[str, str]]:
    """Types to read a text format's values as, so that a cast with a check finds the values that do not fit.

    Also the defaults to use with these types, some of them for columns without a DEFAULT.
    """
    wide = {name: _with_numbers(kind, _wide) for name, kind in columns.items()}
    no_default = settings.get("input_format_null_as_default") == "0"
    filled_in = plain_value(settings.get("input_format_defaults_for_omitted_fields", "1")) != "0"
    if not (format_name.startswith("JSON") and no_default and filled_in):
        return wide, dict(defaults)
    with_null = {name: _with_null(kind) for name, kind in wide.items()}
    zeros = {
        name: _zero(kind)
        for name, kind in wide.items()
        if isinstance(with_null[name], t.Nullable) and with_null[name] != kind
    }
    return with_null, {**zeros, **defaults}


def _zero(kind: t.DataType) -> str:
    """What ClickHouse's readers put where a value is left out."""
    return "toDate32(0)" if isinstance(kind, t.Date32) else f"defaultValueOfTypeName({quote_string(str(kind))})"


def _with_null(kind: t.DataType) -> t.DataType:
    """The type with NULL where JSON's null would be read as a number or a date.

    Tuples stay as they are: elements that are left out would become NULL as well.
    """
    match kind:
        case t.Int() | t.Float() | t.BFloat16() | t.Date() | t.Date32():
            return t.Nullable(kind)
        case t.Array(inner):
            return t.Array(_with_null(inner))
        case t.Map(key, value):
            return t.Map(key, _with_null(value))
    return kind


def structure(read_as: Mapping[str, t.DataType], defaults: Mapping[str, str]) -> str:
    """The columns as the structure argument of the table functions `format` and `file`."""
    return ", ".join(
        f"{back_quote(name)} {kind}" + (f" DEFAULT {defaults[name]}" if name in defaults else "")
        for name, kind in read_as.items()
    )


def checked_casts(columns: Mapping[str, t.DataType], read_as: Mapping[str, t.DataType]) -> dict[str, str]:
    """For each column an expression that casts its value, with a check, from the type of `read_as` to its own."""
    return {
        name: back_quote(name)
        if read_as[name] == kind
        else f"accurateCast({back_quote(name)}, {quote_string(str(kind))})"
        for name, kind in columns.items()
    }


def default_expressions(columns: Mapping[str, t.DataType], schema: TableSchema) -> dict[str, str]:
    """The defaults of the columns that have one, as expressions over columns that are read as other types."""
    return {name: _default(name, columns, schema) for name in columns if schema.column(name).default}


def _default(name: str, columns: Mapping[str, t.DataType], schema: TableSchema) -> str:
    """A column's default as an expression over the insert's columns, which are read as other types."""
    column = schema.column(name)
    if not column.default:
        return f"defaultValueOfTypeName({quote_string(str(column.type))})"
    out: list[str] = []
    at = 0
    for token in tokenize(column.default):
        if not token.is_name or token.name not in schema.names:
            continue
        read = token.text if token.name in columns else _default(token.name, columns, schema)
        out += [column.default[at : token.start], f"CAST({read}, {quote_string(str(schema.column(token.name).type))})"]
        at = token.end
    return "".join([*out, column.default[at:]])


def _literal(data: str) -> str:
    """The data as a string literal; bytes that are not UTF-8 (surrogates in `data`) become hexadecimal escapes."""
    text = quote_string(data)
    return re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match.group()) - 0xDC00:02x}", text)


def explained(failure: MergelakeError) -> MergelakeError:
    """ClickHouse's error, reworded for an INSERT."""
    message = re.sub(r"\s*: While executing \w+", "", failure.message)
    if failure.name == "TYPE_MISMATCH" and message.startswith("Cannot insert NULL"):
        return error("CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", message, "Make the column Nullable")
    failure.message = message
    return failure


def _refuse_outside(table: pa.Table, columns: Mapping[str, t.DataType]) -> None:
    """Raise VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE for the first integer that its column cannot hold."""
    for name, array, kind in _numbers(table, columns):
        low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.signed else (0, (1 << kind.bits) - 1)
        for raw in array.drop_null().to_pylist():
            number = int.from_bytes(raw, "little", signed=kind.bits < 256 or kind.signed)
            if not low <= number <= high:
                raise error(
                    "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE",
                    f"Value {number} is out of range of {kind} ({low} to {high}) (column {name})",
                    "insert_conversion = 'clickhouse' wraps it",
                )


def _refuse_fractions(table: pa.Table, columns: Mapping[str, t.DataType]) -> None:
    """Raise TYPE_MISMATCH for the first number with a fraction, in columns that were read with floats for integers."""
    for name, array, kind in _numbers(table, columns):
        values = array.drop_null().to_numpy()
        cut = np.isfinite(values) & (values != np.floor(values))
        if cut.any():
            raise error(
                "TYPE_MISMATCH",
                f"Value {values[int(np.argmax(cut))]} is no whole number but it goes into {kind} (column {name})",
                "Round it first, or insert_conversion = 'clickhouse' cuts the fraction off",
            )


def _refuse_null_as_nan(table: pa.Table, columns: Mapping[str, t.DataType]) -> None:
    """Raise CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN for a NaN: JSON's null is read as NaN into a float."""
    for name, kind in columns.items():
        for array in _floats(table.column(name).combine_chunks(), kind):
            values = array.to_numpy(zero_copy_only=False)
            nan = (values & 0x7FFF) > 0x7F80 if array.type == pa.uint16() else np.isnan(values)
            if nan.any():
                raise error(
                    "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN",
                    f"Cannot insert NULL value into a column of type {kind} (column {name})",
                    "Make it Nullable, or fill the value in",
                )


def _floats(array: pa.Array, kind: t.DataType) -> Iterator[pa.Array]:
    match kind:
        case t.Float() | t.BFloat16():
            yield array
        case t.Array(inner):
            yield from _floats(array.flatten(), inner)
        case t.Map(_, value):
            yield from _floats(array.items, value)
        case t.Tuple(elements):
            for place, element in enumerate(elements):
                yield from _floats(array.field(place), element)


def _numbers(table: pa.Table, columns: Mapping[str, t.DataType]) -> Iterator[tuple[str, pa.Array, t.Int]]:
    """For all integers within the columns: the column's name, the values that were read, and the integer's type."""
    for name, kind in columns.items():
        for array, number in _integers(table.column(name).combine_chunks(), kind):
            yield name, array, number


def _integers(array: pa.Array, kind: t.DataType) -> Iterator[tuple[pa.Array, t.Int]]:
    match t.inner_type(kind):
        case t.Int() as number:
            yield array, number
        case t.Array(inner):
            yield from _integers(array.flatten(), inner)
        case t.Map(key, value):
            yield from _integers(array.keys, key)
            yield from _integers(array.items, value)
        case t.Tuple(elements):
            for place, element in enumerate(elements):
                yield from _integers(array.field(place), element)


def _wide(number: t.Int) -> t.DataType:
    return _INT256 if number.bits < 256 else number


def _with_numbers(kind: t.DataType, change: Callable[[t.Int], t.DataType]) -> t.DataType:
    """The type with its integers replaced by `change`, and without LowCardinality, which not all types may have."""
    match kind:
        case t.Int():
            return change(kind)
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return _with_numbers(inner, change)
        case t.Nullable(inner) | t.Array(inner):
            return replace(kind, inner=_with_numbers(inner, change))
        case t.Map(key, value):
            return t.Map(_with_numbers(key, change), _with_numbers(value, change))
        case t.Tuple(elements, names):
            return t.Tuple(tuple(_with_numbers(each, change) for each in elements), names)
    return kind
