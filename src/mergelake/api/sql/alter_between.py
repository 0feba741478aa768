"""ALTER TABLE … MOVE PARTITION … TO TABLE, REPLACE | ATTACH PARTITION … FROM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.api.sql import statements as s
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.mutation_statements import partition_clause
from mergelake.core.base.errors import error


def _move(cursor: Cursor, name: s.Name) -> s.PartitionCommand:
    partition = partition_clause(cursor, after_word=True)
    if not cursor.accept("TO", "TABLE"):
        message = "MOVE PARTITION … TO DISK | VOLUME is not supported"
        raise error("NOT_IMPLEMENTED", message, "All objects of a table lie in its warehouse")
    return _with("move", partition, cursor)


def _replace(cursor: Cursor, name: s.Name) -> s.PartitionCommand:
    partition = partition_clause(cursor, after_word=True)
    cursor.expect("FROM")
    return _with("replace", partition, cursor)


def _attach(cursor: Cursor, name: s.Name) -> s.PartitionCommand:
    """With FROM, or of what was detached."""
    partition = partition_clause(cursor, after_word=True)
    return _with("attach", partition, cursor) if cursor.accept("FROM") else s.PartitionCommand("attach", partition)


def _with(action: str, partition: s.PartitionClause, cursor: Cursor) -> s.PartitionCommand:
    if partition.every and action != "attach":
        message = f"{action.upper()} PARTITION ALL between tables is not supported"
        raise error("SUPPORT_IS_DISABLED", message, "Write a command for each partition")
    return s.PartitionCommand(action, partition, other=cursor.table_name())


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], s.PartitionCommand]] = {
    "MOVE PARTITION": _move,
    "REPLACE PARTITION": _replace,
    "ATTACH PARTITION": _attach,
}
