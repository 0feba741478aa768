"""What the modules of system tables share: the form of their rows, and the tables of the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mergelake.lake.table import Table
    from mergelake.sql.database import Database

Rows = Iterator[tuple[Any, ...]]
"""One tuple for each row, with all columns in order."""


def all_tables(db: Database) -> Iterator[tuple[str, str, Table]]:
    """Database, name and table of each table of the warehouse, at its newest version."""
    for full in db.warehouse.tables():
        database, name = full.split(".", 1)
        yield database, name, db.table(full)


def filled(value: Any, kind: str) -> Any:
    """The value, or the default of its column's type if it is None and the type is not Nullable."""
    return {"String": ""}.get(kind, 0) if value is None and not kind.startswith("Nullable") else value


def row_of(cells: Mapping[str, Any], columns: Mapping[str, str]) -> tuple[Any, ...]:
    """The row with these cells; what is missing is NULL, or the default of its column's type."""
    return tuple(filled(cells.get(column), kind) for column, kind in columns.items())
