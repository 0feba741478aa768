"""Conditions that no row can meet, seen without looking at any index.

`x > 8 AND x < 3`, `k < -1` for an unsigned k, `k IN (2.5)` for an integer k: ClickHouse's analyzer replaces these
by 0 (or their opposites by 1), so scans of them read nothing and EXPLAIN says so.

Source: ClickHouse, `ComparisonTupleEliminationPass`, `LogicalExpressionOptimizerPass` (redundant comparisons).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mergelake.core import types as t
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode
from mergelake.expr.membership import convert_member
from mergelake.scan.ordered import Value, is_native_integer

TURNED = {
    "less": "greater",
    "greater": "less",
    "lessOrEquals": "greaterOrEquals",
    "greaterOrEquals": "lessOrEquals",
    "equals": "equals",
    "notEquals": "notEquals",
}
"""Comparisons and what they are with their sides exchanged."""


def comparison(node: BoundNode) -> tuple[str, BoundNode, BoundLiteral] | None:
    """(function, what varies, constant) of a comparison with a constant, the constant on the right."""
    if not isinstance(node, BoundCall) or node.function not in TURNED or len(node.args) != 2:
        return None
    left, right = node.args
    if isinstance(right, BoundLiteral):
        return (node.function, left, right) if not isinstance(left, BoundLiteral) else None
    return (TURNED[node.function], right, left) if isinstance(left, BoundLiteral) else None


def always(node: BoundNode) -> bool | None:
    """What a comparison comes to for every row, if it is the same; NULL-able columns are left alone."""
    found = comparison(node)
    if found is not None:
        function, varying, constant = found
        inner, value = varying.type, constant.value
        if isinstance(inner, t.LowCardinality):
            inner = inner.inner
        if not isinstance(inner, t.Int) or not isinstance(value, (int, float)) or value != value:
            return None
        if function in ("equals", "notEquals"):
            whole = value in (float("inf"), float("-inf")) or value != int(value)
            return (function == "notEquals") if whole else None
        low = -(1 << (inner.bits - 1)) if inner.signed else 0
        if low <= value < low + (1 << inner.bits):
            return None
        return function.startswith("less") == (value > 0)
    if isinstance(node, BoundCall) and node.function in ("in", "notIn") and isinstance(node.args[1], BoundLiteral):
        left, right = node.args
        kind = t.inner_type(left.type)
        members = right.value if isinstance(right.value, (list, tuple)) else None
        inner = t.inner_type(right.type)
        if members is None or isinstance(kind, t.Tuple) or not isinstance(inner, (t.Tuple, t.Array)):
            return None
        types = inner.elements if isinstance(inner, t.Tuple) else [inner.inner] * len(members)
        if t.is_nullable(left.type) and node.function == "notIn":
            return None
        if all(convert_member(value, own, kind) is None for value, own in zip(members, types, strict=True)):
            return node.function == "notIn"
    return None


def contradict(
    conditions: Sequence[BoundNode], comparable: Callable[[BoundLiteral, t.DataType], Value | None]
) -> bool:
    """Whether no row can meet all of `conditions`, by the comparisons with constants among them."""
    limits: dict[str, tuple[Any, bool, Any, bool]] = {}
    for node in conditions:
        found = comparison(node)
        if found is None or found[0] == "notEquals":
            continue
        function, varying, constant = found
        value: Any = constant.value
        if not (is_native_integer(varying.type) and isinstance(value, (int, float)) and isinstance(constant.type, (t.Int, t.Float))):
            value = comparable(constant, varying.type)
        if value is None or value != value:
            continue
        low, low_open, high, high_open = limits.get(str(varying), (None, False, None, False))
        if function in ("equals", "greater", "greaterOrEquals"):
            is_open = function == "greater"
            if low is None or value > low or (value == low and is_open):
                low, low_open = value, is_open
        if function in ("equals", "less", "lessOrEquals"):
            is_open = function == "less"
            if high is None or value < high or (value == high and is_open):
                high, high_open = value, is_open
        if low is not None and high is not None and (low > high or (low == high and (low_open or high_open))):
            return True
        limits[str(varying)] = (low, low_open, high, high_open)
    return False
