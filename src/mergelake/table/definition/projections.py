"""ADD and DROP PROJECTION. Pure.

Parts get a projection when they are written: by inserts and merges, or by MATERIALIZE PROJECTION. What parts have of
one that was dropped stays among their files, unseen, until they are merged. ClickHouse finds projections of parts by
name, and a server that has attached the published table may know an older definition of it. So a name stands for one
query for the life of the table: one that was dropped may be added again as it was, and is used where parts have it.

Source: ClickHouse, `AlterCommands.cpp`, `ProjectionsDescription::add` and `remove`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import Projection, TableSchema
from mergelake.core.types.types import AggregateFunction
from mergelake.engines.projections.projections import bind_projection, table_projections
from mergelake.parts.read.evolve import check_conversion

_FORBIDDEN = "ALTER_OF_COLUMN_IS_FORBIDDEN"


@dataclass(frozen=True, slots=True)
class AddProjection:
    """ADD PROJECTION: parts that are written from now on have it."""

    name: str
    query: str
    """`SELECT … [GROUP BY …] [ORDER BY …]`."""
    after: str | None = None
    """The projection before it; empty for FIRST, None for the last place."""
    if_not_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises ILLEGAL_PROJECTION for a name that is taken, NOT_IMPLEMENTED for one that was another projection.

        ClickHouse takes an unknown `after` for the last place, and so it is here.
        """
        names = [each.name for each in schema.projections]
        if self.name in names:
            if self.if_not_exists:
                return schema
            message = f"Cannot add projection {self.name}: projection with this name already exists."
            raise error("ILLEGAL_PROJECTION", message, "Use another name, or IF NOT EXISTS")
        new = Projection(self.name, self.query)
        if any(past.name == self.name and past != new for past in schema.past_projections):
            message = f"Cannot add projection {self.name}: it was another one, which parts and servers may still have"
            raise error("NOT_IMPLEMENTED", message, "Use another name")
        at = 0 if self.after == "" else names.index(self.after) + 1 if self.after in names else len(names)
        past = tuple(each for each in schema.past_projections if each != new)
        listed = (*schema.projections[:at], new, *schema.projections[at:])
        return replace(schema, projections=listed, past_projections=past)


@dataclass(frozen=True, slots=True)
class DropProjection:
    """DROP PROJECTION: it is no longer written or used."""

    name: str
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises NO_SUCH_PROJECTION_IN_TABLE."""
        kept = tuple(each for each in schema.projections if each.name != self.name)
        if kept == schema.projections and not self.if_exists:
            raise no_projection(self.name, schema)
        dropped = tuple(each for each in schema.projections if each.name == self.name)
        return replace(schema, projections=kept, past_projections=(*schema.past_projections, *dropped))


def no_projection(name: str, schema: TableSchema) -> MergelakeError:
    """ClickHouse's error for a projection that the table has not."""
    near = difflib.get_close_matches(name, [each.name for each in schema.projections], n=1)
    hint = f"Maybe you meant {near[0]}" if near else "SHOW CREATE TABLE has those that there are"
    return error("NO_SUCH_PROJECTION_IN_TABLE", f"There is no projection {name} in table", hint)


def check_takes_type(before: TableSchema, after: TableSchema) -> None:
    """Raise the error of a projection that does not take the type that a column has `after`.

    That of its expressions, or of the conversion of its columns: keys and states of an aggregate one have none.
    """
    for old, new in zip(table_projections(before), table_projections(after), strict=True):
        for column, changed in zip(old.schema.columns, new.schema.columns, strict=True):
            if not old.aggregate:
                check_conversion(column.type, changed.type)
            elif column.type != changed.type:
                name = "CANNOT_CONVERT_TYPE" if isinstance(column.type, AggregateFunction) else _FORBIDDEN
                message = f"{column.name} of projection {old.name} would become {changed.type}, and is {column.type}"
                raise error(name, message, f"DROP PROJECTION {old.name} before")


def check_projected(before: TableSchema, after: TableSchema) -> None:
    """Refuse a change of columns that projections hold: ClickHouse would read what parts have of them by the new one.

    NOT_IMPLEMENTED for another type, and for a column that was cleared.
    """
    for projection in before.projections:
        if projection not in after.projections:
            continue
        for name in bind_projection(projection, before).inputs:
            if not after.has(name):
                continue
            old, new = before.column(name), after.column(name)
            if old.type != new.type:
                message = f"Another type of column {name} is not supported: projection {projection.name} has it"
                raise error("NOT_IMPLEMENTED", message, f"DROP PROJECTION {projection.name} before")
            if old.id != new.id:
                message = f"CLEAR COLUMN {name} is not supported: projection {projection.name} has it"
                raise error(
                    "NOT_IMPLEMENTED", message, f"DROP PROJECTION {projection.name} before, or UPDATE the column"
                )
