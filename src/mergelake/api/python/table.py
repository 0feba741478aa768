"""`Table`: one table of a warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.api.python.bringing import BringMethods
from mergelake.api.python.definitions import DefinitionMethods
from mergelake.api.python.environment import Environment, is_strong_read
from mergelake.api.python.expiring import TtlMethods
from mergelake.api.python.inspect import history_table, merges_table, mutations_table, parts_table
from mergelake.api.python.overwriting import OverwriteMethods
from mergelake.api.python.projections import ProjectionMethods
from mergelake.api.python.publishing import PublishMethods
from mergelake.core.base.errors import error
from mergelake.core.base.progress import OnProgress
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.engines.order.keys import table_keys
from mergelake.log.model.operations import Tag, Untag
from mergelake.log.model.state import State
from mergelake.scan.prune.request import ScanRequest
from mergelake.table.handle.handle import TableHandle, epoch_ms
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.partitions.freeze import check_tag_name
from mergelake.table.partitions.rollback import rollback
from mergelake.table.pending.commands import Delete, Update
from mergelake.table.write.deduplication import InsertIdentity, RowHash, known_token
from mergelake.table.write.throttle import throttle

if TYPE_CHECKING:
    import polars

    from mergelake.api.python.scan import Scan
    from mergelake.jobs.gc.collect import CollectReport
    from mergelake.table.write.insert import Commit


class Table(DefinitionMethods, TtlMethods, PublishMethods, BringMethods, OverwriteMethods, ProjectionMethods):
    """An open table. Threads may share one.

    It knows the commits that this process made or has learned of; `refresh` learns of others, and so do `scan`, `lazy`
    and `optimize`. Methods that change the table return the version that has the change.
    """

    def __init__(self, name: str, handle: TableHandle, env: Environment) -> None:
        self.name = name
        """`database.table`, as it was called when it was opened."""
        self.handle = handle
        self.env = env

    def __repr__(self) -> str:
        return f"<Table {self.name} at {self.location}, version {self.version}>"

    @property
    def location(self) -> str:
        """URL, or absolute path, of the directory with the table's objects."""
        return f"{self.handle.store.url.rstrip('/')}/{self.handle.directory}"

    @property
    def path(self) -> str:
        """The argument of Spark's `load()` and `save()`: `<warehouse>/<database>.<table>`."""
        return f"{self.handle.store.url.rstrip('/')}/{self.name}"

    @property
    def schema(self) -> TableSchema:
        """Columns, keys, engine and settings, as of the newest version known here."""
        return self.handle.schema

    @property
    def version(self) -> int:
        """The newest version known here."""
        return self.handle.log.state.version

    def refresh(self) -> int:
        """Learn of commits by other processes, and return the newest version. It costs one GET if there are none."""
        return self.handle.refresh().version

    def append(self, data: Any, dedup_token: str | None = None, *, merge_schema: bool = False) -> Commit:
        """Insert rows, all of them in one commit.

        Columns are matched by name; missing ones get their defaults. If anything is wrong with the data, the table
        stays as it was.

        Parameters
        ----------
        data
            A pyarrow Table, RecordBatch or RecordBatchReader, any other Arrow stream (polars DataFrame, DuckDB
            relation), a pandas DataFrame, a dict of lists, a list of dicts, or a Spark DataFrame, whose rows Spark
            tasks write.
        dedup_token
            Identifies the insert: if one with this token is remembered, nothing is added, and the commit that is
            returned has `duplicate=True`. The last 10,000 tokens are remembered. None: the rows are compared with those
            of earlier inserts, only on tables with `non_replicated_deduplication_window` > 0, and not from Spark.
        merge_schema
            Add columns of the data that the table lacks, in the same commit: Nullable, and the last ones. Numbers that
            Arrow data or a frame has in a wider type make the column wider, unless it is in a key.

        Returns
        -------
        Commit
            The version with the rows, and the parts that hold them.

        Raises
        ------
        InvalidInputError
            For an unknown column, a NULL, type or value that its column cannot hold, too many partitions, or too many
            active parts. Its `name` is ClickHouse's.
        ConflictError
            If the table was altered meanwhile in a way that the rows may not fit, and with `merge_schema` in any way.

        Examples
        --------
        >>> import mergelake as ml
        >>> table = ml.connect("memory://append").create_table("t", {"k": "UInt64", "s": "String"}, order_by="k")
        >>> [table.append({"k": [1, 2], "s": ["a", "b"]}, dedup_token="load-1").rows for _ in range(2)]
        [2, 0]
        """
        known = self._duplicate(dedup_token)
        if known is not None:
            return known
        if type(data).__module__.startswith("pyspark."):
            throttle(self.handle)
            return self._append_frame(data, dedup_token, merge_schema=merge_schema)
        return self.insert(data, dedup_token or "", merge_schema=merge_schema)

    def insert(
        self,
        data: Any,
        dedup_token: str = "",
        *,
        by_part: bool = False,
        by_rows: bool = True,
        settings: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
        merge_schema: bool = False,
    ) -> Commit:
        """Insert rows as `append` does, with control over what counts as a repetition.

        Parameters
        ----------
        data
            As for `append`, but no Spark DataFrame.
        dedup_token
            As for `append`; an empty token is none.
        by_part
            Remember the token for each part of the insert, as ClickHouse does for each block and partition: parts that
            are new are added.
        by_rows
            Without a token, compare the rows themselves; only on tables with `non_replicated_deduplication_window` > 0.
        settings
            Settings of the table that have other values for this insert.
        on_progress
            Called after each block that is written.
        merge_schema
            As for `append`.
        """
        from mergelake.api.python.evolving import evolved_for
        from mergelake.api.python.input import storage_batches
        from mergelake.table.write.insert import commit_parts, insert_target, write_blocks

        handle = self.handle
        data, evolution = evolved_for(handle, data) if merge_schema else (data, None)
        schema = handle.schema if evolution is None else evolution.schema
        schema = schema.with_settings({**schema.settings, **settings}) if settings else schema
        throttle(handle)
        blocks = storage_batches(data, schema)
        rows = RowHash()
        hashed = by_rows and not dedup_token and self._settings.integer("non_replicated_deduplication_window") > 0
        manifests = write_blocks(
            insert_target(handle.store, handle.directory, schema, handle.ids, handle.clock),
            rows.over(blocks) if hashed else blocks,
            threads=self.env.threads,
            base_version=handle.base_version(),
            on_progress=on_progress,
            states=self.env.states,
        )
        identity = InsertIdentity(dedup_token, by_part, rows.hexdigest() if hashed else "")
        return commit_parts(handle, manifests, identity, evolution.operations if evolution else None)

    def _duplicate(self, dedup_token: str | None) -> Commit | None:
        """The result of a commit with this token, if it is remembered. BAD_ARGUMENTS if it is no token."""
        state = known_token(self.handle, dedup_token)
        if state is not None:
            from mergelake.table.write.insert import duplicate_of

            return duplicate_of(state, dedup_token or "")
        return None

    def _append_frame(self, frame: Any, dedup_token: str | None, *, merge_schema: bool) -> Commit:
        """A Spark DataFrame: its tasks write the parts, this process commits them."""
        from mergelake.api.python.evolving import evolved_for
        from mergelake.api.spark.write import write_frame
        from mergelake.table.write.insert import commit_parts

        handle = self.handle
        evolution = evolved_for(handle, frame)[1] if merge_schema else None
        schema = handle.schema if evolution is None else evolution.schema
        manifests = write_frame(
            frame, handle.store.spec, handle.directory, schema, handle.base_version(), self.env.states
        )
        return commit_parts(
            handle, manifests, InsertIdentity(dedup_token or ""), evolution.operations if evolution else None
        )

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        prewhere: str | None = None,
        final: bool = False,
        sample: float | None = None,
        limit: int | None = None,
        ordered: bool = False,
        version: int | str | None = None,
        timestamp: datetime | str | int | None = None,
        read_consistency: str | None = None,
        max_staleness_ms: int = 0,
        skip_broken_parts: bool = False,
        read_volatile: str | None = None,
    ) -> Scan:
        """Plan a read of one version. Rows are read when the `Scan` is asked for them.

        Parameters
        ----------
        columns
            Names of the columns to return, in this order; None for all.
        where
            A ClickHouse expression: rows for which it is true are returned. Parts and granules that cannot hold one are
            not read.
        prewhere
            Another such condition, which is evaluated first.
        final
            Return rows as if all parts were merged (ReplacingMergeTree).
        sample
            Fraction of the rows to return, above 0 and up to 1; the table needs SAMPLE BY.
        limit
            Most rows to return.
        ordered
            Return rows in the order of the sorting key over all parts; rows with equal keys in the order of their
            parts, then of insertion. Without it the order is undefined, and may differ when the scan is read again.
            Ranges of keys of about 64 MiB are sorted in memory, one at a time.
        version
            A version's number, or the name of a tag; None for the newest.
        timestamp
            The version as of a time: a datetime, ISO text, or milliseconds since 1970-01-01 UTC.
        read_consistency
            Without `version` and `timestamp`: `strong` first learns of all commits, by one request; `cached` reads the
            newest version known here, without one. None: as the warehouse was opened.
        max_staleness_ms
            Milliseconds during which a `strong` read uses what was learned before instead of asking again.
        skip_broken_parts
            Verify every part first, and leave out those with lost or damaged objects. Without it such a part is an
            error that names it.
        read_volatile
            Whether volatile parts are read from the nodes that have them: `off`, `peers`, or the directory of nodes'
            disks (see `connect`). None: as the warehouse was opened.

        Raises
        ------
        InvalidInputError
            For an unknown column (NO_SUCH_COLUMN_IN_TABLE), an invalid condition, a version that is not kept, `final`
            or `sample` on a table that does not support it.

        Examples
        --------
        >>> import mergelake as ml
        >>> table = ml.connect("memory://scan").create_table("t", {"k": [1, 2, 3], "s": ["a", "b", "c"]}, order_by="k")
        >>> list(table.scan(["s"], "k >= 2", ordered=True))
        [('b',), ('c',)]
        """
        from mergelake.api.python.reading import snapshot_to_read
        from mergelake.api.python.scan import Scan

        if isinstance(columns, str):
            raise error("TYPE_MISMATCH", f"columns is the text '{columns}'", f"Give a list of names: ['{columns}']")
        if isinstance(max_staleness_ms, bool) or not isinstance(max_staleness_ms, int) or max_staleness_ms < 0:
            raise error("BAD_ARGUMENTS", f"max_staleness_ms is {max_staleness_ms!r}", "Give a whole number, 0 or more")
        if is_strong_read(read_consistency or self.env.read_consistency) and version is None and timestamp is None:
            log = self.handle.log
            log.fresh(max_staleness_ms / 1000) if max_staleness_ms else log.refresh()
        request = ScanRequest(
            None if columns is None else tuple(columns), where, prewhere, final=final, sample=sample, limit=limit,
            ordered=ordered, now_ms=self.handle.clock.now_ms(),
        )  # fmt: skip
        snapshot = snapshot_to_read(
            self.handle,
            self.state(version, timestamp),
            self.env,
            skip_broken_parts=skip_broken_parts,
            read_volatile=read_volatile,
        )
        return Scan.of(self.name, self.handle, snapshot, request, self.env)

    def lazy(
        self,
        *,
        final: bool = False,
        version: int | str | None = None,
        timestamp: datetime | str | int | None = None,
    ) -> polars.LazyFrame:
        """A Polars LazyFrame over the newest version, or over the one that `version` or `timestamp` names (see `scan`).

        Columns, limits and most conditions of its query are pushed down to the scan.
        """
        from mergelake.api.python.polars_frame import lazy_frame
        from mergelake.api.python.reading import snapshot_to_read
        from mergelake.api.python.scan import Scan

        if version is None and timestamp is None:
            self.handle.log.refresh()
        snapshot = snapshot_to_read(self.handle, self.state(version, timestamp), self.env)
        now_ms = self.handle.clock.now_ms()

        def plan(columns: Sequence[str], where: str | None, limit: int | None) -> Scan:
            request = ScanRequest(tuple(columns), where, final=final, limit=limit, now_ms=now_ms)
            return Scan.of(self.name, self.handle, snapshot, request, self.env)

        return lazy_frame({column.name: column.type for column in snapshot.schema.stored}, plan)

    def optimize(
        self,
        partition: Any = None,
        *,
        partition_id: str | None = None,
        final: bool = False,
        skip_merged: bool = False,
        throw_if_noop: bool = False,
        deduplicate: Sequence[str] | bool = False,
        cleanup: bool = False,
        on_progress: OnProgress | None = None,
    ) -> int:
        """Merge parts now, and return the number of merges that were committed.

        Merges run as Spark tasks where the warehouse has a session, else in this process, in bounded memory; those of
        many small parts together, here. If one fails, the others are committed, and its error is raised at the end.

        Parameters
        ----------
        partition
            Value of the partition key (a tuple for a key of several columns): all parts of that partition are merged.
        partition_id
            The same, by the partition's id.
        final
            Merge all parts of each partition. Without it and without a partition: one merge, which the table's merge
            selector ranks highest.
        skip_merged
            Leave partitions alone that are one merged part.
        throw_if_noop
            CANNOT_ASSIGN_OPTIMIZE if there is nothing to merge.
        deduplicate
            True, or names of columns with those of all keys: of the rows of a merge that are equal in all columns, or
            in these, only the first stays.
        cleanup
            With `final`: rows that a ReplacingMergeTree has marked deleted do not stay. The table needs the setting
            `allow_experimental_replacing_merge_with_cleanup`.
        on_progress
            Called with the rows that are merged, now and again.

        Raises
        ------
        ConflictError
            If another process changed the same parts meanwhile: call it again.
        """
        from mergelake.jobs.merge.optimize import optimize

        if partition is not None and partition_id is not None:
            raise error("BAD_ARGUMENTS", "Give a partition by value or by partition_id, not both")
        if not isinstance(final, bool):
            raise error("TYPE_MISMATCH", f"final is {final!r}", "Give True or False")
        if isinstance(deduplicate, str):
            raise error("TYPE_MISMATCH", f"deduplicate is the text '{deduplicate}'", f"Give a list: ['{deduplicate}']")
        self.refresh()
        return optimize(
            self.handle,
            self.env.run_merges,
            partition_id=partition_id if partition is None else self.partition_id(partition),
            final=final,
            skip_merged=skip_merged,
            throw_if_noop=throw_if_noop,
            one_job=self.env.spark is not None,
            threads=self.env.threads,
            on_progress=on_progress,
            deduplicate=deduplicate,
            cleanup=cleanup,
        )

    def check(self) -> pa.Table:
        """Verify every active part, as CHECK TABLE does.

        One row for each part: `part_path`, `is_passed` (1 or 0) and `message`, which says what is wrong.
        """
        from mergelake.api.python.check import check_table

        return check_table(self.handle, self.snapshot())

    def snapshot(
        self,
        version: int | str | None = None,
        timestamp: datetime | str | int | None = None,
        *,
        skip_broken_parts: bool = False,
    ) -> Snapshot:
        """A version opened for reading: the newest known here, or the one that `version` (a number or a tag) or
        `timestamp` (a datetime, ISO text, or epoch milliseconds) names.
        """
        found = Snapshot.of(self.state(version, timestamp))
        if not skip_broken_parts:
            return found
        from mergelake.api.python.sound import without_broken

        return without_broken(self.handle, found, self.env)

    def state(self, version: int | str | None = None, timestamp: datetime | str | int | None = None) -> State:
        """The whole state of the table in the log at that version; arguments as for `snapshot`."""
        return self.handle.state_at(version, None if timestamp is None else epoch_ms(timestamp))

    def parts(self, *, active_only: bool = True) -> pa.Table:
        """One row for each active part, with the columns of ClickHouse's `system.parts`; newest version known here.

        `active_only=False` adds replaced and dropped parts that are still kept, with the version that removed them.
        """
        state = self.handle.log.state
        types = [key.type for key in table_keys(self.schema).partition]
        return parts_table(state.parts(), () if active_only else state.retired, types)

    @property
    def retained_bytes(self) -> int:
        """Bytes of replaced and dropped parts that are kept for older versions and tags."""
        return self.handle.log.state.retired.bytes_on_disk

    @property
    def write_amplification(self) -> float:
        """Bytes that inserts and merges in the background wrote to the store for each byte inserted, ever.

        The setting `write_amplification_target` bounds it. Neither OPTIMIZE nor mutations are in it.
        """
        return self.handle.log.state.written.amplification

    def update(self, values: Mapping[str, str], where: str, *, partition_id: str | None = None) -> int:
        """Change columns of the rows that match; returns the version from which on every reader sees it.

        Nothing is rewritten now: readers apply it until merges and nodes have written it down.

        Parameters
        ----------
        values
            By column the new value, a ClickHouse expression over the row as it was before.
        where
            A ClickHouse expression: rows for which it is true are changed.
        partition_id
            Change rows of this partition only.

        Raises
        ------
        InvalidInputError
            CANNOT_UPDATE_COLUMN for a column of a key or the version, NO_SUCH_COLUMN_IN_TABLE for an unknown one,
            TOO_MANY_MUTATIONS, and the errors of the expressions; see `docs/mutations.md`.

        Examples
        --------
        >>> import mergelake as ml
        >>> table = ml.connect("memory://update").create_table("t", {"k": [1, 2], "v": [10, 20]}, order_by="k")
        >>> _ = table.update({"v": "v + k"}, where="k > 1")
        >>> list(table.scan(ordered=True))
        [(1, 10), (2, 22)]
        """
        from mergelake.api.python.mutating import submit_commands

        if not isinstance(values, Mapping):
            raise error("TYPE_MISMATCH", f"The new values are {values!r}", "Give {'column': 'expression'}")
        _check_texts({"where": where})
        _check_texts(values)
        return submit_commands(self, [Update(tuple(values.items()), where, partition_id)]).version

    def delete(self, where: str, *, partition_id: str | None = None) -> int:
        """Delete the rows that match; returns the version from which on no reader sees them. See `update`."""
        from mergelake.api.python.mutating import submit_commands

        _check_texts({"where": where})
        return submit_commands(self, [Delete(where, partition_id, lightweight=True)]).version

    def mutations(self) -> pa.Table:
        """One row for each command of each mutation, with the columns of ClickHouse's `system.mutations`.

        The last 100 finished mutations are kept. Newest version known here.
        """
        return mutations_table(self.handle.log.state)

    def kill_mutation(self, mutation_id: str) -> int:
        """Give up an unfinished mutation; returns the version from which on readers do not see it.

        Parts that were rewritten already keep its effect. BAD_ARGUMENTS if no unfinished mutation has this id.
        """
        from mergelake.jobs.mutate.submit import kill

        return kill(self.handle, mutation_id)

    def merge(
        self,
        source: Any,
        on: Sequence[str] | str,
        *,
        when_matched: str | Mapping[str, str] = "replace",
        when_not_matched: str = "insert",
        matched_if: str | None = None,
        delete_if: str | None = None,
        dedup_token: str | None = None,
    ) -> Commit:
        """Merge rows into the table, all of them in one commit: by default an upsert.

        A row of the table matches a row of the source if the columns `on` are equal; NULL equals nothing. The form by
        default reads no row of the table and never conflicts with other writers. If anything is wrong with the data,
        the table stays as it was.

        Parameters
        ----------
        source
            Rows, as for `append`: up to 200,000.
        on
            Names of the columns that are compared. Of a ReplacingMergeTree they belong to the sorting key.
        when_matched
            What happens to rows of the table that match. `replace`: they go, and the row of the source takes their
            place; columns that it lacks get their defaults. `update`: the columns that the source has are changed. A
            dict changes columns to ClickHouse expressions over `target.name` and `source.name`. `delete`, `ignore`.
        when_not_matched
            What happens to rows of the source that match nothing: `insert` or `ignore`.
        matched_if
            A ClickHouse expression over `target.name` and `source.name`: rows that match and for which it is not true
            stay as they are.
        delete_if
            Such an expression, which comes first: rows that match and for which it is true are deleted. If it reads
            the source only, rows of the source for which it is true are not inserted either.
        dedup_token
            As for `append`: a merge with a token that is remembered does nothing.

        Returns
        -------
        Commit
            The version with all changes, and the parts with the rows that were added.

        Raises
        ------
        InvalidInputError
            As for `append`; BAD_ARGUMENTS also if several rows of the source would change the same row,
            SET_SIZE_LIMIT_EXCEEDED for a source that is too large.
        ConflictError
            If rows of the table changed all the time while it was read. Not by `replace` with `insert`, nor by `delete`
            with `ignore`, without `matched_if` and a `delete_if` that reads the table.

        Examples
        --------
        >>> import mergelake as ml
        >>> table = ml.connect("memory://merge").create_table("t", {"k": [1, 2], "n": [10, 20]}, order_by="k")
        >>> _ = table.merge({"k": [2, 3], "n": [5, 30]}, on="k")
        >>> list(table.scan(ordered=True))
        [(1, 10), (2, 5), (3, 30)]
        >>> _ = table.merge({"k": [3, 4], "n": [1, 1]}, on="k", when_matched={"n": "target.n + source.n"})
        >>> list(table.scan(ordered=True))
        [(1, 10), (2, 5), (3, 31), (4, 1)]
        >>> changes = [{"k": 1, "n": 11, "op": "U"}, {"k": 2, "n": 0, "op": "D"}, {"k": 5, "n": 50, "op": "I"}]
        >>> _ = table.merge(changes, on="k", delete_if="source.op = 'D'", dedup_token="changes-7")
        >>> list(table.scan(ordered=True))
        [(1, 11), (3, 31), (4, 1), (5, 50)]
        """
        from mergelake.api.python.merging import merge_source
        from mergelake.jobs.upsert.request import MergeRequest

        request = MergeRequest.of(on, when_matched, when_not_matched, matched_if, delete_if)
        known = self._duplicate(dedup_token)
        return merge_source(self.handle, self.env, source, request, dedup_token or "") if known is None else known

    def apply_mutations(self) -> None:
        """Write down all pending mutations now, and return when no part lacks one: reads need not apply them any more.

        A node with the role `mutate` does it in the background. Raises UNFINISHED if a mutation fails for some row.
        """
        from mergelake.jobs.mutate.commit import apply_mutations

        apply_mutations(self.handle, lambda tasks: self.env.run_mutations(self.handle, tasks))

    def merges(self) -> pa.Table:
        """One row for each volatile part (merged, on the disk of a node): the parts that it replaces, and its node."""
        return merges_table(self.handle.log.state)

    def history(self, limit: int | None = None) -> pa.Table:
        """The last `limit` commits (None: all that are kept), newest first.

        One row for each version: time, author, operations in words, rows and parts added and removed, tags. A version
        is read by `scan(version=…)` or, in SQL, by `FROM t AS OF VERSION …`.
        """
        if limit is not None and limit < 0:
            raise error("BAD_ARGUMENTS", f"The limit of a history is {limit}", "Give how many commits, or None for all")
        state = self.handle.log.state
        oldest = max(1, state.history)
        first = oldest if limit is None else max(oldest, state.version - limit + 1)
        return self.versions(first)

    def versions(self, first: int, last: int | None = None) -> pa.Table:
        """`history` of the versions from `first` to `last` (default: the newest known here), newest first."""
        state = self.handle.log.state
        entries = list(self.handle.log.entries(first, state.version if last is None else last))
        return history_table(entries[::-1], state.retired, state.tags)

    def rollback(self, version: int | str | None = None, *, timestamp: datetime | str | int | None = None) -> int:
        """Restore the table as of a version, a tag or a time, without copying objects; the new version.

        Versions in between stay readable. BAD_ARGUMENTS for a version that is no longer kept.
        """
        if version is None and timestamp is None:
            raise error("BAD_ARGUMENTS", "Nothing says which version is meant", "Give a version, a tag or a timestamp")
        return rollback(self.handle, version, None if timestamp is None else epoch_ms(timestamp))

    def tag(self, name: str, version: int | None = None) -> int:
        """Name a version (default: the newest) and keep it, however old it becomes, until `untag`; the version.

        It is read by `scan(version="name")` or AS OF TAG. BAD_ARGUMENTS for a name that is taken or is a number, and
        for a version that is not kept.
        """
        check_tag_name(name)
        wanted = self.refresh() if version is None else version
        self.handle.log.commit(lambda _: [Tag(name, wanted)])
        return wanted

    def untag(self, name: str) -> None:
        """Remove a tag; its version is then kept only as long as others of its age."""
        self.handle.log.commit(lambda _: [Untag(name)])

    def tags(self) -> dict[str, int]:
        """Name and version of each tag, sorted by name."""
        return dict(sorted(self.handle.log.state.tags.items()))

    def gc(self, *, dry_run: bool = False) -> CollectReport:
        """Run one round of garbage collection: unused objects are noted, and deleted `gc_grace_seconds` after that.

        Call it now and then, or run a node with the role `gc`. `dry_run=True` changes nothing, and reports what a round
        would do.
        """
        from mergelake.jobs.gc.collect import collect_round

        return collect_round(self.handle, dry_run=dry_run)

    @property
    def _settings(self) -> TableSettings:
        return self.handle.settings


def _check_texts(texts: Mapping[str, object]) -> None:
    for name, text in texts.items():
        if not isinstance(text, str):
            raise error("TYPE_MISMATCH", f"{name} is {text!r}", "Give a ClickHouse expression as text, such as \"'a'\"")
