"""The data of INSERT … VALUES: a fast reader for plain literals, ClickHouse for everything else.

1. Rows of plain literals (numbers, strings, NULL, true, false) are cut by one regular expression, a match a row, and
   turned into one text column each; the table then parses them strictly by type, as it does for CSV.
2. If there is anything else, rows are cut into cells by their quotes and brackets. A cell that is no plain literal (a
   call, an array, a cast) is read by ClickHouse with the column's type; DEFAULT is left to the column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from mergelake.api.sql.bare_literals import bare_text, is_usual
from mergelake.api.sql.clickhouse_reader import read_cells
from mergelake.api.sql.rows import Rows, stand_in
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import BACK_QUOTED, DOUBLE_QUOTED, QUOTED_STRING, syntax_error
from mergelake.core.base.text import unescape
from mergelake.core.convert.storage import to_public, to_storage
from mergelake.core.types import types as t
from mergelake.query.statement.access import check_data
from mergelake.table.rows.blocks import Flags

_NUMBER = r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|(?i:inf|nan))"
_LITERAL = rf"({QUOTED_STRING}|{_NUMBER}|(?i:null|true|false))"
_PLAIN = re.compile(_LITERAL, re.DOTALL)
_PIECE = re.compile(
    rf"{QUOTED_STRING}|{BACK_QUOTED}|{DOUBLE_QUOTED}"
    r"|\$(\w*)\$.*?\$\1\$"
    r"|--[^\n]*|/\*.*?\*/|[^'`\"$/()\[\]{},-]+|.",
    re.DOTALL,
)
"""A piece of VALUES data: a quoted text, a comment, a bracket, a comma, or the text between them."""
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


def read_values(data: str, columns: Mapping[str, t.DataType], *, script: str, at: int, external: bool = False) -> Rows:
    """The rows of `data` as columns, named and ordered as `columns`.

    `script` and `at` (where `data` stands in it) serve errors. Expressions may read files and the network only if
    `external`. Raises SYNTAX_ERROR, NUMBER_OF_COLUMNS_DOESNT_MATCH, ACCESS_DENIED,
    and what ClickHouse says about expressions.
    """
    # What a Variant or a Dynamic becomes depends on whether a literal is a number or a text.
    as_text = not any(t.holds(kind, t.Variant, t.Dynamic) for kind in columns.values())
    rows: Sequence[Sequence[str]] | None = _plain_rows(data, len(columns)) if as_text else None
    plain = rows is not None
    if not plain and not external:
        check_data(data)
    rows = _rows(data, len(columns), script, at) if rows is None else rows
    if not rows:
        raise error("SYNTAX_ERROR", "There are no rows after VALUES", "Write VALUES (…), (…)")
    arrays: dict[str, pa.Array] = {}
    missing: dict[str, Flags] = {}
    for cells, (name, kind) in zip(zip(*rows, strict=True), columns.items(), strict=True):
        if plain:
            arrays[name] = _column(cells, kind, name)
            continue
        left_out = np.array([cell.upper() == "DEFAULT" for cell in cells])
        if left_out.any():
            missing[name] = left_out
        if not left_out.all():
            present = [cell for cell, default in zip(cells, left_out.tolist(), strict=True) if not default]
            array = _mixed(present, kind, name)
            arrays[name] = array.take(pa.array(stand_in(~left_out))) if left_out.any() else array
    missing = {name: flags for name, flags in missing.items() if name in arrays}
    return Rows(pa.table(arrays), len(rows), missing)


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


def _mixed(cells: Sequence[str], kind: t.DataType, name: str) -> pa.Array:
    """A column of which some cells are no plain literals: these are read by ClickHouse, the others here."""
    # For a type whose values have types of their own, ClickHouse reads all cells.
    own = not t.holds(kind, t.Variant, t.Dynamic)
    plain = np.array([own and _PLAIN.fullmatch(cell) is not None for cell in cells])
    pieces = []
    for flags, read in ((plain, _column), (~plain, read_cells)):
        if flags.any():
            chosen = [cells[i] for i in np.flatnonzero(flags).tolist()]
            pieces.append(to_storage(read(chosen, kind, name), kind, name))
    if len(pieces) == 1:
        return to_public(pieces[0], kind)
    places = np.where(plain, np.cumsum(plain) - 1, plain.sum() + np.cumsum(~plain) - 1)
    return to_public(pa.concat_arrays(pieces).take(pa.array(places)), kind)


def _column(texts: Sequence[str], data_type: t.DataType, name: str) -> pa.Array:
    """One column of plain literals as nullable text."""
    inner = t.inner_type(data_type)
    is_text = isinstance(inner, t.String | t.FixedString)
    words = t.is_nullable(data_type) and not is_text
    whole = "".join(texts)
    cells: list[str | None]
    if "\\" in whole or "''" in whole or (words and "'NULL'" in whole) or not _usual(texts, inner):
        cells = [_text(text, inner, words, name, row) for row, text in enumerate(texts)]
    else:
        cells = [text[1:-1] if text[0] == "'" else None if text[:2] in _NULL else text for text in texts]
    if is_text:
        encoded = [None if cell is None else cell.encode("utf-8", "surrogateescape") for cell in cells]
        return pa.array(encoded, pa.binary())
    try:
        return pa.array(cells, pa.string())
    except UnicodeEncodeError:  # bytes that are no text are no number or date either: the reader refuses them
        shown = [cell and cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for cell in cells]
        return pa.array(shown, pa.string())


_NULL = frozenset(["NU", "nu", "Nu", "nU"])
"""The beginnings of NULL; no other plain literal begins in this way."""


def _usual(texts: Sequence[str], inner: t.DataType) -> bool:
    bare = "".join([text for text in texts if text[0] != "'"])
    return not bare or is_usual(bare, inner)


def _text(literal: str, inner: t.DataType, words: bool, name: str, row: int) -> str | None:
    """A literal as text of its value; `words`: a quoted NULL is NULL too."""
    if literal[0] == "'":
        text = unescape(literal)
        return None if words and text in ("NULL", "\\N") else text
    if literal[:2] in _NULL:
        return None
    try:
        return bare_text(literal, inner)
    except MergelakeError as failure:
        failure.column, failure.row = name, row
        raise


def _rows(data: str, count: int, script: str, at: int) -> list[list[str]]:
    """The cells of each row as written. Raises for the first row that does not have `count` of them."""
    rows: list[list[str]] = []
    cells: list[str] = []
    depth = start = 0
    for match in _PIECE.finditer(data):
        piece = match.group()
        if depth == 0:
            if piece == "(":
                cells, start, depth = [], match.end(), 1
            elif not (piece.isspace() or piece == "," or piece.startswith(("--", "/*"))):
                number = len(rows) + 1
                lead = len(piece) - len(piece.lstrip())
                raise syntax_error(script, at + match.start() + lead, f"expected '(' and row {number} of VALUES")
        elif piece in _OPEN:
            depth += 1
        elif piece in _CLOSE:
            depth -= 1
            if depth == 0:
                cells.append(data[start : match.start()].strip())
                # As in ClickHouse a comma may stand at the end.
                rows.append(cells[:-1] if len(cells) == count + 1 and not cells[-1] else cells)
                _check_count(rows[-1], count, len(rows))
        elif piece == "," and depth == 1:
            cells.append(data[start : match.start()].strip())
            start = match.end()
    if depth:
        raise syntax_error(script, at + len(data), f"row {len(rows) + 1} of VALUES is never closed")
    return rows


def _check_count(cells: Sequence[str], count: int, row: int) -> None:
    if len(cells) != count:
        actual = 0 if list(cells) == [""] else len(cells)
        raise error(
            "NUMBER_OF_COLUMNS_DOESNT_MATCH",
            f"Row {row} of VALUES has {actual} values, the insert has {count} columns",
            "Name the columns: INSERT INTO t (a, b) VALUES …",
        )


def names_and_types(columns: Sequence[tuple[str, t.DataType]]) -> dict[str, t.DataType]:
    """Columns by name, refusing one that is given twice."""
    out: dict[str, t.DataType] = {}
    for name, data_type in columns:
        if name in out:
            raise error("DUPLICATE_COLUMN", f"Column {name} is given twice", "Name each column once")
        out[name] = data_type
    return out
