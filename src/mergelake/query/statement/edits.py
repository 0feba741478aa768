"""Edits of a text, and those that several rewritings of a statement make."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mergelake.query.statement.parsed_select import ParsedSelect

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


def qualifier_edits(parsed: ParsedSelect, tables: Collection[tuple[str, str]]) -> list[Edit]:
    """Remove the database from `db.table.column`, because a subquery in the place of one of `tables` has none."""
    tokens, edits = parsed.tokens, []
    for at in range(len(tokens) - 4) if tables else ():
        dots = tokens[at + 1].text == "." and tokens[at + 3].text == "." and (at == 0 or tokens[at - 1].text != ".")
        if dots and (tokens[at].name, tokens[at + 2].name) in tables:
            edits.append((tokens[at].start, tokens[at + 2].start, ""))
    return edits
