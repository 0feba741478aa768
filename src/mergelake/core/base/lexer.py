"""The lexer: ClickHouse text to tokens with offsets, for statements, expressions, types and codecs.

Statements are edited by the offsets of their tokens, never printed from a tree: a table is replaced by cutting its name
out, a predicate is pushed down by copying its text. So rewriting cannot change the meaning of the rest.

Source: ClickHouse, `src/Parsers/Lexer.cpp`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mergelake.core.base.errors import MergelakeError, UnexpectedTokenError, error
from mergelake.core.base.text import unescape

QUOTED_STRING = r"'(?:[^'\\]++|\\.|'')*+'"
"""Regular expression (with DOTALL) of a string in single quotes, also for splitting bulk data without tokens."""
BACK_QUOTED = r"`(?:[^`\\]++|\\.|``)*+`"
"""Regular expression of an identifier in back-quotes."""
DOUBLE_QUOTED = r'"(?:[^"\\]++|\\.|"")*+"'
"""Regular expression of an identifier in double quotes."""
_QUOTED_NAME = re.compile(rf"{BACK_QUOTED}|{DOUBLE_QUOTED}", re.DOTALL)
_DIGITS, _HEX = r"\d(?:_?\d)*+", r"[0-9A-Fa-f](?:_?[0-9A-Fa-f])*+"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\n\r\f\v\x85\xa0\u180e\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]++
        |(?:--|//|\#[ !])[^\n]*+)
    |(?P<comment>/\*)
    |(?P<number>(?:0[xX]{_HEX}(?:\.(?:{_HEX})?)?(?:[pP](?!\Z)[+-]?(?:{_DIGITS})?)?
        |(?:0[bB](?=[01]){_DIGITS}|{_DIGITS})(?:\.(?:{_DIGITS})?)?(?:[eE](?!\Z)[+-]?(?:{_DIGITS})?)?)(?P<tail>\w*+)
        |\.{_DIGITS}(?:[eE](?!\Z)[+-]?(?:{_DIGITS})?)?)
    |(?P<string>{QUOTED_STRING}|[xX]'[0-9A-Fa-f]*+'|[bB]'[01]*+'|\u2018[^\u2019]*+\u2019
        |(?P<tag>\$\w*+\$).*?(?P=tag))
    |(?P<quoted>{BACK_QUOTED}|{DOUBLE_QUOTED}|\u201c[^\u201d]*+\u201d)
    |(?P<word>[A-Za-z_][\w$]*+|\$\w[\w$]*+)
    |(?P<sign>::|->|<=>|<=|>=|<>|!=|==|\|\||\|>|!?~\*?|@@|\\G|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_AFTER_DOT = re.compile(rf"{_DIGITS}(?P<tail>\w*+)", re.ASCII)
_WORD = re.compile(r"[\w$]++", re.ASCII)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_STRING = re.compile(QUOTED_STRING, re.DOTALL)
# Not `)*+`: a possessive group of Python 3.11.2 keeps what it consumed before it failed.
_STRINGS = re.compile(rf"\s*+{QUOTED_STRING}(?:\s*+,\s*+{QUOTED_STRING})*\s*+(?=\])", re.DOTALL | re.ASCII)
_NEVER_CLOSED = {"'": "string", "\u2018": "string", "`": "identifier", '"': "identifier", "\u201c": "identifier"}
DEPTH_MAX = 1000
"""Maximum nesting of brackets: the default of ClickHouse's parser (`max_parser_depth`)."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token. `kind` is word, quoted, string, number, sign or end; `text` is as written."""

    kind: str
    text: str
    start: int
    """Offset in the statement, in characters."""
    end: int
    upper: str
    """A bare word in upper case, or a sign; empty for other kinds."""

    @property
    def name(self) -> str:
        """The identifier that a word or a quoted token names."""
        return unescape(self.text) if self.kind == "quoted" else self.text

    @property
    def is_name(self) -> bool:
        """Whether the token can be an identifier."""
        return self.kind in ("word", "quoted")


def tokenize(text: str, start: int = 0) -> list[Token]:
    """All tokens from `start` on without comments; the last one is of kind `end`.

    Raises SYNTAX_ERROR for an open quote, TOO_DEEP_RECURSION for more than `DEPTH_MAX` nested brackets.
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


def too_deep(depth_max: int) -> MergelakeError:
    """ClickHouse's TOO_DEEP_RECURSION."""
    return error("TOO_DEEP_RECURSION", f"Maximum parse depth ({depth_max}) exceeded", "Write the statement flatter")


