"""Data of an INSERT from standard input: `cat x.csv | mergelake sql -q "INSERT INTO t FORMAT CSV"`."""

from __future__ import annotations

from typing import TextIO

from mergelake.core.errors import error
from mergelake.sql.parser import parse_statement
from mergelake.sql.script import split_statements
from mergelake.sql.statements import Insert


def with_data(text: str, stdin: TextIO) -> str:
    """The statements, with what stands in `stdin` as the data of the last one, if that is an INSERT without any.

    Nothing is read for other statements, nor from a terminal.
    """
    statements = split_statements(text)
    if not statements or stdin.isatty():
        return text
    start, end = statements[-1]
    if not text[start:].upper().startswith("INSERT"):
        return text
    last = parse_statement(text, start, end)
    if not isinstance(last, Insert) or last.query or last.data.strip():
        return text
    try:
        return f"{text[:end]}\n{stdin.read()}"
    except UnicodeDecodeError as failure:
        hint = "Other formats go in from Python, or by INSERT … SELECT * FROM file(…)"
        raise error("INCORRECT_DATA", f"Standard input is not UTF-8: {failure}", hint) from None
