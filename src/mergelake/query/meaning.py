"""What settings and clauses mean for the tables of a statement: what would change their rows is refused.

ClickHouse gets the rewritten statement with its settings, so most of them simply work; `settings` says of each what
becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mergelake.core.errors import error
from mergelake.query.outline import Occurrence, Outline
from mergelake.query.settings import refuse_meaningless


def statement_settings(plan: Outline) -> dict[str, str]:
    """The SETTINGS of the statement and its subqueries: name -> literal. A name alone means 1."""
    out = {}
    for first, end in settings_clauses(plan):
        for begin, stop in _items(plan, first, end):
            if stop - begin > 1 and plan.tokens[begin + 1].text == "=":
                out[plan.tokens[begin].name] = plan.slice(begin + 2, stop)
            else:
                out[plan.tokens[begin].name] = "1"
    return out


def settings_clauses(plan: Outline) -> list[tuple[int, int]]:
    """The tokens of every SETTINGS, keyword left out."""
    inside = [scope.clauses["SETTINGS"] for scope in plan.scopes if "SETTINGS" in scope.clauses]
    return [*inside, *plan.loose_settings]


def _items(plan: Outline, first: int, end: int) -> Iterator[tuple[int, int]]:
    depth, begin = 0, first
    for at in range(first, end):
        token = plan.tokens[at]
        if token.kind == "sign":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            if token.text == "," and depth == 0:
                yield begin, at
                begin = at + 1
    if begin < end:
        yield begin, end


def check_meaning(plan: Outline, ours: Iterable[Occurrence]) -> None:
    """NOT_IMPLEMENTED for what would change the rows that our tables give, `ours` being where they are named."""
    refuse_meaningless(statement_settings(plan), carrier=plan.format.startswith("Arrow"))
    for occurrence in ours:
        if occurrence.final and "PREWHERE" in plan.scope_of[id(occurrence)].clauses:
            raise error(
                "NOT_IMPLEMENTED",
                "PREWHERE with FINAL, which filters before rows are replaced, is not supported",
                "Write WHERE, which filters afterwards",
            )
