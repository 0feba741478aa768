"""JSONEachRow as columns: one object for each row; a missing key means the column's default.

Only data that ClickHouse certainly reads the same way is read here: standard JSON, with values that match the columns'
types. For everything else (`inf`, an object in a String, missing elements of a Tuple, names in another case, repeated
keys, unpaired surrogates, …) `Unsure` is raised, and ClickHouse's own reader decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.api.sql.bare_literals import bare_text
from mergelake.api.sql.rows import EMPTY_IS_ZERO, Rows, text_column
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.convert.public import to_public
from mergelake.core.convert.text_nested import text_type
from mergelake.core.types import types as t
from mergelake.core.types.arrow import tuple_names
from mergelake.format.serializations.defaults import LEFT_OUT, default_array
from mergelake.table.rows.blocks import Flags


class Unsure(Exception):
    """Data that ClickHouse may accept, but that this reader cannot be sure to read in the same way."""

    def __init__(self, failure: MergelakeError) -> None:
        """`failure` is raised if ClickHouse is not available; its hint is used if ClickHouse refuses the data too."""
        super().__init__(failure.message)
        self.failure = failure


class _Number(str):
    """A number as the JSON spells it."""

    __slots__ = ()


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _unsure("A key comes twice in one object")
    return members


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object_of, parse_float=_Number, parse_int=_Number, parse_constant=_Number
)
_NUMBERS = (t.Int, t.Float, t.BFloat16, t.Decimal)
_BETWEEN = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
_HALF = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
"""An escape of one half of a surrogate pair without the other."""


def read_json_rows(data: str, columns: Mapping[str, t.DataType]) -> Rows:
    """Objects one after another, or one array of them. Raises Unsure, and INCORRECT_DATA where there are none."""
    rows = _objects(data)
    if not rows:
        raise error("INCORRECT_DATA", "There is no data after FORMAT JSONEachRow")
    for number, row in enumerate(rows, 1):
        if not row.keys() <= columns.keys():
            extra = next(key for key in row if key not in columns)
            raise _unsure(
                f"Unknown field found while parsing JSONEachRow: {extra} (at row {number})",
                f"The insert has the columns {', '.join(list(columns)[:20])}; "
                "input_format_skip_unknown_fields = 1 leaves others out",
            )
    arrays: dict[str, pa.Array] = {}
    missing: dict[str, Flags] = {}
    for name, kind in columns.items():
        left_out = np.array([name not in row for row in rows])
        if not left_out.all():
            some = next(row[name] for row in rows if name in row)
            arrays[name] = _column([row.get(name, some) for row in rows], name, kind)
        elif t.holds(kind, t.Date32):
            arrays[name] = to_public(default_array(kind, len(rows), LEFT_OUT), kind)
        else:
            continue
        if left_out.any():
            missing[name] = left_out
    return Rows(pa.table(arrays), len(rows), missing)


def _unsure(message: str, hint: str = "") -> Unsure:
    return Unsure(error("INCORRECT_DATA", message, hint))


def _objects(data: str) -> list[dict[str, Any]]:
    text = data.strip().rstrip(";").rstrip()
    if "\\u" in text and _HALF.search(text):
        raise _unsure("The data has the escape of half a surrogate pair, which is no character")
    rows: list[dict[str, Any]] = []
    at = 0
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as failure:
            near = text[failure.pos : failure.pos + 30]
            raise _unsure(f"Cannot parse JSON object {len(rows) + 1}: {failure.msg} at '{near}'") from None
        except RecursionError:
            raise error("TOO_DEEP_RECURSION", f"JSON object {len(rows) + 1} is nested too deeply") from None
        if isinstance(value, list):
            if rows or at < len(text):
                raise _unsure("An array of objects stands alone")
            return [_object(each) for each in value]
        rows.append(_object(value))
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
    return rows


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unsure(f"JSONEachRow wants objects, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value)[:60]


def _column(values: list[Any], name: str, data_type: t.DataType) -> pa.Array:
    """One column as Arrow: scalars and the leaves of nested values as text, which one strict parser reads."""
    try:
        if isinstance(data_type, t.Dynamic):
            texts = [None if value is None else _text(value) for value in values]
            return pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(texts, pa.string()))
        if isinstance(data_type, t.Array | t.Map | t.Tuple | t.Json):
            return pa.array([_nested(v, data_type) for v in values], text_type(data_type))
        inner = t.inner_type(data_type)
        return text_column([_scalar(v, inner) for v in values], data_type, name)
    except Unsure as unsure:
        raise _unsure(f"{unsure} in column {name} of type {data_type}") from None


def _scalar(value: Any, kind: t.DataType) -> str | None:
    match value:
        case None:
            return None
        case _Number():
            if isinstance(kind, t.DateTime | t.DateTime64) or (isinstance(kind, t.Date | t.Date32) and value.isdigit()):
                return bare_text(value, kind)
            word = value[-1].isalpha() and not isinstance(kind, t.Float | t.BFloat16)
            odd = isinstance(kind, t.Date | t.Date32 | t.FixedString)
            if word or odd or (isinstance(kind, t.Bool) and value not in ("0", "1")):
                raise _unsure(f"{value} is no value of {kind}")
            return str(value)
        case str() if not isinstance(kind, t.Bool | t.Variant):
            if isinstance(kind, _NUMBERS) and value[:1].isalpha() and value.lower() not in ("nan", "inf"):
                raise _unsure(f"{value[:40]} is no number")
            return value
        case bool() if isinstance(kind, t.Int | t.Float | t.Bool | t.String):
            return str(int(value)) if isinstance(kind, t.Int | t.Float) else _text(value)
    raise _unsure(f"The data has {_shown(value)}")


def _nested(value: Any, data_type: t.DataType) -> Any:
    match data_type:
        case t.Array(inner) if isinstance(value, list):
            return [_nested(v, inner) for v in value]
        case t.Map(key, inner) if isinstance(value, dict):
            return [(_nested(k, key), _nested(v, inner)) for k, v in value.items()]
        case t.Tuple(elements, names):
            keys = tuple_names(data_type)
            if not names and isinstance(value, list) and len(value) == len(keys):
                value = dict(zip(keys, value, strict=True))
            elif not names or not isinstance(value, dict) or value.keys() != set(keys):
                raise _unsure(f"The data has {_shown(value)}")
            return {key: _nested(value[key], each) for key, each in zip(keys, elements, strict=True)}
        case t.Json() if isinstance(value, dict):
            return _text(value).encode("utf-8", "surrogateescape")
        case t.Array() | t.Map() | t.Json() | t.Variant() | t.Dynamic():
            pass
        case _:
            kind = t.inner_type(data_type)
            cell = _scalar(value, kind)
            if cell == "" and isinstance(kind, EMPTY_IS_ZERO):
                return b"0"
            return None if cell is None else cell.encode("utf-8", "surrogateescape")
    raise _unsure(f"The data has {_shown(value)}")


def _text(value: Any) -> str:
    """A value as JSON, with numbers spelled as in the data."""
    match value:
        case _Number():
            return str(value)
        case list():
            return f"[{','.join(map(_text, value))}]"
        case dict():
            return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_text(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
