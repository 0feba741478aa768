"""Edits of a text."""

from __future__ import annotations

from collections.abc import Iterable

Edit = tuple[int, int, str]
"""First character, one past the last, and the text in their place."""


def applied(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits that do not overlap."""
    out: list[str] = []
    at = 0
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], edit[1])):
        out += [text[at:start], new]
        at = end
    return "".join([*out, text[at:]])
