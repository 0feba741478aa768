"""`Warehouse`: the databases and tables under one URL."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from mergelake.api.python.environment import Environment, is_strong_read
from mergelake.api.python.table import Table
from mergelake.core.base.clock import Clock, SystemClock
from mergelake.core.base.errors import UnavailableError, error
from mergelake.core.base.ids import IdSource, RandomIds
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.types import DataType
from mergelake.log.backends.backends import Backends, split_options
from mergelake.log.reading.verify import LogReport, Progress
from mergelake.log.storage.catalog import DEFAULT
from mergelake.store import Store, StoreSpec, open_store
from mergelake.store.metering.meter import Tally, metered
from mergelake.store.metering.prices import Prices, prices_of
from mergelake.store.peer.client import PeerClient
from mergelake.table.catalog.catalog import Catalog, Name
from mergelake.table.definition.define import check_schema
from mergelake.table.handle.handle import TableHandle
from mergelake.table.volatile.volatile_reads import OFF, VolatileReads, volatile_mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mergelake.api.python.cost import TableCost
    from mergelake.jobs.gc.collect import CollectReport
    from mergelake.jobs.gc.fsck import FsckReport
    from mergelake.jobs.merge.plan import MergeTask
    from mergelake.jobs.node.disk import LocalDisk
    from mergelake.jobs.node.runner import Node

DEFAULT_DATABASE = DEFAULT
DAYS_MAX = 100_000
CATALOG = "the catalog"
"""Name of the catalog's log in lists of tables."""
_logger = logging.getLogger("mergelake.lake")


