"""MODIFY, COMMENT and CLEAR COLUMN. Pure.

A new type is written down as a change (`TypeChange`): parts that were written before are converted when they are read.
Whether all of their values can be is for `table.definition.values` to find out.

Source: ClickHouse, `AlterCommands::validate` and `apply`, `MergeTreeData::checkAlterIsPossible`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mergelake.core.base.errors import error
from mergelake.core.model.schema import Column, TableSchema, TypeChange
from mergelake.core.types import types as t
from mergelake.core.types.types import DataType
from mergelake.engines.order.keys import bind_key, key_tree
from mergelake.engines.rules.modes import mode_of
from mergelake.expr.nodes import ColumnRef, referenced_columns
from mergelake.expr.parser import parse
from mergelake.parts.read.evolve import check_conversion
from mergelake.table.definition.columns import ColumnDefinition, Place, is_missing, named_columns
from mergelake.table.definition.needs import check_not_of_key, key_columns, mentions, partition_columns

PROPERTIES = ("DEFAULT", "MATERIALIZED", "ALIAS", "CODEC", "COMMENT", "TTL", "SETTINGS")
"""What REMOVE takes away."""


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    """MODIFY COLUMN: what the definition has replaces that of the column; the rest stays."""

    definition: ColumnDefinition
    place: Place | None = None
    """None: where it stands."""
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises NOT_FOUND_COLUMN_IN_BLOCK, ALTER_OF_COLUMN_IS_FORBIDDEN, BAD_ARGUMENTS, and the errors of CAST."""
        given = self.definition
        if is_missing(given.name, schema, "modify", if_exists=self.if_exists):
            return schema
        old = schema.column(given.name)
        if given.nested:
            raise error("NOT_IMPLEMENTED", "A column cannot become a Nested", "Add its columns, and drop this one")
        new = replace(
            old,
            codec=given.codec or old.codec,
            comment=given.comment if given.comment is not None else old.comment,
            ttl=given.ttl or old.ttl,
        )
        if given.default_kind:
            new = replace(new, default_kind=given.default_kind, default=given.default)
        if given.type is not None:
            new = _with_type(new, given.columns(0)[0].type, given, schema)
        columns = tuple(new if column.name == old.name else column for column in schema.columns)
        if self.place is not None and self.place.after != old.name:
            others = replace(schema, columns=tuple(column for column in columns if column.name != old.name))
            columns = self.place.insert(others, (new,))
        return replace(schema, columns=columns)


@dataclass(frozen=True, slots=True)
class RemoveProperty:
    """MODIFY COLUMN c REMOVE …."""

    name: str
    what: str
    """One of `PROPERTIES`."""
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises NOT_FOUND_COLUMN_IN_BLOCK, and BAD_ARGUMENTS if the column has no such property."""
        if is_missing(self.name, schema, "modify", if_exists=self.if_exists):
            return schema
        column = schema.column(self.name)
        match self.what:
            case "CODEC":
                return _replaced(schema, column, replace(column, codec=""), had=column.codec, what="CODEC")
            case "COMMENT":
                return _replaced(schema, column, replace(column, comment=""), had=column.comment, what="COMMENT")
            case "TTL":
                return _replaced(schema, column, replace(column, ttl=""), had=column.ttl, what="TTL")
            case "SETTINGS":
                return schema
        had = column.default_kind if column.default_kind == self.what else ""
        if column.default_kind and not had:
            message = f"Cannot remove {self.what} from column {self.name}, because column default type is"
            hint = f"Use REMOVE {column.default_kind} to delete it"
            raise error("BAD_ARGUMENTS", f"{message} {column.default_kind}", hint)
        return _replaced(schema, column, replace(column, default_kind="", default=""), had=had, what=self.what)


@dataclass(frozen=True, slots=True)
class CommentColumn:
    """COMMENT COLUMN."""

    name: str
    comment: str
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises NOT_FOUND_COLUMN_IN_BLOCK."""
        if is_missing(self.name, schema, "comment", if_exists=self.if_exists):
            return schema
        column = schema.column(self.name)
        return _with(schema, column, replace(column, comment=self.comment))


