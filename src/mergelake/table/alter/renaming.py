"""A column's new name in the expressions of a table's definition. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mergelake.core.schema import TableSchema
from mergelake.expr.nodes import Call, ColumnRef, SyntaxNode
from mergelake.expr.parser import parse
from mergelake.order.ttl_text import parse_ttl


def renamed_text(text: str, name: str, new_name: str, columns: Mapping[str, object]) -> str:
    """An expression over `columns` with one column renamed; the same text if it does not refer to it.

    A subcolumn (`name.size0`) follows its column, unless it is a column of its own.
    """
    tree = parse(text)
    new = _renamed(tree, name, new_name, columns)
    return text if new == tree else str(new)


def with_new_name(schema: TableSchema, name: str, new_name: str) -> TableSchema:
    """The schema with one column renamed, in all of its expressions too."""

    def text(expression: str) -> str:
        return renamed_text(expression, name, new_name, schema.types) if expression else ""

    columns = tuple(
        replace(column, name=new_name if column.name == name else column.name, default=text(column.default),
                ttl=text(column.ttl))
        for column in schema.columns
    )  # fmt: skip
    return replace(
        schema,
        columns=columns,
        ttl=tuple(str(element.renamed(text, name, new_name)) for each in schema.ttl for element in parse_ttl(each)),
        indices=tuple(replace(index, expression=text(index.expression)) for index in schema.indices),
        constraints=tuple(replace(each, expression=text(each.expression)) for each in schema.constraints),
    )


def _renamed(node: SyntaxNode, name: str, new_name: str, columns: Mapping[str, object]) -> SyntaxNode:
    if isinstance(node, Call):
        return Call(node.function, tuple(_renamed(arg, name, new_name, columns) for arg in node.args))
    if isinstance(node, ColumnRef) and refers_to(node.name, name, columns):
        return ColumnRef(new_name + node.name[len(name) :])
    return node


def refers_to(mentioned: str, name: str, columns: Mapping[str, object]) -> bool:
    """Whether a name in an expression is the column `name`, or a subcolumn of it."""
    return mentioned == name or (mentioned.startswith(f"{name}.") and mentioned not in columns)