class Warehouse:
    """Databases and tables in a bucket or directory, without SQL. `Database.warehouse` is one.

    Any number of processes may open the same warehouse.

    Names of tables are `table` (in the database `default`) or `database.table`. The first write tests that the store
    honours create-if-absent, and refuses one that does not. Reading creates nothing.
    """

    def __init__(
        self,
        location: str | StoreSpec | Store,
        storage_options: Mapping[str, str] | None = None,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        author: str | None = None,
        threads: int | None = None,
        spark: SparkSession | str | None = None,
        log: str | None = None,
        read_consistency: str = "strong",
        prices: Prices | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        read_volatile: str = OFF,
    ) -> None:
        """Open a warehouse; nothing is read or written yet.

        Parameters
        ----------
        location
            A directory or URL, a store's spec, or an open store.
        storage_options
            As for `connect`.
        clock
            Source of time; another than the system's only in tests.
        ids
            Source of random ids; likewise.
        author
            Who commits, as shown in the history (default: host and process id).
        threads
            How many threads one insert, scan or merge may use (default: the number of cores, up to 8).
        spark
            As for `connect`.
        log
            As for `connect`; it may also be given as the storage option `log`.
        read_consistency
            As for `connect`.
        prices
            As for `connect`; the path of a file may also be given as the storage option `prices`.
        read_volatile
            As for `connect`.
        """
        is_strong_read(read_consistency)
        if threads is not None and threads < 1:
            raise error("BAD_ARGUMENTS", f"The number of threads is {threads}", "Give 1 or more, or None for all cores")
        if spark is not None and not isinstance(spark, str) and not hasattr(spark, "createDataFrame"):
            raise error("TYPE_MISMATCH", f"A {type(spark).__name__} is no Spark session", "Give one, or a master's URL")
        if isinstance(location, str):
            store_options, log_option = split_options(storage_options)
            prices_option = store_options.pop("prices", None)
            prices = prices_option if prices is None else prices
            self.store: Store = open_store(location, store_options)
            if log_option is not None and log not in (None, log_option):
                raise error(
                    "BAD_ARGUMENTS", "The log is given twice: by itself and as a storage option", "Give it once"
                )
            log = log_option if log is None else log
        else:
            self.store = location.open() if isinstance(location, StoreSpec) else location
        self.prices = prices_of(prices)
        """What the store bills, for what statements and tables cost."""
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()
        author_text = author_name() if author is None else author
        self.backends = Backends(log, PeerClient(clock=self.clock, ids=self.ids))
        self.env = Environment(
            threads or min(os.cpu_count() or 1, 8),
            spark=spark,
            read_consistency=read_consistency,
            read_volatile=volatile_mode(read_volatile),
            volatile=VolatileReads(self.backends.peers, self.clock),
        )
        self.catalog = Catalog(self.store, clock=self.clock, ids=self.ids, author=author_text, backends=self.backends)
        self._handles: dict[str, TableHandle] = {}
        self._closed: set[str] = set()
        self._nodes: WeakSet[Node] = WeakSet()

    def __repr__(self) -> str:
        return f"<Warehouse {self.url}>"

    @property
    def url(self) -> str:
        """Its URL without secrets; for a directory, the absolute path."""
        return self.store.url

    @contextmanager
    def metered(self) -> Iterator[Tally]:
        """Count the requests to the store, and their bytes, that are sent in the context, by this thread or for it.

        >>> warehouse = Warehouse("memory://metered")
        >>> table = warehouse.create_table("t", {"k": "UInt64"}, order_by="k")
        >>> with warehouse.metered() as spent:
        ...     _ = table.append({"k": [1]})
        >>> spent.counters.put, f"{warehouse.prices.cost(spent.counters):.6f} {warehouse.prices.currency}"
        (2, '0.000010 USD')
        """
        with metered(self.store) as tally:
            yield tally

    @property
    def exists(self) -> bool:
        """Whether anything has been created here."""
        return self.catalog.state.version > 0 or self.catalog.refresh().version > 0

    def databases(self) -> list[str]:
        """Names of all databases, sorted."""
        return sorted(self.catalog.refresh().databases)

    def tables(self, database: str | None = None) -> list[str]:
        """Names of the tables of one database, or of all databases as `database.table`; sorted."""
        state = self.catalog.refresh()
        if database is None:
            return [f"{d}.{name}" for d, name, _ in state.tables()]
        return [name for d, name, _ in state.tables() if d == database]

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database; DATABASE_ALREADY_EXISTS for a name that is taken, unless `if_not_exists`."""
        self.catalog.create_database(name, if_not_exists=if_not_exists)

    def drop_database(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a database and its tables; UNKNOWN_DATABASE if there is none, unless `if_exists`."""
        self.catalog.drop_database(name, if_exists=if_exists)

    def truncate_database(self, name: str, *, if_exists: bool = False) -> None:
        """Drop all tables of a database in one commit, and keep the database; see `drop_database`.

        UNDROP TABLE brings single tables back.
        """
        self.catalog.drop_database(name, if_exists=if_exists, tables_only=True)

    def undrop_database(self, name: str) -> list[str]:
        """Restore a dropped database with its tables, while their objects are kept; the names of the tables."""
        self.catalog.undrop_database(name)
        return self.tables(name)

    def create_table(
        self,
        name: str,
        schema: Any,
        *,
        order_by: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] = (),
        primary_key: str | Sequence[str] = (),
        engine: str = "",
        settings: Mapping[str, str | int | float | bool] | None = None,
        ttl: str | Sequence[str] | Mapping[str, str] = (),
        types: Mapping[str, str | DataType] | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table from a schema or from data.

        Parameters
        ----------
        name
            `table` or `database.table`.
        schema
            A `TableSchema` (see `define`), a dict of column names and ClickHouse types, a pyarrow Schema, or data: a
            frame of pandas, polars or Spark, a pyarrow Table, a dict of lists, …. The rows of data are inserted by a
            second commit.
        order_by, partition_by, primary_key
            As for `define`.
        engine
            As for `define`.
        settings, ttl
            As for `define`.
        types
            ClickHouse types of some columns of a pyarrow Schema or of data. Other columns get the type that ClickHouse
            infers from Arrow, Nullable if there are NULLs.
        if_not_exists
            Return an existing table of this name, unchanged. Without it, it is TABLE_ALREADY_EXISTS.
        """
        from mergelake.api.python.new_table import schema_and_rows

        full = split_name(name)
        table_schema, rows = schema_and_rows(
            schema,
            types,
            order_by=order_by,
            partition_by=partition_by,
            primary_key=primary_key,
            engine=engine,
            settings=settings,
            ttl=ttl,
        )
        exists = if_not_exists and self.has_table(name)
        if not exists and (table_schema.projections or table_schema.ttl):
            self.env.check_definition(None, check_schema(table_schema))
        table = Table(
            ".".join(full), self.catalog.create_table(full, table_schema, if_not_exists=if_not_exists), self.env
        )
        if rows is not None and not exists:
            try:
                table.append(rows)
            except BaseException:
                if not if_not_exists:  # else it may be another process's
                    self.drop_table(name)
                raise
        return table

    @contextmanager
    def replacing_table(
        self, name: str, schema: TableSchema, *, must_exist: bool = False, replace: bool = True
    ) -> Iterator[Table]:
        """Context with a new, empty table, which at its end takes the place of what is called `name`, by one commit.

        Until then it has no name, and readers have the old table. What is replaced is dropped. After an exception
        nothing has changed. UNKNOWN_TABLE if nothing has the name and it `must_exist`; TABLE_ALREADY_EXISTS if
        something has it, and it shall not be replaced.
        """
        full = split_name(name)
        if not replace:
            self.catalog.check_free(full)
        if must_exist and full[1] not in self.catalog.refresh().names(full[0]):
            self.catalog.find(full)  # raises
        handle = self.catalog.begin_table(full, schema)
        try:
            self.env.check_definition(None, handle.schema)
            yield Table(name, handle, self.env)
        except BaseException:
            self.catalog.drop_nameless(handle)
            raise
        self.catalog.put_table(full, handle, must_exist=must_exist, replace=replace)

    def table(self, name: str) -> Table:
        """The table `name` at its newest version; UNKNOWN_TABLE, with the nearest name, if there is none."""
        full = split_name(name)
        return Table(".".join(full), self.catalog.open_table(full), self.env)

    def opened(self, table_id: str, name: str) -> Table:
        """The table with this id, found under `name`, at its newest version."""
        return Table(name, self.catalog.open_id(table_id), self.env)

    def handles(self) -> dict[str, TableHandle]:
        """Every table by name, open; opened once and kept, whatever it is called later.

        One that cannot be opened is left out, with one warning.
        """
        names = {table_id: f"{database}.{name}" for database, name, table_id in self.catalog.refresh().tables()}
        handles: dict[str, TableHandle] = {}
        closed: set[str] = set()
        for table_id, name in names.items():
            try:
                handles[table_id] = self._handles.get(table_id) or self.catalog.open_id(table_id)
            except Exception as problem:  # noqa: BLE001  whatever is wrong with one table, the others are open
                closed.add(table_id)
                if table_id not in self._closed:
                    _logger.warning("table %s cannot be opened and is left out: %s", name, problem)
        self._handles, self._closed = handles, closed
        return {names[table_id]: handle for table_id, handle in handles.items()}

    def node(
        self,
        name: str = "node",
        *,
        only: Sequence[str] = (),
        slots: int = 2,
        poll_s: float = 1.0,
        local: str | Store | None = None,
        roles: Sequence[str] = ("merge", "mutate", "upload", "gc"),
        listen: str | None = None,
        advertise: str | None = None,
        max_upload_bytes_per_s: float | None = None,
        max_disk_bytes: int | None = None,
    ) -> Node:
        """A background worker that merges tables: call its `run(stop)` in a thread or process of its own.

        Parameters
        ----------
        name
            Name of the node, unique among those that run at the same time.
        only
            Names of the tables to work on (default: all, also later ones). UNKNOWN_TABLE for one that does not exist.
        slots
            How many merges run at once; as Spark tasks if the warehouse has a session.
        poll_s
            Seconds between looks for work.
        local
            A directory on the node's own disk for volatile parts, of tables with `merge_upload_policy = 'volatile'`.
            Nodes of other names may share it. Its content may be lost at any time.
        roles
            `merge` looks for merges, `mutate` rewrites parts for mutations, `upload` copies volatile parts to the
            store, `gc` runs a round of garbage collection every hour.
        listen
            `HOST:PORT` (port 0: any free one) on which the node takes commits of other processes, and appends them
            together with its own (see `docs/many-writers.md`), and serves its volatile parts to readers.
        advertise
            The address that other processes connect to, if it is not `listen`.
        max_upload_bytes_per_s
            Bytes a second of all uploads of volatile parts together (default: no limit).
        max_disk_bytes
            Bytes that the node keeps below `local` at most (default: half of what is free).
        """
        # Most processes are no nodes: what a node needs is loaded here.
        from mergelake.jobs.gc.collect import collect_round
        from mergelake.jobs.merge.select import MergeSlots
        from mergelake.jobs.merge.together import execute_together, is_simple
        from mergelake.jobs.node.disk import open_disk
        from mergelake.jobs.node.listening import Listening
        from mergelake.jobs.node.runner import ROLES, Node
        from mergelake.jobs.node.throttle import Throttle

        if advertise and not listen:
            raise error("BAD_ARGUMENTS", "An address is advertised, and nobody listens", "Give listen, too")
        if slots < 1 or poll_s <= 0:
            raise error("BAD_ARGUMENTS", f"A node cannot have {slots} slots and look every {poll_s} s")
        for what, limit in (("bytes uploaded a second", max_upload_bytes_per_s), ("bytes on its disk", max_disk_bytes)):
            if limit is not None and not limit > 0:
                raise error("BAD_ARGUMENTS", f"A node cannot have a limit of {limit} {what}", "Give more, or None")
        if max_disk_bytes is not None and local is None:
            raise error("BAD_ARGUMENTS", "The bytes on the disk are limited, and there is no disk", "Give local, too")
        if isinstance(only, str):
            raise error("TYPE_MISMATCH", f"only is the text '{only}'", f"Give a list of tables: ['{only}']")
        bounds = MergeSlots(total=slots, lower_at_free=1, whole_partition_at_free=1)
        if not roles or set(roles) - set(ROLES):
            roles_text = ", ".join(roles) or "none"
            raise error("BAD_ARGUMENTS", f"A node cannot have the roles: {roles_text}", f"There are {', '.join(ROLES)}")

        wanted = {".".join(split_name(each)) for each in only}
        for each in wanted:
            self.catalog.find(split_name(each))

        def handles() -> dict[str, TableHandle]:
            return {each: handle for each, handle in self.handles().items() if not wanted or each in wanted}

        def run_merge(handle: TableHandle, task: MergeTask) -> PartManifest:
            return self.env.run_merges(handle, [task], node.abandon, node.watch(handle, task))[0]

        def run_joined(handle: TableHandle, tasks: Sequence[MergeTask]) -> Sequence[PartManifest | None]:
            simple = [at for at, task in enumerate(tasks) if is_simple(task)]
            made = execute_together(handle.store, [tasks[at] for at in simple], handle.ids, handle.clock)
            return [dict(zip(simple, made, strict=True)).get(at) for at in range(len(tasks))]

        def run_mutations(handle: TableHandle, tasks: Sequence[MergeTask]) -> Sequence[PartManifest | None]:
            return self.env.run_mutations(handle, tasks, node.abandon.is_set)

        def build(handle: TableHandle, task: MergeTask, disk: LocalDisk, unwanted: Callable[[], bool]) -> PartManifest:
            return self.env.build_volatile(handle, task, disk.store, unwanted, node.watch(handle, task))

        def collect() -> int:
            reports = map(collect_round, handles().values()) if wanted else (report for _, report in self._rounds())
            deleted = 0
            for report in reports:
                deleted += sum(gone.objects for gone in report.deleted)
                if node.abandon.is_set():
                    break
            return deleted

        disk, disk_free = open_disk(local, name) if isinstance(local, str) else (local, lambda: None)
        if disk is not None:
            self.env.volatile.disks[name] = disk
        listening = None
        if listen:
            listening = Listening(listen, advertise or "", socket.gethostname(), clock=self.clock, ids=self.ids)
        node = Node(
            name, handles, run_merge, clock=self.clock, slots=bounds, poll_s=poll_s, roles=tuple(roles), disk=disk,
            build=build, disk_free=disk_free, collect=collect, listening=listening, run_mutations=run_mutations,
            check_merges=self.env.check_merges,
            upload_rate=Throttle(max_upload_bytes_per_s, self.clock) if max_upload_bytes_per_s else None,
            disk_bytes_max=max_disk_bytes, run_joined=run_joined,
        )  # fmt: skip
        self._nodes.add(node)
        return node

    @property
    def nodes(self) -> list[Node]:
        """The nodes that `node` made, as far as they still exist in this process."""
        return list(self._nodes)

    def clone_table(
        self,
        source: str,
        name: str,
        *,
        version: int | str | None = None,
        timestamp: datetime | str | int | None = None,
        if_not_exists: bool = False,
        replace: bool = False,
        must_exist: bool = False,
    ) -> Table:
        """Create a table with the rows of another, as of a version, a tag or a time, without copying objects.

        Later changes of either do not affect the other. Objects that the clone needs are kept, even if the source is
        dropped. With `replace` it takes the place of what is called `name`, which is dropped, by one commit.
        UNKNOWN_TABLE if nothing is and it `must_exist`.
        """
        full, other = split_name(name), self.table(source)
        state = other.state(version, timestamp)
        handle = self.catalog.clone_table(
            full, other.handle, state, if_not_exists=if_not_exists, replace=replace, must_exist=must_exist
        )
        return Table(".".join(full), handle, self.env)

    def gc(self, *, dry_run: bool = False) -> list[tuple[str, CollectReport]]:
        """Run one round of garbage collection over every table, also dropped ones: name and report of each.

        A table without a name is listed by its directory. `dry_run=True` changes nothing, and reports what a round
        would do.
        """
        return list(self._rounds(dry_run))

    def _rounds(self, dry_run: bool = False) -> Iterator[tuple[str, CollectReport]]:
        from mergelake.jobs.gc.tables import collect_warehouse

        names = {table_id: f"{database}.{name}" for database, name, table_id in self.catalog.refresh().tables()}
        for directory, report in collect_warehouse(
            self.store,
            self.catalog,
            clock=self.clock,
            ids=self.ids,
            dry_run=dry_run,
            opened={table_id: handle for table_id, handle in self._handles.items() if table_id in names},
        ):
            yield names.get(directory, directory), report

    def cost(self, name: str, *, days: float = 30) -> TableCost:
        """What a table holds, and what was written to it in the last `days`, or as long as its log is kept.

        From the log alone, so it is about all writers, and about no reads: a GET for each entry of that time.

        >>> warehouse = Warehouse("memory://cost")
        >>> _ = warehouse.create_table("t", {"k": "UInt64"}, order_by="k").append({"k": [1]})
        >>> cost = warehouse.cost("t")
        >>> (cost.total.puts, f"{cost.total.cost(warehouse.prices):.6f}", cost.month(warehouse.prices))
        (3, '0.000015', None)
        """
        from mergelake.api.python.cost import chunk_bytes, table_cost

        if not 0 < days < DAYS_MAX:
            raise error("BAD_ARGUMENTS", f"There are no {days} days to look back", "Give a number above 0")
        table = self.table(name)
        return table_cost(table.name, table.handle.log, self.clock.now_ms(), days, chunk_bytes(self.store))

    def verify_log(self, name: str, on_progress: Progress | None = None) -> LogReport:
        """Read and replay the log of a table, and report damage; UNKNOWN_TABLE if there is none of this name."""
        return self.catalog.log_of(self.catalog.find(split_name(name))).verify(on_progress)

    def fsck(
        self, name: str | None = None, *, repair: bool = False, on_progress: Progress | None = None
    ) -> Iterator[tuple[str, FsckReport]]:
        """Check that all objects of each table (or of the one called `name`) are complete and consistent: names and
        reports.

        Without a name the log of the names comes first, as `the catalog`. A damaged table does not keep the others from
        being checked; UnavailableError if the store does not answer. `repair=True` mends what can be mended, see
        `jobs.gc.fsck`.
        """
        from mergelake.jobs.gc.fsck import fsck, fsck_names, unopened

        if name is None:
            if self.exists:
                yield CATALOG, fsck_names(self.catalog.log, on_progress)
            wanted = {table_id: f"{database}.{table}" for database, table, table_id in self.catalog.refresh().tables()}
        else:
            full = split_name(name)
            wanted = {self.catalog.find(full): ".".join(full)}
        for table_id, table in wanted.items():
            try:
                report = fsck(self.catalog.open_id(table_id), repair=repair, on_progress=on_progress)
            except UnavailableError:
                raise
            except Exception as problem:  # noqa: BLE001  whatever is wrong with one table
                report = unopened(self.catalog.log_of(table_id), problem, on_progress)
            yield table, report

    def has_table(self, name: str) -> bool:
        """Whether there is a table of this name."""
        database, table = split_name(name)
        return table in self.catalog.refresh().databases.get(database, {})

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table; UNKNOWN_TABLE if there is none, unless `if_exists`."""
        self.catalog.drop_table(split_name(name), if_exists=if_exists)

    def undrop_table(self, name: str, table_id: str = "") -> Table | None:
        """Restore a dropped table with all its rows, while its objects are kept (`history_retention_seconds`).

        `table_id` selects one if several had the name (default: the last one dropped). UNKNOWN_TABLE if it is too late.
        None for a view or a union of tables, which is restored at any time.
        """
        full = split_name(name)
        handle = self.catalog.undrop_table(full, table_id)
        return None if handle is None else Table(".".join(full), handle, self.env)

    def rename_database(self, name: str, new_name: str) -> None:
        """Rename a database; its tables stay in it."""
        self.catalog.rename_database(name, new_name)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table, also into another database; no object is moved."""
        self.rename_tables([(name, new_name)])

    def rename_tables(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename tables one after the other in one commit, so that a swap by way of a third name is possible."""
        self.catalog.rename_tables([(split_name(old), split_name(new)) for old, new in pairs])

    def exchange_tables(self, name: str, other: str) -> None:
        """Swap the names of two tables in one commit."""
        self.catalog.exchange_tables(split_name(name), split_name(other))


def author_name() -> str:
    """The author of commits in the history: this host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def split_name(name: str) -> Name:
    """`table` or `database.table` as a pair."""
    database, dot, table = name.partition(".")
    return (database, table) if dot else (DEFAULT_DATABASE, name)
