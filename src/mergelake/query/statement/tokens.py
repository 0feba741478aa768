"""ClickHouse text to tokens that remember where they stand, so that a statement can be cut, never reprinted.

Everything above keeps the user's own text: a table is replaced by cutting its name out, a predicate is
pushed down by copying it. So no printer can change what a statement means.

Source: ClickHouse, `src/Parsers/Lexer.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mergelake.core.errors import MergelakeError, error
from mergelake.core.text import unescape

_DIGITS, _HEX = r"\d(?:_?\d)*+", r"[0-9A-Fa-f](?:_?[0-9A-Fa-f])*+"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\n\r\f\v\x85\xa0\u180e\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]++
        |(?:--|//|\#[ !])[^\n]*+)
    |(?P<comment>/\*)
    |(?P<number>(?:0[xX]{_HEX}(?:\.(?:{_HEX})?)?(?:[pP](?!\Z)[+-]?(?:{_DIGITS})?)?
        |(?:0[bB](?=[01]){_DIGITS}|{_DIGITS})(?:\.(?:{_DIGITS})?)?(?:[eE](?!\Z)[+-]?(?:{_DIGITS})?)?)(?P<tail>\w*+)
        |\.{_DIGITS}(?:[eE](?!\Z)[+-]?(?:{_DIGITS})?)?)
    |(?P<string>'(?:[^'\\]++|\\.|'')*+'|[xX]'[0-9A-Fa-f]*+'|[bB]'[01]*+'|\u2018[^\u2019]*+\u2019
        |(?P<tag>\$\w*+\$).*?(?P=tag))
    |(?P<quoted>`(?:[^`\\]++|\\.|``)*+`|"(?:[^"\\]++|\\.|"")*+"|\u201c[^\u201d]*+\u201d)
    |(?P<word>[A-Za-z_][\w$]*+|\$\w[\w$]*+)
    |(?P<sign>::|->|<=>|<=|>=|<>|!=|==|\|\||\|>|!?~\*?|@@|\\G|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_AFTER_DOT = re.compile(rf"{_DIGITS}(?P<tail>\w*+)", re.ASCII)
_WORD = re.compile(r"[\w$]++", re.ASCII)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NEVER_CLOSED = {"'": "string", "\u2018": "string", "`": "identifier", '"': "identifier", "\u201c": "identifier"}
DEPTH_MAX = 1000
"""Most brackets within each other: what ClickHouse's own parser takes by default (`max_parser_depth`)."""


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
    """All tokens from `start` on, comments left out, ended by one of kind `end`.

    SYNTAX_ERROR for an open quote, TOO_DEEP_RECURSION for more than `DEPTH_MAX` brackets within each other.
    """
    tokens: list[Token] = []
    before: Token | None = None
    at, depth = start, 0
    while True:
        token = next_token(text, at, before)
        tokens.append(token)
        if token.kind == "end":
            return tokens
        if token.kind == "sign":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            if depth > DEPTH_MAX:
                raise too_deep(DEPTH_MAX)
        before, at = token, token.end


def too_deep(most: int) -> MergelakeError:
    """TOO_DEEP_RECURSION, as ClickHouse refuses it."""
    return error("TOO_DEEP_RECURSION", f"Maximum parse depth ({most}) exceeded", "Write the statement flatter")


def next_token(text: str, at: int, before: Token | None = None) -> Token:
    """The first token at or after offset `at`, `before` being the one in front of it, which says what a dot means."""
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None  # the last sign takes any character
        kind, at = str(match.lastgroup), match.end()
        if kind == "space":
            continue
        if kind == "comment":
            at = _comment_end(text, match.start())
            continue
        found = match.group()
        if kind == "sign":
            if found in _NEVER_CLOSED:
                raise syntax_error(text, match.start(), f"This {_NEVER_CLOSED[found]} is never closed")
            return Token(kind, found, match.start(), at, found)
        if kind == "number":
            return _number(text, match, before)
        return Token(kind, found, match.start(), at, found.upper() if kind == "word" else "")
    return Token("end", "", len(text), len(text), "")


def _comment_end(text: str, start: int) -> int:
    """Where the comment that begins at `start` ends: comments may hold comments."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if not depth:
            return edge.end()
    raise syntax_error(text, start, "This comment is never closed")


def _number(text: str, match: re.Match[str], before: Token | None) -> Token:
    """A number, or what only looks like one: `t.1.2` has the elements 1 and 2, and `2024_events` is a name."""
    start, found = match.start(), match.group()
    if before is not None and found[0] == "." and (before.is_name or before.kind == "number" or before.text in ")]"):
        return Token("sign", ".", start, start + 1, ".")
    if before is not None and before.kind == "sign" and before.text == ".":
        match = _AFTER_DOT.match(text, start) or match
        found = match.group()
    is_name = bool(match["tail"]) and _WORD.fullmatch(found) is not None
    return Token("word" if is_name else "number", found, start, match.end(), found.upper() if is_name else "")


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


def closing(tokens: Sequence[Token], at: int) -> int:
    """The index of the bracket that closes the one at `at`; that of the end where none does."""
    depth = 0
    while tokens[at].kind != "end":
        if tokens[at].kind == "sign":
            depth += (tokens[at].text in ("(", "[", "{")) - (tokens[at].text in (")", "]", "}"))
        if depth == 0:
            break
        at += 1
    return at
