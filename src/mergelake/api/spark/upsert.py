"""Merging a DataFrame into a table: tasks write parts and return the keys of their rows, the caller commits.

Each task evaluates its rows once, so the keys that are deleted are those of the rows that are added, even if the frame
gives other rows the next time. A merge that has to read the table collects the frame, and runs in the calling process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.api.spark.tasks import attempt, collect_results, result_batch, unwrap_all
from mergelake.api.spark.types import check_frame, frame_schema
from mergelake.api.spark.write import in_storage_form, require_frame
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.ids import RandomIds
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.inferred import inferred_types
from mergelake.engines.rules.states import StateFunctions
from mergelake.jobs.upsert.execute import Deletion, Workers, checked_keys, merge_rows, one_block
from mergelake.jobs.upsert.keys import KEYS_MAX, check_size
from mergelake.jobs.upsert.pairs import kept_of_source
from mergelake.jobs.upsert.request import Merge, MergeRequest, source_schema
from mergelake.store import StoreSpec
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.insert import Commit, discard_parts, insert_target, write_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def merge_frame(handle: TableHandle, frame: Any, request: MergeRequest, token: str, using: Workers) -> Commit:
    """Merge a frame; see `merge_into`."""
    require_frame(frame, "merge")
    names = list(frame.schema.names)
    wanted = [name for name in request.mentioned if not handle.schema.has(name)]
    extras = inferred_types(pa.schema([field for field in frame_schema(frame) if field.name in wanted]))
    schema = source_schema(handle.schema, extras)
    check_frame(schema, frame.schema)
    work = _Work(
        handle.store.spec, handle.directory, request, handle.schema, schema, tuple(names), handle.clock.now_ms(),
        handle.base_version(), using.states,
    )  # fmt: skip
    merge = work.merge()
    if not merge.is_blind:
        rows = frame.toDF(*work.numbered).limit(KEYS_MAX + 1).toArrow().rename_columns(names)
        blocks = in_storage_form(rows.to_batches(), schema)
        return merge_rows(handle, merge, one_block(blocks, schema, names), token, using)
    written = _run(frame, work)
    manifests = [part for each in written for part in each.manifests]
    try:
        keys = checked_keys(merge, [block for each in written for block in each.keys])
        deletion = Deletion.of(handle, merge, keys)
    except BaseException:
        discard_parts(handle.store, handle.directory, manifests)
        raise
    return deletion.commit(manifests, token)


@dataclass(frozen=True, slots=True)
class _Written:
    """What one task wrote."""

    manifests: list[PartManifest]
    keys: list[pa.RecordBatch]
    """The columns by which rows are matched, in storage form; also of rows that are not added."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What every task needs."""

    store: StoreSpec
    directory: str
    request: MergeRequest
    schema: TableSchema
    source: TableSchema
    names: tuple[str, ...]
    """The columns of the frame."""
    now_ms: int
    base_version: int
    states: StateFunctions | None

    @property
    def numbered(self) -> tuple[str, ...]:
        """Other names for the columns: Spark takes a dot in a name for a field, and may ignore case."""
        return tuple(f"c{at}" for at in range(len(self.names)))

    def merge(self) -> Merge:
        """The request, bound; a bound one does not pickle."""
        return Merge.of(self.request, self.schema, self.source, self.names, self.now_ms)

    def write(self, batches: Iterator[pa.RecordBatch]) -> _Written:
        """Write the rows of a task as parts; SET_SIZE_LIMIT_EXCEEDED if they alone are too many."""
        merge = self.merge()
        keys: list[pa.RecordBatch] = []
        target = insert_target(self.store.open(), self.directory, self.schema, RandomIds(), SystemClock())

        def kept() -> Iterator[pa.Table]:
            rows = 0
            for batch in in_storage_form((each.rename_columns(self.names) for each in batches), self.source):
                rows += batch.num_rows
                check_size(rows)
                keys.append(batch.select(list(self.request.on)))
                if self.request.when_matched != "delete":
                    yield kept_of_source(merge, pa.Table.from_batches([batch]))

        return _Written(write_blocks(target, kept(), base_version=self.base_version, states=self.states), keys)


def _run(frame: DataFrame, work: _Work) -> list[_Written]:
    """Run the tasks; if one fails, or all of them have too many rows, the parts of the others are deleted."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield result_batch(0, attempt(lambda: work.write(batches)))

    def discard(written: list[_Written]) -> None:
        discard_parts(work.store.open(), work.directory, [part for each in written for part in each.manifests])

    written: list[_Written] = unwrap_all(collect_results(frame.toDF(*work.numbered), task), discard)
    try:
        check_size(sum(batch.num_rows for each in written for batch in each.keys))
    except BaseException:
        discard(written)
        raise
    return written
