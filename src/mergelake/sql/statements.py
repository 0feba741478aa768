"""Statements as values: what a parsed line of SQL says, before anything is looked up.

A closed union, `Statement`; `lower` turns each kind into calls of the public objects. Expressions, types of
keys and SELECTs stay the user's own text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mergelake.core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Name:
    """A table's name; `database` is empty where the statement gives none."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


@dataclass(frozen=True, slots=True)
class Partition:
    """PARTITION 202601, PARTITION (1, 'a') or PARTITION ID 'x'."""

    values: tuple[int | float | str | None, ...] = ()
    id: str = ""


@dataclass(frozen=True, slots=True)
class Like:
    """[NOT] LIKE | ILIKE 'pattern' of a SHOW."""

    pattern: str
    ignore_case: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropDatabase:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameDatabase:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: Name
    schema: TableSchema | None
    """None where the columns come from another table or a SELECT."""
    if_not_exists: bool = False
    like: Name | None = None
    """CREATE TABLE t AS other."""
    query: str = ""
    """CREATE TABLE t … AS SELECT: the SELECT."""
    clauses: TableSchema | None = None
    """Engine, keys and settings that go with the columns of `like` or `query`; None for those of `like`."""


@dataclass(frozen=True, slots=True)
class DropTable:
    names: tuple[Name, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTable:
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTable:
    pairs: tuple[tuple[Name, Name], ...]


@dataclass(frozen=True, slots=True)
class ExchangeTables:
    name: Name
    other: Name


@dataclass(frozen=True, slots=True)
class Use:
    database: str


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    like: Like | None = None


@dataclass(frozen=True, slots=True)
class ShowTables:
    database: str = ""
    like: Like | None = None


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    name: Name


@dataclass(frozen=True, slots=True)
class Describe:
    name: Name


@dataclass(frozen=True, slots=True)
class Exists:
    name: Name
    database: bool = False
    """EXISTS DATABASE: `name.table` is its name."""


@dataclass(frozen=True, slots=True)
class Insert:
    name: Name
    columns: tuple[str, ...] = ()
    """As given; empty for all that can be inserted."""
    excluded: tuple[str, ...] = ()
    """`(* EXCEPT (a, b))`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    format: str = ""
    """`Values`, `JSONEachRow`, … for inline data; empty for a SELECT."""
    data: str = ""
    """The inline data as written."""
    data_at: int = 0
    """Where it stands in the script, in characters."""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Optimize:
    name: Name
    partition: Partition | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class DropPartition:
    name: Name
    partition: Partition
    """No values and no id: PARTITION ALL."""


@dataclass(frozen=True, slots=True)
class Explain:
    kind: str
    """What stands between EXPLAIN and the SELECT, as ClickHouse takes it: `PLAN`, `indexes = 1`, empty."""
    query: str


@dataclass(frozen=True, slots=True)
class Set:
    settings: Mapping[str, str]
    """Values as SQL literals."""


@dataclass(frozen=True, slots=True)
class Select:
    query: str


Statement = (
    CreateDatabase
    | DropDatabase
    | RenameDatabase
    | CreateTable
    | DropTable
    | TruncateTable
    | RenameTable
    | ExchangeTables
    | Use
    | ShowDatabases
    | ShowTables
    | ShowCreateTable
    | Describe
    | Exists
    | Insert
    | Optimize
    | DropPartition
    | Explain
    | Set
    | Select
)
