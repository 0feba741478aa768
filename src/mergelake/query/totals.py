"""WITH TOTALS: the additional row, which ClickHouse's Arrow output omits.

Text formats have it: the statement runs once with FORMAT TabSeparated, whose last line (after an empty one) is the
totals row, and ClickHouse itself converts both parts to Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.base.text import quote_string
from mergelake.query.embedded import engine
from mergelake.query.statement.parsed_select import ParsedSelect
from mergelake.query.statement.settings_semantics import statement_settings

_SPECIAL = re.compile(rb"[^ -~]|[\\']")


@dataclass(frozen=True, slots=True)
class RowsAndTotals:
    """Rows and totals in ClickHouse's Arrow types."""

    rows: pa.Table
    totals: pa.Table | None


def has_totals(parsed: ParsedSelect) -> bool:
    """Whether the outermost SELECT has WITH TOTALS."""
    for scope in parsed.scopes:
        if scope.role != "top":
            continue
        first, end = scope.clauses.get("GROUP", scope.clause("SELECT"))
        for at in parsed.own(scope, first, end):
            if parsed.tokens[at].upper == "TOTALS" and parsed.tokens[at - 1].upper == "WITH":
                return True
    return False


_TEXT = ("bool_", "date_time_", "extremes", "format_", "interval_output_", "output_format_")
"""Prefixes of settings that change the text format."""


def carried(settings: Mapping[str, str], parsed: ParsedSelect) -> dict[str, str]:
    """The settings that do not change the text format. Raises NOT_IMPLEMENTED for one in the statement that does."""
    for name in statement_settings(parsed):
        if name.startswith(_TEXT):
            message = f"The setting {name} with WITH TOTALS is not supported"
            raise error("NOT_IMPLEMENTED", message, "Add FORMAT to the statement")
    return {name: value for name, value in settings.items() if not name.startswith(_TEXT)}


def run(
    text: str, tables: Mapping[str, object], settings: Mapping[str, str], names: Sequence[str], types: Sequence[str]
) -> RowsAndTotals:
    """Run the statement once; returns rows and totals. `names` and `types` are those of its columns."""
    data = engine.run(text, tables, output="TabSeparated", settings=settings).data.to_pybytes()
    body = data.removesuffix(b"\n").split(b"\n")  # TabSeparated escapes line breaks, so a line is a row
    last: list[bytes] = []
    if len(body) >= 2 and not body[-2]:
        last, body = body[-1:], body[:-2]
    if len(types) > 1:
        body = [line for line in body if line]
    return RowsAndTotals(_read(body, names, types), _read(last, names, types) if last else None)


def _read(lines: list[bytes], names: Sequence[str], types: Sequence[str]) -> pa.Table:
    structure = ", ".join(f"c{i} {data_type}" for i, data_type in enumerate(types))
    literal = b"'" + _SPECIAL.sub(lambda match: b"\\x%02x" % match.group()[0], b"\n".join(lines)) + b"'"
    columns = ", ".join(f"c{i}" for i in range(len(names)))
    sql = f"SELECT {columns} FROM format(TabSeparated, {quote_string(structure)}, {literal.decode()})"
    return engine.run(sql).table().rename_columns(list(names))
