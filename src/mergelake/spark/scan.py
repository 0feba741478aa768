"""A planned scan as a Spark DataFrame: one task for each piece of work, fixed before Spark sees the plan.

Which parts, which mark ranges, which columns, which predicate and which version of the table: all of it is
decided by `scan.plan` in the caller. Spark only runs the tasks; each reads its piece, filters it, and hands
over nothing but the rows and columns asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from mergelake.scan.plan import ScanPlan
from mergelake.scan.read import read_items
from mergelake.spark.types import spark_schema, to_spark
from mergelake.store import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def scan_frame(spark: SparkSession, store: StoreSpec, plan: ScanPlan, *, pieces: int | None = None) -> DataFrame:
    """The rows of `plan` as a DataFrame, read by about `pieces` tasks (default: four for each core)."""
    columns = plan.output_types
    schema = spark_schema(columns)
    work = plan.split(pieces or 4 * spark.sparkContext.defaultParallelism)
    if not work:
        return spark.createDataFrame([], schema)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for block in read_items(store.open(), plan.directory, plan, work[index]):
                    yield to_spark(block, columns)

    return spark.range(0, len(work), 1, len(work)).mapInArrow(read, schema)
