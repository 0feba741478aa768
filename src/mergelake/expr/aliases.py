"""ALIAS columns: replaced in an expression by their own expressions over stored columns."""

from __future__ import annotations

from mergelake.core.base.errors import error
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode
from mergelake.expr.parser import parse


def expand_aliases(node: SyntaxNode, schema: TableSchema) -> SyntaxNode:
    """`node` with each ALIAS column replaced by its expression. Raises CYCLIC_ALIASES if one refers to itself."""
    return _expanded(node, schema, ())


def alias_expression(name: str, schema: TableSchema) -> SyntaxNode:
    """The expression of an ALIAS column over stored columns, cast to the column's type."""
    return _expression(name, schema, ())


def _expanded(node: SyntaxNode, schema: TableSchema, within: tuple[str, ...]) -> SyntaxNode:
    if isinstance(node, Call):
        return Call(node.function, tuple(_expanded(arg, schema, within) for arg in node.args))
    if isinstance(node, ColumnRef) and schema.has(node.name) and schema.column(node.name).default_kind == "ALIAS":
        return _expression(node.name, schema, within)
    return node


def _expression(name: str, schema: TableSchema, within: tuple[str, ...]) -> SyntaxNode:
    if name in within:
        path = " -> ".join((*within[within.index(name) :], name))
        raise error("CYCLIC_ALIASES", f"Cyclic alias detected in column DEFAULT expressions: {path}")
    column = schema.column(name)
    inner = _expanded(parse(column.default), schema, (*within, name))
    return Call("CAST", (inner, Literal(str(column.type).encode(), t.STRING)))
