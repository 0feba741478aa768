"""ADD and DROP CONSTRAINT. Pure: `api.python.constraints` looks for rows that break a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mergelake.core.base.errors import error
from mergelake.core.model.schema import Constraint, TableSchema


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """ADD CONSTRAINT c CHECK | ASSUME …"""

    constraint: Constraint
    if_not_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises ILLEGAL_COLUMN if there is one of that name."""
        name = self.constraint.name
        if any(each.name == name for each in schema.constraints):
            if self.if_not_exists:
                return schema
            message = f"Cannot add constraint {name}: constraint with this name already exists"
            raise error("ILLEGAL_COLUMN", message, "DROP CONSTRAINT first, in the same statement")
        return replace(schema, constraints=(*schema.constraints, self.constraint))


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """DROP CONSTRAINT c"""

    name: str
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises BAD_ARGUMENTS if there is none of that name."""
        names = [each.name for each in schema.constraints]
        if self.name not in names:
            if self.if_exists:
                return schema
            message = f"Wrong constraint name. Cannot find constraint `{self.name}` to drop"
            raise error("BAD_ARGUMENTS", message, "SHOW CREATE TABLE has their names")
        at = names.index(self.name)
        return replace(schema, constraints=schema.constraints[:at] + schema.constraints[at + 1 :])


def new_checks(before: TableSchema, after: TableSchema) -> TableSchema:
    """The schema `after`, with only those CHECK constraints that `before` has not."""
    new = tuple(each for each in after.constraints if each.kind == "CHECK" and each not in before.constraints)
    return replace(after, constraints=new)
