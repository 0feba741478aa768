"""`columns.txt`: the names and types of a part's columns, in order.

Source: ClickHouse, `NamesAndTypesList::writeText`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.base.lexer import BACK_QUOTED
from mergelake.core.base.text import back_quote, unescape
from mergelake.core.types.types import DataType, stored_type

_NAME = re.compile(BACK_QUOTED, re.DOTALL)
_HEADER = "columns format version: 1"


def encode_columns(columns: Mapping[str, DataType]) -> bytes:
    """The file for `columns`, in their order."""
    rows = "".join(f"{back_quote(name)} {kind}".replace("\n", "\\n") + "\n" for name, kind in columns.items())
    return f"{_HEADER}\n{len(columns)} columns:\n{rows}".encode()


def decode_columns(data: bytes) -> dict[str, DataType]:
    """Inverse of `encode_columns`. `CorruptDataError` for another format; the types' own errors otherwise."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as broken:
        raise CorruptDataError("The list of columns is not UTF-8", offset=broken.start) from None
    if lines[0] != _HEADER:
        raise CorruptDataError("Not a list of columns", offset=0, expected=f"'{_HEADER}'", found=f"'{lines[0][:40]}'")
    count, _, word = lines[1].partition(" ") if len(lines) > 1 else ("", "", "")
    rows = lines[2:-1]
    if not rows or count != str(len(rows)) or word != "columns:" or lines[-1]:
        raise CorruptDataError(
            "The list of columns is cut", expected=f"'{count} columns:'", found=f"{len(rows)} whole lines"
        )
    columns: dict[str, DataType] = {}
    for row in rows:
        name = _NAME.match(row)
        if name is None:
            raise CorruptDataError("A line of the list of columns has no quoted name", found=row[:60])
        columns[unescape(name.group())] = stored_type(row[name.end() + 1 :])
    if len(columns) != len(rows):
        raise CorruptDataError(
            "The list of columns has a name twice", expected=f"{len(rows)} names", found=f"{len(columns)}"
        )
    return columns
