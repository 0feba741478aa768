"""ClickHouse's quoting of identifiers and strings."""

from __future__ import annotations

import re

_PLAIN_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {"b": "\b", "f": "\f", "r": "\r", "n": "\n", "t": "\t", "0": "\0", "a": "\a", "v": "\v", "e": "\x1b"}


def back_quote(name: str) -> str:
    """`name` in back-quotes, backslash and back-quote escaped."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_identifier_if_needed(name: str) -> str:
    """`name` bare where ClickHouse prints it bare, else in back-quotes."""
    return name if _PLAIN_IDENTIFIER.fullmatch(name) else back_quote(name)


def quote_string(text: str) -> str:
    """`text` as a ClickHouse string literal."""
    out = text.replace("\\", "\\\\").replace("'", "\\'")
    for letter, char in (("n", "\n"), ("t", "\t"), ("r", "\r"), ("0", "\0"), ("b", "\b"), ("f", "\f")):
        out = out.replace(char, "\\" + letter)
    return f"'{out}'"


def unescape(quoted: str) -> str:
    r"""The text inside a quoted string or identifier, its escapes undone.

    `\xff` is a byte, not a character: bytes that are no UTF-8 come as surrogates (`surrogateescape`). The backslash
    of an unknown escape stays, as in ClickHouse's `parseEscapeSequence`.
    """
    quote, body = quoted[0], quoted[1:-1]
    out: list[str] = []
    at = 0
    while at < len(body):
        char = body[at]
        if char == "\\" and at + 1 < len(body):
            follow = body[at + 1]
            if follow == "x" and at + 3 < len(body):
                byte = int(body[at + 2 : at + 4], 16)
                out.append(chr(byte if byte < 128 else 0xDC00 + byte))
                at += 4
                continue
            out.append(_ESCAPES.get(follow) or (follow if follow in "\\'\"`/=" else "\\" + follow))
            at += 2
        elif char == quote and body[at + 1 : at + 2] == quote:
            out.append(quote)
            at += 2
        else:
            out.append(char)
            at += 1
    return "".join(out).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
