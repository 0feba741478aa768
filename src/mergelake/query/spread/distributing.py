"""Whether the rows of a FROM are the union of what it gives for each share of one table. Pure.

That table, the *spread* one, stands first in a chain of joins that look at each of its rows alone (INNER, LEFT, SEMI,
ANTI, CROSS, ASOF), or on the right of one that keeps all of its rows; or in a subquery that filters and projects it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mergelake.query.spread.aggregates import find_calls
from mergelake.query.spread.cutting import ScopeText
from mergelake.query.spread.shuffling import BUCKET, is_windowed
from mergelake.query.statement.access import words
from mergelake.query.statement.parsed_select import ParsedSelect, Scope, TableReference
from mergelake.query.statement.rewrite import MARK

_LEFT_ALONE = (
    {"INNER"}, {"ALL"}, {"ALL", "INNER"}, {"LEFT"}, {"ALL", "LEFT"}, {"ANY", "LEFT"}, {"SEMI", "LEFT"},
    {"ANTI", "LEFT"}, {"CROSS"}, {","}, {"ASOF"}, {"ASOF", "INNER"}, {"ASOF", "LEFT"}, {"SEMI"}, {"ANTI"},
)  # fmt: skip
"""Joins that look at each row on the left by itself."""
_RIGHT_ALONE = (
    {"INNER"}, {"ALL"}, {"ALL", "INNER"}, {"RIGHT"}, {"ALL", "RIGHT"}, {"SEMI", "RIGHT"}, {"ANTI", "RIGHT"}, {"CROSS"},
    {","},
)  # fmt: skip
_IGNORED = frozenset(("GLOBAL", "LOCAL", "OUTER"))
_BY_BLOCK = words(
    "blocknumber blockserializedsize blocksize neighbor nowinblock rownumberinallblocks rownumberinblock",
    "runningaccumulate runningconcurrency runningdifference runningdifferencestartingwithfirstvalue",
)
"""Functions whose value depends on which rows come together."""


def table_to_spread(parsed: ParsedSelect, scope: Scope, rows: Mapping[TableReference, int]) -> TableReference | None:
    """The largest table that stands in its FROM, or in a subquery there that only filters and projects."""
    best: TableReference | None = None
    for index, source in enumerate(scope.sources):
        found = source
        if source is None:
            inner = _subquery(parsed, scope, index)
            through = inner is not None and (is_windowed(parsed, inner) or not _not_row_wise(parsed, inner))
            found = table_to_spread(parsed, inner, rows) if inner is not None and through else None
        if found is not None and found in rows and (best is None or rows[found] > rows[best]):
            best = found
    return best


def path_to(parsed: ParsedSelect, scope: Scope, spread: TableReference) -> list[Scope]:
    """The scopes from `scope` down to the one that names the table."""
    found: list[Scope] = []
    at: Scope | None = parsed.scope_of[spread]
    while at is not None and at is not scope:
        found.append(at)
        at = at.parent
    return [scope, *reversed(found)]


def why_not(parsed: ParsedSelect, scope: Scope, spread: TableReference) -> str:
    """Why the FROM of a scope is not the union over shares of the table; empty if it is."""
    path = path_to(parsed, scope, spread)
    for outer, inner in zip(path, [*path[1:], None], strict=True):
        if outer is not scope and (told := _not_row_wise(parsed, outer)):
            return told
        groups = _groups(parsed, outer)
        if groups is None:
            return "a table function or brackets stand in FROM"
        index = next(
            i
            for i, source in enumerate(outer.sources)
            if source is spread or (inner is not None and source is None and inner in groups[i])
        )
        if told := _joins(outer, index):
            return told
    by_block = sorted({token.text.lower() for token in parsed.tokens if token.kind == "word"} & _BY_BLOCK)
    return f"{by_block[0]} depends on which rows come together" if by_block else ""


def _joins(scope: Scope, index: int) -> str:
    for at, join in enumerate(scope.joins):
        kind = set(join.split()) - _IGNORED
        if at == index and at and kind not in _RIGHT_ALONE:
            return f"{join} JOIN looks at all rows of the larger table, on its right"
        if at > index and kind not in _LEFT_ALONE:
            return f"{join} JOIN looks at all rows of the larger table, on its left"
    return ""


def _not_row_wise(parsed: ParsedSelect, scope: Scope) -> str:
    """Why what a subquery gives is not computed from each row alone, or from whole partitions; empty if it is."""
    text = ScopeText(parsed, scope)
    known = {"WITH", "SELECT", "FROM", "WHERE", "PREWHERE"}
    windows = any(source is not None and source.name.strip(MARK) == BUCKET for source in scope.sources)
    extra = sorted(scope.clauses.keys() - known - ({"WINDOW", "QUALIFY"} if windows else set()))
    if extra or scope.in_set_operation or text.distinct or text.picks or ("OVER" in text.words and not windows):
        return f"a subquery has {extra[0] if extra else 'DISTINCT, UNION or a window'}"
    calls = find_calls(parsed, *text.range("SELECT"), text.inner)
    return "a subquery has aggregates" if calls else ""


def _subquery(parsed: ParsedSelect, scope: Scope, index: int) -> Scope | None:
    groups = _groups(parsed, scope)
    return groups[index][0] if groups is not None and len(groups[index]) == 1 else None


def _groups(parsed: ParsedSelect, scope: Scope) -> list[list[Scope]] | None:
    """For each source the scopes of its subquery; None where a source is something else, or brackets hold a join."""
    first, end = scope.clauses["FROM"]
    inside = [s for s in parsed.scopes if s.parent is scope and s.role == "from" and first <= s.first < end]
    text = ScopeText(parsed, scope)
    top = [
        at
        for at in parsed.level(first, end)
        if parsed.tokens[at].upper == "(" and (at == first or parsed.tokens[at - 1].upper in ("JOIN", ","))
    ]
    groups: list[list[Scope]] = []
    for at in top:
        close = text.closing(at)
        found = [s for s in inside if at < s.first < close]
        if not found:
            return None
        groups.append(found)
    if len(groups) != sum(source is None for source in scope.sources):
        return None
    left = iter(groups)
    return [[] if source is not None else next(left) for source in scope.sources]
