"""Whether a FROM can be evaluated on shares of one table, so that the union of the results is the result. Pure.

That table, the *spread* one, is in a chain of joins that treat each of its rows independently: on the left of INNER,
LEFT, SEMI, ANTI, CROSS, ASOF, on the right of INNER, RIGHT, CROSS; or in a subquery that filters and projects it.
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
"""Joins that treat each row on the left independently."""
_RIGHT_ALONE = (
    {"INNER"}, {"ALL"}, {"ALL", "INNER"}, {"RIGHT"}, {"ALL", "RIGHT"}, {"SEMI", "RIGHT"}, {"ANTI", "RIGHT"}, {"CROSS"},
    {","},
)  # fmt: skip
_IGNORED = frozenset(("GLOBAL", "LOCAL", "OUTER"))
_BY_BLOCK = words(
    "blocknumber blockserializedsize blocksize neighbor nowinblock rownumberinallblocks rownumberinblock",
    "runningaccumulate runningconcurrency runningdifference runningdifferencestartingwithfirstvalue",
)
"""Functions whose value depends on the block of rows."""


def table_to_spread(parsed: ParsedSelect, scope: Scope, rows: Mapping[TableReference, int]) -> TableReference | None:
    """The largest table in the FROM of a scope, or in a subquery there that only filters and projects."""
    best: TableReference | None = None
    for index, source in enumerate(scope.sources):
        candidate = source
        if source is None:
            inner = _subquery(parsed, scope, index)
            through = inner is not None and (is_windowed(parsed, inner) or not _not_row_wise(parsed, inner))
            candidate = table_to_spread(parsed, inner, rows) if inner is not None and through else None
        if candidate is not None and candidate in rows and (best is None or rows[candidate] > rows[best]):
            best = candidate
    return best


def path_to(parsed: ParsedSelect, scope: Scope, spread: TableReference) -> list[Scope]:
    """The scopes from `scope` down to the one that has the table in its FROM."""
    path: list[Scope] = []
    at: Scope | None = parsed.scope_of[spread]
    while at is not None and at is not scope:
        path.append(at)
        at = at.parent
    return [scope, *reversed(path)]


def why_not(parsed: ParsedSelect, scope: Scope, spread: TableReference) -> str:
    """Why the FROM of a scope cannot be evaluated on shares of the table; empty if it can."""
    path = path_to(parsed, scope, spread)
    for outer, inner in zip(path, [*path[1:], None], strict=True):
        if outer is not scope and (reason := _not_row_wise(parsed, outer)):
            return reason
        groups = _groups(parsed, outer)
        if groups is None:
            return "a table function or brackets stand in FROM"
        index = next(
            i
            for i, source in enumerate(outer.sources)
            if source is spread or (inner is not None and source is None and inner in groups[i])
        )
        if reason := _joins(outer, index):
            return reason
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
    """Why a subquery does not compute its rows independently, or from whole partitions; empty if it does."""
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
    """For each source the scopes of its subquery; None if a source is a table function, or brackets hold a join."""
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
        scopes = [s for s in inside if at < s.first < close]
        if not scopes:
            return None
        groups.append(scopes)
    if len(groups) != sum(source is None for source in scope.sources):
        return None
    left = iter(groups)
    return [[] if source is not None else next(left) for source in scope.sources]
