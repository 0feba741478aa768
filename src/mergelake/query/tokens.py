"""ClickHouse text to tokens that remember where they stand, so that a statement can be cut, never reprinted.

Everything above keeps the user's own text: a table is replaced by cutting its name out, a predicate is
pushed down by copying it. So no printer can change what a statement means.

Source: ClickHouse, `src/Parsers/Lexer.cpp`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mergelake.core.errors import MergelakeError, error
from mergelake.core.text import unescape

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|\#[ !][^\n]*|/\*.*?\*/)
    |(?P<number>(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?)(?![A-Za-z0-9_$]))
    |(?P<string>'(?:[^'\\]|\\.|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
    |(?P<word>[A-Za-z0-9_$]+)
    |(?P<sign>::|->|<=>|<=|>=|<>|!=|==|\|\||@@|[^\s])""",
    re.VERBOSE | re.DOTALL,
)
"""A name may begin with a digit, if it is not a number as a whole: `2b`, `1_`, `0x1g`. Non-ASCII ones are quoted."""


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is word, quoted, string, number, sign or end; `text` is as written."""

    kind: str
    text: str
    start: int
    """Offset in the statement, in characters."""
    end: int
    upper: str
    """A bare word in capitals; empty for every other kind but signs, which stand for themselves."""

    @property
    def name(self) -> str:
        """The identifier that a word or a quoted token names."""
        return unescape(self.text) if self.kind == "quoted" else self.text

    @property
    def is_name(self) -> bool:
        """Whether it can be an identifier."""
        return self.kind in ("word", "quoted")


def tokenize(text: str, start: int = 0) -> list[Token]:
    """All tokens from `start` on, comments left out, ended by one of kind `end`. SYNTAX_ERROR for an open quote."""
    tokens: list[Token] = []
    at = start
    while True:
        token = next_token(text, at)
        tokens.append(token)
        if token.kind == "end":
            return tokens
        at = token.end
        # `t.1` is a tuple element; `.1` alone would read as a number.
        if token.kind == "number" and token.text[0] == "." and len(tokens) > 1:
            before = tokens[-2]
            if before.end == token.start and (before.is_name or before.text in (")", "]")):
                tokens[-1] = Token("sign", ".", token.start, token.start + 1, ".")
                at = token.start + 1


def next_token(text: str, at: int) -> Token:
    """The first token at or after offset `at`."""
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:  # cannot happen: the last sign takes any character
            break
        kind = str(match.lastgroup) if match.lastgroup != "tag" else "string"
        at = match.end()
        if kind == "space":
            continue
        found = match.group()
        if found in ("'", "`", '"') or (found == "/" and text.startswith("*", at)):
            what = "comment" if found == "/" else "string" if found == "'" else "identifier"
            raise syntax_error(text, match.start(), f"This {what} is never closed")
        upper = found.upper() if kind == "word" else found if kind == "sign" else ""
        return Token(kind, found, match.start(), match.end(), upper)
    return Token("end", "", len(text), len(text), "")


def syntax_error(text: str, at: int, message: str) -> MergelakeError:
    """SYNTAX_ERROR that shows the place: line and column, the line itself and a caret under it."""
    at = min(at, len(text))
    line = text.count("\n", 0, at) + 1
    first = text.rfind("\n", 0, at) + 1
    last = text.find("\n", at)
    shown = text[first : len(text) if last < 0 else last]
    column = at - first
    if len(shown) > 120:
        cut = max(0, column - 60)
        shown, column = shown[cut : cut + 120], column - cut
    place = f"line {line}, column {at - first + 1} (position {at + 1})"
    return error("SYNTAX_ERROR", f"Syntax error at {place}: {message}\n  {shown}\n  {' ' * column}^\n")


def split_statements(text: str) -> list[tuple[int, int]]:
    """Where each statement of a script lies (`;` left out), as offsets. Data after FORMAT is its statement's own."""
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
    while True:
        token = next_token(text, at)
        if token.kind == "end" or (token.text == ";" and depth == 0):
            return token.start
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth == 0 and before == "FORMAT" and token.kind == "word" and token.upper != "VALUES":
            # Inline data of a row format: up to a line that holds only `;`, or the end of the text.
            rest = text[token.end :]
            match = re.search(r"(?:^|\n)[ \t]*;[ \t]*(?:\r?\n|$)", rest)
            if match is not None:
                return token.end + match.start() + match.group().index(";")
            if _ends_in_semicolon(rest, token.upper):
                return token.end + rest.rstrip().rindex(";")
            return len(text)
        if depth == 0 and token.upper == "VALUES" and before != "FORMAT":
            return values_end(text, token.end)
        before = token.upper
        at = token.end


def _ends_in_semicolon(rest: str, format_name: str) -> bool:
    return format_name.startswith("JSON") and rest.rstrip().endswith(";")


_VALUES_SKIP = re.compile(r"[^'();\[\]$/-]+|'(?:[^'\\]+|\\.|'')*'|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|.", re.DOTALL)


def values_end(text: str, start: int) -> int:
    """Offset of the `;` (or the end) that closes VALUES data beginning at `start`."""
    semicolon = text.find(";", start)
    if semicolon < 0 or not text[semicolon + 1 :].strip():
        # The common case: one statement, its `;` last. Only a `;` inside a string could fool this, and
        # then an odd number of quotes follows it, which cannot be when nothing follows.
        return len(text) if semicolon < 0 else semicolon
    for match in _VALUES_SKIP.finditer(text, start):
        if match.group() == ";":
            return match.start()
    return len(text)
