"""The data of INSERT … VALUES: a fast reader for plain literals, ClickHouse for everything else.

Plain rows (numbers, strings, NULL, true and false) are cut by one regular expression, a match a row, and
turned into one text column each; the table then parses them strictly by type, as it does for CSV. Anything
else in the data (a call, an array, a cast) sends all of it to ClickHouse's `values` table function, whose
typed columns are inserted just as strictly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import pyarrow as pa

from mergelake.core import types as t
from mergelake.core.convert import to_public, to_storage
from mergelake.core.errors import MergelakeError, error
from mergelake.core.text import unescape
from mergelake.query import engine
from mergelake.query.access import check_expression
from mergelake.query.arrow_bridge import parse_types, without_nothing
from mergelake.query.arrow_bridge import to_public as answer_to_public
from mergelake.query.tokens import next_token, syntax_error

_NUMBER = r"[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan)"
_LITERAL = rf"('(?:[^'\\]|\\.|'')*'|{_NUMBER}|NULL|null|true|false)"
_ROWS_ALONE = 10_000
"""Most rows that are asked for one by one."""
_GAP = re.compile(r"(?:[\s,]|/\*.*?\*/|--[^\n]*)*", re.DOTALL)
"""What may stand between rows: commas, white space, comments."""


def read_values(
    data: str, columns: Mapping[str, t.DataType], *, script: str, at: int, external: bool = False
) -> pa.Table:
    """The rows of `data` as columns of text (or typed ones, from expressions), named and ordered as `columns`.

    `script` and `at` (where `data` stands in it) serve errors. Expressions may read files and the network only if
    `external`. Raises SYNTAX_ERROR, NUMBER_OF_COLUMNS_DOESNT_MATCH, ACCESS_DENIED,
    and what ClickHouse says about expressions.
    """
    # What a Variant or a Dynamic becomes depends on whether a literal is a number or a text.
    as_text = not any(t.holds(kind, t.Variant, t.Dynamic) for kind in columns.values())
    rows = _plain_rows(data, len(columns)) if as_text else None
    if rows is None:
        if not external:
            check_expression(data)
        return _evaluated(data, columns, script, at)
    if not rows:
        raise error("SYNTAX_ERROR", "There are no rows after VALUES", "Write VALUES (…), (…)")
    cells = zip(*rows, strict=True)
    arrays = [_column(texts, data_type) for texts, data_type in zip(cells, columns.values(), strict=True)]
    return pa.table(dict(zip(columns, arrays, strict=True)))


@lru_cache(maxsize=64)
def _row(count: int) -> re.Pattern[str]:
    return re.compile(r"\s*\(\s*" + r"\s*,\s*".join([_LITERAL] * count) + r"\s*,?\s*\)\s*,?", re.DOTALL)


def _plain_rows(data: str, count: int) -> list[tuple[str, ...]] | None:
    """Cells as written, a tuple a row; None if not all are plain."""
    if count == 0:
        return None
    pattern = _row(count)
    end = 0
    rows: list[tuple[str, ...]] = []
    append = rows.append
    for match in pattern.finditer(data):
        if match.start() != end:
            return None
        end = match.end()
        append(match.groups())
    return rows if not data[end:].strip() else None


def _column(texts: Sequence[str], data_type: t.DataType) -> pa.Array:
    """One column of plain literals as nullable text."""
    inner = t.inner_type(data_type)
    whole = "".join(texts)
    if "\\" in whole or "''" in whole:
        cells = [_text(text) for text in texts]
    else:
        cells = [text[1:-1] if text[0] == "'" else None if text in ("NULL", "null") else text for text in texts]
    if isinstance(inner, t.String | t.FixedString):
        encoded = [None if cell is None else cell.encode("utf-8", "surrogateescape") for cell in cells]
        return pa.array(encoded, pa.binary())
    if "\\x" in whole:  # bytes that are no text are no number or date either: the reader refuses them
        cells = [cell and cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for cell in cells]
    return pa.array(cells, pa.string())


def _text(literal: str) -> str | None:
    if literal[0] == "'":
        return unescape(literal)
    return None if literal in ("NULL", "null") else literal


def _evaluated(data: str, columns: Mapping[str, t.DataType], script: str, at: int) -> pa.Table:
    rows = _row_texts(data, len(columns), script, at)
    try:
        return _asked(", ".join(rows), columns)
    except MergelakeError as failure:
        if failure.name == "LOGICAL_ERROR":
            raise error("CANNOT_PARSE_TEXT", f"Cannot read the data of VALUES: {failure.message}") from None
        if failure.name not in ("NO_COMMON_TYPE", "TYPE_MISMATCH") or not 1 < len(rows) <= _ROWS_ALONE:
            raise
    # A column may hold a text in one row and a date in another: each row is asked for alone, then.
    pieces = [_asked(row, columns) for row in rows]
    out = {}
    for name, kind in columns.items():
        arrays = [to_storage(piece[name].combine_chunks(), kind, name) for piece in pieces]
        out[name] = pa.chunked_array([to_public(array, kind) for array in arrays])
    return pa.table(out)


def _asked(rows: str, columns: Mapping[str, t.DataType]) -> pa.Table:
    """The rows as ClickHouse's `values` table function types them."""
    limit = str(len(rows) * 4 + 1_000_000)
    settings = dict.fromkeys(("max_query_size", "max_ast_elements", "max_expanded_ast_elements"), limit)
    told = engine.run(f"DESCRIBE TABLE values({rows})", settings=settings).table()
    names, kinds = told["name"].to_pylist(), told["type"].to_pylist()
    sql = without_nothing(f"SELECT * FROM values({rows})", names, kinds)
    answer = engine.run(sql, settings=settings).table()
    types = parse_types([kind.replace("Array(Nothing)", "Array(String)") for kind in kinds])
    return answer_to_public(answer, types).rename_columns(list(columns))


def _row_texts(data: str, count: int, script: str, at: int) -> list[str]:
    """The text of each row, brackets included; an error that shows the first that has not `count` values."""
    rows: list[str] = []
    position = 0
    while True:
        position = _GAP.match(data, position).end()  # type: ignore[union-attr]
        if position >= len(data):
            return rows
        number = len(rows) + 1
        if data[position] != "(":
            raise syntax_error(script, at + position, f"expected '(' and row {number} of VALUES")
        found, end = _row_end(data, position, script, at, number)
        if found != count:
            raise error(
                "NUMBER_OF_COLUMNS_DOESNT_MATCH",
                f"Row {number} of VALUES has {found} values, the insert has {count} columns",
                "Name the columns: INSERT INTO t (a, b) VALUES …",
            )
        rows.append(data[position:end])
        position = end


def _row_end(data: str, start: int, script: str, at: int, row: int) -> tuple[int, int]:
    depth, values, position = 0, 1, start
    empty = True
    before = ""
    while True:
        token = next_token(data, position)
        if token.kind == "end":
            raise syntax_error(script, at + len(data), f"row {row} of VALUES is never closed")
        position = token.end
        if token.kind == "sign":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            if depth == 0:
                return (0 if empty else values - (before == ",")), position
            values += token.text == "," and depth == 1
        empty = empty and token.start == start
        before = token.text


def names_and_types(columns: Sequence[tuple[str, t.DataType]]) -> dict[str, t.DataType]:
    """Columns by name, refusing one that is given twice."""
    out: dict[str, t.DataType] = {}
    for name, data_type in columns:
        if name in out:
            raise error("DUPLICATE_COLUMN", f"Column {name} is given twice", "Name each column once")
        out[name] = data_type
    return out