@dataclass(frozen=True, slots=True)
class ClearColumn:
    """CLEAR COLUMN: all rows have the column's default.

    The column becomes a new one of the same name, type and place, which no part holds.
    """

    name: str
    """A column, or a `Nested` with all of its columns."""
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises NOT_FOUND_COLUMN_IN_BLOCK, ALTER_OF_COLUMN_IS_FORBIDDEN."""
        for name in named_columns(self.name, schema, "drop", if_exists=self.if_exists):
            check_not_of_key(name, schema, "CLEAR")
            if schema.column(name).default_kind in ("ALIAS", "EPHEMERAL"):
                continue
            column = replace(schema.column(name), id=schema.next_column_id, changes=())
            schema = replace(_with(schema, schema.column(name), column), next_column_id=schema.next_column_id + 1)
        return schema


def _with_type(column: Column, kind: DataType, given: ColumnDefinition, schema: TableSchema) -> Column:
    """The column with another type; raises the errors for types that it cannot have."""
    old = column.type
    if kind == old:
        return column
    null = ""
    if t.is_nullable(old) and not t.is_nullable(kind):
        if given.default_kind != "DEFAULT":
            message = f"Cannot convert column '{column.name}' from nullable type {old} to non-nullable type {kind}"
            raise error("BAD_ARGUMENTS", message, "Specify a DEFAULT expression, which takes the place of NULL")
        read = referenced_columns(parse(given.default))
        if read:
            message = f"The default that takes the place of NULL in column {column.name} reads the column {read[0]}"
            raise error("UNKNOWN_IDENTIFIER", message, "Give a constant, and another DEFAULT afterwards")
        null = given.default
    _check_key(column, kind, schema)
    if column.default_kind not in ("ALIAS", "EPHEMERAL"):
        check_conversion(old, kind, null)
    change = TypeChange(schema.version + 1, kind, null)
    return replace(column, type=kind, changes=(*column.changes, change))


def in_one_step(before: TableSchema, after: TableSchema) -> TableSchema:
    """The schema after a statement, with types that several of its commands changed converted at once.

    No row ever had the types between. Raises the errors of CAST.
    """
    old = {column.id: column for column in before.columns}
    columns = tuple(_in_one_step(old[c.id], c) if c.id in old else replace(c, changes=()) for c in after.columns)
    return after if columns == after.columns else replace(after, columns=columns)


def _in_one_step(old: Column, new: Column) -> Column:
    changes = new.changes[len(old.changes) :]
    if len(changes) <= 1:
        return new
    null = next((change.null for change in changes if change.null), "")
    if new.default_kind not in ("ALIAS", "EPHEMERAL"):
        check_conversion(old.type, new.type, null)
    step = () if new.type == old.type else (replace(changes[-1], null=null if t.is_nullable(old.type) else ""),)
    return replace(new, changes=(*old.changes, *step))


def _check_key(column: Column, kind: DataType, schema: TableSchema) -> None:
    """ALTER_OF_COLUMN_IS_FORBIDDEN for a type that could change the order or the partition of rows.

    The error of a key's expression or of a projection that does not take the type comes before, as in ClickHouse.
    """
    if column.name not in key_columns(schema):
        return
    changed = _with(schema, schema.column(column.name), replace(column, type=kind))
    for text in (*schema.order_by, *schema.partition_by):
        bind_key(text, changed)  # raises the error of a function that does not take the type
    refused = _refused_for_keys(column, kind, schema)
    if refused:
        from mergelake.table.definition.projections import check_takes_type  # it loads kernels that few statements need

        check_takes_type(schema, changed)
        raise error("ALTER_OF_COLUMN_IS_FORBIDDEN", refused, "Create another table, and insert into it")


def _refused_for_keys(column: Column, kind: DataType, schema: TableSchema) -> str:
    """Why a column of a key cannot have a type; empty if it can."""
    name, old = column.name, column.type
    if name in partition_columns(schema) and not _extends_enum(old, kind):
        return f"ALTER of partition key column {name} from type {old} to type {kind} is not safe"
    mode = mode_of(schema)
    texts = [*schema.order_by, *schema.partition_by, *([schema.sample_by] if schema.sample_by else [])]
    trees = [key_tree(text, schema.names) for text in texts]
    inside = any(tree != ColumnRef(name) and mentions(tree, name, schema) for tree in trees)
    if inside or (mode is not None and name in (mode.sign, mode.tombstone)):
        return f"ALTER of key column {name} is forbidden"
    by_engine = all(tree != ColumnRef(name) for tree in trees)
    if by_engine and (mode is None or name != mode.decides or _is_wider(old, kind)):
        return ""
    return "" if _keeps_order(old, kind) else f"ALTER of key column {name} from type {old} to type {kind} is not safe"


def _extends_enum(old: DataType, new: DataType) -> bool:
    return isinstance(old, t.Enum) and isinstance(new, t.Enum) and old.bits == new.bits and _holds_all(old, new)


def _holds_all(old: t.Enum, new: t.Enum) -> bool:
    return set(old.items) <= set(new.items)


def _is_wider(old: DataType, new: DataType) -> bool:
    """Whether versions of a type compare the same in another."""
    return isinstance(old, t.Int) and isinstance(new, t.Int) and old.signed == new.signed and old.bits <= new.bits


def _keeps_order(old: DataType, new: DataType) -> bool:
    """Whether values of a key keep their bytes and their order."""
    match old, new:
        case t.Enum(), t.Enum():
            return _extends_enum(old, new)
        case t.Enum(bits), t.Int(other, True):
            return bits == other
        case t.LowCardinality(inner), _ if inner == new:
            return True
        case _, t.LowCardinality(inner) if inner == old:
            return True
        case (t.DateTime(), t.DateTime()) | (t.Date(), t.Int(16, False)) | (t.Int(16, False), t.Date()):
            return True
        case (t.DateTime(), t.Int(32, False)) | (t.Int(32, False), t.DateTime()):
            return True
    return False


def _replaced(schema: TableSchema, column: Column, new: Column, *, had: str, what: str) -> TableSchema:
    if not had:
        raise error("BAD_ARGUMENTS", f"Column {column.name} doesn't have {what}, cannot remove it", "Leave it out")
    return _with(schema, column, new)


def _with(schema: TableSchema, column: Column, new: Column) -> TableSchema:
    """The schema with another column in the place of one."""
    return replace(schema, columns=tuple(new if each is column else each for each in schema.columns))
