"""What of a table's definition needs a column, so that it cannot be dropped, renamed or get another type. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import Column, TableSchema
from mergelake.engines.order.keys import bind_key, table_keys
from mergelake.engines.rules.modes import mode_of
from mergelake.expr.aliases import expand_aliases
from mergelake.expr.nodes import SyntaxNode, referenced_columns
from mergelake.expr.parser import parse
from mergelake.log.model.state import PendingMutation, State
from mergelake.log.model.volatile import unfinished
from mergelake.table.definition.define_indexes import varying_function
from mergelake.table.definition.renaming import refers_to
from mergelake.table.pending.bound import command_trees
from mergelake.table.pending.commands import row_commands


def partition_columns(schema: TableSchema) -> frozenset[str]:
    """The columns of the partition key."""
    return frozenset(name for key in table_keys(schema).partition for name in key.columns)


def key_columns(schema: TableSchema) -> frozenset[str]:
    """The columns of all keys, and those that the engine names: version, sign and the like."""
    names = {name for key in table_keys(schema).sorting for name in key.columns} | partition_columns(schema)
    if schema.sample_by:
        names.update(bind_key(schema.sample_by, schema).columns)
    mode = mode_of(schema)
    if mode is not None and mode.decides is not None:
        names.add(mode.decides)
    named = {name for text in schema.engine_args for name in referenced_columns(parse(text))}
    return frozenset(names | {name for name in named if schema.has(name)})


def check_not_of_key(name: str, schema: TableSchema, what: str) -> None:
    """ALTER_OF_COLUMN_IS_FORBIDDEN for a column of a key; `what` is `DROP`, `RENAME` or `CLEAR`."""
    if name in key_columns(schema):
        message = f"Trying to ALTER {what} key {name} column which is a part of key expression"
        raise error("ALTER_OF_COLUMN_IS_FORBIDDEN", message, "Create another table, and insert into it")


def check_not_needed(name: str, schema: TableSchema, going: frozenset[str]) -> None:
    """Raise ClickHouse's error if a default or a key needs a column that is dropped with the columns `going`.

    Defaults of these do not count. (Whether an index does is found out with the schema after the last command, which
    may drop it.)
    """
    for column in schema.columns:
        if column.name not in going and column.default and mentions(column.default, name, schema):
            message = f"Cannot drop column {name}, because column {column.name} depends on it"
            raise error("ILLEGAL_COLUMN", message, f"ALTER TABLE … DROP or MODIFY COLUMN {column.name} first")
    check_not_of_key(name, schema, "DROP")


def check_lacked(state: State, after: TableSchema) -> None:
    """BAD_ARGUMENTS for a new default with `now()`, `rand()` and the like if an active part lacks the column.

    Its rows would have another value with each read. An insert computes such a default once.
    """
    for column in after.stored:
        varying, old = varying_default(column, after), state.schema.by_id.get(column.id)
        if varying is None or (old is not None and same_default(old, state.schema, column, after)):
            continue
        lacking = next((p for p in state.parts() if p.manifest.rows and column.id not in p.manifest.columns), None)
        if lacking is not None:
            message = f"Part {lacking.name} lacks column {column.name}, and {varying}() is another value with each read"
            hint = "ADD COLUMN with a constant, MATERIALIZE it, and MODIFY COLUMN … DEFAULT afterwards"
            raise error("BAD_ARGUMENTS", message, hint)


def varying_default(column: Column, schema: TableSchema) -> str | None:
    """The function by which a column's default is another value each time that it is computed, if there is one."""
    default = _default_of(column, schema)
    return None if default is None else varying_function(default)


def mentions(expression: str | SyntaxNode, name: str, schema: TableSchema) -> bool:
    """Whether an expression refers to a column, or to a subcolumn of it."""
    tree = parse(expression) if isinstance(expression, str) else expression
    return any(refers_to(mentioned, name, schema.types) for mentioned in referenced_columns(tree))


def check_pending(state: State, after: TableSchema) -> None:
    """BAD_ARGUMENTS, with the mutation's name, for a change that gives an unfinished mutation another meaning.

    Parts that lack a mutation get it under the newest schema. So the columns of its commands have to stay as they are,
    and no new default reads a column that it updates: for parts that lack the column it would see the values of before.
    """
    for mutation in unfinished(state):
        name = affected_column(mutation, state.schema, after)
        if name is not None:
            raise _affected(name, mutation)


def affected_column(mutation: PendingMutation, before: TableSchema, after: TableSchema) -> str | None:
    """A column whose change gives the mutation another meaning, if there is one; it is written for schema `before`."""
    read, updated = _columns_of(mutation, before)
    for name in read:
        if not after.has(name) or not _is_same(before.column(name), after.column(name)):
            return name
    if not means_the_same(mutation, before, after):
        return next(chain(_recomputed(before, after), read))
    for column in after.stored:
        default, old = _default_of(column, after), before.by_id.get(column.id)
        if default is not None and not (old is not None and same_default(old, before, column, after)):
            for name in updated:
                if mentions(default, name, after):
                    return name
    return None


def same_default(one: Column, schema: TableSchema, other: Column, other_schema: TableSchema) -> bool:
    """Whether columns of two schemas have the same default: ALIAS columns stand for their expressions."""
    return one.default_kind == other.default_kind and _default_of(one, schema) == _default_of(other, other_schema)


def _default_of(column: Column, schema: TableSchema) -> SyntaxNode | None:
    """The expression of a column's default, in which those of ALIAS columns stand for these; None if it has none."""
    return expand_aliases(parse(column.default), schema) if column.default else None


def _recomputed(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """The ALIAS and MATERIALIZED columns of either schema that the other one has not, or computes in another way."""
    for one, other in ((before, after), (after, before)):
        for column in one.columns:
            computed = column.default_kind in ("ALIAS", "MATERIALIZED")
            if computed and not (other.has(column.name) and _is_same(column, other.column(column.name))):
                yield column.name


def _is_same(one: Column, other: Column) -> bool:
    return replace(one, comment="", codec="", ttl="") == replace(other, comment="", codec="", ttl="")


def means_the_same(mutation: PendingMutation, before: TableSchema, after: TableSchema) -> bool:
    """Whether commands have the same expressions, those of ALIAS and MATERIALIZED columns in them too."""
    commands = row_commands(mutation.commands)
    return all(command_trees(command, before) == command_trees(command, after) for command in commands)


def _columns_of(mutation: PendingMutation, schema: TableSchema) -> tuple[dict[str, None], dict[str, None]]:
    """The columns that a mutation reads or updates, and those that it updates."""
    read: dict[str, None] = {}
    updated: dict[str, None] = {}
    for command in row_commands(mutation.commands):
        where, groups = command_trees(command, schema)
        updated |= dict.fromkeys(name for sets in groups for name in sets)
        for tree in (where, *(value for sets in groups for value in sets.values())):
            names = referenced_columns(tree)
            read |= dict.fromkeys(name for name in schema.names if any(refers_to(m, name, schema.types) for m in names))
    return {**read, **updated}, updated


def _affected(name: str, mutation: PendingMutation) -> MergelakeError:
    message = f"Cannot alter column {name}, because mutation '{mutation.name}' uses it and is not finished yet"
    return error("BAD_ARGUMENTS", message, "Table.apply_mutations finishes it, KILL MUTATION gives it up")
