"""`Scan`: a planned read of one version of a table; no rows are read before a result is requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.api.python.environment import Environment
from mergelake.core.base.errors import error
from mergelake.core.convert.public import rows_of, to_public_table
from mergelake.core.types.arrow import arrow_schema
from mergelake.core.types.types import DataType
from mergelake.scan.prune.predicate import all_types
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.explain import explain_text
from mergelake.scan.read.plan import ScanPlan, plan_scan
from mergelake.scan.read.read import read_items
from mergelake.scan.read.stats import ScanStats
from mergelake.store.interface.protocol import Store
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.volatile.volatile_store import volatile_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, repr=False)
class Scan:
    """A planned read of one version of a table, made by `Table.scan`.

    It can be read more than once, and always returns the same rows. It is an Arrow stream (`polars.DataFrame(scan)`,
    `pyarrow.table(scan)`, DuckDB's `FROM scan`) and an iterator of rows as tuples.
    """

    name: str
    handle: TableHandle
    plan: ScanPlan
    counted: Callable[[], ScanPlan]
    """Returns the same plan, with the granules that each index leaves."""
    env: Environment
    store: Store
    """That of the table, with the volatile parts of the plan."""
    stats: ScanStats = field(default_factory=ScanStats)
    """Parts, granules, rows and bytes read so far, except by Spark."""

    @staticmethod
    def of(name: str, handle: TableHandle, snapshot: Snapshot, request: ScanRequest, env: Environment) -> Scan:
        """Plan `request`; raises the errors of `plan_scan`."""
        store = volatile_store(handle.store, handle.directory, snapshot.merged, env.volatile)
        planned = partial(plan_scan, store, handle.directory, snapshot, request, env.caches)
        return Scan(name, handle, planned(count_steps=False), planned, env, store)

    @property
    def types(self) -> dict[str, DataType]:
        """ClickHouse type of each column of the result, by name."""
        types = all_types(self.plan.schema)
        return {name: types[name] for name in self.plan.columns}

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.types.items())
        read = f"about {self.plan.rows_estimate:,} rows in {len(self.plan.items)} parts"
        return f"<Scan of {self.name} at version {self.plan.version}: {read}; {columns}>"

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples of Python values, read as they are consumed."""
        return rows_of(self.batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow stream of `polars.DataFrame(scan)`, `pyarrow.table(scan)`, DuckDB's `FROM scan`, …."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, read as they are consumed; `docs/types.md` lists their types.

        They come in no defined order, unless the scan is ordered.
        """
        for batch in self._storage_batches():
            yield from to_public_table(pa.Table.from_batches([batch]), self.types).to_batches()

    def reader(self) -> pa.RecordBatchReader:
        """`batches` as a pyarrow RecordBatchReader, which DuckDB, Polars, pyarrow.dataset, … read without a copy."""
        return pa.RecordBatchReader.from_batches(arrow_schema(self.types), self.batches())

    def arrow(self) -> pa.Table:
        """All rows as a pyarrow Table."""
        return pa.Table.from_batches(list(self.batches()), arrow_schema(self.types))

    def pandas(self) -> Any:
        """All rows as a pandas DataFrame."""
        return self.arrow().to_pandas()

    def polars(self) -> Any:
        """All rows as a polars DataFrame."""
        import polars

        return polars.from_arrow(self.arrow())

    def spark(self, session: SparkSession | None = None, *, tasks: int | None = None) -> DataFrame:
        """The rows as a Spark DataFrame, read by Spark tasks; none of them passes through this process.

        `session`: default is the session of the warehouse. `tasks`: about how many tasks read it (default: two for each
        core). NOT_IMPLEMENTED for an ordered scan: use `frame.orderBy(…)`.
        """
        if self.plan.request.ordered:
            raise error("NOT_IMPLEMENTED", "A Spark DataFrame has no order", "Leave ordered out, use frame.orderBy(…)")
        from mergelake.api.spark.scan import scan_frame

        return scan_frame(
            session or self.env.spark_session(),
            self.handle.store.spec,
            self.handle.directory,
            self.plan,
            tasks=tasks,
            states=self.env.states,
        )

    def explain(self) -> str:
        """What is read and why, in the form of ClickHouse's EXPLAIN indexes = 1."""
        return explain_text(self.counted(), self.name)

    def _storage_batches(self) -> Iterator[pa.RecordBatch]:
        directory, env = self.handle.directory, self.env
        return read_items(
            self.store,
            directory,
            self.plan,
            caches=env.caches,
            threads=env.threads,
            stats=self.stats,
            states=env.states,
        )
