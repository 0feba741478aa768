"""ALTER TABLE … on partitions and parts.

    DROP | DETACH | ATTACH | DROP DETACHED  PARTITION p | PARTITION ID 'x' | PARTITION ALL | PART 'name'
    FREEZE [PARTITION p] [WITH NAME 'name']
    UNFREEZE [PARTITION p] WITH NAME 'name'

Source: ClickHouse, `src/Parsers/ParserAlterQuery.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mergelake.api.sql import statements as s
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.mutation_statements import partition_clause
from mergelake.core.base.errors import error

_ACTIONS = ("drop", "detach", "attach", "drop detached")


def _partition(action: str, cursor: Cursor, name: s.Name) -> s.PartitionCommand:
    return s.PartitionCommand(action, partition_clause(cursor, after_word=True))


def _part(action: str, cursor: Cursor, name: s.Name) -> s.PartitionCommand:
    return s.PartitionCommand(action, part=cursor.string("the name of a part in single quotes"))


def _freeze(action: str, cursor: Cursor, name: s.Name) -> s.PartitionCommand:
    partition = partition_clause(cursor) if cursor.at("PARTITION") else None
    if partition is not None and partition.every:
        message = "Only support DROP/DETACH/ATTACH PARTITION ALL currently"
        raise error("SUPPORT_IS_DISABLED", message, "Leave PARTITION ALL out")
    if action == "unfreeze":
        cursor.expect("WITH", "NAME")
    named = action == "unfreeze" or cursor.accept("WITH", "NAME")
    return s.PartitionCommand(action, partition, cursor.string("a name in single quotes") if named else "")


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], s.PartitionCommand]] = {
    **{f"{action.upper()} PARTITION": partial(_partition, action) for action in _ACTIONS},
    **{f"{action.upper()} PART": partial(_part, action) for action in _ACTIONS},
    **{action.upper(): partial(_freeze, action) for action in ("freeze", "unfreeze")},
}
