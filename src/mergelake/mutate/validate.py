"""Checks of a mutation before it is logged: ClickHouse's errors for what may not be changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.core.errors import error
from mergelake.core.schema import TableSchema, unknown_column
from mergelake.log.state import State
from mergelake.order.keys import table_keys
from mergelake.order.replacing import replacing_mode
from mergelake.views.bound import bind_command
from mergelake.views.commands import Command, Update


def validate(commands: Sequence[Command], state: State) -> tuple[Command, ...]:
    """The commands as they are logged. Raises the errors of ClickHouse for what it refuses."""
    schema = state.schema
    for command in commands:
        if isinstance(command, Update):
            _check_assignments(command, schema)
        bind_command(command, schema)
    return tuple(commands)


def fixed_columns(schema: TableSchema) -> dict[str, str]:
    """The columns that no mutation may change, and why: rows must keep their order and partition."""
    keys = table_keys(schema)
    fixed = {source.text: "partition key" for source in keys.partition_sources}
    fixed |= {name: "sorting key" for key in keys.sorting for name in key.columns}
    mode = replacing_mode(schema)
    if mode is not None and mode.version is not None:
        fixed[mode.version] = "version"
    return fixed


def _check_assignments(command: Update, schema: TableSchema) -> None:
    names = [name for name, _ in command.assignments]
    fixed = fixed_columns(schema)
    for name in names:
        if not schema.has(name) or schema.column(name).default_kind in ("ALIAS", "EPHEMERAL"):
            raise unknown_column(name, list(schema.names))
        if names.count(name) > 1:
            message = f"Multiple assignments in the single statement to column {name}"
            raise error("MULTIPLE_ASSIGNMENTS_TO_COLUMN", message)
        if name in fixed:
            raise error("CANNOT_UPDATE_COLUMN", f"Cannot UPDATE {fixed[name]} column {name}")
        if schema.column(name).default_kind == "MATERIALIZED":
            raise error("CANNOT_UPDATE_COLUMN", f"Cannot UPDATE materialized column {name}")
