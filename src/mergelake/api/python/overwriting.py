"""`Table`'s methods that replace rows, and that take in parts from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mergelake.api.python.environment import Environment
from mergelake.core.base.errors import CorruptDataError, error
from mergelake.table.write.deduplication import InsertIdentity, known_token

if TYPE_CHECKING:
    from mergelake.core.model.manifest import PartManifest
    from mergelake.core.model.schema import TableSchema
    from mergelake.log.model.operations import LogOp
    from mergelake.log.model.state import State
    from mergelake.table.handle.handle import TableHandle
    from mergelake.table.write.insert import Commit


class OverwriteMethods:
    """What `Table` has of them."""

    name: str
    handle: TableHandle
    env: Environment

    def attach_part_from(
        self, path_or_url: str, *, options: Mapping[str, str] | None = None, dedup_token: str | None = None
    ) -> Commit:
        """Add the rows of a part directory that lies elsewhere: one of ClickHouse's, of a backup, or of `write_part`.

        Every byte of it is verified before anything is written, and it must fit the table: its columns have the table's
        names and types, it is sorted by the table's key, and lies in one of its partitions. Columns that it lacks get
        their defaults. Patch parts beside it are applied. Its rows are written anew, as an insert's: the directory is
        not needed afterwards. `options` go to `open_store`; `dedup_token` is as for `append`.

        Raises
        ------
        MergelakeError
            NO_SUCH_DATA_PART if there is none, INCOMPATIBLE_COLUMNS for other columns, CorruptDataError for a part that
            is cut off, damaged, or made for another table; and those of `append`.
        """
        from mergelake.api.python.check import check_directory
        from mergelake.parts.tools.public import read_part
        from mergelake.table.write.insert import commit_parts, duplicate_of

        known = known_token(self.handle, dedup_token)
        if known is not None:
            return duplicate_of(known, dedup_token or "")
        schema = self.handle.schema
        granularity = self.handle.settings.integer("index_granularity")
        part = read_part(path_or_url, options=options, granularity=granularity)
        for name, column in part.part.columns.items():
            if schema.types.get(name) != column.type:
                there = f"is {schema.types[name]}" if name in schema.types else "has no such column"
                message = f"Column {name} of the part has type {column.type}, and the table {there}"
                raise error("INCOMPATIBLE_COLUMNS", message, "read_part reads it; append takes what you select of it")
        problems = check_directory(part.part, schema)
        if problems:
            first = problems[0]
            raise CorruptDataError(
                f"{first.message} ({path_or_url})",
                object_key=first.object_key,
                offset=first.offset,
                expected=first.expected,
                found=first.found,
            )
        wanted = [c.name for c in schema.stored if c.name in part.part.columns and c.default_kind != "MATERIALIZED"]
        rows = read_part(path_or_url, wanted, options=options, granularity=granularity, threads=self.env.threads)
        return commit_parts(self.handle, self._parts_of(rows, schema), InsertIdentity(dedup_token or ""))

    def overwrite(
        self,
        data: Any,
        where: str | None = None,
        *,
        dynamic: bool = False,
        dedup_token: str | None = None,
        unchanged_since: int | None = None,
        merge_schema: bool = False,
    ) -> Commit:
        """Replace rows by others in one commit: all rows of the table, those of a condition, or some partitions.

        It never conflicts with other writers of rows: whatever is committed before it goes, also rows that others
        inserted while these were written. Older versions stay readable while they are kept.

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
        merge_schema
            As for `append`: columns of the data that the table lacks are added in the same commit, and numbers made
            wider; columns that the data lacks stay. ConflictError if the table was altered meanwhile.

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
        from mergelake.api.python.evolving import evolved_for
        from mergelake.jobs.mutate.validate import Submission
        from mergelake.jobs.upsert.overwrite import Overwrite
        from mergelake.table.write.insert import commit_parts, duplicate_of

        handle = self.handle
        known = known_token(handle, dedup_token)
        if known is not None:
            return duplicate_of(known, dedup_token or "")
        if unchanged_since is not None:
            _check_version(handle, unchanged_since)
        data, evolution = evolved_for(handle, data) if merge_schema else (data, None)
        given = Submission(handle.clock.now_ms(), self.name)
        request = Overwrite.of(
            handle.schema, where, given, handle.ids.new_id(), dynamic=dynamic, unchanged_since=unchanged_since
        )
        parts = self._parts_of(data, request.writing(handle.schema if evolution is None else evolution.schema))

        def before(state: State) -> Sequence[LogOp]:
            return [*(evolution.operations(state) if evolution else ()), *request.operations(state, parts)]

        return commit_parts(handle, parts, InsertIdentity(dedup_token or ""), before)

    def _parts_of(self, data: Any, schema: TableSchema) -> list[PartManifest]:
        """The rows of data of a user, written as parts and not committed."""
        from mergelake.api.python.input import storage_batches
        from mergelake.table.write.insert import insert_target, write_blocks
        from mergelake.table.write.throttle import throttle

        handle, states = self.handle, self.env.states
        throttle(handle)
        if type(data).__module__.startswith("pyspark."):
            from mergelake.api.spark.write import write_frame

            return write_frame(data, handle.store.spec, handle.directory, schema, handle.base_version(), states)
        return write_blocks(
            insert_target(handle.store, handle.directory, schema, handle.ids, handle.clock),
            storage_batches(data, schema),
            threads=self.env.threads,
            base_version=handle.base_version(),
            states=states,
        )


def _check_version(handle: TableHandle, version: object) -> None:
    """TYPE_MISMATCH, or BAD_ARGUMENTS for a version that the table has not (yet)."""
    if not isinstance(version, int) or isinstance(version, bool):
        raise error("TYPE_MISMATCH", f"unchanged_since is {version!r}", "Give the number of a version")
    newest = handle.log.state.version
    if version > newest:
        newest = handle.refresh().version
    if not 1 <= version <= newest:
        raise error("BAD_ARGUMENTS", f"There is no version {version}", f"Versions go from 1 to {newest}")