def next_token(text: str, at: int, before: Token | None = None) -> Token:
    """The first token at or after offset `at`; the token `before` it decides whether a dot begins a number."""
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative matches any character
        kind, at = str(match.lastgroup), match.end()
        if kind == "space":
            continue
        if kind == "comment":
            at = _comment_end(text, match.start())
            continue
        lexeme = match.group()
        if kind == "sign":
            if lexeme in _NEVER_CLOSED:
                raise syntax_error(text, match.start(), f"This {_NEVER_CLOSED[lexeme]} is never closed")
            return Token(kind, lexeme, match.start(), at, lexeme)
        if kind == "number":
            return _number(text, match, before)
        return Token(kind, lexeme, match.start(), at, lexeme.upper() if kind == "word" else "")
    return Token("end", "", len(text), len(text), "")


def _comment_end(text: str, start: int) -> int:
    """End of the comment that begins at `start`; comments may be nested."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if not depth:
            return edge.end()
    raise syntax_error(text, start, "This comment is never closed")


def _number(text: str, match: re.Match[str], before: Token | None) -> Token:
    """A number, or a token like one: `t.1.2` has the elements 1 and 2, and `2024_events` is a name."""
    start, lexeme = match.start(), match.group()
    if before is not None and lexeme[0] == "." and (before.is_name or before.kind == "number" or before.text in ")]"):
        return Token("sign", ".", start, start + 1, ".")
    if before is not None and before.kind == "sign" and before.text == ".":
        match = _AFTER_DOT.match(text, start) or match
        lexeme = match.group()
    is_name = bool(match["tail"]) and _WORD.fullmatch(lexeme) is not None
    return Token("word" if is_name else "number", lexeme, start, match.end(), lexeme.upper() if is_name else "")


def syntax_error(text: str, at: int, message: str, *, found: str = "") -> MergelakeError:
    """A SYNTAX_ERROR with line and column, and the line with a caret under the position `at`.

    `found` is the token at that position, if another was expected.
    """
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
    explained = f"Syntax error at {place}: {message}\n  {shown}\n  {' ' * column}^\n"
    return UnexpectedTokenError(explained, found=found) if found else error("SYNTAX_ERROR", explained)


def number_value(text: str) -> int | float:
    """The value of a number token with an optional sign. Raises SYNTAX_ERROR if it only begins like a number.

    >>> [number_value(text) for text in ("1_000", "-0x1F", "0b101", "1.5e1", "0x1.8p1")]
    [1000, -31, 5, 15.0, 3.0]
    """
    bare = text.replace("_", "")
    digits = bare.lstrip("+-").lower()
    try:
        if digits.isdigit():
            return int(bare)
        if digits[:2] in ("0x", "0b") and digits[2:].isalnum() and "p" not in digits:
            return int(bare, 0)
        return float.fromhex(bare) if digits.startswith("0x") else float(bare)
    except ValueError:
        raise error("SYNTAX_ERROR", f"{text} is not a number") from None


def quoted_name(text: str) -> str | None:
    """The identifier, if `text` is a single quoted identifier; else None."""
    return unescape(text) if _QUOTED_NAME.fullmatch(text) else None


class TokenReader:
    """A cursor over the tokens of `text` from `start` to `end`, which are created on demand."""

    def __init__(self, text: str, start: int = 0, end: int | None = None) -> None:
        self.text = text
        self.end = len(text) if end is None else end
        self._tokens: list[Token] = []
        self._read_to = start
        self._at = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` positions further; of kind `end` after the last."""
        while len(self._tokens) <= self._at + ahead:
            token = next_token(self.text, self._read_to, self._tokens[-1] if self._tokens else None)
            if token.kind == "end" or token.start >= self.end:
                token = Token("end", "", self.end, self.end, "")
            else:
                self._read_to = token.end
            self._tokens.append(token)
        return self._tokens[self._at + ahead]

    def next(self) -> Token:
        """Return the current token and advance."""
        token = self.peek()
        self._at += token.kind != "end"
        return token

    def strings(self) -> list[str] | None:
        """Skip the string literals, separated by commas, up to the next `]`; returns them as written.

        None if anything else is before it. Much faster than a token for each of many thousands.
        """
        if self._at < len(self._tokens):
            return None
        found = _STRINGS.match(self.text, self._read_to, self.end)
        if found is None:
            return None
        self._read_to = found.end()
        return _STRING.findall(found.group())

    @property
    def previous_end(self) -> int:
        """Offset after the last token that was read."""
        return self._tokens[self._at - 1].end if self._at else 0

    def at(self, *words: str) -> bool:
        """Whether the next tokens are these words or signs."""
        return all(self.peek(i).upper == word for i, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Advance past these words or signs if they are next; whether they were."""
        if not self.at(*words):
            return False
        for _ in words:
            self.next()
        return True
