"""Writing a DataFrame into a table: tasks write parts, the caller commits them in one log entry.

Each task cuts its rows into blocks, splits them by the partition key, sorts them, writes a part for each and returns
the manifests (without a shuffle, which would cost more than the merges that it saves). Nothing is visible before the
commit. A retried task writes parts under new ids; the sweeper deletes those of failed attempts by age.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.api.spark.tasks import attempt, collect_results, result_batch, unwrap_all
from mergelake.api.spark.types import check_frame
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import error
from mergelake.core.base.ids import RandomIds
from mergelake.core.convert.storage import to_storage
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.inferred import inferred_types
from mergelake.engines.rules.states import StateFunctions
from mergelake.store import StoreSpec
from mergelake.table.definition.evolution import Evolution
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.insert import discard_parts, insert_target, write_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def write_parts(
    store: StoreSpec,
    directory: str,
    schema: TableSchema,
    batches: Iterator[pa.RecordBatch],
    base_version: int,
    states: StateFunctions | None = None,
) -> list[PartManifest]:
    """Write the rows of one task (in Spark's Arrow types) as parts, without committing them.

    `base_version`: `TableHandle.base_version()` from before the job. `states` merges aggregate states.
    """
    return write_blocks(
        insert_target(store.open(), directory, schema, RandomIds(), SystemClock()),
        in_storage_form(batches, schema),
        base_version=base_version,
        states=states,
    )


def in_storage_form(batches: Iterable[pa.RecordBatch], schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """Batches in Spark's Arrow types in the storage form of the table's columns."""
    types = schema.types
    for batch in batches:
        names = batch.schema.names
        arrays = [to_storage(batch.column(name), types[name], name) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def require_frame(frame: Any, method: str) -> None:
    """TYPE_MISMATCH if this is no DataFrame, NOT_IMPLEMENTED if it is a streaming one; `method` takes its batches."""
    if not hasattr(frame, "mapInArrow"):
        hint = "Give a DataFrame; pyspark.pandas has to_spark()"
        raise error("TYPE_MISMATCH", f"Cannot insert a {type(frame).__module__}.{type(frame).__name__}", hint)
    if frame.isStreaming:
        hint = f"Do it with each batch of it: frame.writeStream.foreachBatch(lambda batch, n: table.{method}(batch, …))"
        raise error("NOT_IMPLEMENTED", "A streaming DataFrame cannot be inserted", hint)


def evolved_for(handle: TableHandle, frame_type: StructType) -> Evolution | None:
    """The change of the newest schema that a frame's columns need, with `mergeSchema`; None if it is none."""
    from pyspark.sql.pandas.types import to_arrow_schema

    types = inferred_types(to_arrow_schema(frame_type, timezone="UTC"))
    return Evolution.of(handle.refresh(), types)


def write_frame(
    frame: DataFrame,
    store: StoreSpec,
    directory: str,
    schema: TableSchema,
    base_version: int,
    states: StateFunctions | None = None,
) -> list[PartManifest]:
    """Write all rows of `frame` as parts, in Spark; the caller commits the manifests.

    `base_version` is `TableHandle.base_version()` from before the call. `states` merges aggregate states; it is pickled
    by its name.

    Columns are matched by name; missing ones get their defaults. Raises NO_SUCH_COLUMN_IN_TABLE for an unknown column,
    TYPE_MISMATCH for an incompatible type, and the error of a task, after deleting the parts of the other tasks.
    """
    require_frame(frame, "append")
    check_frame(schema, frame.schema)
    names = list(frame.schema.names)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def run() -> list[PartManifest]:
            renamed = (batch.rename_columns(names) for batch in batches)
            return write_parts(store, directory, schema, renamed, base_version, states)

        yield result_batch(0, attempt(run))

    # `mapInArrow` matches columns by name, where a dot means a field and case may be ignored.
    results = collect_results(frame.toDF(*(f"c{at}" for at in range(len(names)))), task)

    def manifests(written: list[list[PartManifest]]) -> list[PartManifest]:
        return [part for parts in written for part in parts]

    def discard(written: list[list[PartManifest]]) -> None:
        discard_parts(store.open(), directory, manifests(written))

    return manifests(unwrap_all(results, discard))
