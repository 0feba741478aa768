"""The interface between `query` and the tables that it reads.

A `Source` is a table at the version when the statement began (a snapshot), so a table named twice in one statement has
the same rows. `plan` decides which parts and marks to read, `SourceScan.read` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from mergelake.core.base.errors import InternalError, error
from mergelake.core.types.arrow import storage_schema
from mergelake.core.types.types import DataType
from mergelake.log.storage.catalog import VirtualTable
from mergelake.store.interface.protocol import StoreSpec

if TYPE_CHECKING:
    from mergelake.query.part_set import PartSet
    from mergelake.table.pending.select import View


IN_MEMORY = "rows in memory"
"""Reason for scanning a table without parts."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """`AS OF VERSION 42`, `AS OF TAG 'release'` or `AS OF TIMESTAMP '2026-01-31 12:00:00'`: one of the two is set."""

    version: int | str | None = None
    """A number, or the name of a tag."""
    timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The columns and rows that one reference to a table needs."""

    columns: tuple[str, ...]
    """Stored columns, in the table's order; never empty."""
    where: str = ""
    """Predicate as ClickHouse text over this table's columns: rows that it rejects may be omitted."""
    prewhere: str = ""
    """The part of the statement's PREWHERE that the table can evaluate alone."""
    final: bool = False
    sample: str = ""
    """`1/10` or `0.1`; empty for all rows."""
    sample_offset: str = ""
    exact: bool = False
    """Rows that the conditions reject must be omitted, because nothing filters after the scan."""
    settings_matter: bool = False
    """Whether settings of the statement may change what expressions mean."""


class SourceScan(Protocol):
    """One planned read."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        ...

    @property
    def rows(self) -> int:
        """Rows in the mark ranges that will be read, before filtering."""
        ...

    @property
    def partitions(self) -> int:
        """Number of partitions that will be read."""
        ...

    @property
    def partitions_max(self) -> int:
        """Maximum number of partitions that the table lets a statement read; -1: any number."""
        ...

    @property
    def items(self) -> Sequence[Any]:
        """Independent pieces of the read; each pickles and can be read in another process."""
        ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, in storage form, with exactly the columns."""
        ...

    def explain(self) -> list[str]:
        """Lines of EXPLAIN about each step of pruning."""
        ...

    def reader(self) -> Callable[[Any], Iterator[pa.RecordBatch]]:
        """A picklable function from an item to its rows, for a task in another process."""
        ...


class Readable(Protocol):
    """What a statement can name of a table."""

    @property
    def columns(self) -> Mapping[str, DataType]:
        """Types of the columns that can be read, in the table's order."""
        ...

    @property
    def computed(self) -> Mapping[str, tuple[DataType, str]]:
        """ALIAS columns: type and expression over `columns`."""
        ...

    @property
    def hidden(self) -> frozenset[str]:
        """Columns that `*` omits: MATERIALIZED and ALIAS ones."""
        ...

    def can_filter(self, predicate: str) -> bool:
        """Whether `ReadRequest.where` may hold `predicate`."""
        ...


class Source(Readable, Protocol):
    """A table at one version."""

    @property
    def version(self) -> Hashable:
        """Key of cached statements: changes when the columns do."""
        ...

    def exact_rows(self) -> int | None:
        """The number of rows, if it is known without reading; else None."""
        ...

    @property
    def takes_final(self) -> bool:
        """Whether FINAL has a meaning: the engine makes one row of several."""
        ...

    def scans_sooner(self, wanted: ReadRequest) -> bool:
        """Whether a scan of a few rows is faster than ClickHouse with attached parts."""
        ...

    def at(self, moment: AsOf) -> Source:
        """The table at an older version. Raises BAD_ARGUMENTS, or NOT_IMPLEMENTED without history."""
        ...

    def plan(self, wanted: ReadRequest) -> SourceScan:
        """Plan a scan."""
        ...

    def why_scanned(self, wanted: ReadRequest, *, count: bool = False, must: bool = False) -> str:
        """Why ClickHouse does not read the table by itself; empty if it does.

        `count`: a statement is about to read it. `must`: it cannot be scanned.
        """
        ...

    def shared(self, wanted: ReadRequest) -> Shared | None:
        """What the ClickHouse of another process reads; None if it cannot read the parts."""
        ...

    def attached(self, wanted: ReadRequest, *, must: bool = False) -> AbstractContextManager[Layers]:
        """Context with its attached tables in the embedded ClickHouse. Only if `why_scanned` is empty."""
        ...


