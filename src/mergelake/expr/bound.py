"""The typed tree: what `bind` makes of a parsed expression, and what scan and mutate walk.

`BoundLiteral | BoundColumn | BoundCall`, each with its ClickHouse `type`. Functions have their canonical
ClickHouse names (`equals`, `toYYYYMM`); constants are folded, and a string literal compared with a date, an
enum, a UUID … already is a literal of that type in storage form (`ts >= '2026-01-01'` holds the UInt32).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mergelake.core.types import types as t
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode

if TYPE_CHECKING:
    from mergelake.expr.evaluate import EvaluationContext
    from mergelake.expr.values import Vec


@dataclass(frozen=True, slots=True)
class BoundLiteral:
    """A constant: a storage value (int, float, bytes, None, list for Array, tuple for Tuple) and its type."""

    value: Any
    type: t.DataType

    def __str__(self) -> str:
        return str(unbind(self))


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column of the block."""

    name: str
    type: t.DataType

    def __str__(self) -> str:
        return str(unbind(self))


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A function by its canonical name, applied to `args`."""

    function: str
    args: tuple[BoundNode, ...]
    type: t.DataType
    run: Callable[[EvaluationContext], Vec] = field(compare=False, repr=False)
    """Evaluates the call on a block; made by `bind`."""
    can_raise: bool = field(default=False, compare=False, repr=False)
    """Whether a row's value can make it raise (division by zero, text that does not parse), arguments included."""
    cost: int = field(default=1, compare=False, repr=False)
    """Rough nanoseconds per row, arguments included."""

    def __str__(self) -> str:
        return str(unbind(self))


BoundNode = BoundLiteral | BoundColumn | BoundCall


def walk(node: BoundNode) -> Iterator[BoundNode]:
    """`node` and all below it, parents first."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        if isinstance(current, BoundCall):
            waiting += reversed(current.args)


def columns_of(node: BoundNode) -> tuple[str, ...]:
    """Names of the columns that `node` reads, each once, in order of appearance."""
    return tuple(dict.fromkeys(n.name for n in walk(node) if isinstance(n, BoundColumn)))


def conjuncts(node: BoundNode) -> tuple[BoundNode, ...]:
    """The conditions that all must hold: `a AND (b AND c)` gives a, b, c; anything else is one condition."""
    if isinstance(node, BoundCall) and node.function == "and":
        return tuple(piece for arg in node.args for piece in conjuncts(arg))
    return (node,)


def unbind(node: BoundNode) -> SyntaxNode:
    """The syntax tree that binds to `node`; its text can be read by people and by ClickHouse."""
    from mergelake.core.convert.text_write import literal_text

    match node:
        case BoundColumn(name):
            return ColumnRef(name)
        case BoundCall(function, args):
            return Call(function, tuple(unbind(arg) for arg in args))
        case BoundLiteral(value, data_type):
            plain = t.inner_type(data_type)
            if value is None:
                return Literal(None, t.Nullable(t.Nothing()))
            if isinstance(plain, t.Tuple):
                pairs = zip(value, plain.elements, strict=True)
                return Call("tuple", tuple(unbind(BoundLiteral(v, e)) for v, e in pairs))
            if isinstance(plain, t.Array):
                return Call("array", tuple(unbind(BoundLiteral(v, plain.inner)) for v in value))
            if isinstance(plain, t.Interval):
                return Call(f"toInterval{plain.unit}", (Literal(value, t.Int(64, signed=True)),))
            if isinstance(plain, (t.Int, t.Float, t.Bool, t.String, t.FixedString)):
                return Literal(value, plain)
            return Literal(literal_text(value, plain).encode(), t.STRING)


def unbind_typed(literal: BoundLiteral) -> SyntaxNode:
    """As `unbind`, but the tree binds to a literal of the same plain type in any context."""
    plain, value = t.inner_type(literal.type), literal.value
    if value is not None and isinstance(plain, t.Tuple):
        pairs = zip(value, plain.elements, strict=True)
        return Call("tuple", tuple(unbind_typed(BoundLiteral(v, e)) for v, e in pairs))
    if value is not None and isinstance(plain, t.Array):
        return Call("array", tuple(unbind_typed(BoundLiteral(v, plain.inner)) for v in value))
    shown = unbind(literal)
    if value is None or not isinstance(shown, Literal) or shown.type == plain:
        return shown
    return Call("CAST", (shown, Literal(str(plain).encode(), t.STRING)))
