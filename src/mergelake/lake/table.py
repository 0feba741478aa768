"""`Table`: one table of a warehouse."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.convert.storage import to_storage
from mergelake.core.errors import error
from mergelake.core.schema import TableSchema
from mergelake.core.settings import TableSettings
from mergelake.format.partition import WHOLE_TABLE, partitions_of
from mergelake.gc.collect import CollectReport, collect_round
from mergelake.lake.check import check_table
from mergelake.lake.environment import Environment, is_strong_read
from mergelake.lake.input import storage_batches
from mergelake.lake.inspect import history_table, merges_table, parts_table
from mergelake.lake.scan import Scan
from mergelake.lake.sound import without_broken
from mergelake.log.operations import DropRange, Tag, Untag
from mergelake.log.state import State
from mergelake.merge.optimize import optimize
from mergelake.order.keys import table_keys
from mergelake.publish.definition import create_statement
from mergelake.publish.publish import GRACE_SECONDS, PublishReport, publish
from mergelake.scan.request import ScanRequest
from mergelake.table.deduplication import InsertIdentity, RowHash, remembered
from mergelake.table.handle import Snapshot, TableHandle, epoch_ms
from mergelake.table.insert import Commit, commit_parts, duplicate_of, insert_target, write_blocks
from mergelake.table.modify import modify_settings
from mergelake.table.parts import attach_part, drop_detached_part, drop_part
from mergelake.table.rollback import rollback
from mergelake.table.throttle import throttle

if TYPE_CHECKING:
    import polars


class Table:
    """A table, open. Threads may share one; `refresh` learns what other processes committed."""

    def __init__(self, name: str, handle: TableHandle, env: Environment) -> None:
        self.name = name
        """`database.table`, as it was called when it was opened."""
        self.handle = handle
        self.env = env

    def __repr__(self) -> str:
        return f"<Table {self.name} at {self.location}, version {self.version}>"

    @property
    def location(self) -> str:
        """URL, or absolute path, of the table's directory."""
        return f"{self.handle.store.url.rstrip('/')}/{self.handle.directory}"

    @property
    def path(self) -> str:
        """What Spark's `load()` and `save()` take: `<warehouse>/<database>.<table>`."""
        return f"{self.handle.store.url.rstrip('/')}/{self.name}"

    @property
    def schema(self) -> TableSchema:
        """Columns, keys, engine, settings."""
        return self.handle.schema

    @property
    def version(self) -> int:
        """The newest version known here."""
        return self.handle.log.state.version

    def refresh(self) -> int:
        """Read the newest state; returns its version. One GET if there is no new entry."""
        return self.handle.refresh().version

    def append(self, data: Any, dedup_token: str | None = None) -> Commit:
        """Insert rows, all of them in one commit.

        `data`: Spark DataFrame (written by Spark tasks), pyarrow Table, RecordBatch or RecordBatchReader, pandas or
        polars DataFrame, dict of lists, list of dicts. Columns go by name; missing ones get their defaults, extra
        ones are refused. With a `dedup_token` the insert happens once, however often it is repeated.

        Anything wrong with the data (a NULL, a value out of range, an ill-typed column, too many partitions)
        raises a coded error, and the table stays as it was.
        """
        if dedup_token is not None and not (isinstance(dedup_token, str) and dedup_token):
            hint = "Give each load a token of its own as text, or none"
            raise error("BAD_ARGUMENTS", f"{dedup_token!r} is no token of an insert", hint)
        if dedup_token and remembered(self.handle.log.state, dedup_token) is not None:
            state = self.handle.refresh()  # another process may have dropped its rows: then it is new again
            if remembered(state, dedup_token) is not None:
                return duplicate_of(state, dedup_token)
        if type(data).__module__.startswith("pyspark."):
            throttle(self.handle)
            return self._append_frame(data, dedup_token)
        return self.insert(data, dedup_token or "")

    def insert(
        self,
        data: Any,
        dedup_token: str = "",
        *,
        by_part: bool = False,
        by_rows: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> Commit:
        """Like `append` (without Spark's frames), with control over what counts as a repetition.

        `by_part`: the token is remembered for each part of the insert, as ClickHouse does for each block and partition;
        parts that are new are added. `by_rows`: without a token the rows themselves are the token, for tables with a
        `non_replicated_deduplication_window`. `settings` of the table that are others for this insert.
        """
        handle = self.handle
        schema = handle.schema.with_settings({**handle.schema.settings, **settings}) if settings else handle.schema
        throttle(handle)
        blocks = storage_batches(data, schema)
        rows = RowHash()
        hashed = by_rows and not dedup_token and self._settings.integer("non_replicated_deduplication_window") > 0
        manifests = write_blocks(
            insert_target(handle.store, handle.directory, schema, handle.ids, handle.clock),
            rows.over(blocks) if hashed else blocks,
            threads=self.env.threads,
            base_version=handle.base_version(),
        )
        identity = InsertIdentity(dedup_token, by_part, rows.hexdigest() if hashed else "")
        return commit_parts(handle, manifests, identity)

    def _append_frame(self, frame: Any, dedup_token: str | None) -> Commit:
        """A Spark DataFrame: its tasks write the parts, this process commits them."""
        from mergelake.spark.write import write_frame

        handle = self.handle
        manifests = write_frame(frame, handle.store.spec, handle.directory, handle.schema, handle.base_version())
        return commit_parts(handle, manifests, InsertIdentity(dedup_token or ""))

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
    ) -> Scan:
        """Plan a read: `columns` (None: all) of the rows for which `where`, a ClickHouse expression, is true.

        `final` gives rows as if everything were merged; `version` (or a tag) or `timestamp` an older state. Without
        either it sees all that was committed before, by one request; with `read_consistency="cached"` what is known
        here, for none (default: as the warehouse was opened). What was asked for at most `max_staleness_ms` ago is not
        asked again.

        The order of rows is not defined, and need not be the same when the scan is read again: parts are read side by
        side. With `ordered` they come in the order of the sorting key over all parts, those of one key in the order of
        their parts and then as they were inserted; a `limit` takes the first of them. It sorts ranges of keys of about
        64 MiB, each in memory.

        `skip_broken_parts`: verify every part first, and leave out those with lost or damaged objects (`lake.sound`);
        else such a part is an error that names it.
        """
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
        snapshot = self.snapshot(version, timestamp, skip_broken_parts=skip_broken_parts)
        return Scan.of(self.name, self.handle, snapshot, request, self.env)

    def lazy(
        self,
        *,
        final: bool = False,
        version: int | str | None = None,
        timestamp: datetime | str | int | None = None,
    ) -> polars.LazyFrame:
        """A Polars LazyFrame over one version (the newest, or an older one as for `scan`).

        Columns, limits and conditions of its query are pushed down to the scan, which reads what they leave.
        """
        from mergelake.lake.polars_frame import lazy_frame

        if version is None and timestamp is None:
            self.handle.log.refresh()
        snapshot = self.snapshot(version, timestamp)
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
    ) -> int:
        """Merge now: the table's best merge, all parts of a partition, or (`final`) of each; how many merges ran.

        Runs as Spark tasks where the warehouse has a session, else in this process; either way in bounded memory.
        Each merge is committed on its own: one that fails does not undo the others, and its error is raised at the
        end. Raises ConflictError where another process changed the same parts meanwhile: refresh and ask again.

        With `skip_merged` a partition that is one merged part stays as it is; with `throw_if_noop` it is
        CANNOT_ASSIGN_OPTIMIZE if there is nothing to merge.
        """
        if partition is not None and partition_id is not None:
            raise error("BAD_ARGUMENTS", "Give a partition by value or by partition_id, not both")
        if not isinstance(final, bool):
            raise error("TYPE_MISMATCH", f"final is {final!r}", "Give True or False")
        self.refresh()
        return optimize(
            self.handle,
            self.env.run_merges,
            partition_id=partition_id if partition is None else self.partition_id(partition),
            final=final,
            skip_merged=skip_merged,
            throw_if_noop=throw_if_noop,
            one_job=self.env.spark is not None,
        )

    def check(self) -> pa.Table:
        """Verify every active part (`CHECK TABLE`): one row a part, with what is wrong."""
        return check_table(self.handle, self.snapshot())

    def publish(self, *, grace_seconds: float = GRACE_SECONDS) -> PublishReport:
        """Show the newest version to a stock ClickHouse attached to `location` (see `attach_statement`)."""
        return publish(self.handle, grace_seconds=grace_seconds)

    def attach_statement(
        self,
        name: str = "",
        *,
        refresh_seconds: int = 1,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        show_secrets: bool = False,
    ) -> str:
        """The CREATE TABLE by which a stock ClickHouse serves the published table as `name` (`database.table`).

        The keys are for the server, which should have its own. Ours show as `[HIDDEN]`, to be filled in, unless
        `show_secrets`.
        """
        if not isinstance(name, str):
            raise error("BAD_ARGUMENTS", f"{name!r} is no name of a table", "Give `database.table`")
        database, _, table = (name or self.name).rpartition(".")
        return create_statement(
            self.handle,
            database or "default",
            table,
            refresh_seconds=refresh_seconds,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            show_secrets=show_secrets,
        )

    def snapshot(
        self,
        version: int | str | None = None,
        timestamp: datetime | str | int | None = None,
        *,
        skip_broken_parts: bool = False,
    ) -> Snapshot:
        """The table as known here, or AS OF a version, a tag or a time (datetime, ISO text, or epoch milliseconds)."""
        snapshot = Snapshot.of(self.state(version, timestamp))
        return without_broken(self.handle, snapshot, self.env) if skip_broken_parts else snapshot

    def state(self, version: int | str | None = None, timestamp: datetime | str | int | None = None) -> State:
        """The state of the table at a version, a tag or a time; see `snapshot`."""
        return self.handle.state_at(version, None if timestamp is None else epoch_ms(timestamp))

    def parts(self, *, active_only: bool = True) -> pa.Table:
        """One row a part, with the names of `system.parts`."""
        state = self.handle.log.state
        types = [key.type for key in table_keys(self.schema).partition]
        return parts_table(state.parts(), () if active_only else state.retired, types)

    @property
    def retained_bytes(self) -> int:
        """Bytes of replaced and dropped parts that older versions and tags still show; newest as known here."""
        return self.handle.log.state.retired.bytes_on_disk

    def merges(self) -> pa.Table:
        """One row per volatile part: intended merges and the nodes that own them, as of the state known here."""
        return merges_table(self.handle.log.state)

    def history(self, limit: int | None = None) -> pa.Table:
        """What was committed, newest first: version, time, author, operations in words, rows and parts, tags.

        Each version is read by `scan(version=…)` or, in SQL, by `FROM t AS OF VERSION …`.
        """
        if limit is not None and limit < 0:
            raise error("BAD_ARGUMENTS", f"The limit of a history is {limit}", "Give how many commits, or None for all")
        state = self.handle.log.state
        oldest = max(1, state.history)
        first = oldest if limit is None else max(oldest, state.version - limit + 1)
        return self.versions(first)

    def versions(self, first: int, last: int | None = None) -> pa.Table:
        """`history` from one version to another (default: the newest known here), newest first."""
        state = self.handle.log.state
        entries = list(self.handle.log.entries(first, state.version if last is None else last))
        return history_table(entries[::-1], state.retired, state.tags)

    def modify_settings(self, changes: Mapping[str, str | int | float | bool], reset: Collection[str] = ()) -> int:
        """Change settings of the table, or give those in `reset` their defaults again; the version that has them."""
        return modify_settings(self.handle, changes, reset)

    def rollback(self, version: int | str | None = None, *, timestamp: datetime | str | int | None = None) -> int:
        """Make the table what it was at a version, a tag or a time, in one entry and without moving a byte.

        Returns the version that has it; those in between stay readable. BAD_ARGUMENTS for one that is no longer kept.
        """
        if version is None and timestamp is None:
            raise error("BAD_ARGUMENTS", "Nothing says which version is meant", "Give a version, a tag or a timestamp")
        return rollback(self.handle, version, None if timestamp is None else epoch_ms(timestamp))

    def tag(self, name: str, version: int | None = None) -> int:
        """Keep a version (the newest) under a name, however old it gets; the version.

        It is read by `version="name"` or AS OF TAG. BAD_ARGUMENTS for a name that is taken, or a version not kept.
        """
        if not isinstance(name, str) or not name.strip() or name.isdecimal():
            raise error("BAD_ARGUMENTS", f"'{name}' cannot be the name of a tag", "It is a word, such as 'release-1'")
        wanted = self.refresh() if version is None else version
        self.handle.log.commit(lambda _: [Tag(name, wanted)])
        return wanted

    def untag(self, name: str) -> None:
        """Remove a tag: its version is kept as long as any other."""
        self.handle.log.commit(lambda _: [Untag(name)])

    def tags(self) -> dict[str, int]:
        """Tags and their versions."""
        return dict(sorted(self.handle.log.state.tags.items()))

    def gc(self, *, dry_run: bool = False) -> CollectReport:
        """One round of collection: what is unused is noted, and deleted `gc_grace_seconds` later.

        Call it now and then, or run a node with the role gc. `dry_run` tells what it would do.
        """
        return collect_round(self.handle, dry_run=dry_run)

    def truncate(self) -> int:
        """Drop all rows; the version without them."""
        return self.handle.log.commit(lambda _: [DropRange(kind="truncate")]).version

    def drop_partition(self, value: Any = None, *, partition_id: str | None = None) -> int:
        """Drop the rows of one partition, given by value (a tuple for a key of several) or by id; the version.

        A partition that does not exist is dropped without complaint, as in ClickHouse.
        """
        if value is not None and partition_id is not None:
            raise error("BAD_ARGUMENTS", "Give a partition by value or by partition_id, not both")
        if value is None and partition_id is None and not self.schema.partition_by:
            raise error("BAD_ARGUMENTS", "Nothing says which partition is meant", "drop_partition(()) drops all rows")
        target_id = partition_id if partition_id is not None else self.partition_id(value)
        return self.handle.log.commit(lambda _: [DropRange(target_id)]).version

    def drop_part(self, name: str) -> int:
        """Drop the rows of one part, given by its name; the version without them. NO_SUCH_DATA_PART if it is not there.

        It need not be readable: so a table goes on without a part whose objects are lost or damaged.
        """
        return drop_part(self.handle, name)

    def detach_part(self, name: str) -> int:
        """Detach one part: its rows are not read, its objects stay until `drop_detached_part`; returns the version."""
        return drop_part(self.handle, name, kind="detach")

    def attach_part(self, name: str) -> int:
        """Attach a detached part again, under a new name; returns the version. BAD_DATA_PART_NAME if there is none."""
        return attach_part(self.handle, name)

    def drop_detached_part(self, name: str) -> int:
        """Drop a detached part; returns the version. BAD_DATA_PART_NAME if there is none."""
        return drop_detached_part(self.handle, name)

    def partition_id(self, value: Any) -> str:
        """The id of the partition with this value of the partition key; INVALID_PARTITION_VALUE if it cannot be one."""
        keys = table_keys(self.schema).partition
        values: Sequence[Any] = value if isinstance(value, (tuple, list)) else (value,)
        if not keys and value in (None, (), "all"):
            return WHOLE_TABLE.id
        if len(values) != len(keys):
            message = f"The partition key has {len(keys)} columns, the value {len(values)}"
            raise error("INVALID_PARTITION_VALUE", message, "Give one value for each, or partition_id=")
        arrays = [to_storage(pa.array([v]), key.type, key.text) for v, key in zip(values, keys, strict=True)]
        return partitions_of(arrays, [key.type for key in keys])[0].id

    @property
    def _settings(self) -> TableSettings:
        return self.handle.settings
