"""A planned scan as a Spark DataFrame, one task for each piece.

`scan.read.plan` decides in the caller which parts, mark ranges and columns of which version are read, and by which
predicate they are filtered. Each task of Spark reads and filters its piece and returns only the requested rows and
columns.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from mergelake.api.spark.tasks import sealed, shipped, tasks_at_once
from mergelake.api.spark.types import spark_schema, to_spark
from mergelake.core.types.types import DataType
from mergelake.engines.rules.states import StateFunctions
from mergelake.scan.prune.predicate import all_types
from mergelake.scan.read.pieces import cut_pieces
from mergelake.scan.read.plan import ScanItem, ScanPlan
from mergelake.scan.read.read import read_items
from mergelake.store import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 65_536
"""Rows of a batch for the JVM: 8k to 256k cost the same, more or fewer cost up to 1.4 times as much."""


def scan_frame(
    spark: SparkSession,
    store: StoreSpec,
    directory: str,
    plan: ScanPlan,
    *,
    tasks: int | None = None,
    states: StateFunctions | None = None,
) -> DataFrame:
    """The rows of `plan` as a DataFrame, read by at most about `tasks` tasks (default: two for each core).

    `states` merges aggregate states, for FINAL; it is pickled by its name.
    """
    schema = spark_schema(plan_types(plan))
    work = sealed(split_plan(plan, tasks or 2 * tasks_at_once(spark)))
    if not work:
        return spark.createDataFrame([], schema)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from read_for_spark(store, directory, pickle.loads(work[index]), states=states)

    frame = spark.range(0, len(work), 1, len(work)).mapInArrow(shipped(read), schema)
    limit = plan.request.limit  # each task reads so many at most, all of them perhaps more
    return frame if limit is None else frame.limit(limit)


def read_for_spark(
    store: StoreSpec,
    directory: str,
    plan: ScanPlan,
    shown: pa.Schema | None = None,
    states: StateFunctions | None = None,
) -> Iterator[pa.RecordBatch]:
    """All rows of `plan` in Spark's Arrow types, in batches of `BATCH_ROWS`. One thread: a task has one core.

    `shown`: the schema of the batches, if it differs from that of the table (`types.shown_as`).
    """
    types = plan_types(plan)
    for block in read_items(store.open(), directory, plan, threads=1, states=states):
        for start in range(0, block.num_rows, BATCH_ROWS):
            yield to_spark(block.slice(start, BATCH_ROWS), types, shown)


def plan_types(plan: ScanPlan) -> dict[str, DataType]:
    """Columns of the result and their ClickHouse types."""
    types = all_types(plan.schema)
    return {name: types[name] for name in plan.columns}


def split_plan(plan: ScanPlan, pieces: int) -> list[ScanPlan]:
    """Split the plan into about `pieces` plans of equally many granules.

    A plan with FINAL is not split, because rows of one key may be in any of its items. A volatile part is read by one
    task, which reads all of its sources if the node is gone.
    """
    if plan.request.final:
        return [plan] if plan.items else []
    share = max(1, -(-plan.marks // max(1, pieces)))
    out: list[ScanPlan] = []
    items: list[ScanItem] = []
    marks = 0
    for item in plan.items:
        for piece in cut_pieces(item, share if item.merged is None else item.marks):
            cut = replace(item, ranges=piece.ranges)
            if items and marks + cut.marks > share:
                out.append(plan.with_items(items))
                items, marks = [], 0
            items.append(cut)
            marks += cut.marks
    return [*out, plan.with_items(items)] if items else out
