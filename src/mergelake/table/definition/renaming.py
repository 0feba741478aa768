"""A column's new name in the expressions of a table's definition. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from mergelake.core.model.schema import TableSchema
from mergelake.engines.ttl.ttl_text import parse_ttl
from mergelake.expr.nodes import Call, ColumnRef, SyntaxNode
from mergelake.expr.parser import parse, parse_aggregate
from mergelake.table.pending.commands import (
    Command,
    Delete,
    IndexCommand,
    Update,
    are_of_ttl,
    commands_text,
    parse_commands,
)


def renamed_text(text: str, name: str, new_name: str, columns: Mapping[str, object]) -> str:
    """An expression over `columns` with one column renamed; the same text if it does not refer to it.

    A subcolumn (`name.size0`) follows its column, unless it is a column of its own.
    """
    tree = parse_aggregate(text)
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


def renamed_alike(schema: TableSchema, names: Mapping[str, str]) -> TableSchema:
    """The schema with new names of columns, all at once, in all of its expressions too."""
    changed = [(old, f"renamed {at}", new) for at, (old, new) in enumerate(names.items()) if old != new]
    for old, between, _ in changed:
        schema = with_new_name(schema, old, between)
    for _, between, new in changed:
        schema = with_new_name(schema, between, new)
    return schema


def renamed_commands(text: str, names: Mapping[str, str], columns: Mapping[str, object]) -> str:
    """The commands of a mutation over `columns`, all of which get their new names in `names` at once."""

    def expression(text: str) -> str:
        tree = parse(text)
        new = _all_renamed(tree, names, columns)
        return text if new == tree else str(new)

    def command(old: Command) -> Command:
        if isinstance(old, IndexCommand):
            return old
        where = expression(old.where)
        if isinstance(old, Delete):
            return replace(old, where=where)
        assignments = tuple((names.get(name, name), expression(value)) for name, value in old.assignments)
        return replace(old, where=where, assignments=assignments)

    return commands_text([*map(command, parse_commands(text))], of_ttl=are_of_ttl(text))


def without_assignments(text: str, names: Collection[str]) -> str:
    """The commands of a mutation without those assignments that change some columns; empty if nothing is left."""
    commands: list[Command] = []
    for command in parse_commands(text):
        if not isinstance(command, Update):
            commands.append(command)
            continue
        left = tuple(pair for pair in command.assignments if pair[0] not in names)
        commands += [replace(command, assignments=left)] if left else []
    return commands_text(commands, of_ttl=are_of_ttl(text))


def _all_renamed(node: SyntaxNode, names: Mapping[str, str], columns: Mapping[str, object]) -> SyntaxNode:
    if isinstance(node, Call):
        return Call(node.function, tuple(_all_renamed(arg, names, columns) for arg in node.args))
    if isinstance(node, ColumnRef):
        old = next((name for name in names if refers_to(node.name, name, columns)), None)
        return node if old is None else ColumnRef(names[old] + node.name[len(old) :])
    return node


def _renamed(node: SyntaxNode, name: str, new_name: str, columns: Mapping[str, object]) -> SyntaxNode:
    if isinstance(node, Call):
        return Call(node.function, tuple(_renamed(arg, name, new_name, columns) for arg in node.args))
    if isinstance(node, ColumnRef) and refers_to(node.name, name, columns):
        return ColumnRef(new_name + node.name[len(name) :])
    return node


def refers_to(mentioned: str, name: str, columns: Mapping[str, object]) -> bool:
    """Whether a name in an expression is the column `name`, or a subcolumn of it."""
    return mentioned == name or (mentioned.startswith(f"{name}.") and mentioned not in columns)
