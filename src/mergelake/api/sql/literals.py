"""Literals in statements: the values that PARTITION takes."""

from __future__ import annotations

from mergelake.api.sql.cursor import Cursor
from mergelake.core.base.lexer import number_value
from mergelake.core.base.text import unescape


def literal(cursor: Cursor) -> int | float | str | None:
    """A number, a string or NULL."""
    sign = -1 if cursor.accept("-") else 1
    token = cursor.peek()
    if token.kind == "number":
        cursor.next()
        return sign * number_value(token.text)
    if sign < 0:
        raise cursor.error("a number")
    if token.kind == "string":
        cursor.next()
        return unescape(token.text)
    if cursor.accept("NULL"):
        return None
    if cursor.peek().upper in ("TRUE", "FALSE"):
        return int(cursor.next().upper == "TRUE")
    raise cursor.error("a number", "a string in single quotes", "NULL")
