"""Resources that all tables of one warehouse share in a process: threads, caches, and where heavy work runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mergelake.core.base.cancel import check
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import error
from mergelake.core.model.manifest import PartManifest
from mergelake.parts.read.cache import PartCache
from mergelake.store.interface.protocol import Store
from mergelake.table.handle.handle import TableHandle
from mergelake.table.volatile.volatile_reads import OFF, VolatileReads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mergelake.core.model.schema import TableSchema
    from mergelake.engines.rules.states import StateFunctions
    from mergelake.jobs.merge.plan import MergeTask


def is_strong_read(read_consistency: str) -> bool:
    """Whether a read refreshes the table first; BAD_ARGUMENTS for other values.

    `strong`: it sees every commit of any process that was acknowledged before it began, for one small request per
    table. `cached`: it sees the state known to this process, with at least its own commits, without a request.
    """
    if read_consistency not in ("strong", "cached"):
        message = f"There is no read_consistency '{read_consistency}'"
        raise error("BAD_ARGUMENTS", message, "It is 'strong' or 'cached'")
    return read_consistency == "strong"


def state_functions() -> StateFunctions | None:
    """ClickHouse's aggregate functions; None where the extra `sql` is not installed."""
    from mergelake.query.embedded.engine import available
    from mergelake.query.embedded.states import EMBEDDED

    return EMBEDDED if available() else None


@dataclass(slots=True)
class Environment:
    """Settings of a process, not of a table."""

    threads: int = 1
    """Threads that one insert, scan or merge may use here."""
    caches: PartCache = field(default_factory=PartCache)
    """Marks and primary indexes of all tables."""
    sound: set[str] = field(default_factory=set)
    """Ids of parts that were verified, for reads that skip broken ones."""
    spark: SparkSession | str | None = None
    """A session, a master URL on which to start one when it is first needed, or None: heavy work runs here."""
    read_consistency: str = "strong"
    """Consistency of reads without a version: see `is_strong_read`."""
    read_volatile: str = OFF
    """Whether reads take volatile parts from nodes: see `volatile_mode`."""
    volatile: VolatileReads = field(default_factory=lambda: VolatileReads(None, SystemClock()))
    """Reads them."""

    @property
    def states(self) -> StateFunctions | None:
        """`state_functions()`."""
        return state_functions()

    def spark_session(self) -> SparkSession:
        """The session; started now if only its master was given (or nothing: `local[*]`)."""
        if self.spark is None or isinstance(self.spark, str):
            from mergelake.api.spark.session import session

            self.spark = session(self.spark)
        return self.spark

    def run_merges(
        self,
        handle: TableHandle,
        tasks: Sequence[MergeTask],
        abandon: threading.Event | None = None,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> list[PartManifest]:
        """Execute merges as Spark tasks, or one after the other in this process; commits nothing.

        When `abandon` is set, a merge in this process ends soon with ABORTED and leaves no object behind. `on_rows`
        hears how many rows of all tasks are merged, where that is in this process.
        """
        if self.spark is not None and tasks:
            from mergelake.api.spark.merge import run_merges

            return run_merges(self.spark_session(), handle.store, tasks, handle.log.state.fence, self.states)

        gives_up = abandon.is_set if abandon is not None else lambda: False
        manifests: list[PartManifest] = []
        rows_before = 0

        def report(rows: int) -> None:
            on_rows(rows_before + rows)

        for task in tasks:
            manifests.append(self._merge(handle, task, gives_up, on_rows=report))
            rows_before += task.rows
        return manifests

    def check_merges(self, schema: TableSchema) -> None:
        """SUPPORT_IS_DISABLED if parts of such a table cannot be merged in this process."""
        from mergelake.engines.projections.projections import table_projections
        from mergelake.engines.rules.modes import working_mode
        from mergelake.engines.ttl.ttl_groups import check_functions

        working_mode(schema, self.states)
        for projection in table_projections(schema):
            projection.check(self.states)
        check_functions(schema, self.states)

    def check_definition(self, before: TableSchema | None, after: TableSchema) -> None:
        """Try what a new definition has ClickHouse compute, on a row of defaults: raises what ClickHouse says of it.

        SUPPORT_IS_DISABLED if there is such a thing, and ClickHouse is not here.
        """
        from mergelake.engines.projections.projections import try_projections
        from mergelake.engines.ttl.ttl_groups import try_functions

        if before is None or before.projections != after.projections:
            try_projections(after, self.states)
        if after.ttl and (before is None or before.ttl != after.ttl or before.types != after.types):
            try_functions(after, self.states)

    def run_mutations(
        self, handle: TableHandle, tasks: Sequence[MergeTask], gives_up: Callable[[], bool] = lambda: False
    ) -> Sequence[PartManifest | None]:
        """Execute mutations of parts as Spark tasks, or in this process; None for parts in which no row changes."""
        from mergelake.jobs.mutate.execute import Ranges, execute_mutation, execute_mutations

        if self.spark is not None and len(tasks) > 1:
            from mergelake.api.spark.merge import run_mutations

            return run_mutations(self.spark_session(), handle.store, tasks, self.states)

        def heard(rows: int, total: int) -> None:
            if gives_up():
                raise error(
                    "ABORTED", f"The mutation was given up after {rows} of {total} rows", "It is due again later"
                )

        def execute(task: MergeTask, ranges: Ranges) -> PartManifest | None:
            check()
            return execute_mutation(
                handle.store, task, handle.ids, handle.clock, heard, self.threads, ranges, states=self.states
            )

        return execute_mutations(handle.store, tasks, execute)

    def build_volatile(
        self,
        handle: TableHandle,
        task: MergeTask,
        disk: Store,
        unwanted: Callable[[], bool],
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> PartManifest:
        """Execute a merge onto the node's `disk`, in this process; ends soon with ABORTED when it is `unwanted`."""
        return self._merge(handle, task, unwanted, disk, on_rows)

    def _merge(
        self,
        handle: TableHandle,
        task: MergeTask,
        gives_up: Callable[[], bool],
        disk: Store | None = None,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> PartManifest:
        from mergelake.jobs.merge.execute import execute_merge

        def heard(rows: int, total: int) -> None:
            if gives_up():
                raise error("ABORTED", f"The merge was given up after {rows} of {total} rows", "It is due again later")
            on_rows(rows)

        return execute_merge(
            handle.store,
            task,
            handle.ids,
            handle.clock,
            on_progress=heard,
            threads=self.threads,
            disk=disk,
            states=self.states,
        )


class OpenTable(Protocol):
    """A table that is open in this process: what functions need of a `Table`, which calls them."""

    name: str
    """`database.table`."""
    handle: TableHandle
    env: Environment

    @property
    def schema(self) -> TableSchema:
        """Columns, keys, engine and settings, at the version known here."""
        ...
