"""Statements that change rows, and the one that gives such a change up.

    ALTER TABLE t UPDATE a = x, … [IN PARTITION p] WHERE …, DELETE [IN PARTITION p] WHERE …, …
    UPDATE t SET a = x, … [IN PARTITION p] WHERE …
    DELETE FROM t [IN PARTITION p] WHERE …
    KILL MUTATION WHERE … [SYNC | ASYNC | TEST]

Source: ClickHouse, `src/Parsers/ParserAlterQuery.cpp`, `ParserUpdateQuery.cpp`, `ParserDeleteQuery.cpp`,
`ParserKillQueryQuery.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.api.sql import statements as s
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.ddl import refuse_cluster
from mergelake.api.sql.literals import literal
from mergelake.api.sql.unsupported import refused
from mergelake.core.base.errors import error
from mergelake.format.files.partition import check_partition_id

_KILL_MODES = ("SYNC", "ASYNC", "TEST")


def update(cursor: Cursor) -> s.Mutate:
    """What follows the word UPDATE."""
    name = cursor.table_name()
    refuse_cluster(cursor)
    cursor.expect("SET")
    return s.Mutate(name, (_update(cursor),), lightweight=True)


def delete_from(cursor: Cursor) -> s.Mutate:
    """What follows the word DELETE."""
    cursor.expect("FROM")
    name = cursor.table_name()
    refuse_cluster(cursor)
    return s.Mutate(name, (_delete(cursor),), lightweight=True)


def kill(cursor: Cursor) -> s.KillMutation:
    """What follows the word KILL. NOT_IMPLEMENTED for anything but a MUTATION."""
    if not cursor.accept("MUTATION"):
        raise refused(cursor.text, cursor.previous_end - len("KILL"))
    refuse_cluster(cursor)
    cursor.expect("WHERE")
    where = cursor.command_expression(*_KILL_MODES)
    mode = cursor.next().upper if cursor.peek().upper in _KILL_MODES else ""
    return s.KillMutation(where, test=mode == "TEST")


def partition_clause(cursor: Cursor, *, after_word: bool = False) -> s.PartitionClause:
    """PARTITION 202601, (1, 'a'), ID 'x' or ALL; `after_word`: what follows the word PARTITION.

    INVALID_PARTITION_VALUE for an id that cannot be.
    """
    if not after_word:
        cursor.expect("PARTITION")
    if cursor.accept("ID"):
        partition_id = cursor.string("the id of a partition in single quotes")
        check_partition_id(partition_id)
        return s.PartitionClause(id=partition_id)
    if cursor.accept("ALL"):
        return s.PartitionClause(every=True)
    if cursor.accept("TUPLE") or cursor.at("("):
        cursor.expect("(")
        values: list[int | float | str | None] = []
        while not cursor.accept(")"):
            if values:
                cursor.expect(",")
            values.append(literal(cursor))
        return s.PartitionClause(tuple(values))
    return s.PartitionClause((literal(cursor),))


def _update(cursor: Cursor) -> s.MutationCommand:
    """`a = x, … [IN PARTITION p] WHERE …`."""
    assignments = []
    while True:
        name = cursor.identifier("the name of a column")
        cursor.expect("=")
        assignments.append((name, cursor.command_expression()))
        if not cursor.accept(","):
            break
    partition = in_partition(cursor)
    cursor.expect("WHERE")
    return s.MutationCommand(cursor.command_expression(), tuple(assignments), partition)


def _delete(cursor: Cursor) -> s.MutationCommand:
    """`[IN PARTITION p] WHERE …`."""
    partition = in_partition(cursor)
    cursor.expect("WHERE")
    return s.MutationCommand(cursor.command_expression(), partition=partition)


def in_partition(cursor: Cursor) -> s.PartitionClause | None:
    """IN PARTITION p, or None. SUPPORT_IS_DISABLED for PARTITION ALL."""
    if not cursor.accept("IN"):
        return None
    clause = partition_clause(cursor)
    if clause.every:
        raise error("SUPPORT_IS_DISABLED", "IN PARTITION ALL is not supported", "Leave it out")
    return clause


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], s.MutationCommand]] = {
    "UPDATE": lambda cursor, name: _update(cursor),
    "DELETE": lambda cursor, name: _delete(cursor),
}
"""The commands of ALTER TABLE: see `alter`."""
