"""`Table`'s method that replaces rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mergelake.lake.environment import Environment
from mergelake.table.deduplication import InsertIdentity, known_token

if TYPE_CHECKING:
    from mergelake.table.handle import TableHandle
    from mergelake.table.insert import Commit


class OverwriteMethods:
    """What `Table` has for it."""

    name: str
    handle: TableHandle
    env: Environment

    def overwrite(
        self,
        data: Any,
        where: str | None = None,
        *,
        dynamic: bool = False,
        dedup_token: str | None = None,
        unchanged_since: int | None = None,
    ) -> Commit:
        """Replace rows by others in one commit: all rows of the table, those of a condition, or some partitions.

        It never conflicts: whatever is committed before it goes, also rows that others inserted while these were
        written. Older versions stay readable while they are kept.

        Parameters
        ----------
        data
            Rows, as for `append`; none at all are right, too.
        where
            A ClickHouse expression: rows for which it is true are replaced. Each new row must satisfy it. If it is over
            columns of the partition key alone, partitions are dropped as a whole, else a mutation deletes the rows.
        dynamic
            Replace the partitions of which the data has rows, and leave the others alone.
        dedup_token
            As for `append`: an overwrite with a token that is remembered does nothing. It is forgotten when its rows
            are replaced or dropped.
        unchanged_since
            A version: ConflictError, and nothing is written, if rows were added, changed or removed after it. For data
            that was computed from the rows of that version.

        Raises
        ------
        InvalidInputError
            As for `append`; VIOLATED_CONSTRAINT for a row that the condition does not hold, BAD_ARGUMENTS for `where`
            with `dynamic`, or over other columns than keys where the engine makes one row of several.

        Examples
        --------
        >>> import mergelake as ml
        >>> rows = {"p": [1, 1, 2], "v": [10, 20, 30]}
        >>> table = ml.connect("memory://overwrite").create_table("t", rows, order_by="v", partition_by="p")
        >>> _ = table.overwrite({"p": [1], "v": [11]}, "p = 1")
        >>> list(table.scan(ordered=True))
        [(1, 11), (2, 30)]
        >>> _ = table.overwrite({"p": [2, 3], "v": [31, 41]}, dynamic=True)
        >>> list(table.scan(ordered=True))
        [(1, 11), (2, 31), (3, 41)]
        """
        from mergelake.lake.input import storage_batches
        from mergelake.mutate.validate import Submission
        from mergelake.table.insert import commit_parts, duplicate_of, insert_target, write_blocks
        from mergelake.table.throttle import throttle
        from mergelake.upsert.overwrite import Overwrite

        handle, states = self.handle, self.env.states
        known = known_token(handle, dedup_token)
        if known is not None:
            return duplicate_of(known, dedup_token or "")
        given = Submission(handle.clock.now_ms(), self.name)
        request = Overwrite.of(
            handle.schema, where, given, handle.ids.new_id(), dynamic=dynamic, unchanged_since=unchanged_since
        )
        throttle(handle)
        schema = request.writing(handle.schema)
        if type(data).__module__.startswith("pyspark."):
            from mergelake.spark.write import write_frame

            parts = write_frame(data, handle.store.spec, handle.directory, schema, handle.base_version(), states)
        else:
            parts = write_blocks(
                insert_target(handle.store, handle.directory, schema, handle.ids, handle.clock),
                storage_batches(data, schema),
                threads=self.env.threads,
                base_version=handle.base_version(),
                states=states,
            )
        identity = InsertIdentity(dedup_token or "")
        return commit_parts(handle, parts, identity, lambda state: request.operations(state, parts))
