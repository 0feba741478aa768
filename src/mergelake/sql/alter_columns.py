"""ALTER TABLE … ADD | DROP | RENAME COLUMN."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.core.errors import error
from mergelake.sql import statements as s
from mergelake.sql.column_definition import column_definition, column_name
from mergelake.sql.cursor import Cursor
from mergelake.table.alter.columns import AddColumn, DropColumn, Place, RenameColumn
from mergelake.table.alter.command import SchemaCommand

_PLACES = frozenset(["FIRST", "AFTER"])


def _add(cursor: Cursor, name: s.Name) -> AddColumn:
    if_not_exists = cursor.if_not_exists()
    definition, is_primary = column_definition(cursor, _PLACES)
    if is_primary:
        message = "Cannot specify PRIMARY KEY in ALTER TABLE … ADD COLUMN"
        raise error("BAD_ARGUMENTS", message, "The primary key can only be defined when the table is created")
    if definition == type(definition)(definition.name):
        raise cursor.error("the type of the column")
    return AddColumn(definition, _place(cursor), if_not_exists)


def _drop(cursor: Cursor, name: s.Name) -> DropColumn:
    if_exists = cursor.if_exists()
    return DropColumn(column_name(cursor), if_exists)


def _rename(cursor: Cursor, name: s.Name) -> RenameColumn:
    if_exists = cursor.if_exists()
    old = column_name(cursor)
    cursor.expect("TO")
    return RenameColumn(old, column_name(cursor), if_exists)


def _place(cursor: Cursor) -> Place | None:
    """FIRST, AFTER another column, or None."""
    if cursor.accept("FIRST"):
        return Place()
    return Place(column_name(cursor)) if cursor.accept("AFTER") else None


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], SchemaCommand]] = {
    "ADD COLUMN": _add,
    "DROP COLUMN": _drop,
    "RENAME COLUMN": _rename,
}
