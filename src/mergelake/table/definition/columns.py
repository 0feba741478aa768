"""ADD, DROP and RENAME COLUMN. Pure.

Source: ClickHouse, `AlterCommands::validate` and `apply`, `MergeTreeData::checkAlterIsPossible`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mergelake.core.base.errors import error, there_are
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import DataType, is_nullable, parse_type
from mergelake.table.definition.needs import check_not_needed, check_not_of_key, key_columns
from mergelake.table.definition.renaming import with_new_name

_RESERVED = ("_row_exists", "_block_number", "_block_offset")
"""Columns that parts may have beside those of the table."""


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as a statement defines it."""

    name: str
    type: DataType | None = None
    """None: not given."""
    nested: tuple[tuple[str, DataType], ...] = ()
    """Of a `Nested` the names of its columns and their types, which are arrays; then `type` is None."""
    default_kind: str = ""
    default: str = ""
    codec: str = ""
    comment: str | None = None
    """None: not given."""
    ttl: str = ""
    nullable: bool = False
    """Whether the type is made Nullable: `UInt8 NULL`."""

    def columns(self, first_id: int) -> tuple[Column, ...]:
        """The column, or those of a `Nested`, with ids from `first_id` on. The type has to be known."""
        comment = self.comment or ""
        if self.nested:
            return tuple(
                Column(at, f"{self.name}.{name}", kind, codec=self.codec, comment=comment)
                for at, (name, kind) in enumerate(self.nested, first_id)
            )
        assert self.type is not None
        kind = parse_type(f"Nullable({self.type})") if self.nullable and not is_nullable(self.type) else self.type
        return (Column(first_id, self.name, kind, self.default_kind, self.default, self.codec, comment, self.ttl),)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column stands among the others: FIRST, or AFTER another."""

    after: str = ""
    """Empty: FIRST."""

    def insert(self, schema: TableSchema, new: tuple[Column, ...]) -> tuple[Column, ...]:
        """The columns of the schema with new ones in this place. NO_SUCH_COLUMN_IN_TABLE if the other is unknown.

        After a `Nested` means after the last of its columns.
        """
        if not self.after:
            return (*new, *schema.columns)
        names = of_nested(schema, self.after) or (self.after,)
        if not schema.has(names[-1]):
            message = f"Wrong column name. Cannot find column {self.after} to insert after"
            raise error("NO_SUCH_COLUMN_IN_TABLE", message, _known(schema))
        at = schema.names.index(names[-1]) + 1
        return (*schema.columns[:at], *new, *schema.columns[at:])


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ADD COLUMN: parts that lack it read its default."""

    definition: ColumnDefinition
    place: Place | None = None
    """None: last."""
    if_not_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises DUPLICATE_COLUMN, NO_SUCH_COLUMN_IN_TABLE, ILLEGAL_COLUMN, BAD_ARGUMENTS."""
        name = self.definition.name
        if schema.has(name) or of_nested(schema, name):
            if self.if_not_exists:
                return schema
            raise error("DUPLICATE_COLUMN", f"Cannot add column {name}: column with this name already exists")
        if self.definition.type is None and not self.definition.nested:
            raise error("BAD_ARGUMENTS", f"Data type have to be specified for column {name} to add", "Write its type")
        if name in _RESERVED:
            raise error("ILLEGAL_COLUMN", f"Cannot add column {name}: this name is reserved for a virtual column")
        new = self.definition.columns(schema.next_column_id)
        columns = (*schema.columns, *new) if self.place is None else self.place.insert(schema, new)
        return replace(schema, columns=columns, next_column_id=schema.next_column_id + len(new))


@dataclass(frozen=True, slots=True)
class DropColumn:
    """DROP COLUMN: its values are no longer read. Older versions have them."""

    name: str
    """A column, or a `Nested` with all of its columns."""
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises NOT_FOUND_COLUMN_IN_BLOCK, and the errors for a column that the table needs."""
        names = named_columns(self.name, schema, "drop", if_exists=self.if_exists)
        for name in names:
            check_not_needed(name, schema, frozenset(names))
        kept = tuple(column for column in schema.columns if column.name not in names)
        return replace(schema, columns=kept) if names else schema


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN: parts keep the old name, and are read by the column's id."""

    name: str
    new_name: str
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises NOT_FOUND_COLUMN_IN_BLOCK, DUPLICATE_COLUMN, BAD_ARGUMENTS, and ALTER_OF_COLUMN_IS_FORBIDDEN.

        UNKNOWN_IDENTIFIER for a column of a key that a projection reads.
        """
        if not schema.has(self.name) and of_nested(schema, self.name):
            raise error("NOT_IMPLEMENTED", "Cannot rename whole Nested struct", "Rename each of its columns")
        if is_missing(self.name, schema, "rename", if_exists=self.if_exists):
            return schema
        if schema.has(self.new_name) or of_nested(schema, self.new_name):
            message = f"Cannot rename to {self.new_name}: column with this name already exists"
            raise error("DUPLICATE_COLUMN", message)
        if self.new_name in _RESERVED:
            raise error("ILLEGAL_COLUMN", f"Cannot rename to {self.new_name}: this name is reserved")
        groups = [name.partition(".")[0] if "." in name else "" for name in (self.name, self.new_name)]
        if groups[0] != groups[1]:
            message = "Cannot rename column from one nested name to another"
            if not all(groups):
                message = "Cannot rename column from nested struct to normal column and vice versa"
            raise error("BAD_ARGUMENTS", message)
        renamed = with_new_name(schema, self.name, self.new_name)
        if self.name in key_columns(schema):
            from mergelake.engines.projections.projections import (
                table_projections,  # it loads kernels that few statements need
            )

            table_projections(renamed)  # as ClickHouse does before it looks at keys
        check_not_of_key(self.name, schema, "RENAME")
        return renamed


def of_nested(schema: TableSchema, name: str) -> tuple[str, ...]:
    """The columns `name.…` of a `Nested`, in order; none if there is no such."""
    return tuple(column.name for column in schema.columns if column.name.startswith(f"{name}."))


def is_missing(name: str, schema: TableSchema, what_for: str, *, if_exists: bool) -> bool:
    """Whether there is no column that a command names; NOT_FOUND_COLUMN_IN_BLOCK for that unless `if_exists`."""
    if schema.has(name):
        return False
    if if_exists:
        return True
    message = f"Wrong column name. Cannot find column {name} to {what_for}"
    raise error("NOT_FOUND_COLUMN_IN_BLOCK", message, _known(schema))


def named_columns(name: str, schema: TableSchema, what_for: str, *, if_exists: bool) -> tuple[str, ...]:
    """The column, or those of a `Nested`; none, or the error of `is_missing`, if there is no such."""
    nested = () if schema.has(name) else of_nested(schema, name)
    return nested or (() if is_missing(name, schema, what_for, if_exists=if_exists) else (name,))


def _known(schema: TableSchema) -> str:
    return there_are("columns", list(schema.names))
