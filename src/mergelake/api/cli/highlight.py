"""Colours for SQL while it is typed, by the lexer that the parser uses too (`core.base.lexer`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.lexer import Token, next_token

COLOURS = Style.from_dict(
    {
        "sql.keyword": "bold ansicyan",
        "sql.function": "ansiblue",
        "sql.string": "ansigreen",
        "sql.number": "ansimagenta",
        "sql.comment": "italic ansibrightblack",
    }
)
_CHARACTERS_MAX = 20_000
"""The longest text that is coloured: it is cut into tokens again at each key press, and inline data can be long."""


class SqlColours(Lexer):
    """The lexer that gives the prompt its styles; commands of the shell have none."""

    def __init__(self, keywords: Collection[str]) -> None:
        """`keywords` in capitals."""
        self._keywords = frozenset(keywords)

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """The pieces of each line."""
        pieces: StyleAndTextTuples = list(self.pieces(document.text))
        lines = list(split_lines(pieces))
        return lambda number: lines[number] if number < len(lines) else []

    def pieces(self, text: str) -> Iterator[tuple[str, str]]:
        """The whole text in pieces, in order, each with the name of its style or an empty one."""
        at = 0
        if len(text) <= _CHARACTERS_MAX and not text.lstrip().startswith("\\"):
            before: Token | None = None
            while True:
                try:
                    token = next_token(text, at, before)
                except MergelakeError:  # a string or a comment that is still open
                    yield from _between(text[at:], open_at_end=True)
                    return
                yield from _between(text[at : token.start])
                if token.kind == "end":
                    return
                yield self._style(token, text), text[token.start : token.end]
                before, at = token, token.end
        yield "", text

    def _style(self, token: Token, text: str) -> str:
        if token.kind in ("string", "number"):
            return f"class:sql.{token.kind}"
        if token.kind == "word" and token.upper in self._keywords:
            return "class:sql.keyword"
        return "class:sql.function" if token.kind == "word" and text.startswith("(", token.end) else ""


def _between(text: str, *, open_at_end: bool = False) -> Iterator[tuple[str, str]]:
    """Text between tokens: spaces and comments; with `open_at_end` a string or a comment that is not closed."""
    stripped = text.lstrip()
    spaces = text[: len(text) - len(stripped)]
    if spaces:
        yield "", spaces
    if stripped:
        is_string = open_at_end and not stripped.startswith("/*")
        yield "class:sql.string" if is_string else "class:sql.comment", stripped
