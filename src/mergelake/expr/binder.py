"""Binding: the syntax tree becomes the typed tree; names are looked up, types decided, constants folded."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from mergelake.core.base.errors import MergelakeError, error, there_are
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundCall, BoundColumn, BoundLiteral, BoundNode
from mergelake.expr.evaluate import evaluate_constant, propagating
from mergelake.expr.functions.subcolumns import find_subcolumn
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode
from mergelake.expr.registry import BindingEnvironment, Operand, Seed, find_function

_NULL = t.Nullable(t.Nothing())
_OPAQUE = (t.Variant, t.Dynamic, t.Json, t.AggregateFunction)
"""Types whose values expressions cannot look at, not even for NULL; CAST takes them to their own type."""
_OF_CONTAINERS = ("arrayElement", "empty", "length", "mapKeys", "notEmpty", "tupleElement")
"""Functions of containers that do not look at the values inside."""


def bind(
    node: SyntaxNode, columns: Mapping[str, t.DataType], now_ms: int | None = None, seed: Seed | None = None
) -> BoundNode:
    """`node` bound to a block with these columns.

    Raises UNKNOWN_IDENTIFIER, UNKNOWN_FUNCTION, ILLEGAL_TYPE_OF_ARGUMENT and what folding constants raises.
    """
    return _Binder(columns, now_ms, seed).bind(node)


class _Binder:
    def __init__(self, columns: Mapping[str, t.DataType], now_ms: int | None, seed: Seed | None) -> None:
        self._columns = columns
        self._environment = BindingEnvironment(self.call, now_ms, seed)

    def bind(self, node: SyntaxNode) -> BoundNode:
        match node:
            case Literal(value, data_type):
                return BoundLiteral(list(value) if isinstance(value, tuple) else value, data_type)
            case ColumnRef(name):
                return self._column(name)
            case Call(function, args):
                return self.call(function, tuple(self.bind(arg) for arg in args))

    def _column(self, name: str) -> BoundNode:
        if name in self._columns:
            return BoundColumn(name, self._columns[name])
        subcolumn = find_subcolumn(name, self._columns, self.call)
        if subcolumn is not None:
            return subcolumn
        near = difflib.get_close_matches(name, list(self._columns), n=3)
        hint = f"Maybe you meant: {', '.join(near)}" if near else there_are("columns", self._columns)
        raise error("UNKNOWN_IDENTIFIER", f"Unknown expression identifier {name}", hint)

    def call(self, name: str, args: tuple[BoundNode, ...]) -> BoundNode:
        """The function called `name` on bound arguments, folded if all are constant."""
        entry = find_function(name)
        least, most = entry.arguments
        if not least <= len(args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}" if most < 1000 else f"at least {least}"
            raise error(
                "NUMBER_OF_ARGUMENTS_DOESNT_MATCH",
                f"Number of arguments for function {entry.name} doesn't match: passed {len(args)}, should be {wanted}",
            )
        opaque = [arg.type for arg in args if t.holds(arg.type, *_OPAQUE)]
        for kind in opaque if entry.name != "CAST" else ():
            if isinstance(kind, _OPAQUE) or entry.name not in _OF_CONTAINERS:
                raise _not_supported(kind)
        if entry.propagates and any(arg.type == _NULL for arg in args):
            return BoundLiteral(None, _NULL)
        rule_args = tuple(Operand(t.inner_type(arg.type), arg) for arg in args) if entry.propagates else args
        resolved = entry.rule(rule_args, self._environment)
        if resolved.node is not None:
            return resolved.node
        if opaque and entry.name == "CAST":
            raise _not_supported(opaque[0])
        args = resolved.args if resolved.args is not None else args
        can_raise = resolved.can_raise or any(isinstance(arg, BoundCall) and arg.can_raise for arg in args)
        cost = resolved.cost + sum(arg.cost for arg in args if isinstance(arg, BoundCall))
        result = resolved.type
        run = resolved.run
        if run is None:
            if any(t.is_nullable(arg.type) for arg in args) and not isinstance(result, (t.Nullable, t.Array, t.Tuple)):
                result = t.Nullable(result)
            if resolved.kernel is None:
                raise AssertionError(entry.name)
            run = propagating(resolved.kernel, args, can_raise=resolved.can_raise)
        bound = BoundCall(entry.name, args, result, run, can_raise, cost)
        if not resolved.varies and all(isinstance(arg, BoundLiteral) for arg in args):
            return evaluate_constant(bound)
        return bound


def _not_supported(kind: t.DataType) -> MergelakeError:
    message = f"Values of type {kind} are not supported in expressions here"
    return error("NOT_IMPLEMENTED", message, "Keep what is needed of it in a column of its own")
