"""What a command of ALTER TABLE is to the rest of the program, and a list of them applied to a schema. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mergelake.core.schema import TableSchema
from mergelake.table.alter.columns import check_renames


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
    from mergelake.table.define import check_schema  # loads kernels that opening a table does not need

    check_renames(commands)
    after = schema
    for command in commands:
        after = command.applied(after)
    return schema if after == schema else check_schema(after)
