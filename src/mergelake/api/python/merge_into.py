"""`merge_into`: a Spark DataFrame into a table, given as an object or by its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mergelake.api.python.table import Table
from mergelake.api.spark.locate import TablePath
from mergelake.api.spark.upsert import merge_frame
from mergelake.jobs.upsert.execute import Workers
from mergelake.jobs.upsert.request import MergeRequest
from mergelake.table.write.deduplication import known_token
from mergelake.table.write.insert import Commit, duplicate_of
from mergelake.table.write.throttle import throttle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def merge_into(
    frame: DataFrame,
    table: Table | str,
    on: Sequence[str] | str,
    *,
    when_matched: str | Mapping[str, str] = "replace",
    when_not_matched: str = "insert",
    matched_if: str | None = None,
    delete_if: str | None = None,
    dedup_token: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Commit:
    """Merge the rows of a Spark DataFrame into a table, all of them in one commit: by default an upsert.

    Spark tasks write the rows; their keys, up to 200,000, come to the driver. Forms that read the table, such as
    `update`, run in the driver altogether.

    Parameters
    ----------
    frame
        The source. In `foreachBatch` it is the micro-batch.
    table
        A `Table`, or its path as in `load()`: `<warehouse>/<database>.<table>`.
    on, when_matched, when_not_matched, matched_if, delete_if
        As for `Table.merge`.
    dedup_token
        A merge with a token that is remembered does nothing. In `foreachBatch`, the name of the query and the number of
        the batch make each batch count exactly once.
    storage_options
        With a path: credentials and endpoints of the store, as for `mergelake.connect`.

    Returns
    -------
    Commit
        The version with all changes.
    """
    if not isinstance(table, str):
        return table.merge(
            frame,
            on,
            when_matched=when_matched,
            when_not_matched=when_not_matched,
            matched_if=matched_if,
            delete_if=delete_if,
            dedup_token=dedup_token,
        )
    request = MergeRequest.of(on, when_matched, when_not_matched, matched_if, delete_if)
    handle = TablePath.parse(table, storage_options).open()
    known = known_token(handle, dedup_token)
    if known is not None:
        return duplicate_of(known, dedup_token or "")
    throttle(handle)
    return merge_frame(handle, frame, request, dedup_token or "", Workers())
