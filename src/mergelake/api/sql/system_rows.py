"""What the modules of system tables share: the form of their rows, and the tables of the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mergelake.api.sql.system_conditions import Conditions

if TYPE_CHECKING:
    from mergelake.api.python.table import Table
    from mergelake.api.sql.session import Session
    from mergelake.log.storage.catalog import VirtualTable

Rows = Iterator[tuple[Any, ...]]
"""One tuple for each row, with all columns in order."""
NO_UUID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a statement needs of a system table."""

    columns: frozenset[str]
    """Columns that are read: others may be left empty."""
    conditions: Conditions
    """Rows that they reject may be left out."""


def all_tables(db: Session, wanted: Wanted) -> Iterator[tuple[str, str, Table]]:
    """Session, name and table of each table of the warehouse that is wanted, at its newest version."""
    for full in wanted.conditions.tables(db.warehouse.tables()):
        database, name = full.split(".", 1)
        yield database, name, db.table(full)


def all_virtual(db: Session, wanted: Wanted) -> Iterator[tuple[str, str, VirtualTable]]:
    """Session, name and definition of each view and union of the warehouse that is wanted."""
    virtual = db.warehouse.catalog.state.virtual
    known = {f"{database}.{name}": table for database, named in virtual.items() for name, table in named.items()}
    for full in wanted.conditions.tables(sorted(known)):
        database, name = full.split(".", 1)
        yield database, name, known[full]


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
