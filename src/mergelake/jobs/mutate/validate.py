"""Checks of a mutation before it is logged: ClickHouse's errors for what may not be changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import quote_string
from mergelake.core.model.schema import Column, TableSchema, unknown_column
from mergelake.core.model.settings import TableSettings
from mergelake.core.types import types as t
from mergelake.engines.order.keys import bind_key, table_keys
from mergelake.engines.rules.modes import mode_of
from mergelake.expr.aliases import expand_aliases
from mergelake.expr.binder import bind
from mergelake.expr.nodes import Literal
from mergelake.expr.parser import parse
from mergelake.format.files.partition import check_partition_id
from mergelake.jobs.mutate.expressions import VIRTUAL_COLUMNS, delete_condition, printed, settled
from mergelake.log.model.state import State
from mergelake.log.model.volatile import unfinished
from mergelake.table.definition.define_projections import LIGHTWEIGHT_MODE, lightweight_mode
from mergelake.table.partitions.mutations import open_mutations
from mergelake.table.pending.bound import bind_command, bind_condition, bind_value, command_trees
from mergelake.table.pending.commands import (
    ROW_EXISTS,
    Command,
    Delete,
    IndexCommand,
    RowCommand,
    Update,
    commands_text,
    parse_commands,
)


@dataclass(frozen=True, slots=True)
class Submission:
    """What the expressions of a mutation may refer to beside the columns."""

    now_ms: int
    """The time that `now()` returns, in milliseconds since the epoch."""
    table: str = ""
    """`database.table`, which may stand before the names of columns."""
    schema_version: int = 0
    """The version of the schema from which commands were made that follow from it; 0: they do not."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An expression that `expr` refuses: ClickHouse may support it."""

    text: str
    within: str
    """How ClickHouse evaluates it: text with `{}` in its place."""
    failure: MergelakeError


def validate(commands: Sequence[Command], schema: TableSchema, given: Submission) -> tuple[Command, ...]:
    """The commands as they are logged. Raises the errors of ClickHouse for what it refuses."""
    if not commands:
        raise error("BAD_ARGUMENTS", "A mutation without a command", "Give an UPDATE or a DELETE")
    lightly = any(isinstance(command, Delete) and command.lightweight for command in commands)
    if lightly and schema.projections and lightweight_mode(schema) == "throw":
        message = f"DELETE query is not allowed for a table that has projections: {LIGHTWEIGHT_MODE} = throw"
        hint = f"Set {LIGHTWEIGHT_MODE} of the table to 'rebuild' or 'drop', or ALTER TABLE … DELETE"
        raise error("SUPPORT_IS_DISABLED", message, hint)
    checked = tuple(_checked(command, schema, given) for command in commands)
    for command in checked:
        if not isinstance(command, IndexCommand):
            bind_command(command, schema)
            _check_dependents(command, schema)
    text = commands_text(checked)
    try:
        same = parse_commands(text) == checked
    except MergelakeError:
        same = False
    if not same:
        raise error("NOT_IMPLEMENTED", f"The command {text} cannot be logged", "Rename a column with a name like WHERE")
    return checked


def unsupported_expression(commands: Sequence[Command], schema: TableSchema, given: Submission) -> Unsupported | None:
    """The first expression of commands that `validate` refuses because it cannot be parsed or bound; else None."""
    for command in commands:
        for text, column in _expressions(command, schema):
            any_number = isinstance(command, Delete) and not command.lightweight
            within = _cast_to(column) if column is not None else "{}" if any_number else "if({}, 1, 0)"
            try:
                parse(text)
            except MergelakeError as failure:
                return Unsupported(text, within, failure)
            try:
                node = settled(text, schema, given.now_ms, given.table)
            except MergelakeError:
                return None
            try:
                if column is not None:
                    bind_value(printed(node), column, schema)
                elif any_number:
                    bind(expand_aliases(node, schema), schema.readable)
                else:
                    bind_condition(printed(node), schema)
            except MergelakeError as failure:
                return Unsupported(text, within, failure)
    return None


def _expressions(command: Command, schema: TableSchema) -> list[tuple[str, Column | None]]:
    """The condition of a command, and what it assigns to which column."""
    if isinstance(command, IndexCommand):
        return []
    assigned = command.assignments if isinstance(command, Update) else ()
    values = [(text, schema.column(name)) for name, text in assigned if schema.has(name)]
    return [(command.where, None), *values]


def _cast_to(column: Column) -> str:
    return f"CAST({{}}, {quote_string(str(column.type))})"


def check_unfinished(state: State, limit: int | None = None) -> None:
    """TOO_MANY_MUTATIONS if `limit` mutations (None: the setting of the table; 0: no limit) are unfinished."""
    if limit is None:
        limit = TableSettings(state.schema.settings).integer("number_of_mutations_to_throw")
    if not limit or len(open_mutations(state)) < limit:
        return
    count = len(unfinished(state))
    if count >= limit:
        hint = "Table.apply_mutations or a node with the role `mutate` finishes them; number_of_mutations_to_throw"
        raise error("TOO_MANY_MUTATIONS", f"Too many unfinished mutations ({count})", f"{hint} is the limit")


