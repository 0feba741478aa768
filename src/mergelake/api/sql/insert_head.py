"""INSERT up to its data, which stays text."""

from __future__ import annotations

from dataclasses import replace

from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.ddl import setting_literals
from mergelake.api.sql.statements import Infile, Insert, Name
from mergelake.core.base.errors import error


def insert(cursor: Cursor) -> Insert:
    """Parse what follows INSERT."""
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
    at = cursor.previous_end
    if cursor.accept("FROM", "INFILE"):
        return _of_file(cursor, Insert(name, columns, excluded, infile_at=at))
    settings = setting_literals(cursor) if cursor.accept("SETTINGS") else {}
    if cursor.accept("VALUES"):
        return Insert(name, columns, excluded, settings, "Values", *_data(cursor), infile_at=at)
    if cursor.accept("FORMAT"):
        format_name = cursor.identifier("the name of a format")
        return Insert(name, columns, excluded, settings, format_name, *_data(cursor), infile_at=at)
    if cursor.peek().upper in ("SELECT", "WITH", "(", "FROM"):
        query = cursor.rest_before_tail()
        if cursor.accept("FORMAT"):  # it returns no rows, as in ClickHouse
            cursor.identifier("the name of a format")
        return Insert(name, columns, excluded, settings, query=query)
    raise cursor.error("VALUES", "SELECT", "FORMAT")


def _of_file(cursor: Cursor, head: Insert) -> Insert:
    """Parse what follows FROM INFILE. Without FORMAT the file's extension determines the format."""
    path = cursor.string("the name of a file in single quotes")
    compression = cursor.string("a compression in single quotes") if cursor.accept("COMPRESSION") else "auto"
    settings = setting_literals(cursor) if cursor.accept("SETTINGS") else {}
    if cursor.at("SELECT") or cursor.at("WITH") or cursor.at("FROM"):
        what = "INSERT … FROM INFILE … SELECT is not supported"
        raise error("NOT_IMPLEMENTED", what, "INSERT INTO t SELECT … FROM file('…'), where files may be read")
    format_name = cursor.identifier("the name of a format") if cursor.accept("FORMAT") else ""
    return replace(head, infile=Infile(path, compression), settings=settings, format=format_name)


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
