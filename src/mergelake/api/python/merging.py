"""`Table.merge`: the source is converted as for an insert, then merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mergelake.api.python.environment import Environment
from mergelake.api.python.input import named_batches, with_types
from mergelake.core.types.types import DataType
from mergelake.jobs.upsert.execute import Workers, merge_rows, one_block
from mergelake.jobs.upsert.request import Merge, MergeRequest, source_schema
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.throttle import throttle

if TYPE_CHECKING:
    from mergelake.table.write.insert import Commit


def merge_source(handle: TableHandle, env: Environment, source: Any, request: MergeRequest, token: str) -> Commit:
    """Merge data of a user; see `Table.merge`."""
    throttle(handle)
    workers = Workers(env.caches, env.threads, env.states)
    if type(source).__module__.startswith("pyspark."):
        from mergelake.api.spark.upsert import merge_frame

        return merge_frame(handle, source, request, token, workers)
    extras: dict[str, DataType] = {}
    missing = [name for name in request.mentioned if not handle.schema.has(name)]
    if missing:
        source, extras = with_types(source, missing)
    schema = source_schema(handle.schema, extras)
    names, blocks = named_batches(source, schema)
    merge = Merge.of(request, handle.schema, schema, names, handle.clock.now_ms())
    return merge_rows(handle, merge, one_block(blocks, schema, names), token, workers)
