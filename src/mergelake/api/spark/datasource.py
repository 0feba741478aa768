"""The data source `mergelake`: a thin facade.

::

    spark.read.format("mergelake").load("s3://bucket/warehouse/default.events")
    df.write.format("mergelake").mode("append").save("/data/warehouse/default.events")

`api.spark.options` lists the options; any other is refused. The version that is read, the newest one unless an option
says otherwise, is pinned when the frame is made. The option `columns` exists because Spark tells a Python source which
filters it wants, but not which columns. The package `pyspark_mergelake` makes the name known to every session.

Spark runs each step of its planning in its own process, so reader and writer hold only values and open the table where
they run, and each step imports only what it needs (loading the compiled kernels alone takes a second). Spark 4.3 reuses
the plan that a Python source made for the filters of one use of a frame for every other use: after `frame.where(a)`,
plain `frame` has only a's rows, and `frame.where(a).union(frame.where(b))` has b's rows alone. So filters are pushed
down only with the option `pushdown`, by which the user promises to use the frame once; the option `where` and
`Table.scan(where=…).spark()` prune as well and are always correct.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import datasource as ds

from mergelake.api.spark.filters import filter_text
from mergelake.api.spark.locate import TablePath, TablePlace
from mergelake.api.spark.options import ReadOptions, WriteOptions, read_options, write_options
from mergelake.api.spark.types import check_frame, shown_as, spark_schema
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.manifest import PartManifest
from mergelake.scan.prune.predicate import all_types, requested_columns
from mergelake.table.write.throttle import throttle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from mergelake.core.model.schema import TableSchema
    from mergelake.engines.rules.states import StateFunctions
    from mergelake.jobs.upsert.overwrite import Overwrite
    from mergelake.log.model.operations import LogOp
    from mergelake.log.model.state import State
    from mergelake.scan.prune.request import ScanRequest
    from mergelake.scan.read.plan import ScanPlan
    from mergelake.table.definition.evolution import Evolution
    from mergelake.table.handle.handle import TableHandle
    from mergelake.table.handle.snapshot import Snapshot

TASKS = 16
"""Number of tasks of a scan: a Python data source does not know the number of cores."""


def register(spark: SparkSession) -> None:
    """Register `format("mergelake")` in a session (not needed if `pyspark_mergelake` is importable)."""
    spark.dataSource.register(MergelakeDataSource)


class MergelakeDataSource(ds.DataSource):
    """Entry point of Spark: options in, a reader or a writer out."""

    states: StateFunctions | None = None
    """Aggregate functions for tasks."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "mergelake"

    def schema(self) -> StructType:
        """Columns of the table (or those of the option `columns`) at the pinned version."""
        options = read_options(self.options)
        schema = _snapshot(_open(options), options).schema
        types = all_types(schema)
        return spark_schema({name: types[name] for name in requested_columns(options.request, schema)})

    def reader(self, schema: StructType) -> MergelakeReader:
        """A reader of exactly the columns of `schema`. Raises TYPE_MISMATCH for a user's schema of other types."""
        options = read_options(self.options)
        handle = _open(options)
        snapshot = _snapshot(handle, options)
        if options.request.columns not in (None, tuple(schema.names)):
            raise error("BAD_ARGUMENTS", "The option columns and .schema(…) name other columns", "Give one of them")
        request = replace(options.request, columns=tuple(schema.names))
        requested_columns(request, snapshot.schema)
        types = all_types(snapshot.schema)
        shown = shown_as(schema, {name: types[name] for name in schema.names})
        reader_type = PushingReader if options.pushdown else MergelakeReader
        place, states = TablePlace.of(handle), type(self).states
        return reader_type(place, snapshot.version, snapshot.schema, request, shown, options.read_volatile, states)

    def writer(self, schema: StructType, overwrite: bool) -> MergelakeWriter:
        """A writer that appends or, with `mode("overwrite")`, replaces rows."""
        options = write_options(self.options)
        if not overwrite and (options.dynamic or options.replace_where is not None):
            name = "partitionOverwriteMode" if options.dynamic else "replaceWhere"
            raise error(
                "BAD_ARGUMENTS", f"The option {name} replaces rows, and the mode is append", 'mode("overwrite")'
            )
        handle = _open(options)
        evolution = None
        if options.merge_schema:
            from mergelake.api.spark.write import evolved_for

            evolution = evolved_for(handle, schema)
        table_schema = handle.schema if evolution is None else evolution.schema
        try:
            check_frame(table_schema, schema)
        except MergelakeError as refused:
            if refused.name == "NO_SUCH_COLUMN_IN_TABLE":
                refused.hint += '. The option mergeSchema, "true", adds columns'
            raise
        request = _overwrite(handle, options) if overwrite else None
        throttle(handle)
        place, base_version = TablePlace.of(handle), handle.base_version()
        return MergelakeWriter(
            place, table_schema, base_version, options.dedup_token, type(self).states, request, evolution
        )

    def streamReader(self, schema: StructType) -> ds.DataSourceStreamReader:  # noqa: N802  Spark's name
        """Refused."""
        raise error("NOT_IMPLEMENTED", "A table cannot be read as a stream", "Read the versions since the last one")

    def streamWriter(self, schema: StructType, overwrite: bool) -> ds.DataSourceStreamWriter:  # noqa: N802
        """Refused: a commit of a Spark stream does not tell its query."""
        raise error(
            "NOT_IMPLEMENTED",
            "A stream cannot be written by writeStream.format",
            "Use writeStream.foreachBatch(lambda frame, n: table.append(frame, dedup_token=f'<name of query> {n}'))",
        )


