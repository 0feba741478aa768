r"""CSV and TabSeparated as columns of text.

In CSV an empty cell without quotes means the column's default, `\N` is NULL, and a Tuple has a cell for each of its
elements. A first line that consists of column names only is a header, as in ClickHouse, also in a format without
`WithNames`.

Source: ClickHouse, `src/Processors/Formats/Impl/{CSV,TabSeparated}RowInputFormat.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from mergelake.api.sql.rows import Rows, stand_in, text_column
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import unescape_bytes
from mergelake.core.model.schema import unknown_column
from mergelake.core.types import types as t
from mergelake.core.types.arrow import tuple_names
from mergelake.table.rows.blocks import Flags

_Line = TypeVar("_Line")
_Cell = TypeVar("_Cell")
_CSV_CELL = re.compile(r'[ \t]*(?:"((?:[^"]|"")*)"[ \t]*|([^",\r\n][^,\r\n]*)?)(,|\r?\n|\Z)')
_PROTECTED = re.compile(r"\\(?:\\|(\t)|\r?(\n))")
"""In TabSeparated: a backslash before a backslash, a tab or a line end, which then belongs to the cell."""
_QUOTED, _NULL, _LEFT_OUT = 1, 2, 3
"""Kinds of CSV cells other than plain text."""


def read_csv(data: str, columns: Mapping[str, t.DataType], *, header: bool) -> Rows:
    """Lines of cells separated by commas; cells with commas, quotes or line ends are in double quotes."""
    lines: list[list[tuple[str, int]]] = []
    line: list[tuple[str, int]] = []
    at = 0
    while at < len(data):
        match = _CSV_CELL.match(data, at)
        if match is None:
            raise _incorrect(
                len(lines) + 1, "a cell's closing quote is missing, or something follows it", data[at : at + 40]
            )
        quoted, bare, end = match.groups()
        line.append(_csv_cell(quoted, bare))
        at = match.end()
        if end != "," or at == len(data):
            if end == ",":
                line.append(("", _LEFT_OUT))
            if line != [("", _LEFT_OUT)] or len(columns) == 1:
                lines.append(line)
            line = []
    names, lines = _names([[text for text, _ in each] for each in lines[:1]], lines, columns, header=header)
    leaves = {name: _leaves(columns[name]) for name in names}
    cells = iter(_columns(lines, sum(map(len, leaves.values()))))
    arrays: dict[str, pa.Array] = {}
    missing: dict[str, Flags] = {}
    for name, kinds in leaves.items():
        parts = [next(cells) for _ in kinds]
        left_out = np.array([all(how == _LEFT_OUT for _, how in row) for row in zip(*parts, strict=True)], np.bool_)
        if left_out.all():
            continue
        present = [
            [cell for cell, default in zip(part, left_out.tolist(), strict=True) if not default] for part in parts
        ]
        texts = [
            text_column([None if how == _NULL else text for text, how in part], kind, name)
            for part, kind in zip(present, kinds, strict=True)
        ]
        array = _assembled(columns[name], iter(texts))
        if left_out.any():
            missing[name] = left_out
            array = array.take(pa.array(stand_in(~left_out)))
        arrays[name] = array
    return Rows(pa.table(arrays), len(lines), missing)


def _leaves(kind: t.DataType) -> list[t.DataType]:
    """The types of a column's cells: a tuple has one for each element."""
    if not isinstance(kind, t.Tuple) or not kind.elements:
        return [kind]
    return [leaf for element in kind.elements for leaf in _leaves(element)]


def _assembled(kind: t.DataType, cells: Iterator[pa.Array]) -> pa.Array:
    """The column, assembled from the cells of its `_leaves`."""
    if not isinstance(kind, t.Tuple) or not kind.elements:
        return next(cells)
    return pa.StructArray.from_arrays([_assembled(each, cells) for each in kind.elements], names=tuple_names(kind))


def _csv_cell(quoted: str | None, bare: str | None) -> tuple[str, int]:
    if quoted is not None:
        return quoted.replace('""', '"'), _QUOTED
    text = (bare or "").rstrip(" \t")
    return text, _LEFT_OUT if not text else _NULL if text == "\\N" else 0


def read_tsv(data: str, columns: Mapping[str, t.DataType], *, header: bool) -> Rows:
    """Lines of cells separated by tabs, with backslash escapes."""
    if "\\" in data:
        data = _PROTECTED.sub(lambda match: r"\t" if match[1] else r"\n" if match[2] else match[0], data)
    texts = data.split("\n")
    lines = [text.removesuffix("\r").split("\t") for text in (texts if texts[-1] else texts[:-1])]
    names, lines = _names(lines[:1], lines, columns, header=header)
    arrays = {}
    for name, cells in zip(names, _columns(lines, len(names)), strict=True):
        kind = columns[name]
        # Escapes in nested values are left alone: they are inside the quotes of the elements.
        nested = isinstance(t.inner_type(kind), t.Array | t.Map | t.Tuple)
        unescaped = [
            None if cell == "\\N" else cell if nested or "\\" not in cell else _unescaped(cell) for cell in cells
        ]
        arrays[name] = text_column(unescaped, kind, name)
    return Rows(pa.table(arrays), len(lines))


def _unescaped(cell: str) -> str:
    return unescape_bytes(cell.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _names(
    first: Sequence[Sequence[str]], lines: list[_Line], columns: Mapping[str, t.DataType], *, header: bool
) -> tuple[list[str], list[_Line]]:
    """The names of the columns in the lines, and the lines without their header."""
    names = list(first[0]) if first else []
    if header or (names and set(names) <= set(columns)):
        for name in names:
            if name not in columns:
                raise unknown_column(name, list(columns))
        if len(set(names)) < len(names):
            raise error("INCORRECT_DATA", f"A column is named twice in {', '.join(names)}")
        lines = lines[1:]
    else:
        names = list(columns)
    if not lines:
        raise error("INCORRECT_DATA", "There is no data after FORMAT")
    return names, lines


def _columns(lines: Sequence[Sequence[_Cell]], count: int) -> list[tuple[_Cell, ...]]:
    for number, line in enumerate(lines, 1):
        if len(line) != count:
            raise _incorrect(number, f"{len(line)} values where {count} are expected", str(line)[:80])
    return list(zip(*lines, strict=True))


def _incorrect(line: int, why: str, shown: str) -> MergelakeError:
    return error("INCORRECT_DATA", f"Cannot read line {line} of the data: {why}: {shown}")