@dataclass(frozen=True, slots=True)
class Layers:
    """A table that ClickHouse reads by itself: attached tables, and a scan of parts that they do not have."""

    tables: tuple[tuple[str, tuple[str, ...]], ...]
    """(table name, names of its parts to exclude)."""
    rest: SourceScan | None = None
    remote: bool = False
    """Whether reading the tables waits for a store."""
    view: View | None = None
    """Mutations that parts of the tables lack; the scan applies its own."""
    notes: tuple[str, ...] = ()
    """Lines for EXPLAIN."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A table for the ClickHouse of another process."""

    spec: StoreSpec
    """Opens the store."""
    parts: PartSet
    view: View | None
    """Mutations that the parts lack."""


Resolve = Callable[[str, str], "Source | None"]
"""(database or empty, table) -> its source, or None for a table of ClickHouse itself (`system.functions`)."""


@runtime_checkable
class Names(Protocol):
    """A `Resolve` that also knows the views and unions of the catalog, all at one version of it."""

    def __call__(self, database: str, name: str) -> Source | None:
        """The table of a name, as a `Resolve` finds it."""
        ...

    def virtual(self, database: str, name: str) -> VirtualTable | None:
        """The view or union of this name; the database may be empty."""
        ...

    def databases(self) -> Sequence[str]:
        """Names of all databases, sorted."""
        ...

    def tables(self, database: str) -> Sequence[str]:
        """Every name in a database, sorted. Raises UNKNOWN_DATABASE."""
        ...


@dataclass(frozen=True, slots=True)
class ArrowSource:
    """Rows in memory as a source: system tables, results, tests."""

    table: pa.Table
    """The rows in storage form."""
    columns: Mapping[str, DataType]

    @property
    def computed(self) -> Mapping[str, tuple[DataType, str]]:
        """No columns."""
        return {}

    @property
    def hidden(self) -> frozenset[str]:
        """No columns."""
        return frozenset()

    @property
    def version(self) -> Hashable:
        """Names and types of the columns."""
        return tuple((name, str(data_type)) for name, data_type in self.columns.items())

    def exact_rows(self) -> int | None:
        """Number of rows."""
        return int(self.table.num_rows)

    def can_filter(self, predicate: str) -> bool:
        """False: filtering before ClickHouse saves nothing."""
        return False

    @property
    def takes_final(self) -> bool:
        """False."""
        return False

    def scans_sooner(self, wanted: ReadRequest) -> bool:
        """Always: there are no parts to attach."""
        return True

    def at(self, moment: AsOf) -> Source:
        """Raise NOT_IMPLEMENTED: rows in memory have no history."""
        raise error("NOT_IMPLEMENTED", "This table has no older versions", "Leave out AS OF")

    def plan(self, wanted: ReadRequest) -> ArrowScan:
        """A scan of all rows. Raises NOT_IMPLEMENTED for an `exact` request with conditions."""
        if wanted.exact and (wanted.where or wanted.prewhere):
            raise error("NOT_IMPLEMENTED", "Rows in memory are filtered by ClickHouse")
        schema = storage_schema({name: self.columns[name] for name in wanted.columns})
        return ArrowScan(self.table.select(wanted.columns).cast(schema))

    def why_scanned(self, wanted: ReadRequest, *, count: bool = False, must: bool = False) -> str:
        """Always `IN_MEMORY`."""
        return IN_MEMORY

    def shared(self, wanted: ReadRequest) -> None:
        """None: there are no parts."""

    def attached(self, wanted: ReadRequest, *, must: bool = False) -> AbstractContextManager[Layers]:
        """Never called."""
        raise InternalError("Rows in memory are not attached")


@dataclass(frozen=True, slots=True)
class ArrowScan:
    """A read of rows in memory."""

    table: pa.Table

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.table.column_names)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def partitions(self) -> int:
        """No partitions."""
        return 0

    @property
    def partitions_max(self) -> int:
        """No limit."""
        return -1

    @property
    def items(self) -> Sequence[pa.Table]:
        """The table as one piece."""
        return (self.table,)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The batches of the table."""
        yield from self.table.to_batches()

    def explain(self) -> list[str]:
        """One line about the table."""
        return [f"In memory: {self.rows} rows"]

    def reader(self) -> Callable[[pa.Table], Iterator[pa.RecordBatch]]:
        """A function that returns the batches of an item."""
        return _batches


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches()
