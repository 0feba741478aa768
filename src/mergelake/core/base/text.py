"""ClickHouse's quoting of identifiers and strings."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mergelake.core.base.errors import error

_PLAIN_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE = re.compile(rb"\\(?:x(.)(.)|(.))?", re.DOTALL)
_LETTERS = {
    b"b": b"\b", b"f": b"\f", b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0", b"a": b"\a", b"v": b"\v",
    b"e": b"\x1b", b"N": b"",
}  # fmt: skip
_THEMSELVES = frozenset(b"\\'\"`/=") | frozenset(range(32))
"""Bytes that stand for themselves after a backslash, which is dropped."""
_QUOTES = frozenset("'`\"")
_WRITTEN = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f"}
_QUOTED_WORDS = frozenset(
    (
        "all",
        "distinct",
        "false",
        "from",
        "inf",
        "infinity",
        "nan",
        "null",
        "select",
        "some",
        "table",
        "top",
        "true",
        "values",
    )
)
"""Words that ClickHouse quotes although they are valid identifiers."""


def unused_stem(names: Iterable[str], stem: str = "c") -> str:
    """`stem`, made longer until no name begins with it.

    Aliases made of it and a number are safe in a SELECT, where ClickHouse prefers an alias to a column of that name.
    """
    known = list(names)
    while any(name.startswith(stem) for name in known):
        stem += "_"
    return stem


def back_quote(name: str) -> str:
    """`name` in back-quotes, escaped."""
    return _quoted(name, "`")


def quote_identifier_if_needed(name: str) -> str:
    """`name`, in back-quotes if ClickHouse prints it so."""
    return name if _PLAIN_IDENTIFIER.fullmatch(name) and name.lower() not in _QUOTED_WORDS else back_quote(name)


def double_quote(name: str) -> str:
    """`name` in double quotes, escaped."""
    return _quoted(name, '"')


def quote_string(text: str) -> str:
    """`text` as a ClickHouse string literal."""
    return _quoted(text, "'")


def _quoted(text: str, quote: str) -> str:
    for char, written in _WRITTEN.items():
        if char in text:
            text = text.replace(char, written)
    return f"{quote}{text.replace(quote, chr(92) + quote)}{quote}"


def unescape(quoted: str) -> str:
    r"""Like `string_bytes`, as text, and also for quoted identifiers.

    `\xff` is a byte, not a character: bytes that are not UTF-8 become surrogates (`surrogateescape`).
    """
    quote, body = quoted[0], quoted[1:-1]
    if quote in _QUOTES and quote not in body and "\\" not in body:
        return body
    return string_bytes(quoted).decode("utf-8", "surrogateescape")


def string_bytes(quoted: str) -> bytes:
    r"""The bytes of a string literal: in quotes, `x'4142'`, `b'0100'`, or `$tag$ … $tag$`.

    Raises SYNTAX_ERROR for an incomplete escape. Source: ClickHouse, `ParserStringLiteral`.

    >>> [string_bytes(text) for text in (r"'a\'b'", "x'4142'", "b'1000001'", "$t$a'b$t$")]
    [b"a'b", b'AB', b'A', b"a'b"]
    """
    first, body = quoted[0], quoted[1:-1]
    if first in _QUOTES:
        return unescape_bytes(body.encode("utf-8", "surrogateescape"), first.encode(), "SYNTAX_ERROR")
    if first in "xX":
        return bytes.fromhex(body[1:].zfill(len(body) // 2 * 2))
    if first in "bB":
        digits = body[1:]
        return int(digits or "0", 2).to_bytes((len(digits) + 7) // 8, "big")
    if first == "$":
        tag = quoted.index("$", 1) + 1
        body = quoted[tag:-tag]
    return body.encode("utf-8", "surrogateescape")


def unescape_bytes(body: bytes, quote: bytes = b"", code: str = "CANNOT_PARSE_ESCAPE_SEQUENCE") -> bytes:
    r"""Decode escapes; inside of quotes `quote`, two of them are one.

    `\n` and similar escapes are control characters, `\xHH` is a byte, `\N` is nothing. A backslash before quotes, `\`,
    `/`, `=` and control characters is dropped, before any other byte it is kept. Raises `code` for an incomplete
    escape.

    Source: ClickHouse, `parseComplexEscapeSequence`.

    >>> unescape_bytes(rb"a\tb\x41\%")
    b'a\tbA\\%'
    """

    def undo(match: re.Match[bytes]) -> bytes:
        high, low, follow = match.groups()
        if high is not None:
            return bytes([(_hex_digit(high) * 16 + _hex_digit(low)) & 255])
        if follow is None or follow == b"x":
            raise error(code, f"An escape sequence is cut short: '{body[-40:].decode(errors='backslashreplace')}'")
        known = _LETTERS.get(follow)
        return known if known is not None else follow if follow[0] in _THEMSELVES else b"\\" + follow

    if not quote or quote * 2 not in body:
        return _ESCAPE.sub(undo, body)
    doubled = re.compile(_ESCAPE.pattern + b"|" + quote * 2, re.DOTALL)
    return doubled.sub(lambda match: quote if match.group() == quote * 2 else undo(match), body)


def _hex_digit(digit: bytes) -> int:
    """The value of a hexadecimal digit; as in ClickHouse, 255 for any other byte."""
    index = b"0123456789abcdef".find(digit.lower())
    return 255 if index < 0 else index
