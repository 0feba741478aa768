"""MODIFY ORDER BY, MODIFY and REMOVE SAMPLE BY. Pure.

Rows of parts that are there stay in their order. So a new sorting key is a prefix of the old one, and between or after
its expressions come others over columns that the same statement adds: all older rows have the same values in them.

Source: ClickHouse, `MergeTreeData::checkProperties`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mergelake.core.errors import error
from mergelake.core.schema import TableSchema
from mergelake.expr.nodes import column_name, referenced_columns
from mergelake.expr.parser import parse
from mergelake.order.collapsing import without_version
from mergelake.order.keys import key_tree
from mergelake.order.modes import mode_of


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
    for text in new:
        if matched < len(old) and _name(text, after) == _name(old[matched], before):
            matched += 1
            continue
        for name in referenced_columns(parse(text)):
            if before.has(name) and after.has(name) and before.column(name).id == after.column(name).id:
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


def _named(schema: TableSchema) -> tuple[str, ...]:
    """The sorting key as users name it."""
    return without_version(schema).order_by


def _name(text: str, schema: TableSchema) -> str:
    return column_name(key_tree(text, schema.names))
