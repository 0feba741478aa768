"""Comparisons of a date's year or month with a number, as ranges of the date.

`toYear(x) = 2024` is equivalent to `x >= '2024-01-01' AND x < '2025-01-01'`, a range that indexes on x can use.

Source: ClickHouse, `OptimizeDateOrDateTimeConverterWithPreimageVisitor`.
"""

from __future__ import annotations

from mergelake.core.types import types as t
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode
from mergelake.expr.nodes import Call, ColumnRef, Literal as LiteralNode

TURNED = {
    "less": "greater",
    "greater": "less",
    "lessOrEquals": "greaterOrEquals",
    "greaterOrEquals": "lessOrEquals",
    "equals": "equals",
    "notEquals": "notEquals",
}
"""Comparison functions and their equivalents with exchanged operands."""


def preimage(node: BoundCall) -> BoundNode | None:
    """`toYear(x)` or `toYYYYMM(x)` compared with a number as comparisons of x; None for anything else."""
    if node.function not in TURNED or len(node.args) != 2:
        return None
    left, right = node.args
    function = node.function
    if isinstance(left, BoundLiteral):
        left, right, function = right, left, TURNED[function]
    if not isinstance(left, BoundCall) or left.function not in ("toYear", "toYYYYMM") or len(left.args) != 1:
        return None
    argument = left.args[0]
    inner = t.inner_type(argument.type)
    if not isinstance(right, BoundLiteral) or not isinstance(right.value, int) or not isinstance(right.type, t.Int):
        return None
    if not isinstance(inner, (t.Date, t.DateTime)) or isinstance(argument, BoundLiteral):
        return None
    year, month = (right.value, 1) if left.function == "toYear" else divmod(right.value, 100)
    if not 1970 <= year <= 2104 or not 1 <= month <= 12:
        return None
    after = (year + 1, 1) if left.function == "toYear" or month == 12 else (year, month + 1)
    first, end = _start(inner, year, month), _start(inner, *after)

    def compare(name: str, edge: str) -> Call:
        return Call(name, (ColumnRef("x"), LiteralNode(edge.encode(), t.STRING)))

    tree = {
        "equals": Call("and", (compare("greaterOrEquals", first), compare("less", end))),
        "notEquals": Call("or", (compare("less", first), compare("greaterOrEquals", end))),
        "less": compare("less", first),
        "lessOrEquals": compare("less", end),
        "greater": compare("greaterOrEquals", end),
        "greaterOrEquals": compare("greaterOrEquals", first),
    }[function]
    return _substitute(bind(tree, {"x": argument.type}), argument)


def _start(inner: t.DataType, year: int, month: int) -> str:
    text = f"{year:04d}-{month:02d}-01"
    return text if isinstance(inner, t.Date) else f"{text} 00:00:00"


def _substitute(node: BoundNode, argument: BoundNode) -> BoundNode:
    """`node` with its column replaced by `argument`; to be analyzed, not evaluated."""
    if isinstance(node, BoundCall):
        args = tuple(_substitute(arg, argument) for arg in node.args)
        return BoundCall(node.function, args, node.type, node.run)
    return node if isinstance(node, BoundLiteral) else argument
