"""ALTER TABLE … MODIFY TTL …, REMOVE TTL and MATERIALIZE TTL [IN PARTITION p]."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.api.sql import statements as s
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.mutation_statements import partition_clause
from mergelake.table.definition.command import SchemaCommand
from mergelake.table.definition.ttl import ModifyTtl, RemoveTtl


def _modify(cursor: Cursor, name: s.Name) -> ModifyTtl:
    return ModifyTtl(cursor.clause(("SETTINGS",)))


def _remove(cursor: Cursor, name: s.Name) -> RemoveTtl:
    return RemoveTtl()


def _materialize(cursor: Cursor, name: s.Name) -> s.MaterializeTtl:
    return s.MaterializeTtl(name, partition_clause(cursor) if cursor.accept("IN") else None)


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], SchemaCommand | s.MaterializeTtl]] = {
    "MODIFY TTL": _modify,
    "REMOVE TTL": _remove,
    "MATERIALIZE TTL": _materialize,
}
