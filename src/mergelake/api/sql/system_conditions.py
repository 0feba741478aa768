"""Conditions that spare requests: system tables open only the tables, and read only the log entries, that they leave.

ClickHouse filters the rows again, so a condition that is not understood here costs requests and no row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types import types as t
from mergelake.expr import bind, parse
from mergelake.expr.bound import (
    BoundCall,
    BoundColumn,
    BoundLiteral,
    BoundNode,
    EvaluationContext,
    columns_of,
    conjuncts,
)
from mergelake.scan.prune.constants import comparable

_NAMES: Mapping[str, t.DataType] = {"database": t.STRING, "table": t.STRING, "name": t.STRING}
_PLACES: Mapping[str, tuple[str, int]] = {
    "event_date": ("Date", 86_400_000_000),
    "event_time": ("DateTime", 1_000_000),
    "event_time_microseconds": ("DateTime64(6)", 1),
    "version": ("UInt64", 1000),
}
"""Columns that grow with the log: type, and how many thousandths of a millisecond (or of a version) its unit is."""
_AT_LEAST = ("equals", "greater", "greaterOrEquals")
_AT_MOST = ("equals", "less", "lessOrEquals")
_ANY_TIME_MS = 2_000_000_000_000
_NOW_MS = 60_000
"""By so much the time of the statement, which now() means, may differ from ours."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What conditions say about the rows of a system table."""

    names: tuple[BoundNode, ...] = ()
    """Conditions over the names of the database and the table alone."""
    since_ms: int = 0
    """Rows of earlier log entries are not wanted."""
    since_version: int = 0
    """Nor are those of lower versions."""

    def tables(self, names: Sequence[str]) -> list[str]:
        """Those of some names, as `database.table`, that the conditions leave."""
        databases, tables = (pa.array([name.split(".", 1)[at] for name in names], pa.large_binary()) for at in (0, 1))
        block = EvaluationContext.of_block(pa.table({"database": databases, "table": tables, "name": tables}), _NAMES)
        kept = np.ones(len(names), bool)
        for condition in self.names:
            kept &= block.mask(condition)
        return [name for name, keep in zip(names, kept, strict=True) if keep]


def is_understood(text: str, columns: Collection[str]) -> bool:
    """Whether a condition says something in `conditions_of`."""
    return conditions_of([text], columns, _ANY_TIME_MS) != Conditions()


def conditions_of(texts: Iterable[str], columns: Collection[str], now_ms: int) -> Conditions:
    """What conditions, all of which hold, say about rows with these columns."""
    names: list[BoundNode] = []
    bounds: dict[bool, int] = {False: 0, True: 0}
    for text in texts:
        # Where now() is in it, the lower bound of both times holds at any time between.
        early, late = (_conjuncts(text, columns, now_ms + by) for by in (-_NOW_MS, _NOW_MS))
        for pair in zip(early, late, strict=True) if len(early) == len(late) else ():
            node, found = pair[0], [_lower_bound(each) for each in pair]
            if set(columns_of(node)) <= _NAMES.keys() and columns_of(node) and not _may_raise(node):
                names.append(node)
            if found[0] is not None and found[1] is not None:
                place = found[0][0] == "version"
                bounds[place] = max(bounds[place], min(found[0][1], found[1][1]))
    return Conditions(tuple(names), bounds[False], bounds[True])


def _conjuncts(text: str, columns: Collection[str], now_ms: int) -> tuple[BoundNode, ...]:
    """The conjuncts of a condition; none if it is about other columns."""
    types: dict[str, t.DataType] = {}
    if "database" in columns:
        table = "table" if "table" in columns else "name"
        types = {"database": t.STRING, table: t.STRING}
    if {"version", "event_time"} <= set(columns):
        types |= {name: t.parse_type(kind) for name, (kind, _) in _PLACES.items()}
    try:
        return conjuncts(bind(parse(text), types, now_ms))
    except (MergelakeError, RecursionError):
        return ()


def _may_raise(node: BoundNode) -> bool:
    return isinstance(node, BoundCall) and node.can_raise


def _lower_bound(node: BoundNode) -> tuple[str, int] | None:
    """The column and the bound of `version >= 7`, `event_time > now() - 60`, …; times in milliseconds."""
    if not isinstance(node, BoundCall):
        return None
    match node.args:
        case (BoundColumn(name, kind), BoundLiteral() as literal) if node.function in _AT_LEAST and name in _PLACES:
            value = comparable(literal, kind)
        case (BoundLiteral() as literal, BoundColumn(name, kind)) if node.function in _AT_MOST and name in _PLACES:
            value = comparable(literal, kind)
        case _:
            return None
    return (name, value * _PLACES[name][1] // 1000) if isinstance(value, int) else None
