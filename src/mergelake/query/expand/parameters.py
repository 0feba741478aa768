"""Parameters in a text: `{name:Type}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mergelake.core.lexer import tokenize
from mergelake.core.text import back_quote, quote_string

_PARAMETER = re.compile(r"\{\s*([A-Za-z_]\w*)\s*:\s*([^{}]+?)\s*\}")


def _places(text: str) -> Iterator[re.Match[str]]:
    skip = 0
    for token in tokenize(text) if "{" in text else ():
        if token.start < skip or token.text != "{" or token.kind != "sign":
            continue
        match = _PARAMETER.match(text, token.start)
        if match is not None:
            skip = match.end()
            yield match


def parameters(text: str) -> dict[str, str]:
    """The types of the parameters of a text, by name."""
    return {match.group(1): match.group(2) for match in _places(text)}


def filled_in(text: str, value: Callable[[str, str], str]) -> str:
    """A text with `value(name, type)` in place of each of its parameters."""
    out, at = [], 0
    for match in _places(text):
        out += [text[at : match.start()], value(match.group(1), match.group(2))]
        at = match.end()
    return "".join([*out, text[at:]])


def literal(text: str | None, kind: str) -> str:
    """A value, as text or NULL, as SQL of the type `kind`; `Identifier` is a quoted name."""
    if kind == "Identifier":
        return back_quote(text or "")
    return f"CAST({'NULL' if text is None else quote_string(text)}, {quote_string(kind)})"