def _open(options: ReadOptions | WriteOptions) -> TableHandle:
    return TablePath.parse(options.path, options.store).open()


def _snapshot(handle: TableHandle, options: ReadOptions) -> Snapshot:
    return handle.snapshot(options.version, options.timestamp_ms)


def _overwrite(handle: TableHandle, options: WriteOptions) -> Overwrite:
    from mergelake.jobs.mutate.validate import Submission
    from mergelake.jobs.upsert.overwrite import Overwrite

    given = Submission(handle.clock.now_ms())
    mutation_id = handle.ids.new_id()
    return Overwrite.of(handle.schema, options.replace_where, given, mutation_id, dynamic=options.dynamic)


@dataclass(frozen=True, slots=True)
class _Partition(ds.InputPartition):
    plan: ScanPlan


class MergelakeReader(ds.DataSourceReader):
    """Reads one version of a table in any process, even if the table is renamed."""

    def __init__(
        self,
        place: TablePlace,
        version: int,
        schema: TableSchema,
        request: ScanRequest,
        shown: pa.Schema,
        read_volatile: str,
        states: StateFunctions | None,
    ) -> None:
        self._place, self._version, self._schema, self._request = place, version, schema, request
        self._shown, self._read_volatile, self._states = shown, read_volatile, states

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Plan the scan and cut it into pieces of equal size."""
        from mergelake.api.spark.scan import split_plan
        from mergelake.scan.read.plan import plan_scan
        from mergelake.table.volatile.volatile_reads import of_process
        from mergelake.table.volatile.volatile_snapshot import snapshot_to_read

        handle = self._place.open()
        state = handle.state_at(self._version)
        snapshot = snapshot_to_read(handle, state, of_process(), self._read_volatile)
        plan = plan_scan(handle.store, handle.directory, snapshot, self._request, count_steps=False)
        return [_Partition(piece) for piece in split_plan(plan, TASKS)]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one piece."""
        from mergelake.api.spark.scan import read_for_spark

        if not isinstance(partition, _Partition):
            return iter(())  # without partitions Spark passes one of its own
        place = self._place
        return read_for_spark(place.store, place.directory, partition.plan, self._shown, self._states)


class PushingReader(MergelakeReader):
    """A reader that takes Spark's filters, for a frame used once. Needs the settings of `api.spark.session`."""

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802  Spark's name
        """Accept the filters that have the same meaning in ClickHouse; return the others."""
        types = all_types(self._schema)
        taken: list[str] = []
        for wanted in filters:
            text = filter_text(wanted, types)
            if text is None:
                yield wanted
            else:
                taken.append(text)
        if self._request.where:
            taken.append(f"({self._request.where})")
        self._request = replace(self._request, where=" AND ".join(taken) or None)


@dataclass(frozen=True, slots=True)
class _Written(ds.WriterCommitMessage):
    """Manifests of the parts that one task wrote."""

    manifests: tuple[PartManifest, ...]


class MergelakeWriter(ds.DataSourceArrowWriter):
    """Tasks write parts; one log entry commits the whole job, to the table that the job began with."""

    def __init__(
        self,
        place: TablePlace,
        schema: TableSchema,
        base_version: int,
        dedup_token: str | None,
        states: StateFunctions | None,
        overwrite: Overwrite | None = None,
        evolution: Evolution | None = None,
    ) -> None:
        """`overwrite` tells which rows are replaced; None: the rows are added. `evolution`: what changes of columns."""
        self._place, self._base_version, self._token = place, base_version, dedup_token
        self._schema = schema if overwrite is None else overwrite.writing(schema)
        self._states, self._overwrite, self._evolution = states, overwrite, evolution

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Write the rows of one task as parts."""
        from mergelake.api.spark.write import write_parts

        store, directory = self._place.store, self._place.directory
        return _Written(tuple(write_parts(store, directory, self._schema, iterator, self._base_version, self._states)))

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Commit the parts of all tasks atomically."""
        from mergelake.table.write.deduplication import InsertIdentity
        from mergelake.table.write.insert import commit_parts

        parts = [part for m in messages if isinstance(m, _Written) for part in m.manifests]
        request, evolution = self._overwrite, self._evolution

        def before(state: State) -> Sequence[LogOp]:
            columns = () if evolution is None else evolution.operations(state)
            return columns if request is None else [*columns, *request.operations(state, parts)]

        is_plain = request is None and evolution is None
        commit_parts(self._place.open(), parts, InsertIdentity(self._token or ""), None if is_plain else before)

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Do nothing: Spark also aborts after a failed commit, which may have landed. The sweeper deletes orphans."""
