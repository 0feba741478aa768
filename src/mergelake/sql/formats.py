r"""Inline data of INSERT … FORMAT: JSONEachRow, CSV and TabSeparated, to columns that the table checks strictly.

CSV and TabSeparated come as columns of text, parsed later by type; a value out of range or an unparsable date
is then refused, where ClickHouse's own readers wrap or clamp it. An empty CSV cell and a missing JSON key mean
the column's default, `\N` is NULL.

Source: ClickHouse, `src/Processors/Formats/Impl/{CSV,TabSeparated,JSONEachRow}RowInputFormat.cpp`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from mergelake.core import types as t
from mergelake.core.errors import error
from mergelake.core.schema import TableSchema, unknown_column

_ALIASES = {
    "tsv": "tabseparated",
    "tsvwithnames": "tabseparatedwithnames",
    "ndjson": "jsoneachrow",
    "jsonlines": "jsoneachrow",
}
FORMATS = ("Values", "JSONEachRow", "CSV", "CSVWithNames", "TabSeparated", "TabSeparatedWithNames")
"""Formats of inline data."""


def read_format(format_name: str, data: str, columns: Mapping[str, t.DataType], schema: TableSchema) -> pa.Table:
    """Rows of `data` as a table of (some of) `columns`. Raises UNKNOWN_FORMAT, INCORRECT_DATA, CANNOT_PARSE_…"""
    name = _ALIASES.get(format_name.lower(), format_name.lower())
    if name == "jsoneachrow":
        return _json(data, columns, schema)
    delimiter = {"csv": ",", "csvwithnames": ",", "tabseparated": "\t", "tabseparatedwithnames": "\t"}.get(name)
    if delimiter is None:
        raise error("UNKNOWN_FORMAT", f"Unknown input format {format_name}", f"There are {', '.join(FORMATS)}")
    return _separated(_after_line(data), columns, schema, delimiter, header=name.endswith("withnames"))


def _after_line(data: str) -> str:
    """What follows the format's name: from the next line, or from the first character on the same one."""
    match = re.match(r"[ \t]*\r?\n", data)
    return data[match.end() :] if match else data.lstrip(" ")


