"""Text to tokens, by ClickHouse's own rules.

sqlglot's tokenizer renames what it knows (`toDate` arrives as a keyword) and turns strings into `str`;
ClickHouse strings are bytes, so the few token kinds of an expression are read here.

Source: ClickHouse, `src/Parsers/Lexer.cpp`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mergelake.core.errors import error
from mergelake.core.text import unescape

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|\#[ !][^\n]*|/\*.*?\*/)
    |(?P<number>(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?)(?![A-Za-z0-9_$]))
    |(?P<text>'(?:[^'\\]|\\.|'')*')
    |(?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
    |(?P<word>[A-Za-z0-9_$]+)
    |(?P<sign>::|->|<=>|<=|>=|<>|!=|==|\|\||[-+*/%=<>(),.\[\]?:{}])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""A name may begin with a digit, if it is not a number as a whole: `2b`, `1_`, `0x1g`."""
_ESCAPES = {b"b": 8, b"f": 12, b"r": 13, b"n": 10, b"t": 9, b"0": 0, b"a": 7, b"v": 11, b"e": 27}
_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})|\\(.)|''", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is number, text (raw, with quotes), name (quoted identifier), word, sign or end."""

    kind: str
    text: str
    at: int
    """Offset in the source, in characters."""


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, ended by one of kind `end`. Raises SYNTAX_ERROR."""
    tokens: list[Token] = []
    at = 0
    adjacent = -1  # where the last token ended, if it was one that an element of a tuple may follow
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise error("SYNTAX_ERROR", f"Cannot read the expression '{text}' at '{text[at : at + 20]}'")
        kind = str(match.lastgroup)
        if kind == "number" and match.group()[0] == "." and adjacent == at:
            tokens.append(Token("sign", ".", at))
            at += 1
            continue
        after_dot = bool(tokens) and tokens[-1].text == "." and tokens[-1].kind == "sign"
        if kind == "number" and after_dot and "." in match.group():
            # `t.1.2` is two tuple elements, not the element 1.2.
            digits = re.match(r"\d+", match.group())
            if digits is None:
                raise error("SYNTAX_ERROR", f"Cannot read the expression '{text}' at '{text[at : at + 20]}'")
            tokens.append(Token("number", digits.group(), at))
            at += digits.end()
            adjacent = at
            continue
        if kind == "quoted":
            tokens.append(Token("name", unescape(match.group()), at))
        elif kind != "space":
            tokens.append(Token(kind, match.group(), at))
        at = match.end()
        if kind in ("word", "quoted") or match.group() in (")", "]"):
            adjacent = at
    tokens.append(Token("end", "", len(text)))
    return tokens


def string_bytes(quoted: str) -> bytes:
    """The bytes that a quoted string literal stands for."""

    def undo(match: re.Match[bytes]) -> bytes:
        if match.group(1):
            return bytes([int(match.group(1), 16)])
        follow: bytes = match.group(2) or b"'"
        if follow in _ESCAPES:
            return bytes([_ESCAPES[follow]])
        # ClickHouse keeps the backslash of an escape that it does not know, so that LIKE '\%' works.
        return follow if follow in b"\\'\"`/=" else b"\\" + follow

    return _ESCAPE.sub(undo, quoted[1:-1].encode())
