"""What a command of ALTER TABLE is to the rest of the program, and a list of them applied to a schema. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mergelake.core.base.errors import error
from mergelake.core.model.schema import TableSchema
from mergelake.table.definition.columns import DropColumn, RenameColumn
from mergelake.table.definition.define_texts import check_texts
from mergelake.table.definition.keys import check_new_key
from mergelake.table.definition.modify_column import ModifyColumn, in_one_step


@runtime_checkable
class SchemaCommand(Protocol):
    """A command that changes the definition of a table; a frozen dataclass."""

    def applied(self, schema: TableSchema) -> TableSchema:
        """The schema with the change. Raises ClickHouse's error if it is impossible.

        What holds for every schema need not be checked: `altered` checks the schema after the last command.
        """
        ...


def altered(schema: TableSchema, commands: Sequence[SchemaCommand]) -> TableSchema:
    """The schema after the commands, in order; the same schema if nothing changes. Its `version` stays.

    Raises the errors of the commands, and those of a CREATE TABLE with the new schema.
    """
    # These load kernels that opening a table does not need.
    from mergelake.table.definition.define import check_schema
    from mergelake.table.definition.projections import check_projected

    for command in commands:
        if not isinstance(command, SchemaCommand):
            raise error("TYPE_MISMATCH", f"{command!r} is no command of ALTER TABLE", "See mergelake.table.definition")
        check_texts(command)
    if {*schema.names} <= {command.name for command in commands if isinstance(command, DropColumn)}:
        raise error("BAD_ARGUMENTS", "Cannot DROP or CLEAR all columns", "DROP TABLE drops the table")
    _check_renames(commands)
    after = schema
    for command in commands:
        after = command.applied(after)
    after = in_one_step(schema, after)
    if after == schema:
        return schema
    check_new_key(schema, after)
    checked = check_schema(after)
    check_projected(schema, checked)
    return checked


def _check_renames(commands: Sequence[SchemaCommand]) -> None:
    """NOT_IMPLEMENTED if a rename takes or gives the name that another command of the statement means."""
    renames = [(at, command) for at, command in enumerate(commands) if isinstance(command, RenameColumn)]
    modified = {command.definition.name for command in commands if isinstance(command, ModifyColumn)}
    for at, rename in renames:
        if not modified.isdisjoint((rename.name, rename.new_name)):
            message = f"Cannot rename and modify the same column {rename.name} in a single ALTER query"
            raise error("NOT_IMPLEMENTED", message, "Write a statement for each")
        if any(other.name == rename.new_name for later, other in renames if later > at):
            message = "Transitive renames in a single ALTER query are not allowed (don't make sense)"
            raise error("NOT_IMPLEMENTED", message, "Write a statement for each")
