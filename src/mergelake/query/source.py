"""What a SELECT reads from: the one interface between `query` and whoever has tables.

A `Source` is a table as it was when the statement began (a snapshot), so a table named twice in one statement
is the same table. `plan` decides which parts and marks to read, `Scan.read` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mergelake.core.arrow import storage_schema
from mergelake.core.errors import InternalError, error
from mergelake.core.types import DataType
from mergelake.store.spec import StoreSpec

if TYPE_CHECKING:
    from mergelake.query.attach.part_set import PartSet


IN_MEMORY = "rows in memory"
"""Why a table is scanned that has no parts."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """`AS OF VERSION 42`, `AS OF TAG 'release'` or `AS OF TIMESTAMP '2026-01-31 12:00:00'`: one of the two is set."""

    version: int | str | None = None
    """A number, or the name of a tag."""
    timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What one reference to a table needs."""

    columns: tuple[str, ...]
    """Stored columns, in the table's order; never empty."""
    where: str = ""
    """Predicate as ClickHouse text over this table's columns: rows it rejects need not be given."""
    prewhere: str = ""
    """The part of the statement's PREWHERE that the table can judge alone."""
    final: bool = False
    sample: str = ""
    """`1/10` or `0.1`; empty for all rows."""
    sample_offset: str = ""
    exact: bool = False
    """Rows that the conditions reject must not be given: nobody filters after this."""


class Scan(Protocol):
    """One planned read."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The wanted columns."""
        ...

    @property
    def rows(self) -> int:
        """Rows in the mark ranges that will be read, before any predicate on values."""
        ...

    @property
    def partitions(self) -> int:
        """How many partitions will be read."""
        ...

    @property
    def partitions_max(self) -> int:
        """How many of them the table lets one statement read; -1: any number."""
        ...

    @property
    def items(self) -> Sequence[Any]:
        """Independent pieces of the read; each pickles and can be read in another process."""
        ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, storage form, exactly the wanted columns."""
        ...

    def explain(self) -> list[str]:
        """What each step of pruning dropped, a line each."""
        ...

    def reader(self) -> Callable[[Any], Iterator[pa.RecordBatch]]:
        """A picklable function from an item to its rows, for a task in another process."""
        ...


class Source(Protocol):
    """A table at one version."""

    @property
    def columns(self) -> Mapping[str, DataType]:
        """Columns that can be read, in the table's order."""
        ...

    @property
    def computed(self) -> Mapping[str, tuple[DataType, str]]:
        """ALIAS columns: type and expression over `columns`."""
        ...

    @property
    def hidden(self) -> frozenset[str]:
        """Columns that `*` leaves out: MATERIALIZED and ALIAS ones."""
        ...

    @property
    def version(self) -> Hashable:
        """Changes when the columns do: the key of cached plans."""
        ...

    def exact_rows(self) -> int | None:
        """The number of rows, where it is known without reading any; else None."""
        ...

    def can_filter(self, predicate: str) -> bool:
        """Whether `ReadRequest.where` may hold `predicate`."""
        ...

    def scans_sooner(self, wanted: ReadRequest) -> bool:
        """Whether a scan gives a few rows sooner than ClickHouse does where it has the parts attached."""
        ...

    def at(self, moment: AsOf) -> Source:
        """The same table at an older version; BAD_ARGUMENTS for one that never was, NOT_IMPLEMENTED without any."""
        ...

    def plan(self, wanted: ReadRequest) -> Scan:
        """Decide what to read."""
        ...

    def why_scanned(self, wanted: ReadRequest, *, count: bool = False, must: bool = False) -> str:
        """Why ClickHouse does not read it by itself; empty if it does.

        `count`: a statement is about to read it. `must`: it cannot be scanned.
        """
        ...

    def shared(self, wanted: ReadRequest) -> tuple[StoreSpec, PartSet] | None:
        """The parts that the ClickHouse of another process could read by itself, and how it opens the store."""
        ...

    def attached(self, wanted: ReadRequest, *, must: bool = False) -> AbstractContextManager[Layers]:
        """Its tables in the embedded ClickHouse, while they are needed. Only where `why_scanned` is empty."""
        ...


@dataclass(frozen=True, slots=True)
class Layers:
    """A table as ClickHouse reads it by itself: tables of its own, beside a scan of what they do not have."""

    tables: tuple[tuple[str, tuple[str, ...]], ...]
    """Their names, and those of the parts in each that are not to be read."""
    rest: Scan | None = None
    remote: bool = False
    """Whether reading the tables waits for a store."""


Resolve = Callable[[str, str], "Source | None"]
"""(database or empty, table) -> the table, or None for one that is not ours (`system.functions`)."""


@dataclass(frozen=True, slots=True)
class ArrowSource:
    """Rows in memory as a source: system tables, results, tests."""

    table: pa.Table
    """Storage form."""
    columns: Mapping[str, DataType]

    @property
    def computed(self) -> Mapping[str, tuple[DataType, str]]:
        """Nothing is computed."""
        return {}

    @property
    def hidden(self) -> frozenset[str]:
        """Nothing is hidden."""
        return frozenset()

    @property
    def version(self) -> Hashable:
        """The columns themselves."""
        return tuple((name, str(data_type)) for name, data_type in self.columns.items())

    def exact_rows(self) -> int | None:
        """Rows of the table."""
        return int(self.table.num_rows)

    def can_filter(self, predicate: str) -> bool:
        """ClickHouse filters; nothing is gained before it."""
        return False

    def scans_sooner(self, wanted: ReadRequest) -> bool:
        """There are no parts."""
        return True

    def at(self, moment: AsOf) -> Source:
        """Rows in memory have no history."""
        raise error("NOT_IMPLEMENTED", "This table has no older versions", "Leave out AS OF")

    def plan(self, wanted: ReadRequest) -> ArrowScan:
        """The whole table, its wanted columns; NOT_IMPLEMENTED where exactly the rows of a condition are asked for."""
        if wanted.exact and (wanted.where or wanted.prewhere):
            raise error("NOT_IMPLEMENTED", "Rows in memory are filtered by ClickHouse")
        schema = storage_schema({name: self.columns[name] for name in wanted.columns})
        return ArrowScan(self.table.select(wanted.columns).cast(schema))

    def why_scanned(self, wanted: ReadRequest, *, count: bool = False, must: bool = False) -> str:
        """Always."""
        return IN_MEMORY

    def shared(self, wanted: ReadRequest) -> None:
        """There are none."""

    def attached(self, wanted: ReadRequest, *, must: bool = False) -> AbstractContextManager[Layers]:
        """There is none."""
        raise InternalError("Rows in memory are not attached")


@dataclass(frozen=True, slots=True)
class ArrowScan:
    """A read of rows in memory."""

    table: pa.Table

    @property
    def columns(self) -> tuple[str, ...]:
        """All that it holds."""
        return tuple(self.table.column_names)

    @property
    def rows(self) -> int:
        """All of them."""
        return int(self.table.num_rows)

    @property
    def partitions(self) -> int:
        """There are none to count."""
        return 0

    @property
    def partitions_max(self) -> int:
        """Any number."""
        return -1

    @property
    def items(self) -> Sequence[pa.Table]:
        """One piece."""
        return (self.table,)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The batches as they are."""
        yield from self.table.to_batches()

    def explain(self) -> list[str]:
        """One line."""
        return [f"In memory: {self.rows} rows"]

    def reader(self) -> Callable[[pa.Table], Iterator[pa.RecordBatch]]:
        """The batches of an item."""
        return _batches


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches()
