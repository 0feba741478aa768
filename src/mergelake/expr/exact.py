"""Constants as trees that bind to exactly the same value and type, in any context and time zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mergelake.core import types as t
from mergelake.expr.bound import BoundLiteral, unbind
from mergelake.expr.nodes import Call, Literal, SyntaxNode


def exact_tree(value: Any, kind: t.DataType) -> SyntaxNode:
    """A storage value as a tree of type `kind`, without its LowCardinality: a CAST, or a tuple of them."""
    plain = t.inner_type(kind)
    if isinstance(plain, t.Tuple) and value is not None:
        return Call("tuple", tuple(exact_tree(v, e) for v, e in zip(value, plain.elements, strict=True)))
    if isinstance(plain, t.Array) and value is not None:
        return exact_array(value, plain.inner)
    return _cast(value, t.Nullable(plain) if t.is_nullable(kind) else plain)


def exact_array(values: Sequence[Any], kind: t.DataType) -> SyntaxNode:
    """Storage values of type `kind` as an array of that type."""
    plain = t.inner_type(kind)
    if values and isinstance(plain, t.Tuple):
        return Call("array", tuple(exact_tree(value, plain) for value in values))
    return _cast(list(values), t.Array(t.Nullable(plain) if t.is_nullable(kind) else plain))


def _cast(value: Any, kind: t.DataType) -> SyntaxNode:
    """Times are written as of UTC: in other zones some local times come twice."""
    neutral = _of_utc(kind)
    casted = Call("CAST", (_shown(value, neutral), Literal(str(neutral).encode(), t.STRING)))
    return casted if neutral == kind else Call("CAST", (casted, Literal(str(kind).encode(), t.STRING)))


def _shown(value: Any, kind: t.DataType) -> SyntaxNode:
    plain = t.inner_type(kind)
    if isinstance(value, list) and isinstance(plain, t.Array):
        return Call("array", tuple(_shown(item, plain.inner) for item in value))
    if isinstance(plain, t.Int) and plain.bits > 64 and value is not None:
        return Literal(str(value).encode(), t.STRING)  # as a number it would be a Float64
    return unbind(BoundLiteral(value, kind))


def _of_utc(kind: t.DataType) -> t.DataType:
    match kind:
        case t.DateTime(zone) | t.DateTime64(_, zone) if zone:
            return replace(kind, timezone="UTC")
        case t.Nullable(inner):
            return t.Nullable(_of_utc(inner))
        case t.Array(inner):
            return t.Array(_of_utc(inner))
    return kind
