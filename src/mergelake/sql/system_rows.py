"""What the modules of system tables share: the form of their rows, and the tables of the warehouse."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mergelake.core.errors import MergelakeError
from mergelake.core.types import STRING
from mergelake.expr.compiled import Compiled, compile_expression

if TYPE_CHECKING:
    from mergelake.lake.table import Table
    from mergelake.sql.database import Database

Rows = Iterator[tuple[Any, ...]]
"""One tuple for each row, with all columns in order."""
DATABASE = "database"
NO_UUID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a statement needs of a system table."""

    columns: frozenset[str]
    """Columns that are read: others may be left empty."""
    conditions: tuple[Compiled, ...] = ()
    """Conditions over database and table alone: rows of tables for which one is false may be left out."""

    def tables(self, names: Sequence[str]) -> list[str]:
        """Those of some names, as `database.table`, that the conditions leave."""
        kept = np.ones(len(names), bool)
        databases, tables = (pa.array([name.split(".", 1)[at] for name in names], pa.large_binary()) for at in (0, 1))
        block = pa.table({DATABASE: databases, "table": tables, "name": tables})
        for condition in self.conditions:
            kept &= condition.mask(block)
        return [name for name, keep in zip(names, kept, strict=True) if keep]


def condition_on_names(text: str, columns: Collection[str]) -> Compiled | None:
    """A condition over the database and the table of each row of a system table; None if it is about anything else."""
    if DATABASE not in columns:
        return None
    table = "table" if "table" in columns else "name"
    try:
        condition = compile_expression(text, {DATABASE: STRING, table: STRING})
    except MergelakeError:
        return None
    return condition if condition.columns else None


def all_tables(db: Database, wanted: Wanted) -> Iterator[tuple[str, str, Table]]:
    """Database, name and table of each table of the warehouse that is wanted, at its newest version."""
    for full in wanted.tables(db.warehouse.tables()):
        database, name = full.split(".", 1)
        yield database, name, db.table(full)


def filled(value: Any, kind: str) -> Any:
    """The value, or the default of its column's type if it is None and the type is not Nullable."""
    if value is not None or kind.startswith("Nullable"):
        return value
    return [] if kind.startswith(("Array", "Map")) else "" if kind == "String" else 0


def row_of(cells: Mapping[str, Any], columns: Mapping[str, str]) -> tuple[Any, ...]:
    """The row with these cells; what is missing is NULL, or the default of its column's type."""
    return tuple(filled(cells.get(column), kind) for column, kind in columns.items())


def uuid_of(directory: str) -> str:
    """The UUID of the table with this directory."""
    digits = directory.rsplit("/", 1)[-1]
    return uuid_text(digits) if len(digits) == 32 else NO_UUID


def uuid_text(digits: str) -> str:
    """32 hex digits as a UUID is written."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
