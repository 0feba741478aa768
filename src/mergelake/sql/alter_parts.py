"""ALTER TABLE … DROP PARTITION, and DROP | DETACH | ATTACH PART, DROP DETACHED PART."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mergelake.sql import statements as s
from mergelake.sql.cursor import Cursor
from mergelake.sql.mutation_statements import partition_clause

_ACTIONS = ("drop", "detach", "attach", "drop detached")


def _drop_partition(cursor: Cursor, name: s.Name) -> s.DropPartition:
    return s.DropPartition(name, partition_clause(cursor, after_word=True))


def _part(action: str, cursor: Cursor, name: s.Name) -> s.AlterPart:
    return s.AlterPart(name, action, cursor.string("the name of a part in single quotes"))


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], s.Statement]] = {
    "DROP PARTITION": _drop_partition,
    **{f"{action.upper()} PART": partial(_part, action) for action in _ACTIONS},
}
