"""The order in which conditions are evaluated, so that few bytes are read for rows that do not match.

All conjuncts of WHERE are evaluated before other columns are read. As in ClickHouse, conditions of PREWHERE come first,
then equalities, then conditions on leading key columns, then those on columns with the least bytes. A condition whose
columns were read by an earlier step joins that step. Conditions that can raise an error on some value (division,
parsing) run last, in the order in which they were written, so that reordering never makes a query fail.

Source: ClickHouse, `MergeTreeWhereOptimizer.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode, columns_of


@dataclass(frozen=True, slots=True)
class FilterStep:
    """Conditions to evaluate together, after reading `columns`."""

    conditions: tuple[BoundNode, ...]
    columns: tuple[str, ...]
    """Columns that no earlier step reads."""


def filter_steps(
    prewhere: Sequence[BoundNode],
    where: Sequence[BoundNode],
    sizes: Mapping[str, int],
    key_columns: Sequence[str],
) -> tuple[FilterStep, ...]:
    """Steps in the order in which to run them; `sizes` are bytes of the columns, `key_columns` in key order."""

    def rank(place: int, node: BoundNode) -> tuple[int, int, int, int, int, int, int]:
        columns = columns_of(node)
        position = min((key_columns.index(c) for c in columns if c in key_columns), default=len(key_columns))
        if isinstance(node, BoundCall) and node.can_raise:
            return 1, 0, 0, 0, 0, 0, place
        cost = node.cost if isinstance(node, BoundCall) else 0
        first = 0 if place < len(prewhere) else 1
        return 0, first, int(not _is_selective(node)), position, sum(sizes.get(c, 0) for c in columns), cost, place

    everything = (*prewhere, *where)
    order = sorted(range(len(everything)), key=lambda i: rank(i, everything[i]))
    steps: list[FilterStep] = []
    seen: set[str] = set()
    for i in order:
        node = everything[i]
        new = tuple(c for c in columns_of(node) if c not in seen)
        seen.update(new)
        if steps and not new:
            steps[-1] = FilterStep((*steps[-1].conditions, node), steps[-1].columns)
        else:
            steps.append(FilterStep((node,), new))
    return tuple(steps)


def _is_selective(node: BoundNode) -> bool:
    """ClickHouse's "good" condition: an equality with a constant, or IN."""
    if not isinstance(node, BoundCall) or len(node.args) != 2:
        return False
    return node.function in ("equals", "in") and any(isinstance(arg, BoundLiteral) for arg in node.args)
