"""ALTER TABLE … ADD | DROP | RENAME | MODIFY | COMMENT | CLEAR | MATERIALIZE COLUMN."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.api.sql import statements as s
from mergelake.api.sql.column_definition import column_definition, column_name
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.mutation_statements import in_partition
from mergelake.core.base.errors import error
from mergelake.table.definition.columns import AddColumn, ColumnDefinition, DropColumn, Place, RenameColumn
from mergelake.table.definition.command import SchemaCommand
from mergelake.table.definition.modify_column import (
    PROPERTIES,
    ClearColumn,
    CommentColumn,
    ModifyColumn,
    RemoveProperty,
)

_PLACES = frozenset(["FIRST", "AFTER"])


def _add(cursor: Cursor, name: s.Name) -> AddColumn:
    if_not_exists = cursor.if_not_exists()
    definition, is_primary = column_definition(cursor, _PLACES)
    if is_primary:
        message = "Cannot specify PRIMARY KEY in ALTER TABLE … ADD COLUMN"
        raise error("BAD_ARGUMENTS", message, "The primary key can only be defined when the table is created")
    if definition == ColumnDefinition(definition.name):
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


def _modify(cursor: Cursor, name: s.Name) -> ModifyColumn | RemoveProperty:
    if_exists = cursor.if_exists()
    column = column_name(cursor)
    return _modified(cursor, column, if_exists)


def _alter(cursor: Cursor, name: s.Name) -> ModifyColumn | RemoveProperty:
    """`c TYPE T …`: another form of MODIFY COLUMN."""
    if_exists = cursor.if_exists()
    column = column_name(cursor)
    if not cursor.at("REMOVE"):
        cursor.expect("TYPE")
    return _modified(cursor, column, if_exists)


def _modified(cursor: Cursor, column: str, if_exists: bool) -> ModifyColumn | RemoveProperty:
    if cursor.accept("REMOVE"):
        if cursor.peek().upper not in PROPERTIES:
            raise cursor.error(*PROPERTIES)
        return RemoveProperty(column, cursor.next().upper, if_exists)
    if cursor.at("MODIFY", "SETTING") or cursor.at("RESET", "SETTING"):
        message = f"{cursor.peek().upper} SETTING of a column is not supported: {column}"
        raise error("NOT_IMPLEMENTED", message, "Settings of the table hold for all of its columns")
    definition, is_primary = column_definition(cursor, _PLACES, column)
    place = _place(cursor)
    if is_primary:
        message = "Cannot specify PRIMARY KEY in ALTER TABLE … MODIFY COLUMN"
        raise error("BAD_ARGUMENTS", message, "The primary key can only be defined when the table is created")
    if definition == ColumnDefinition(column) and place is None:
        raise cursor.error("a type", "DEFAULT", "MATERIALIZED", "ALIAS", "CODEC", "COMMENT", "REMOVE")
    return ModifyColumn(definition, place, if_exists)


def _comment(cursor: Cursor, name: s.Name) -> CommentColumn:
    if_exists = cursor.if_exists()
    column = column_name(cursor)
    return CommentColumn(column, cursor.string(), if_exists)


def _clear(cursor: Cursor, name: s.Name) -> ClearColumn | s.ColumnMutation:
    if_exists = cursor.if_exists()
    column = column_name(cursor)
    partition = in_partition(cursor)
    if partition is None:
        return ClearColumn(column, if_exists)
    return s.ColumnMutation(column, True, partition, if_exists)


def _materialize(cursor: Cursor, name: s.Name) -> s.ColumnMutation:
    column = column_name(cursor)
    return s.ColumnMutation(column, partition=in_partition(cursor))


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], SchemaCommand | s.ColumnMutation]] = {
    "ADD COLUMN": _add,
    "DROP COLUMN": _drop,
    "RENAME COLUMN": _rename,
    "MODIFY COLUMN": _modify,
    "ALTER COLUMN": _alter,
    "COMMENT COLUMN": _comment,
    "CLEAR COLUMN": _clear,
    "MATERIALIZE COLUMN": _materialize,
}
