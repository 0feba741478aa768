"""The data source `mergelake`: a thin facade over the same functions as everything else.

::

    spark.read.format("mergelake").load("s3://bucket/warehouse/default.events")
    df.write.format("mergelake").mode("append").save("/data/warehouse/default.events")

Options for reading: `version`, `tag` or `timestampMs` (time travel; else the newest version, pinned when the frame is
made), `columns` (comma-separated: Spark tells a Python source which filters it wants, but not which columns), `where`
(a ClickHouse expression, pruned by), `final` (`true`), `pushdown` (`true`: see below). For writing: `dedupToken`.
Options that start with `store.` go to the object store. The package `pyspark_mergelake` makes the name known to every
session.

Spark runs each step of its planning in a process of its own, so reader and writer carry values only and open the
table where they run, and a step imports no more than it needs (the compiled kernels alone take a second to load).
Spark 4.3 keeps what a Python source planned for the filters of one use of a frame, and gives it to every other use:
after `frame.where(a)`, plain `frame` has only a's rows, and `frame.where(a).union(frame.where(b))` has b's rows alone.
So filters are pushed down only where the option `pushdown` promises that this frame is used once; the option `where`
and `Table.scan(where=…).spark()` prune as well and are always right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import datasource as ds

from mergelake.core.errors import error
from mergelake.core.json_load import loads
from mergelake.core.manifest import PartManifest
from mergelake.scan.predicate import all_types, requested_columns
from mergelake.scan.request import ScanRequest
from mergelake.spark.filters import filter_text
from mergelake.spark.locate import TablePath, TablePlace
from mergelake.spark.types import spark_schema
from mergelake.table.blocks import check_given
from mergelake.table.throttle import throttle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from mergelake.core.schema import TableSchema
    from mergelake.scan.plan import ScanPlan
    from mergelake.table.handle import Snapshot, TableHandle

TASKS = 16
"""Into how many tasks a scan is cut: a Python data source is not told how many cores there are."""


def register(spark: SparkSession) -> None:
    """Make `format("mergelake")` known to this session (needless where `pyspark_mergelake` is importable)."""
    spark.dataSource.register(MergelakeDataSource)


class MergelakeDataSource(ds.DataSource):
    """Entry point of Spark: options in, a reader or a writer out."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "mergelake"

    def schema(self) -> StructType:
        """Columns of the table (or those of the option `columns`) at the pinned version."""
        schema = self._snapshot(self._path().open()).schema
        types = all_types(schema)
        return spark_schema({name: types[name] for name in requested_columns(self._request(), schema)})

    def reader(self, schema: StructType) -> MergelakeReader:
        """A reader of exactly the columns of `schema`."""
        handle = self._path().open()
        snapshot = self._snapshot(handle)
        request = replace(self._request(), columns=tuple(schema.names))
        requested_columns(request, snapshot.schema)
        made = PushingReader if self._option("pushdown").lower() in ("true", "1") else MergelakeReader
        return made(TablePlace.of(handle), snapshot.version, snapshot.schema, request)

    def writer(self, schema: StructType, overwrite: bool) -> MergelakeWriter:
        """A writer that appends."""
        if overwrite:
            raise error(
                "NOT_IMPLEMENTED", "The mode overwrite is not supported", 'Use mode("append"), or TRUNCATE TABLE first'
            )
        handle = self._path().open()
        check_given(handle.schema, schema.names)
        throttle(handle)
        return MergelakeWriter(TablePlace.of(handle), handle.schema, handle.born(), self._option("deduptoken"))

    def _path(self) -> TablePath:
        path = self._option("path")
        if not path:
            raise error("BAD_ARGUMENTS", "No path given", 'Write .load("<warehouse>/<database>.<table>")')
        stores = {key[6:]: value for key, value in self.options.items() if key.startswith("store.")}
        return TablePath.parse(path, stores)

    def _option(self, name: str) -> str:
        return str(next((value for key, value in self.options.items() if key.lower() == name), ""))

    def _request(self) -> ScanRequest:
        names = [name.strip() for name in self._option("columns").split(",") if name.strip()]
        final = self._option("final").lower() in ("true", "1")
        return ScanRequest(tuple(names) or None, self._option("where") or None, final=final)

    def _snapshot(self, handle: TableHandle) -> Snapshot:
        version, timestamp = self._option("version"), self._option("timestampms")
        wanted = int(version) if version.isdecimal() else self._option("tag") or None
        return handle.snapshot(wanted, int(timestamp) if timestamp else None)


@dataclass(frozen=True, slots=True)
class _Partition(ds.InputPartition):
    plan: ScanPlan


class MergelakeReader(ds.DataSourceReader):
    """Reads one version of a table, wherever Spark sends it, whatever its name means by then."""

    def __init__(self, place: TablePlace, version: int, schema: TableSchema, request: ScanRequest) -> None:
        self._place, self._version, self._schema, self._request = place, version, schema, request

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Prune, then cut what is left into pieces of equal size."""
        from mergelake.scan.plan import plan_scan
        from mergelake.spark.scan import split_plan

        handle = self._place.open()
        plan = plan_scan(handle.store, handle.directory, handle.snapshot(self._version), self._request)
        return [_Partition(piece) for piece in split_plan(plan, TASKS)]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one piece."""
        from mergelake.spark.scan import read_for_spark

        if not isinstance(partition, _Partition):
            return iter(())  # where there are no partitions Spark reads one of its own
        return read_for_spark(self._place.store, self._place.directory, partition.plan)


class PushingReader(MergelakeReader):
    """A reader that takes Spark's filters: for a frame that is used once. Needs our session's settings."""

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802  Spark's name
        """Take the filters that mean the same here; hand the others back."""
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
    """What one task wrote: manifests as JSON text."""

    manifests: tuple[str, ...]


class MergelakeWriter(ds.DataSourceArrowWriter):
    """Tasks write parts; the commit is one log entry for the whole job, in the table that the job began with."""

    def __init__(self, place: TablePlace, schema: TableSchema, born: int, dedup_token: str) -> None:
        self._place, self._schema, self._born, self._token = place, schema, born, dedup_token

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Parts of one task's rows."""
        from mergelake.spark.write import write_parts

        parts = write_parts(self._place.store, self._place.directory, self._schema, iterator, self._born)
        return _Written(tuple(json.dumps(part.to_json()) for part in parts))

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """All parts of all tasks, together or not at all."""
        from mergelake.table.insert import commit_parts

        written = [text for m in messages if isinstance(m, _Written) for text in m.manifests]
        parts = [PartManifest.from_json(loads(text)) for text in written]
        commit_parts(self._place.open(), parts, self._token or None)

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Nothing: Spark aborts after a failed commit too, which may have landed; unreferenced objects are swept."""