def fixed_columns(schema: TableSchema) -> frozenset[str]:
    """The columns of keys, and the version or sign: rows keep their order, partition and place in a key."""
    keys = table_keys(schema)
    fixed = {source.text for source in keys.partition_sources}
    fixed.update(name for key in (*keys.partition, *keys.sorting) for name in key.columns)
    if schema.sample_by:
        fixed.update(bind_key(schema.sample_by, schema).columns)
    mode = mode_of(schema)
    return frozenset(fixed if mode is None or mode.decides is None else {*fixed, mode.decides})


def _checked(command: Command, schema: TableSchema, given: Submission) -> Command:
    if command.partition_id is not None:
        check_partition_id(command.partition_id)
    if isinstance(command, IndexCommand):
        return command
    if isinstance(command, Delete):
        node = settled(command.where, schema, given.now_ms, given.table)
        return replace(command, where=printed(node if command.lightweight else delete_condition(node, schema)))
    _check_assignments(command, schema)
    where = printed(settled(command.where, schema, given.now_ms, given.table))
    values = {name: settled(text, schema, given.now_ms, given.table) for name, text in command.assignments}
    if ROW_EXISTS in values and not schema.has(ROW_EXISTS):
        value = values[ROW_EXISTS]
        if len(values) > 1 or not isinstance(value, Literal) or value.value != 0:
            message = f"UPDATE of {ROW_EXISTS} is supported only as {ROW_EXISTS} = 0, alone: DELETE FROM"
            raise error("NOT_IMPLEMENTED", message, "Rows that were deleted are in older versions: AS OF VERSION")
        return Delete(where, command.partition_id, lightweight=True)
    return replace(command, where=where, assignments=tuple((name, printed(node)) for name, node in values.items()))


def _check_assignments(command: Update, schema: TableSchema) -> None:
    names = [name for name, _ in command.assignments]
    if not names:
        raise error("BAD_ARGUMENTS", "An UPDATE without a column", "Give a column and its new value")
    fixed = fixed_columns(schema)
    for name in names:
        if not schema.has(name):
            if name in VIRTUAL_COLUMNS and name != ROW_EXISTS:
                raise error("NOT_IMPLEMENTED", f"Update is not supported for virtual column {name}", "Leave it out")
            if name != ROW_EXISTS:
                raise unknown_column(name, list(schema.names))
        elif schema.column(name).default_kind in ("ALIAS", "EPHEMERAL"):
            raise error("NO_SUCH_COLUMN_IN_TABLE", f"There is no stored column {name}", "It has an expression instead")
        if names.count(name) > 1:
            message = f"Multiple assignments in the single statement to column {name}"
            raise error("MULTIPLE_ASSIGNMENTS_TO_COLUMN", message, "Write a second command after a comma")
        if name in fixed:
            hint = "DELETE the rows, and INSERT them anew"
            raise error("CANNOT_UPDATE_COLUMN", f"Cannot UPDATE key column {name}", hint)
        if schema.has(name) and schema.column(name).default_kind == "MATERIALIZED" and not command.own_value:
            hint = "It follows from the columns of its expression"
            raise error("CANNOT_UPDATE_COLUMN", f"Cannot UPDATE materialized column {name}", hint)
        _check_nested(name, schema)
        if schema.has(name) and t.holds(schema.column(name).type, t.Variant, t.Dynamic, t.Json, t.AggregateFunction):
            message = f"UPDATE of the column {name} of type {schema.column(name).type} is not supported"
            raise error("NOT_IMPLEMENTED", message, "DELETE the rows, and INSERT them anew")


def _check_dependents(command: RowCommand, schema: TableSchema) -> None:
    """CANNOT_UPDATE_COLUMN if a MATERIALIZED column of a key follows from what a command updates."""
    fixed = fixed_columns(schema)
    for group in command_trees(command, schema)[1][1:]:
        for name in sorted(fixed & group.keys()):
            message = f"The update changes the MATERIALIZED column {name}, which is a key column"
            raise error("CANNOT_UPDATE_COLUMN", message, "DELETE the rows, and INSERT them anew")


def _check_nested(name: str, schema: TableSchema) -> None:
    """NOT_IMPLEMENTED for one of several arrays that have the same lengths, which an UPDATE could make different."""
    group, dot, _ = name.partition(".")
    if not dot or not schema.has(name) or not isinstance(schema.column(name).type, t.Array):
        return
    others = [column.name for column in schema.stored if column.name.startswith(f"{group}.") and column.name != name]
    if any(isinstance(schema.column(other).type, t.Array) for other in others):
        message = f"UPDATE of the column {name} of a Nested is not supported: its arrays have lengths in common"
        raise error("NOT_IMPLEMENTED", message, "Name the columns without a dot, and each array has its own length")
