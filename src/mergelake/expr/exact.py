"""Constants as trees that bind to exactly the same value and type, in any context and time zone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mergelake.core.types import types as t
from mergelake.expr.bound import BoundLiteral, unbind
from mergelake.expr.nodes import Call, Literal, SyntaxNode


def exact_tree(value: Any, kind: t.DataType) -> SyntaxNode:
    """A storage value as a CAST to `kind`, without LowCardinality.

    Times are written as of UTC and cast to their zone: in other zones some local times come twice.
    """
    kind = _mapped(kind, lambda each: each.inner if isinstance(each, t.LowCardinality) else each)
    neutral = _mapped(kind, _of_utc)
    casted = _cast(_shown(value, neutral), neutral)
    return casted if neutral == kind else _cast(casted, kind)


def _cast(node: SyntaxNode, kind: t.DataType) -> SyntaxNode:
    return Call("CAST", (node, Literal(str(kind).encode(), t.STRING)))


def _shown(value: Any, kind: t.DataType) -> SyntaxNode:
    """A value as a literal, from which a cast makes it."""
    plain = t.inner_type(kind)
    if value is None:
        return Literal(None, t.Nullable(t.Nothing()))
    match plain:
        case t.Array(inner):
            return Call("array", tuple(_shown(item, inner) for item in value))
        case t.Tuple(elements):
            return Call("tuple", tuple(_shown(item, element) for item, element in zip(value, elements, strict=True)))
        case t.Map(key, item) if value:
            pairs = (_shown(part, side) for pair in value for part, side in zip(pair, (key, item), strict=True))
            return Call("map", tuple(pairs))
        case t.Map():
            return Call("array", ())
        case t.Int(bits) if bits > 64:
            return Literal(str(value).encode(), t.STRING)  # as a number it would be a Float64
    return unbind(BoundLiteral(value, plain))


def _of_utc(kind: t.DataType) -> t.DataType:
    return replace(kind, timezone="UTC") if isinstance(kind, t.DateTime | t.DateTime64) and kind.timezone else kind


def _mapped(kind: t.DataType, change: Callable[[t.DataType], t.DataType]) -> t.DataType:
    """A type with `change` applied to itself and to all types within it."""
    kind = change(kind)
    match kind:
        case t.Nullable(inner):
            return t.Nullable(_mapped(inner, change))
        case t.Array(inner):
            return t.Array(_mapped(inner, change))
        case t.Tuple(elements):
            return replace(kind, elements=tuple(_mapped(element, change) for element in elements))
        case t.Map(key, value):
            return t.Map(_mapped(key, change), _mapped(value, change))
    return kind
