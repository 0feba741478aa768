"""INSERT up to its data: the data itself stays text, however long it is."""

from __future__ import annotations

from mergelake.core.errors import error
from mergelake.sql.cursor import Cursor
from mergelake.sql.ddl import setting_literals
from mergelake.sql.statements import Insert, Name


def insert(cursor: Cursor) -> Insert:
    """What follows INSERT."""
    cursor.expect("INTO")
    cursor.accept("TABLE")
    if cursor.at("FUNCTION"):
        raise error(
            "NOT_IMPLEMENTED", "INSERT INTO FUNCTION is not supported", "Write a result with `mergelake sql --format`"
        )
    name = cursor.table_name()
    columns: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    if cursor.at("(") and cursor.peek(1).upper not in ("SELECT", "WITH", "("):
        columns, excluded = _columns(cursor)
    if cursor.at("PARTITION", "BY"):
        raise error(
            "NOT_IMPLEMENTED", "INSERT … PARTITION BY is not supported", "The table's own partition key decides"
        )
    settings = setting_literals(cursor) if cursor.accept("SETTINGS") else {}
    if cursor.at("FROM", "INFILE"):
        raise error(
            "NOT_IMPLEMENTED",
            "INSERT … FROM INFILE is not supported yet",
            "INSERT … SELECT * FROM file('…'), where the connection has allow_external_access",
        )
    if cursor.accept("VALUES"):
        return Insert(name, columns, excluded, settings, "Values", *_data(cursor))
    if cursor.accept("FORMAT"):
        format_name = cursor.identifier("the name of a format")
        return Insert(name, columns, excluded, settings, format_name, *_data(cursor))
    if cursor.peek().upper in ("SELECT", "WITH", "(", "FROM"):
        return Insert(name, columns, excluded, settings, query=cursor.rest())
    raise cursor.error("VALUES", "SELECT", "FORMAT")


def _columns(cursor: Cursor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    cursor.expect("(")
    if cursor.accept("*"):
        excluded: list[str] = []
        if cursor.accept("EXCEPT"):
            excluded = _names(cursor)
        cursor.expect(")")
        return (), tuple(excluded)
    names = [_dotted(cursor)]
    while cursor.accept(","):
        names.append(_dotted(cursor))
    cursor.expect(")")
    return tuple(names), ()


def _names(cursor: Cursor) -> list[str]:
    if not cursor.accept("("):
        return [_dotted(cursor)]
    names = [_dotted(cursor)]
    while cursor.accept(","):
        names.append(_dotted(cursor))
    cursor.expect(")")
    return names


def _dotted(cursor: Cursor) -> str:
    name = cursor.identifier("the name of a column")
    while cursor.accept("."):
        name += "." + cursor.identifier()
    return name


def _data(cursor: Cursor) -> tuple[str, int]:
    at = cursor.previous_end
    return cursor.data(), at


__all__ = ["Insert", "Name", "insert"]
