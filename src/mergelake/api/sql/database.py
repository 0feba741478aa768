"""`Database`: a warehouse with SQL. `mergelake.connect(url)` gives one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mergelake.api.python.environment import Environment
from mergelake.api.python.reading import snapshot_to_read
from mergelake.api.python.table import Table
from mergelake.api.python.warehouse import DEFAULT_DATABASE, Warehouse
from mergelake.api.sql.lower import execute
from mergelake.api.sql.names import KnownNames, StatementNames, is_strong, names_read
from mergelake.api.sql.open_tables import OpenTables
from mergelake.api.sql.optimistic import read_beside
from mergelake.api.sql.parser import parse_statement
from mergelake.api.sql.query_log import QueryLog
from mergelake.api.sql.result import Result
from mergelake.api.sql.script import split_statements
from mergelake.api.sql.settings import OWN_SETTINGS, judged, log_length, merged, plain, staleness_ms
from mergelake.api.sql.statements import Name
from mergelake.core.base.cancel import CancelToken, check, running
from mergelake.core.base.errors import error, there_are
from mergelake.core.base.progress import OnProgress
from mergelake.log.model.state import State
from mergelake.parts.read.fetch import is_remote
from mergelake.query.context import Context, RunTasks, StatementCache
from mergelake.query.embedded.engine import setting_literal
from mergelake.query.expand.parameters import cast, filled_in, literal
from mergelake.query.result import QueryResult
from mergelake.query.select import run_select
from mergelake.query.source import Source
from mergelake.query.statement.access import check_fixed
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.settings import for_clickhouse, honoured, plain_value
from mergelake.query.statement.settings_semantics import writes_file
from mergelake.store.metering.prices import Prices
from mergelake.table.catalog.catalog import RESERVED
from mergelake.table.handle.handle import epoch_ms
from mergelake.table.handle.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Database:
    """A warehouse with SQL: statements by `sql`, tables as objects by `table`. `connect` makes one.

    Threads may share a `Database`; USE and SET hold for all of them. It is a context manager that calls `close`.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        *,
        settings: Mapping[str, object] | None = None,
        allow_external_access: bool = False,
    ) -> None:
        check_fixed(settings or ())
        self.warehouse = warehouse
        """Databases and tables without SQL."""
        self.allow_external_access = allow_external_access
        """Whether statements may read files and the network: `file`, `url`, `s3`, …"""
        self.current_database = DEFAULT_DATABASE
        """The database of names without one; `use` changes it."""
        self._settings: dict[str, str] = _literals(settings or {})
        self._of_call = threading.local()
        self.open_tables = OpenTables(warehouse)
        """The tables that this object has open."""
        self._cache = StatementCache()
        self.on_progress: OnProgress | None = None
        """Called with a `Progress` now and again while a SELECT, an INSERT or an OPTIMIZE runs, from any thread."""
        self.query_log = QueryLog(warehouse.clock, warehouse.ids)
        """The last statements, for `system.query_log`."""
        self._under_way: set[CancelToken] = set()

    @property
    def settings(self) -> dict[str, str]:
        """Settings that SET gave, values as SQL literals; inside a call of `sql`, a copy with its `settings` too."""
        own: dict[str, str] | None = getattr(self._of_call, "settings", None)
        return self._settings if own is None else own

    def __repr__(self) -> str:
        return f"<Database {self.warehouse.url}>"

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget open tables. No lock or lease is held, so calling it is optional."""
        self.open_tables.clear()

    def sql(
        self,
        text: str,
        settings: Mapping[str, object] | None = None,
        params: Mapping[str, object] | None = None,
        *,
        format: str = "",
    ) -> Result:
        """Run one or several statements, separated by `;`, and return the result of the last one.

        Parameters
        ----------
        text
            The statements.
        settings
            Settings for this call alone: name to value.
        params
            Values for `{name:Type}` in the text, as ClickHouse's query parameters: each is inserted as a literal of
            that type (`{name:Identifier}`: as a quoted name), never as SQL. BAD_ARGUMENTS for a parameter without a
            value, and for a value whose parameter the text does not have.
        format
            A format of ClickHouse, such as `JSON`: rows are returned as bytes in it (`Result.formatted`), unless the
            statement has a FORMAT clause.

        Returns
        -------
        Result
            Empty for a statement without rows. A result of more than 16 MiB is open: its statement continues, on the
            versions of the tables that it began with, as rows are read. Closing or deleting the result ends the
            statement.

        Raises
        ------
        MergelakeError
            What is wrong with the statement or its data, with ClickHouse's code and name.
        KeyboardInterrupt
            After Ctrl-C, which ends the statement; `cancel` ends it from another thread.

        Examples
        --------
        >>> db = connect("memory://sql")
        >>> db.sql("SELECT {n:UInt8} + 1 AS next", params={"n": 41}).scalar()
        42
        """
        if params is not None:
            text = fill_parameters(text, params)
        check_fixed(settings or ())
        cancel = CancelToken()
        self._under_way.add(cancel)
        try:
            with running(cancel), self.under(_literals(settings or {})):
                result = self._executed(text, format)
        except BaseException as failure:
            self._under_way.discard(cancel)
            if isinstance(failure, KeyboardInterrupt):
                cancel.set()  # threads that still read for it stop
            raise
        result.at_end(lambda: self._under_way.discard(cancel))
        return result

    @contextmanager
    def under(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Apply `settings` (judged literals) within the context, for this thread only."""
        outer = getattr(self._of_call, "settings", None)
        if settings:
            self._of_call.settings = merged(self.settings, settings)
        try:
            yield
        finally:
            self._of_call.settings = outer

    def _executed(self, text: str, format: str) -> Result:
        result = Result()
        places = split_statements(text)
        if not places:
            raise error("SYNTAX_ERROR", "There is no statement", "SELECT 1")
        for start, end in places:
            for _ in result.chunks() if result.has_format else result.batches():
                pass  # each statement runs to its end
            check()
            result = self._logged(text, start, end, format)
        return result

    def _logged(self, text: str, start: int, end: int, format: str) -> Result:
        """Run one statement; what it does is counted, and told by `query_log`."""
        with self.warehouse.metered() as tally:
            query = self.query_log.begin(text[start:end], self.current_database, tally, log_length(self.settings))
            try:
                statement = parse_statement(text, start, end)
                self.query_log.parsed(query, statement, lambda end: text[start:end])
                result = execute(self, statement, text, format)
            except BaseException as failure:
                self.query_log.failed(query, failure)
                raise
        result.metered_by(tally, self.warehouse.prices)
        self.query_log.returned(query, result)
        return result

    def cancel(self) -> None:
        """End every statement that runs through this object, from another thread; there it raises QUERY_WAS_CANCELLED.

        ClickHouse and scans stop within moments, a merge or an insert between two blocks. Nothing of a cancelled
        statement is committed, except merges of an OPTIMIZE that were committed before.
        """
        for cancel in list(self._under_way):
            cancel.set()

    def table(self, name: str) -> Table:
        """The table `name` or `database.name`, at its newest version; without a database, of the current one.

        UNKNOWN_TABLE or UNKNOWN_DATABASE, with the nearest name, if there is none. NOT_IMPLEMENTED for a view, which
        has no rows of its own.
        """
        return self.open(_parsed_name(name))

    def create_table(self, name: str, schema: Any, *, if_not_exists: bool = False, **options: Any) -> Table:
        """Create a table from a schema or from data.

        `schema` and `options` (`order_by`, `partition_by`, `primary_key`, `engine`, `settings`, `types`) are those of
        `Warehouse.create_table`. TABLE_ALREADY_EXISTS for a name that is taken, unless `if_not_exists`: then the
        existing table is returned unchanged.

        Examples
        --------
        >>> db = connect("memory://created")
        >>> db.create_table("t", {"k": [1, 2], "s": ["a", None]}, order_by="k").schema.types["s"]
        Nullable(inner=String())
        """
        full = self.full_name(_parsed_name(name))
        self.warehouse.create_table(full, schema, if_not_exists=if_not_exists, **options)
        return self.table(full)

    def create_view(
        self,
        name: str,
        query: str,
        *,
        columns: Sequence[str] = (),
        comment: str = "",
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> None:
        """Create a view: a SELECT under a name, as CREATE VIEW does.

        `columns` are names for its columns, in order. `{name:Type}` in the query makes it a function of parameters.
        TABLE_ALREADY_EXISTS for a name that is taken, unless `if_not_exists`, which leaves what has it, or `replace`,
        which drops it. The errors of the query are raised, and nothing is created.

        >>> db = connect("memory://views")
        >>> db.create_view("squares", "SELECT number * number AS n FROM numbers({up_to:UInt64})")
        >>> db.sql("SELECT sum(n) FROM squares(up_to = 4)").scalar()
        14
        """
        from mergelake.api.sql.virtual import create_view

        create_view(
            self,
            _parsed_name(name),
            query,
            aliases=columns,
            comment=comment,
            if_not_exists=if_not_exists,
            replace=_replaces(if_not_exists, replace),
        )

    def create_union(
        self,
        name: str,
        tables: str,
        *,
        databases: str = "",
        columns: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> None:
        """Create a union of tables: whoever reads it reads every table whose name the regular expression finds then.

        As CREATE TABLE … ENGINE = Merge(…) does. `databases` is a regular expression of names of databases; without it
        the tables are those of the union's own. `columns`, name to type, are those of the tables as they are now, if
        they are not given. `if_not_exists` and `replace` as in `create_view`.

        >>> db = connect("memory://unions")
        >>> for month in (1, 2):
        ...     _ = db.create_table(f"events_{month}", {"k": [month]}, order_by="k")
        >>> db.create_union("events", "^events_")
        >>> db.sql("SELECT k, _table FROM events ORDER BY k").rows()
        [(1, 'events_1'), (2, 'events_2')]
        """
        from mergelake.api.sql.virtual import create_union, union_schema
        from mergelake.query.expand.unions import Pattern

        parsed = _parsed_name(name)
        own = parsed.database or self.current_database
        pattern = Pattern(databases, tables, of_databases=True) if databases else Pattern(own, tables)
        schema = union_schema(pattern, columns or {})
        create_union(self, parsed, schema, if_not_exists=if_not_exists, replace=_replaces(if_not_exists, replace))

    def tables(self, database: str | None = None) -> list[str]:
        """Names of the tables of `database` (default: the current one), views among them.

        UNKNOWN_DATABASE if there is none.
        """
        return self.table_names(database or self.current_database)

    def databases(self) -> list[str]:
        """Names of all databases, sorted."""
        return self.warehouse.databases()

    def use(self, database: str) -> None:
        """Make `database` the one that names without a database refer to; UNKNOWN_DATABASE if there is none."""
        known = self.warehouse.databases()
        if database not in known and database not in RESERVED:
            raise error("UNKNOWN_DATABASE", f"Database {database} does not exist", there_are("databases", known))
        self.current_database = database

    def full_name(self, name: Name) -> str:
        """`database.table`; UNKNOWN_DATABASE for a database with a dot, which there cannot be."""
        database = name.database or self.current_database
        if "." in database:
            raise error("UNKNOWN_DATABASE", f"Database {database} does not exist", "SHOW DATABASES lists those that do")
        return f"{database}.{name.table}"

    def open(self, name: Name) -> Table:
        """The table of a parsed name, at its newest version.

        It is kept open: opening it again costs two small requests, sent together.
        """
        full = self.full_name(name)
        where = (name.database or self.current_database, name.table)
        known = self.open_tables.look([where])
        table_id = self.warehouse.catalog.known(where)
        return self.open_tables.kept(table_id, full, news=table_id not in known)

    def known_table(self, database: str, name: str) -> Table | None:
        """The table as this connection knows it, without a request; None if it has not opened it."""
        return self.open_tables.known(self.warehouse.catalog.state.databases.get(database, {}).get(name, ""))

    def table_names(self, database: str) -> list[str]:
        """Names of the tables of a database; UNKNOWN_DATABASE if there is none."""
        if database in RESERVED:
            from mergelake.api.sql.foreign import foreign_names

            return foreign_names(database)
        if database not in self.warehouse.databases():
            raise error("UNKNOWN_DATABASE", f"Database {database} does not exist", "SHOW DATABASES lists those that do")
        return self.warehouse.catalog.state.names(database)

    def select(self, query: str, format: str = "") -> QueryResult:
        """Run a SELECT; in `format`, where it names none itself."""
        context = replace(self.context(), format=format)
        looked: list[set[str]] = []
        answer = self._optimistic(query, context, looked)
        return answer or run_select(query, self.resolver(query, looked), context)

    def _optimistic(self, query: str, context: Context, looked: list[set[str]]) -> QueryResult | None:
        """The result read from the versions that are known here, if they are still the newest; else None.

        The ids of the tables that were refreshed are added to `looked`.
        """
        far = is_remote(self.warehouse.store) and is_strong(self) and not staleness_ms(self.settings)
        read = names_read(self, query) if far and not writes_file(parse_select(query)) else None
        known = self.open_tables.at_rest(read.tables) if read is not None else None
        if read is None or not known:
            return None
        names = KnownNames(self, read, known, context.now_ms)

        def still_so() -> bool:
            looked.append(self.open_tables.look(known))
            return names.still_so()

        return read_beside(lambda: run_select(query, names, context), still_so, QueryResult.close)

    def resolver(self, query: str = "", looked: Iterable[set[str]] = ()) -> StatementNames:
        """What finds the tables and views of a SELECT; see `StatementNames`."""
        return StatementNames(self, query, looked)

    def source_of(self, table: Table, now_ms: int, state: State | None = None) -> Source:
        """The table at its version known here, or in a state, as a SELECT at the time `now_ms` reads it."""
        from mergelake.query.table_source import TableSource

        handle = table.handle
        threads = self.settings.get("max_threads", "").strip("'")
        skips = self.settings.get("skip_broken_parts", "0").strip("'").lower() in ("1", "true")
        read_volatile = self.settings.get("read_volatile")
        mode = None if read_volatile is None else plain_value(read_volatile)

        def of(state: State) -> Snapshot:
            return snapshot_to_read(handle, state, table.env, read_volatile=mode, skip_broken_parts=skips)

        def snapshot(version: int | str | None = None, timestamp: str | None = None) -> Snapshot:
            return of(handle.state_at(version, None if timestamp is None else epoch_ms(timestamp)))

        return TableSource(
            table.name,
            handle.store,
            handle.directory,
            of(handle.log.state if state is None else state),
            now_ms=now_ms,
            caches=table.env.caches,
            threads=int(threads) if threads.isdigit() and int(threads) else table.env.threads,
            spec=handle.store.spec,
            history=snapshot,
            volatile=table.env.volatile,
        )

    def engine_settings(self) -> dict[str, str]:
        """The settings that are passed to ClickHouse."""
        return for_clickhouse({name: value for name, value in self.settings.items() if name not in OWN_SETTINGS})

    def context(self) -> Context:
        """The context in which SELECTs run."""
        executor = self.settings.get("executor", "'auto'").strip("'")
        return Context(
            settings=self.engine_settings(),
            honoured=plain(honoured(self.settings)),
            database=self.current_database,
            executor=executor,
            run_tasks=self._run_tasks() if executor != "local" else None,
            clock=self.warehouse.clock,
            now_ms=self.warehouse.clock.now_ms(),
            on_progress=self.on_progress,
            external=self.allow_external_access,
            cache=self._cache,
        )

    def _run_tasks(self) -> RunTasks | None:
        """What runs tasks on Spark, if there is a session or the setting `executor` is `spark`; else None."""
        env = self.warehouse.env
        if env.spark is None and self.settings.get("executor", "").strip("'") != "spark":
            return None
        return _SparkTasks(env)


@dataclass(frozen=True, slots=True)
class _SparkTasks:
    env: Environment

    def __call__(self, fn: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        from mergelake.api.spark.tasks import run_tasks

        return run_tasks(self.env.spark_session(), fn, items)

    def exchange(
        self,
        first: Callable[[Any], Iterator[tuple[int, bytes]]],
        items: list[Any],
        second: Callable[[list[bytes]], Any],
        tasks: int,
    ) -> list[Any]:
        from mergelake.api.spark.tasks import exchange

        return exchange(self.env.spark_session(), first, items, second, tasks)

    def at_once(self) -> int:
        from mergelake.api.spark.tasks import tasks_at_once

        return tasks_at_once(self.env.spark_session())


def _parsed_name(name: str) -> Name:
    """`table` or `database.table`."""
    database, dot, table = name.partition(".")
    return Name(database, table) if dot else Name("", name)


def _replaces(if_not_exists: bool, replace: bool) -> bool:
    """`replace`; BAD_ARGUMENTS if what has the name is to stay, too."""
    if if_not_exists and replace:
        raise error("BAD_ARGUMENTS", "What has the name is to be replaced, and to stay", "Give one of the two")
    return replace


def _literals(settings: Mapping[str, object]) -> dict[str, str]:
    """Judged settings as SQL literals, from Python values."""
    return judged({name: setting_literal(value) for name, value in settings.items()}) if settings else {}


def connect(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    spark: SparkSession | str | None = None,
    settings: Mapping[str, object] | None = None,
    log: str | None = None,
    read_consistency: str = "strong",
    read_volatile: str = "off",
    allow_external_access: bool = False,
    prices: Prices | Mapping[str, Any] | str | os.PathLike[str] | None = None,
) -> Database:
    """Open the warehouse at `url`. One that does not exist yet is created by the first statement that writes.

    Parameters
    ----------
    url
        A directory, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or `memory://name` for a
        warehouse in the memory of this process.
    storage_options
        Credentials and endpoints of the store: `access_key_id`, `secret_access_key`, `endpoint`, `region`, …; see
        `mergelake.store.open_store`. Options that are not given are taken from the environment (`AWS_*`, …).
    spark
        A Spark session, or the URL of a master on which a session is started when one is first needed. Merges, and
        SELECTs that read many rows, run there. None: they run in this process.
    settings
        Settings for every statement, as by SET: name to value.
    log
        Where commits are ordered. For a new warehouse: `bucket` (default) or `zookeeper://host:2181/path`; an existing
        one has it recorded. `sealed`: read what is in the bucket, and ask no other service.
    read_consistency
        `strong`: a read sees every commit that was acknowledged before it began, for one small request for each log (a
        SELECT asks for the names of tables and for each table at once). `cached`: a read sees the commits that this
        process knows, at least its own, and sends no request. `SET read_consistency` and
        `Table.scan(read_consistency=…)` override it.
    read_volatile
        Whether reads take volatile parts, merged on the disks of nodes and not uploaded yet, in place of the stored
        parts beneath: `off`; `peers`, from nodes that listen and those of this process; or the absolute path of a
        directory that nodes of this machine have as `--local`. Where a node does not answer, the stored parts are
        read. `SET read_volatile` and `Table.scan(read_volatile=…)` override it.
    allow_external_access
        Whether statements may read files and the network with the rights of this process: `file`, `url`, `s3`,
        `remote`, `FROM 'data.csv'`, INTO OUTFILE, …. Without it they are ACCESS_DENIED. Use it only where every
        statement is trusted.
    prices
        What the store bills, for the costs that `Result.stats` and `system.query_log` tell: `Prices`, a dict of its
        fields, or the path of a TOML file with them. None: the file that `MERGELAKE_PRICES` names, or else list prices
        of S3.

    Raises
    ------
    InvalidInputError
        For a URL, an option or a setting that is unknown or has an impossible value, and for a bucket without
        credentials.

    Examples
    --------
    >>> db = connect("memory://connected")
    >>> db.sql("SELECT 1 AS one").rows()
    [(1,)]
    """
    if not isinstance(url, str | os.PathLike):
        raise error("TYPE_MISMATCH", f"A {type(url).__name__} is no place of a warehouse", "Give a directory or a URL")
    warehouse = Warehouse(
        os.fspath(url),
        storage_options,
        spark=spark,
        log=log,
        read_consistency=read_consistency,
        read_volatile=read_volatile,
        prices=prices,
    )
    return Database(warehouse, settings=settings, allow_external_access=allow_external_access)


def fill_parameters(text: str, params: Mapping[str, object]) -> str:
    """`{name:Type}` replaced by the value as a literal of that type; `{name:Identifier}` by a quoted name."""
    named: set[str] = set()

    def fill(name: str, kind: str) -> str:
        named.add(name)
        if name not in params:
            raise error("BAD_ARGUMENTS", f"There is no value for the parameter {name}", f"params={{'{name}': …}}")
        value = params[name]
        if value is None or isinstance(value, datetime):  # with parts of seconds or a zone, which CAST understands
            return cast(None if value is None else str(value), kind)
        return literal(str(int(value)) if isinstance(value, bool) else str(value), kind, name)

    filled = filled_in(text, fill)
    for name in params:
        if name not in named:
            hint = there_are("parameters", sorted(named))
            raise error("BAD_ARGUMENTS", f"The statement names no parameter {name!r}", hint)
    return filled
