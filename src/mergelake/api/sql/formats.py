"""Inline data of INSERT: VALUES, JSONEachRow, CSV and TabSeparated, to columns that the table checks strictly.

Columns come as text, parsed later by type; a value out of range is then refused, where ClickHouse's own readers wrap
it. A value that is left out means the column's default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mergelake.api.sql.delimited import read_csv, read_tsv
from mergelake.api.sql.json_rows import read_json_rows
from mergelake.api.sql.rows import Rows
from mergelake.api.sql.statements import Insert
from mergelake.api.sql.values import read_values
from mergelake.core.base.errors import error
from mergelake.core.types import types as t

FORMATS = ("Values", "JSONEachRow", "CSV", "CSVWithNames", "TabSeparated", "TabSeparatedWithNames")
"""Formats of inline data."""
_NAMES = {
    **{name.lower(): name for name in FORMATS},
    "tsv": "TabSeparated",
    "tsvwithnames": "TabSeparatedWithNames",
    "ndjson": "JSONEachRow",
    "jsonlines": "JSONEachRow",
}


def format_of(name: str) -> str:
    """One of `FORMATS` by any of its names. Raises UNKNOWN_FORMAT."""
    format_name = _NAMES.get(name.lower())
    if format_name is None:
        raise error("UNKNOWN_FORMAT", f"Unknown input format {name}", f"There are {', '.join(FORMATS)}")
    return format_name


def is_inline(name: str) -> bool:
    """Whether inline data can have this format."""
    return name.lower() in _NAMES


def read_rows(insert: Insert, columns: Mapping[str, t.DataType], script: str, *, external: bool = False) -> Rows:
    """The rows of a statement's inline data, of (some of) `columns`. Raises INCORRECT_DATA, CANNOT_PARSE_…

    `external`: whether expressions in VALUES may read files and the network.
    """
    name = format_of(insert.format)
    if name == "Values":
        return read_values(insert.data, columns, script=script, at=insert.data_at, external=external)
    data = after_line(insert.data)
    if name == "JSONEachRow":
        return read_json_rows(data, columns)
    return (read_csv if name.startswith("CSV") else read_tsv)(data, columns, header=name.endswith("WithNames"))


def after_line(data: str) -> str:
    """The data after the format's name: from the next line, or from the first non-space character of the same line."""
    match = re.match(r"[ \t]*\r?\n", data)
    return data[match.end() :] if match else data.lstrip(" ")
