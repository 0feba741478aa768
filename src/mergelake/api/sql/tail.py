"""The tail of a statement: `INTO OUTFILE 'x' … FORMAT y SETTINGS …`, the last two in either order.

ClickHouse accepts it after every statement but INSERT, SET and USE. ClickHouse itself reads the tail of a SELECT; only
mergelake's own settings, which it does not know, are taken out here (`own_settings`).

Source: ClickHouse, `src/Parsers/ParserQueryWithOutput.cpp`.
"""

from __future__ import annotations

from dataclasses import replace

from mergelake.api.sql import statements as s
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.ddl import setting_literals
from mergelake.api.sql.settings import OWN_SETTINGS
from mergelake.core.base.errors import error
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.settings_semantics import setting_items, settings_clauses


def ended(cursor: Cursor, statement: s.Statement) -> s.Statement:
    """The statement with its tail, where there is one; nothing else may follow."""
    statement, settings = _without_own(statement)
    outfile = format_name = ""
    if not isinstance(statement, s.Insert | s.Set | s.Use | s.Select):
        if cursor.at("INTO", "OUTFILE"):
            outfile = _outfile(cursor)
        for _ in range(2):
            if not format_name and cursor.accept("FORMAT"):
                format_name = cursor.identifier("the name of a format")
            if cursor.at("SETTINGS") and cursor.peek(1).is_name:
                cursor.next()
                settings |= setting_literals(cursor)
                if format_name:
                    break
    cursor.finish()
    return s.Tailed(statement, outfile, format_name, settings) if outfile or format_name or settings else statement


def _outfile(cursor: Cursor) -> str:
    start = cursor.peek().start
    cursor.expect("INTO", "OUTFILE")
    cursor.string("the name of a file in single quotes")
    if not cursor.accept("APPEND"):
        cursor.accept("TRUNCATE")
    cursor.accept("AND", "STDOUT")
    if cursor.accept("COMPRESSION"):
        cursor.string("the name of a compression in single quotes")
        if cursor.accept("LEVEL") and cursor.next().kind != "number":
            raise cursor.error("a number")
    return cursor.text[start : cursor.previous_end]


def _without_own(statement: s.Statement) -> tuple[s.Statement, dict[str, str]]:
    """The statement without mergelake's own settings in its SELECT, and those settings."""
    if not isinstance(statement, s.Select | s.Explain | s.Insert | s.CreateTable | s.Describe):
        return statement, {}
    query, settings = own_settings(statement.query)
    return (replace(statement, query=query), settings) if settings else (statement, settings)


def own_settings(query: str) -> tuple[str, dict[str, str]]:
    """A SELECT without mergelake's own settings, and those settings as literals.

    The text keeps its length, so that positions in errors stay right. The settings apply to a whole statement:
    NOT_IMPLEMENTED for those of a subquery.
    """
    if not any(name in query for name in OWN_SETTINGS):
        return query, {}
    parsed = parse_select(query)
    whole = {scope.clauses.get("SETTINGS") for scope in parsed.scopes if scope.role == "top"} | set(
        parsed.loose_settings
    )
    taken: dict[str, str] = {}
    for first, end in settings_clauses(parsed):
        items = list(setting_items(parsed, first, end))
        own = {name: literal for name, literal, _ in items if name in OWN_SETTINGS}
        if not own:
            continue
        if (first, end) not in whole:
            what = f"The setting {next(iter(own))} of a subquery is not supported"
            raise error("NOT_IMPLEMENTED", what, "Write it in the SETTINGS at the end of the statement")
        left = ", ".join(text for name, _, text in items if name not in own)
        start, stop = parsed.tokens[first - 1].start, parsed.tokens[end - 1].end
        query = query[:start] + (f"SETTINGS {left}" if left else "").ljust(stop - start) + query[stop:]
        taken |= own
    return query, taken
