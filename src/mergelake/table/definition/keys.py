"""MODIFY ORDER BY, MODIFY and REMOVE SAMPLE BY. Pure.

Rows of parts that are there stay in their order. So a new sorting key is a prefix of the old one, and between or after
its expressions come others over columns that the same statement adds: all older rows have the same values in them.

Source: ClickHouse, `MergeTreeData::checkProperties`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mergelake.core.base.errors import error
from mergelake.core.model.schema import TableSchema
from mergelake.engines.order.keys import key_tree, table_keys
from mergelake.engines.rules.collapsing import without_version
from mergelake.engines.rules.modes import mode_of
from mergelake.expr.nodes import column_name, referenced_columns
from mergelake.expr.parser import parse
from mergelake.table.definition.define_indexes import check_deterministic


@dataclass(frozen=True, slots=True)
class ModifyOrderBy:
    """MODIFY ORDER BY (a, b): the primary key stays as it is."""

    order_by: tuple[str, ...]

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises BAD_ARGUMENTS for a descending key, NOT_IMPLEMENTED for a table without a key; see `check_new_key`."""
        if any(schema.order_desc):
            at = schema.order_desc.index(True)
            message = f"Sort direction of the sorting key column {schema.order_by[at]} would change from DESC to ASC"
            raise error(
                "BAD_ARGUMENTS", message, "Create a table with the desired ORDER BY, and INSERT … SELECT into it"
            )
        if not schema.order_by and self.order_by:
            message = "MODIFY ORDER BY of a table with ORDER BY tuple() is not supported: it has no primary key"
            raise error(
                "NOT_IMPLEMENTED", message, "Create a table with the desired ORDER BY, and INSERT … SELECT into it"
            )
        primary = schema.primary_key or schema.order_by
        return replace(schema, order_by=self.order_by, primary_key=primary)


@dataclass(frozen=True, slots=True)
class ModifySampleBy:
    """MODIFY SAMPLE BY x, which is in the primary key."""

    sample_by: str

    def applied(self, schema: TableSchema) -> TableSchema:
        """The checks of a new table follow."""
        return replace(schema, sample_by=self.sample_by)


@dataclass(frozen=True, slots=True)
class RemoveSampleBy:
    """REMOVE SAMPLE BY"""

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises BAD_ARGUMENTS if there is none."""
        if not schema.sample_by:
            raise error("BAD_ARGUMENTS", "Table doesn't have SAMPLE BY, cannot remove")
        return replace(schema, sample_by="")


def check_new_key(before: TableSchema, after: TableSchema) -> None:
    """Raise BAD_ARGUMENTS unless all rows of the table `before` are in the order of the sorting key of `after`.

    NOT_IMPLEMENTED for a shorter key of an engine that collapses rows: FINAL takes rows of one part for different.
    """
    old, new = (_named(schema) for schema in (before, after))
    if old == new:
        return
    matched = 0
    known = {column.id for column in before.columns}
    for text in new:
        if matched < len(old) and _name(text, after) == _name(old[matched], before):
            matched += 1
            continue
        for name in referenced_columns(parse(text)):
            if after.has(name) and after.column(name).id in known:
                raise error(
                    "BAD_ARGUMENTS",
                    f"Existing column {name} is used in the expression that was added to the sorting key. "
                    "You can add expressions that use only the newly added columns",
                )
            if after.has(name) and after.column(name).default_kind in ("DEFAULT", "MATERIALIZED"):
                raise error(
                    "BAD_ARGUMENTS",
                    f"Newly added column {name} has a default expression, so adding expressions that use it to the "
                    "sorting key is forbidden",
                )
    if matched < len(old) and mode_of(after) is not None:
        message = f"A {after.engine} cannot get a sorting key without {old[matched]}: rows of one part would be equal"
        raise error("NOT_IMPLEMENTED", message, "Create a table with the desired ORDER BY, and INSERT … SELECT into it")


def check_key_defaults(schemas: Iterable[TableSchema], before: TableSchema, after: TableSchema) -> None:
    """Raise ALTER_OF_COLUMN_IS_FORBIDDEN for a new default of a column of the sorting key that parts may lack.

    Of `schemas`, all that the table had. Such parts are sorted by the new key because all their rows have one value in
    the column: a default over other columns would give them several. BAD_ARGUMENTS for `rand()` and its like.
    """
    old = {column.id: (column.default_kind, column.default) for column in before.stored}
    for name in dict.fromkeys(name for key in table_keys(after).sorting for name in key.columns):
        column = after.column(name)
        if not column.default or old.get(column.id) in (None, (column.default_kind, column.default)):
            continue
        if any(column.id not in schema.by_id for schema in schemas):
            tree = parse(column.default)
            if referenced_columns(tree):
                message = f"The default of key column {name} reads other columns, and parts that lack it are sorted"
                raise error("ALTER_OF_COLUMN_IS_FORBIDDEN", message, "Give a constant, or create another table")
            check_deterministic(tree)


def _named(schema: TableSchema) -> tuple[str, ...]:
    """The sorting key as users name it."""
    return without_version(schema).order_by


def _name(text: str, schema: TableSchema) -> str:
    return column_name(key_tree(text, schema.names))
