"""JSONEachRow as columns: an object a row; a key that a row has not means the column's default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.core import types as t
from mergelake.core.errors import error
from mergelake.sql.bare_literals import bare_text
from mergelake.sql.rows import Rows, text_column
from mergelake.table.blocks import Flags


class _Number(str):
    """A number as the JSON spells it."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)


def read_json_rows(data: str, columns: Mapping[str, t.DataType]) -> Rows:
    """Objects one after another, or one array of them. Raises INCORRECT_DATA."""
    rows = _objects(data)
    if not rows:
        raise error("INCORRECT_DATA", "There is no data after FORMAT JSONEachRow")
    for number, row in enumerate(rows, 1):
        if not row.keys() <= columns.keys():
            extra = next(key for key in row if key not in columns)
            raise error(
                "INCORRECT_DATA",
                f"Unknown field found while parsing JSONEachRow: {extra} (at row {number})",
                f"The insert has the columns {', '.join(list(columns)[:20])}; "
                "input_format_skip_unknown_fields = 1 leaves others out",
            )
    arrays: dict[str, pa.Array] = {}
    missing: dict[str, Flags] = {}
    for name, kind in columns.items():
        left_out = np.array([name not in row for row in rows])
        if left_out.all():
            continue
        some = next(row[name] for row in rows if name in row)
        arrays[name] = _column([row.get(name, some) for row in rows], name, kind)
        if left_out.any():
            missing[name] = left_out
    return Rows(pa.table(arrays), len(rows), missing)


def _objects(data: str) -> list[dict[str, Any]]:
    text = data.strip().rstrip(";").rstrip()
    if text.startswith("{") and "\n" in text:
        try:  # the usual case, an object a line: one call for all
            lines = ",".join(filter(None, map(str.strip, text.split("\n"))))
            return [_object(row) for row in _DECODER.decode(f"[{lines}]")]
        except (ValueError, RecursionError):
            pass  # objects over several lines, or a real fault: the slow way finds which
    rows: list[dict[str, Any]] = []
    at = 0
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as failure:
            near = text[failure.pos : failure.pos + 30]
            message = f"Cannot parse JSON object {len(rows) + 1}: {failure.msg} at '{near}'"
            raise error("INCORRECT_DATA", message) from None
        except RecursionError:
            raise error("TOO_DEEP_RECURSION", f"JSON object {len(rows) + 1} is nested too deeply") from None
        rows += [_object(v) for v in value] if isinstance(value, list) else [_object(value)]
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    return rows


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise error("INCORRECT_DATA", f"JSONEachRow wants objects, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value)[:60]


def _column(values: list[Any], name: str, data_type: t.DataType) -> pa.Array:
    """One column as Arrow: scalars as text, so that one strict parser serves all formats; the rest as it is."""
    if not isinstance(data_type, t.Array | t.Map | t.Tuple | t.Json | t.Dynamic | t.Variant):
        inner = t.inner_type(data_type)
        return text_column([_scalar(v, name, inner) for v in values], data_type, name)
    try:
        return pa.array([_nested(v, data_type, name) for v in values])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as failure:
        raise error("INCORRECT_DATA", f"Cannot read column {name} of type {data_type} from JSON: {failure}") from None


def _scalar(value: Any, name: str, kind: t.DataType) -> str | None:
    match value:
        case None:
            return None
        case _Number():
            return bare_text(value, kind) if isinstance(kind, t.DateTime | t.DateTime64) else str(value)
        case str():
            return value
        case bool():
            is_number = isinstance(kind, t.Int | t.Float | t.Decimal)
            return str(int(value)) if is_number else "true" if value else "false"
    raise error("INCORRECT_DATA", f"Column {name} is not nested, but the data has {_shown(value)}")


def _nested(value: Any, data_type: t.DataType, name: str) -> Any:
    match data_type:
        case t.Array(inner) if isinstance(value, list):
            return [_nested(v, inner, name) for v in value]
        case t.Map(_, inner) if isinstance(value, dict):
            return [(k, _nested(v, inner, name)) for k, v in value.items()]
        case t.Tuple(elements, names) if isinstance(value, dict | list):
            keys = names or tuple(str(i + 1) for i in range(len(elements)))
            cells = value if isinstance(value, list) else [_element(value, key, name) for key in keys]
            if len(cells) != len(elements):
                raise error("INCORRECT_DATA", f"Column {name} has type {data_type}, but the data has {_shown(value)}")
            return {key: _nested(v, e, name) for key, v, e in zip(keys, cells, elements, strict=True)}
        case t.Array() | t.Map() | t.Tuple():
            raise error("INCORRECT_DATA", f"Column {name} has type {data_type}, but the data has {_shown(value)}")
        case _:
            return _scalar(value, name, t.inner_type(data_type))


def _element(value: Mapping[str, Any], key: str, name: str) -> Any:
    if key not in value:
        raise error("INCORRECT_DATA", f"Column {name} has an element {key}, which {_shown(value)} has not")
    return value[key]
