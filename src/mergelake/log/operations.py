"""What a log entry may say.

An entry holds one or more operations; they land together or not at all. Operations never carry block
numbers: those are given by the entry's position when it is folded, so a writer needs no reservation and
a retry costs nothing. Kinds are added over time; what a kind means never changes.

Table operations: `CreateTable`, `AlterMetadata`, `AddParts`, `Publish`, `DropRange`, `DropTable`.
Catalog operations: `CreateDatabase`, `DropDatabase`, `RenameDatabase`, `PutTable`, `RemoveTable`, `RenameTable`,
`Exchange`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mergelake.core.manifest import PartManifest
from mergelake.core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class CreateTable:
    """The first operation of a table's log."""

    schema: TableSchema


@dataclass(frozen=True, slots=True)
class AlterMetadata:
    """The table's schema from here on; its version is the last one plus one."""

    schema: TableSchema


@dataclass(frozen=True, slots=True)
class AddParts:
    """New rows. Each part gets the next block number, in the order of `parts`."""

    parts: tuple[PartManifest, ...]
    dedup_token: str = ""
    """The caller's name for this insert: a second one with the same token adds nothing."""
    dedup_hash: str = ""
    """Hash of the rows as sent, for tables that remember them (`non_replicated_deduplication_window`)."""


@dataclass(frozen=True, slots=True)
class Publish:
    """A written part takes the place of active ones: the only way in which a merge retires parts.

    Its name follows from what it replaces: first and last block, highest level plus one, newest mutation.
    """

    part: PartManifest
    replaced: tuple[str, ...]
    """Ids of the active parts that it replaces: all of one partition, with nothing active between them."""
    kind: str = "direct"
    """Why: `direct` is a merge whose result was written straight to the store."""


@dataclass(frozen=True, slots=True)
class DropRange:
    """All rows of a partition, or of the table, up to a block number."""

    partition_id: str | None = None
    """None is every partition."""
    kind: str = "drop"
    """`drop` or `truncate`."""
    max_block: int | None = None
    """Last block that goes; None is everything committed before this entry."""


@dataclass(frozen=True, slots=True)
class DropTable:
    """The table is gone; nothing may follow."""


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """A new, empty database."""

    name: str


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """An empty database goes."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameDatabase:
    """A database, with all its tables, gets another name."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class PutTable:
    """A name for a table that has a log already."""

    database: str
    name: str
    table_id: str
    """Directory of the table."""


@dataclass(frozen=True, slots=True)
class RemoveTable:
    """A name goes, if it still means this table."""

    database: str
    name: str
    table_id: str


@dataclass(frozen=True, slots=True)
class RenameTable:
    """A table gets another name; no byte of it moves."""

    database: str
    name: str
    new_database: str
    new_name: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """Two names swap their tables at one instant."""

    database: str
    name: str
    other_database: str
    other_name: str


TableOp: TypeAlias = CreateTable | AlterMetadata | AddParts | Publish | DropRange | DropTable
CatalogOp: TypeAlias = CreateDatabase | DropDatabase | RenameDatabase | PutTable | RemoveTable | RenameTable | Exchange
LogOp: TypeAlias = TableOp | CatalogOp


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit: `_log/<version, 20 digits>.json`."""

    version: int
    """Its position: 1, 2, 3, … without gaps."""
    attempt: str
    """Drawn by the writer; tells its own entry from another's after a lost reply."""
    timestamp_ms: int
    """The writer's clock, never less than the entry before."""
    author: str
    """Who committed, for people."""
    ops: tuple[LogOp, ...]
