"""Split a script into statements; the data of an INSERT belongs to its statement."""

from __future__ import annotations

import re

from mergelake.core.base.lexer import QUOTED_STRING, next_token


def split_statements(text: str) -> list[tuple[int, int]]:
    """Start and end of each statement (without `;`), as offsets. Data after FORMAT belongs to its statement."""
    out: list[tuple[int, int]] = []
    at = 0
    begin: int | None = None
    while True:
        token = next_token(text, at)
        if token.kind == "end" or token.text == ";":
            if begin is not None:
                out.append((begin, token.start))
            if token.kind == "end":
                return out
            begin = None
        elif begin is None:
            begin = token.start
            if token.upper == "INSERT":
                end = _insert_end(text, begin)
                out.append((begin, end))
                begin = None
                at = end + text.startswith(";", end)
                continue
        at = token.end


def _insert_end(text: str, start: int) -> int:
    """Where an INSERT ends: VALUES data may be large, so it is skipped by its quotes and brackets alone."""
    at = start
    before = ""
    depth = 0
    of_file = False
    while True:
        token = next_token(text, at)
        if token.kind == "end" or (token.text == ";" and depth == 0):
            return token.start
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        of_file = of_file or (depth == 0 and before == "FROM" and token.upper == "INFILE")
        if depth == 0 and not of_file and before == "FORMAT" and token.kind == "word" and token.upper != "VALUES":
            # Inline data of a row format: up to a line that holds only `;`, or the end of the text.
            rest = text[token.end :]
            match = re.search(r"(?:^|\n)[ \t]*;[ \t]*(?:\r?\n|$)", rest)
            if match is not None:
                return token.end + match.start() + match.group().index(";")
            if _ends_in_semicolon(rest, token.upper):
                return token.end + rest.rstrip().rindex(";")
            return len(text)
        if depth == 0 and token.upper == "VALUES" and before != "FORMAT" and not of_file:
            return values_end(text, token.end)
        before = token.upper
        at = token.end


def _ends_in_semicolon(rest: str, format_name: str) -> bool:
    return format_name.startswith("JSON") and rest.rstrip().endswith(";")


_VALUES_SKIP = re.compile(rf"[^'();\[\]$/-]+|{QUOTED_STRING}|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|.", re.DOTALL)


def values_end(text: str, start: int) -> int:
    """Offset of the `;` (or the end) that closes VALUES data beginning at `start`."""
    semicolon = text.find(";", start)
    if semicolon < 0 or not text[semicolon + 1 :].strip():
        # The common case: one statement with its `;` at the end. A `;` inside of a string would be followed by at least
        # the closing quote, so it cannot be the last character.
        return len(text) if semicolon < 0 else semicolon
    for match in _VALUES_SKIP.finditer(text, start):
        if match.group() == ";":
            return match.start()
    return len(text)
