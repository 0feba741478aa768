"""Parameters in a text: `{name:Type}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from mergelake.core.base.lexer import tokenize
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.types.types import Map, parse_type
from mergelake.query.embedded import engine

_WITH_QUOTES = ("Array(", "Map(", "Tuple(")
"""Beginnings of types whose texts have quotes, in which escapes stand already."""
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n"})
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


def literal(text: str | None, kind: str, name: str) -> str:
    """The value of a parameter, as text or NULL, as SQL of the type `kind`; `Identifier` is a quoted name.

    The errors are ClickHouse's for such a value of a query parameter: BAD_QUERY_PARAMETER, CANNOT_PARSE_DATE, ….
    """
    if kind == "Identifier":
        return back_quote(text or "")
    if text is None or kind == "String" or not engine.available():
        return cast(text, kind)
    entries = _entries(text, kind, name)
    return cast(text, kind) if entries is None else f"CAST({entries}, {quote_string(kind)})"


def cast(text: str | None, kind: str) -> str:
    """A value, as text or NULL, as SQL: whatever a CAST makes of it."""
    return f"CAST({'NULL' if text is None else quote_string(text)}, {quote_string(kind)})"


@lru_cache(maxsize=1024)
def _entries(text: str, kind: str, name: str) -> str | None:
    """The keys and the values of a Map, of which CAST takes no text; None for any other type. See `literal`."""
    value = f"{{{name}:{kind}}}"
    is_map = kind.startswith("Map(")
    if not kind.startswith(_WITH_QUOTES):
        text = text.translate(_ESCAPED)
    columns = f"toString(mapKeys({value})) AS k, toString(mapValues({value})) AS v" if is_map else value
    found = engine.run(f"SELECT {columns}", settings={f"param_{name}": quote_string(text)}).table()
    if not is_map:
        return None
    data_type = parse_type(kind)
    assert isinstance(data_type, Map)
    keys, values = (quote_string(found[name][0].as_py()) for name in "kv")
    of_keys, of_values = (quote_string(f"Array({inner})") for inner in (data_type.key, data_type.value))
    return f"(CAST({keys}, {of_keys}), CAST({values}, {of_values}))"
