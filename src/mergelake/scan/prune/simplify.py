"""Conditions that are constant for every row are replaced by 0 or 1 before indexes are used.

`k IN (2.5)` cannot match an integer k: as in ClickHouse's analyzer it is 0, an AND with it is 0, and so on. The result
is analyzed, not evaluated.
"""

from __future__ import annotations

from mergelake.core.types import types as t
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode
from mergelake.expr.functions.membership import convert_member


def simplify(node: BoundNode) -> BoundNode:
    """`node` with constant conditions folded."""
    if not isinstance(node, BoundCall):
        return node
    if node.function in ("in", "notIn") and _matches_nothing(node):
        return _constant(node.function == "notIn")
    if node.function not in ("and", "or", "not"):
        return node
    args = [simplify(arg) for arg in node.args]
    if node.function == "not":
        known = _known(args[0])
        return BoundCall("not", tuple(args), node.type, node.run) if known is None else _constant(not known)
    final = node.function == "or"
    if any(_known(arg) is final for arg in args):
        return _constant(final)
    if all(_known(arg) is not None for arg in args):
        return _constant(not final)
    return BoundCall(node.function, tuple(args), node.type, node.run)


def _constant(value: bool) -> BoundLiteral:
    return BoundLiteral(int(value), t.UINT8)


def _known(node: BoundNode) -> bool | None:
    if not isinstance(node, BoundLiteral) or not isinstance(node.value, (int, float, type(None))):
        return None
    return bool(node.value)


def _matches_nothing(node: BoundCall) -> bool:
    left, right = node.args
    kind, inner = t.inner_type(left.type), t.inner_type(right.type)
    if not isinstance(right, BoundLiteral) or isinstance(kind, t.Tuple) or not isinstance(inner, (t.Tuple, t.Array)):
        return False
    if t.is_nullable(left.type):  # for NULL it is NULL, not 0
        return False
    members = right.value
    types = inner.elements if isinstance(inner, t.Tuple) else [inner.inner] * len(members)
    return all(convert_member(value, own, kind) is None for value, own in zip(members, types, strict=True))