def _separated(
    data: str, columns: Mapping[str, t.DataType], schema: TableSchema, delimiter: str, *, header: bool
) -> pa.Table:
    tabs = delimiter == "\t"
    if not data.strip("\r\n"):
        raise error("INCORRECT_DATA", "There is no data after FORMAT")
    given = list(columns)
    if header:
        first, _, data = data.partition("\n")
        given = [cell.strip('"') for cell in first.rstrip("\r").split(delimiter)]
        for name in given:
            if name not in columns:
                raise unknown_column(name, list(columns))
        if not data.strip("\r\n"):
            raise error("INCORRECT_DATA", "There is no data after the line of names")
    bad: list[str] = []

    def refuse(row: Any) -> str:
        bad.append(f"{row.actual_columns} values where {row.expected_columns} are expected: {row.text[:80]}")
        return "error"

    parse = pcsv.ParseOptions(
        delimiter=delimiter,
        quote_char=False if tabs else '"',
        double_quote=not tabs,
        newlines_in_values=not tabs,
        ignore_empty_lines=len(given) > 1,
        invalid_row_handler=refuse,
    )
    convert = pcsv.ConvertOptions(
        column_types=dict.fromkeys(given, pa.binary()),
        null_values=["\\N"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        check_utf8=False,
    )
    read = pcsv.ReadOptions(column_names=given, use_threads=False)
    try:
        table = pcsv.read_csv(pa.py_buffer(data.encode("utf-8", "surrogateescape")), read, parse, convert)
    except pa.ArrowInvalid as failure:
        raise error("INCORRECT_DATA", f"Cannot read the data: {bad[0] if bad else failure}") from None
    out = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        ready = _unescaped(column) if tabs else column
        out[name] = ready if tabs else _defaults(ready, name, columns[name], schema)
    return _as_text({name: column for name, column in out.items() if column is not None}, columns)


def _as_text(columns: Mapping[str, pa.ChunkedArray], types: Mapping[str, t.DataType]) -> pa.Table:
    """String columns stay bytes; of the others the text."""
    out = {}
    for name, column in columns.items():
        if isinstance(t.inner_type(types[name]), t.String | t.FixedString):
            out[name] = column
            continue
        try:
            out[name] = column.cast(pa.string())
        except pa.ArrowInvalid:
            message = f"Column {name} of type {types[name]} holds text that is not UTF-8"
            raise error("CANNOT_PARSE_TEXT", message) from None
    return pa.table(out)


_TSV_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_TSV_LETTERS = {b"b": b"\b", b"f": b"\f", b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0", b"a": b"\a", b"v": b"\v"}


def _unescaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """TabSeparated's backslashes undone; only cells that have one are touched."""
    has = pc.match_substring(column, "\\")
    if not pc.any(has).as_py():
        return column
    cells = column.to_pylist()
    for index, flag in enumerate(has.to_pylist()):
        if flag:
            cells[index] = _TSV_ESCAPE.sub(_letter, cells[index])
    return pa.chunked_array([pa.array(cells, pa.binary())])


def _letter(match: re.Match[bytes]) -> bytes:
    if match.group(1):
        return bytes([int(match.group(1), 16)])
    return _TSV_LETTERS.get(match.group(2), match.group(2))


def _defaults(column: pa.ChunkedArray, name: str, data_type: t.DataType, schema: TableSchema) -> pa.ChunkedArray | None:
    """Empty cells as the column's default; None where all of them are, so that the insert fills it in."""
    if isinstance(t.inner_type(data_type), t.String | t.FixedString) and not schema.column(name).default:
        return column
    empty = pc.equal(column, b"")
    if not pc.any(empty).as_py():
        return column
    if pc.all(pc.fill_null(empty, False)).as_py():
        return None
    return pc.if_else(pc.fill_null(empty, False), _default_text(name, data_type, schema), column)


def _default_text(name: str, data_type: t.DataType, schema: TableSchema) -> pa.Scalar:
    """What stands for a missing value, as text."""
    column = schema.column(name)
    if column.default:
        raise error(
            "NOT_IMPLEMENTED",
            f"Column {name} has a DEFAULT and is missing in some rows but not in all",
            "Give it in every row or in none",
        )
    if t.is_nullable(data_type):
        return pa.scalar(None, pa.binary())
    return pa.scalar(_zero(t.inner_type(data_type)), pa.binary())


def _zero(data_type: t.DataType) -> bytes:
    match data_type:
        case t.String() | t.FixedString():
            return b""
        case t.Date() | t.Date32():
            return b"1970-01-01"
        case t.DateTime() | t.DateTime64():
            return b"0"
        case t.UUID():
            return b"00000000-0000-0000-0000-000000000000"
        case t.IPv4():
            return b"0.0.0.0"
        case t.IPv6():
            return b"::"
        case t.Enum(_, items):
            return items[0][0].encode()
        case t.Array():
            return b"[]"
        case t.Map():
            return b"{}"
        case t.Bool():
            return b"false"
        case _:
            return b"0"


def _json(data: str, columns: Mapping[str, t.DataType], schema: TableSchema) -> pa.Table:
    rows = _json_rows(data)
    if not rows:
        raise error("INCORRECT_DATA", "There is no data after FORMAT JSONEachRow")
    known = set(columns)
    for number, row in enumerate(rows, 1):
        if not row.keys() <= known:
            extra = next(key for key in row if key not in known)
            raise error("INCORRECT_DATA", f"Unknown field found while parsing JSONEachRow: {extra} (at row {number})",
                        f"The insert has the columns {', '.join(list(columns)[:20])}")  # fmt: skip
    out = {}
    for name, data_type in columns.items():
        missing = sum(name not in row for row in rows)
        if missing == len(rows):
            continue
        if missing:
            default = _default_text(name, data_type, schema).as_py()
            fallback: Any = default if default is None else _json_default(default.decode(), data_type)
            values = [row.get(name, fallback) for row in rows]
        else:
            values = [row[name] for row in rows]
        out[name] = _json_column(values, name, data_type)
    return pa.table(out)


def _json_rows(data: str) -> list[dict[str, Any]]:
    """Objects one after another, or one array of them."""
    text = data.strip().rstrip(";").rstrip()
    decoder = json.JSONDecoder(parse_float=Decimal)
    if text.startswith("{") and "\n" in text:
        try:  # the usual case, an object a line: one call for all
            lines = ",".join(filter(None, map(str.strip, text.split("\n"))))
            return [_object(row) for row in decoder.decode(f"[{lines}]")]
        except ValueError:
            pass  # objects over several lines, or a real fault: the slow way finds which
    rows: list[dict[str, Any]] = []
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as failure:
            near = text[failure.pos : failure.pos + 30]
            raise error(
                "INCORRECT_DATA", f"Cannot parse JSON object {len(rows) + 1}: {failure.msg} at '{near}'"
            ) from None
        rows += [_object(v) for v in value] if isinstance(value, list) else [_object(value)]
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    return rows


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise error("INCORRECT_DATA", f"JSONEachRow wants objects, found {json.dumps(value, default=str)[:60]}")
    return value


def _json_default(text: str, data_type: t.DataType) -> Any:
    if isinstance(data_type, t.Array):
        return []
    return {} if isinstance(data_type, t.Map | t.Tuple) else text


def _json_column(values: list[Any], name: str, data_type: t.DataType) -> pa.Array:
    """One column as Arrow: scalars as text, so that one strict parser serves all formats; the rest as it is."""
    if not isinstance(data_type, t.Array | t.Map | t.Tuple):
        is_text = isinstance(t.inner_type(data_type), t.String | t.FixedString)
        array = pa.array([_scalar(v, name) for v in values], pa.string())
        return array.cast(pa.binary()) if is_text else array
    try:
        return pa.array([_nested(v, data_type, name) for v in values])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as failure:
        raise error("INCORRECT_DATA", f"Cannot read column {name} of type {data_type} from JSON: {failure}") from None


def _scalar(value: Any, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    raise error(
        "INCORRECT_DATA", f"Column {name} is not nested, but the data has {json.dumps(value, default=str)[:60]}"
    )


def _nested(value: Any, data_type: t.DataType, name: str) -> Any:
    match data_type:
        case t.Array(inner) if isinstance(value, list):
            return [_nested(v, inner, name) for v in value]
        case t.Map(_, inner) if isinstance(value, dict):
            return [(k, _nested(v, inner, name)) for k, v in value.items()]
        case t.Tuple(elements, names) if isinstance(value, dict | list):
            keys = names or tuple(str(i + 1) for i in range(len(elements)))
            cells = value if isinstance(value, list) else [value.get(key) for key in keys]
            return {key: _nested(v, e, name) for key, v, e in zip(keys, cells, elements, strict=True)}
        case t.Array() | t.Map() | t.Tuple():
            raise error("INCORRECT_DATA", f"Column {name} has type {data_type}, but the data has {str(value)[:60]}")
        case _:
            return _scalar(value, name)
