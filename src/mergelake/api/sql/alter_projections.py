"""ALTER TABLE … ADD | DROP | MATERIALIZE | CLEAR PROJECTION."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mergelake.api.sql import statements as s
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.ddl import projection
from mergelake.api.sql.mutation_statements import partition_clause
from mergelake.core.base.errors import error
from mergelake.table.definition.command import SchemaCommand
from mergelake.table.definition.projections import AddProjection, DropProjection

_NAME = "the name of a projection"


def _add(cursor: Cursor, name: s.Name) -> AddProjection:
    if_not_exists = cursor.if_not_exists()
    new = projection(cursor)
    after = "" if cursor.accept("FIRST") else cursor.identifier(_NAME) if cursor.accept("AFTER") else None
    return AddProjection(new.name, new.query, after, if_not_exists)


def _drop(cursor: Cursor, name: s.Name) -> DropProjection:
    if_exists = cursor.if_exists()
    return DropProjection(cursor.identifier(_NAME), if_exists)


def _modify(cursor: Cursor, name: s.Name) -> SchemaCommand:
    message = "MODIFY PROJECTION is not supported: only ClickHouse's settings of a projection can be modified by it"
    raise error("NOT_IMPLEMENTED", message, "DROP PROJECTION and ADD PROJECTION change a query")


def _written(action: str, cursor: Cursor, name: s.Name) -> s.WriteProjection:
    cursor.if_exists()  # it changes nothing: an unknown projection is no error, as in ClickHouse
    projected = cursor.identifier(_NAME)
    partition = partition_clause(cursor) if cursor.accept("IN") else s.PartitionClause(every=True)
    return s.WriteProjection(name, action, projected, partition)


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], SchemaCommand | s.WriteProjection]] = {
    "ADD PROJECTION": _add,
    "DROP PROJECTION": _drop,
    "MODIFY PROJECTION": _modify,
    "MATERIALIZE PROJECTION": partial(_written, "materialize"),
    "CLEAR PROJECTION": partial(_written, "clear"),
}
