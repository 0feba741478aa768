"""The rows of a SELECT as a Spark DataFrame.

A result is written batch by batch into Arrow files in a temporary folder, from which tasks read them, so it is never
held in memory, neither here nor in the JVM. This needs workers on this machine (a master `local…`); for others the rows
are part of the plan, as with `createDataFrame`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from mergelake.api.spark.scan import BATCH_ROWS
from mergelake.api.spark.tasks import shipped
from mergelake.api.spark.types import spark_arrow_schema, spark_schema, to_spark
from mergelake.core.convert.storage import to_storage
from mergelake.core.types.types import DataType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES = 64 << 20
"""Approximate bytes of rows in the file of one task."""


def result_frame(spark: SparkSession, types: Mapping[str, DataType], batches: Iterable[pa.RecordBatch]) -> DataFrame:
    """The batches, in the public Arrow form of these types, as a DataFrame. All of them are read now."""
    rows = (to_spark(_stored(batch, types), types) for batch in batches)
    if not _is_local(spark):
        return spark.createDataFrame(pa.Table.from_batches(rows, spark_arrow_schema(types)))
    paths = list(_written(rows, spark_arrow_schema(types)))
    if not paths:
        return spark.createDataFrame([], spark_schema(types))

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (each for batch in numbers for each in batch.column(0).to_pylist()):
            with pa.memory_map(paths[number]) as source:
                for batch in pa.ipc.open_stream(source):
                    for start in range(0, batch.num_rows, BATCH_ROWS):
                        yield batch.slice(start, BATCH_ROWS)

    return spark.range(0, len(paths), 1, len(paths)).mapInArrow(shipped(read), spark_schema(types))


def _stored(batch: pa.RecordBatch, types: Mapping[str, DataType]) -> pa.RecordBatch:
    columns = {name: to_storage(batch.column(name), kind, name) for name, kind in types.items()}
    return pa.RecordBatch.from_pydict(columns)


def _written(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[str]:
    """Write the batches into files; yields their paths."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= FILE_BYTES:
            yield _write(pending, schema)
            pending, size = [], 0
    if pending:
        yield _write(pending, schema)


def _write(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    with (
        tempfile.NamedTemporaryFile(dir=_folder().name, suffix=".arrow", delete=False) as file,
        pa.ipc.new_stream(file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as out,
    ):
        for batch in batches:
            out.write_batch(batch)
    return file.name


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """The temporary folder, which exists until the process ends, because a frame may be computed again."""
    return tempfile.TemporaryDirectory(prefix="mergelake-results-")


def _is_local(spark: SparkSession) -> bool:
    try:
        return str(spark.sparkContext.master).startswith("local")
    except Exception:  # noqa: BLE001  Connect has no SparkContext, and says so by more than one type
        return False
