"""MODIFY TTL and REMOVE TTL. Pure.

Parts keep the times that they have; those of another TTL do not count (`engines.ttl.ttl`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mergelake.core.base.errors import error
from mergelake.core.model.schema import TableSchema
from mergelake.table.definition.renaming import renamed_alike


@dataclass(frozen=True, slots=True)
class ModifyTtl:
    """MODIFY TTL: the table gets another TTL."""

    ttl: str
    """The elements, as in CREATE TABLE."""

    def applied(self, schema: TableSchema) -> TableSchema:
        """The errors of `define_ttl.check_ttl` come when the schema is checked."""
        return replace(schema, ttl=(self.ttl,))


@dataclass(frozen=True, slots=True)
class RemoveTtl:
    """REMOVE TTL: the table has no TTL. Those of columns stay."""

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises BAD_ARGUMENTS if it has none."""
        if not schema.ttl:
            raise error("BAD_ARGUMENTS", "Table doesn't have any table TTL expression, cannot remove")
        return replace(schema, ttl=())


def ttl_changed(before: TableSchema, after: TableSchema) -> bool:
    """Whether a change gives a table, or one of its columns, another TTL than none. A renamed column is no change."""
    if not (after.ttl or any(column.ttl for column in after.columns)):
        return False
    names = {column.id: column.name for column in after.columns}
    before = renamed_alike(before, {c.name: names.get(c.id, f"{c.name} (dropped)") for c in before.columns})
    old = {column.id: column.ttl for column in before.columns}
    columns = any(column.ttl and column.ttl != old.get(column.id) for column in after.columns if column.id in old)
    return columns or bool(after.ttl and after.ttl != before.ttl)
