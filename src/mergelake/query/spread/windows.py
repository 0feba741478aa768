"""The partition expressions of the windows of a scope. Pure."""

from __future__ import annotations

from mergelake.query.spread.cutting import ScopeText, shape
from mergelake.query.statement.parsed_select import Range

_AFTER_PARTITION = frozenset(("ORDER", "ROWS", "RANGE", "GROUPS"))


def common_partition(scope: ScopeText) -> list[Range]:
    """The expressions that are in the PARTITION BY of all windows; empty if there are none."""
    partitions = _partitions(scope)
    if not partitions or any(partition is None for partition in partitions):
        return []
    shapes = [{shape(scope.tokens[first:end]) for first, end in partition or ()} for partition in partitions]
    return [
        (first, end)
        for first, end in partitions[0] or ()
        if all(shape(scope.tokens[first:end]) in each for each in shapes)
    ]


def _partitions(scope: ScopeText) -> list[list[Range] | None]:
    """PARTITION BY of each window; None for a window without one."""
    out = [
        _partition(scope, at + 1)
        for at in scope.own(scope.scope.first, scope.scope.end)
        if scope.tokens[at].upper == "OVER" and scope.tokens[at + 1].text == "("
    ]
    named = scope.items(*scope.range("WINDOW"))
    for item in named:
        opens = item.end - item.first > 2 and scope.tokens[item.first + 1].upper == "AS"
        out.append(_partition(scope, item.first + 2) if opens else None)
    return out


def _partition(scope: ScopeText, opening: int) -> list[Range] | None:
    close = scope.closing(opening)
    if scope.tokens[opening + 1].upper != "PARTITION" or scope.tokens[opening + 2].upper != "BY":
        return None
    level = scope.parsed.level(opening + 1, close)
    end = next((at for at in level if scope.tokens[at].upper in _AFTER_PARTITION), close)
    return [item.range for item in scope.items(opening + 3, end)]
