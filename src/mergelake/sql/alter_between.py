"""ALTER TABLE … MOVE PARTITION … TO TABLE, REPLACE | ATTACH PARTITION … FROM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.core.errors import error
from mergelake.sql import statements as s
from mergelake.sql.cursor import Cursor
from mergelake.sql.mutation_statements import partition_clause


def _move(cursor: Cursor, name: s.Name) -> s.BringPartition:
    partition = partition_clause(cursor, after_word=True)
    if not cursor.accept("TO", "TABLE"):
        message = "MOVE PARTITION … TO DISK | VOLUME is not supported"
        raise error("NOT_IMPLEMENTED", message, "All objects of a table lie in its warehouse")
    return s.BringPartition(name, "move", partition, cursor.table_name())


def _replace(cursor: Cursor, name: s.Name) -> s.BringPartition:
    partition = partition_clause(cursor, after_word=True)
    cursor.expect("FROM")
    return s.BringPartition(name, "replace", partition, cursor.table_name())


def _attach(cursor: Cursor, name: s.Name) -> s.BringPartition:
    partition = partition_clause(cursor, after_word=True)
    cursor.expect("FROM")
    return s.BringPartition(name, "attach", partition, cursor.table_name())


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], s.Statement]] = {
    "MOVE PARTITION": _move,
    "REPLACE PARTITION": _replace,
    "ATTACH PARTITION": _attach,
}
