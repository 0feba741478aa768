"""Runs the commands of ALTER TABLE on partitions and parts: each is a commit of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mergelake.api.sql import statements as s
from mergelake.core.base.errors import error
from mergelake.query.statement.settings import plain_value

if TYPE_CHECKING:
    from mergelake.api.python.table import Table
    from mergelake.api.sql.session import Session


def alter_partitions(db: Session, statement: s.AlterPartitions) -> None:
    """Run the commands, one after the other; all are checked before the first."""
    table = db.open(statement.name)
    scopes, others = check_partitions(db, table, statement)
    for command, partition_id, other in zip(statement.commands, scopes, others, strict=True):
        if other is None:
            _run(table, command, partition_id)
        elif command.action == "move":
            table.move_partition(to=other, partition_id=partition_id)
        elif command.action == "replace":
            table.replace_partition(source=other, partition_id=partition_id)
        else:
            table.attach_partition_from(source=other, partition_id=partition_id, every=partition_id is None)


def check_partitions(
    db: Session, table: Table, statement: s.AlterPartitions
) -> tuple[list[str | None], list[Table | None]]:
    """The id of the partition of each command, None for all and for a part; and the other table that it names.

    Raises the errors of values of partitions, UNKNOWN_TABLE, and SUPPORT_IS_DISABLED for DROP DETACHED without its
    setting.
    """
    scopes = [_scope(table, command) for command in statement.commands]
    for command in statement.commands:
        if command.action == "drop detached" and plain_value(db.settings.get("allow_drop_detached", "0")) != "1":
            message = "Cannot execute query: DROP DETACHED PART is disabled"
            raise error("SUPPORT_IS_DISABLED", message, "SET allow_drop_detached = 1")
    return scopes, [db.open(command.other) if command.other else None for command in statement.commands]


def _scope(table: Table, command: s.PartitionCommand) -> str | None:
    """The partition's id; None for all, and for a part."""
    clause = command.partition
    if clause is None or clause.every:
        return None
    return clause.id or table.partition_id(clause.value)


def _run(table: Table, command: s.PartitionCommand, partition_id: str | None) -> None:
    every = partition_id is None
    match command.action, command.partition:
        case "freeze", _:
            table.freeze(command.part, partition_id=partition_id)
        case "unfreeze", _:
            table.unfreeze(command.part, partition_id=partition_id)
        case "drop", None:
            table.drop_part(command.part)
        case "detach", None:
            table.detach_part(command.part)
        case "attach", None:
            table.attach_part(command.part)
        case "drop detached", None:
            table.drop_detached_part(command.part)
        case "drop", _:
            table.drop_partition(partition_id=partition_id, every=every)
        case "detach", _:
            table.detach_partition(partition_id=partition_id, every=every)
        case "attach", _:
            table.attach_partition(partition_id=partition_id, every=every)
        case _:
            table.drop_detached_partition(partition_id=partition_id, every=every)
