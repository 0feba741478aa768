"""Names of databases and tables, on the catalog's own log under `_catalog/log`.

CREATE writes the first entry of the table's log and then its name, so a name never points to nothing (what a
crash in between leaves is a table without a name: unreachable, swept later). DROP takes the name and then
marks the table, so that an insert under way fails instead of adding rows to a ghost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from mergelake.core.clock import Clock
from mergelake.core.errors import ConflictError, InvalidInputError, MergelakeError, NotFoundError, error
from mergelake.core.ids import IdSource
from mergelake.core.schema import TableSchema
from mergelake.log.backends import Backends
from mergelake.log.catalog import DEFAULT, CatalogMachine, CatalogState, no_database, no_table
from mergelake.log.commit import Log
from mergelake.log.machine import TableMachine
from mergelake.log.migrate import new_tree, place_of_new
from mergelake.log.operations import (
    CatalogOp,
    CreateDatabase,
    DropDatabase,
    DropTable,
    Exchange,
    PutTable,
    RemoveTable,
    RenameDatabase,
    RenameTable,
    TableOp,
)
from mergelake.log.state import State
from mergelake.store.probe import probe_create_if_absent
from mergelake.store.protocol import Store
from mergelake.table.clone import check_holds, plan_clone, take_holds
from mergelake.table.handle import TableHandle
from mergelake.table.undrop import last_drop, last_drop_of_database, require_undroppable, undrop

LOG_PREFIX = "_catalog/log"
"""Where the catalog's log lies."""
Name = tuple[str, str]
"""Database and table."""
_logger = logging.getLogger("mergelake.table")


class Catalog:
    """The names of one warehouse. Threads may share one."""

    def __init__(
        self, store: Store, *, clock: Clock, ids: IdSource, author: str = "", backends: Backends | None = None
    ) -> None:
        self._store, self._clock, self._ids, self._author = store, clock, ids, author
        self._backends = backends or Backends()
        self._log: Log[CatalogState] = Log.open(
            store, LOG_PREFIX, CatalogMachine(), clock=clock, ids=ids, author=author, backends=self._backends
        )

    @property
    def state(self) -> CatalogState:
        """All names, as known here."""
        return self._log.state

    @property
    def log(self) -> Log[CatalogState]:
        """The log of the names."""
        return self._log

    def refresh(self) -> CatalogState:
        """Learn what others did: one GET if nothing."""
        return self._log.refresh()

    def begin(self) -> None:
        """Before the first write: is there a warehouse, or can there be one?

        A store whose create-if-absent is not truthful is refused (SUPPORT_IS_DISABLED). If the log is to be in
        ZooKeeper, it is made there. Reading never comes here, and so makes nothing.
        """
        if self.state.version or self.refresh().version:
            return
        probe_create_if_absent(self._store, self._ids)
        address = self._backends.address
        if address is None:
            return
        move = new_tree(address, self._store, LOG_PREFIX, self._clock, self._ids)
        self._log.commit(lambda state: () if state.version else (move,))

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """A new database; DATABASE_ALREADY_EXISTS unless it may."""
        _check_database(name)
        if if_not_exists and name in self.state.databases:
            return
        self.begin()

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            return () if if_not_exists and name in state.databases else (CreateDatabase(name),)

        self._log.commit(build)

    def drop_database(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a database with all its tables, at one instant; UNKNOWN_DATABASE unless it may be missing.

        `default` is empty then, and still there.
        """
        dropped: list[str] = []

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            dropped[:] = state.databases.get(name, {}).values()
            if name not in state.databases:
                return () if if_exists else (DropDatabase(name),)
            tables = state.databases[name].items()
            return (*(RemoveTable(name, table, table_id) for table, table_id in tables), DropDatabase(name))

        self._commit_known(build)
        for table_id in dropped:
            self._mark_dropped(table_id)

    def create_table(self, name: Name, schema: TableSchema, *, if_not_exists: bool = False) -> TableHandle:
        """A new table; TABLE_ALREADY_EXISTS unless it may (then the one that is there)."""
        _check_name(name[1], "table")
        found = self._existing(name)
        if found is not None:
            return self._taken(name, found, if_not_exists)
        from mergelake.table.define import check_schema  # loads kernels that opening a table does not need

        return self._put(name, self._begin_table(self._ids.new_id(), check_schema(schema)), if_not_exists)

    def clone_table(self, name: Name, source: TableHandle, state: State, *, if_not_exists: bool = False) -> TableHandle:
        """A new table with the rows of a state of another, without copying any; see `clone`.

        TABLE_ALREADY_EXISTS as in `create_table`; ConflictError where what it would refer to is gone.
        """
        _check_name(name[1], "table")
        found = self._existing(name)
        if found is not None:
            return self._taken(name, found, if_not_exists)
        table_id = self._ids.new_id()
        plan = plan_clone(state, source.directory, self._ids)
        owners = take_holds(table_id, plan, lambda owner: source if owner == source.directory else self.open_id(owner))
        handle = self._begin_table(table_id, plan.schema, plan.more)
        try:
            check_holds(table_id, owners)
            return self._put(name, handle, if_not_exists)
        except (ConflictError, InvalidInputError, NotFoundError):
            self._mark_dropped(table_id)
            raise

    def _begin_table(self, table_id: str, schema: TableSchema, more: Sequence[TableOp] = ()) -> TableHandle:
        self.begin()
        return TableHandle.create(
            self._store,
            table_id,
            schema,
            clock=self._clock,
            ids=self._ids,
            author=self._author,
            backends=self._backends,
            log_at=place_of_new(self._backends, self.state.sequencer),
            more=more,
        )

    def _put(self, name: Name, handle: TableHandle, if_not_exists: bool) -> TableHandle:
        """Give a new table its name; the one that has it, if another was faster and that will do."""

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            taken = name[1] in state.databases.get(name[0], {})
            return () if if_not_exists and taken else (PutTable(*name, handle.directory),)

        committed = self._log.commit(build)
        if committed.entry is None:
            return self._taken(name, committed.state.databases[name[0]][name[1]], if_not_exists)
        return handle

    def drop_table(self, name: Name, *, if_exists: bool = False) -> None:
        """Remove a table; UNKNOWN_TABLE unless it may be missing."""
        dropped: list[str] = []

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            table_id = state.databases.get(name[0], {}).get(name[1])
            dropped[:] = [table_id] if table_id else []
            if table_id is None and if_exists:
                return ()
            return (RemoveTable(*name, table_id or ""),)

        self._commit_known(build)
        for table_id in dropped:
            self._mark_dropped(table_id)

    def undrop_table(self, name: Name, table_id: str = "") -> TableHandle:
        """Bring a dropped table back: the one that lost this name last, or the one with this id.

        TABLE_ALREADY_EXISTS if the name is taken, UNKNOWN_TABLE if there was none, or if its objects were collected.
        """
        if self._existing(name) is not None:
            raise _cannot_undrop(name)
        found = last_drop(self._log, *name, table_id)
        if not found:
            which = ".".join(name) + (f" ({table_id})" if table_id else "")
            told = f"Table {which} was not dropped, or is there under another name"
            raise error("UNKNOWN_TABLE", told, f"SHOW TABLES FROM {name[0]} lists those that exist")
        return self._undrop([(name, found)])[0]

    def undrop_database(self, name: str) -> list[TableHandle]:
        """Bring back a database and the tables that it had when it was dropped; none of them, where one cannot be.

        DATABASE_ALREADY_EXISTS if it is there (but for `default`, whose tables come back), UNKNOWN_DATABASE if it never
        was dropped, UNKNOWN_TABLE if objects were collected since.
        """
        state = self.refresh()
        if name in state.databases and name != DEFAULT:
            hint = f"UNDROP TABLE {name}.… brings single tables back"
            raise error("DATABASE_ALREADY_EXISTS", f"Cannot undrop database, {name} already exists", hint)
        tables = last_drop_of_database(self._log, name)
        if tables is None:
            raise no_database(state, name).as_error()
        taken = next((table for table in tables if table in state.databases.get(name, {})), None)
        if taken is not None:
            raise _cannot_undrop((name, taken))
        named = {table_id for _, _, table_id in state.tables()}
        wanted = [((name, table), table_id) for table, table_id in tables.items() if table_id not in named]
        return self._undrop(wanted, () if name == DEFAULT else (CreateDatabase(name),))

    def _undrop(self, wanted: Sequence[tuple[Name, str]], first: Sequence[CatalogOp] = ()) -> list[TableHandle]:
        """The tables, then all of their names in one entry: a crash between leaves what a collector drops again."""
        handles: list[TableHandle] = []
        lost: list[str] = []
        for name, table_id in wanted:
            try:
                handles.append(self.open_id(table_id))
                require_undroppable(handles[-1].log.state)
            except NotFoundError:
                lost.append(".".join(name))
        if lost:
            told = f"What was in {', '.join(lost)} has been collected since it was dropped"
            hint = "CREATE DATABASE makes the database anew, and UNDROP TABLE brings back the others" if first else ""
            raise error("UNKNOWN_TABLE", told, hint)
        for handle in handles:
            undrop(handle)
        names = [PutTable(*name, table_id) for name, table_id in wanted]
        self._commit_known(lambda _: [*first, *names])
        return handles

    def rename_database(self, name: str, new_name: str) -> None:
        """Give a database another name; its tables come along."""
        _check_database(new_name)
        self._commit_known(lambda _: (RenameDatabase(name, new_name),))

    def rename_tables(self, pairs: Sequence[tuple[Name, Name]]) -> None:
        """Give tables other names, in the same or another database: one after the other, all at one instant."""
        for _, (_, table) in pairs:
            _check_name(table, "table")
        self._commit_known(lambda _: [RenameTable(*old, *new) for old, new in pairs])

    def exchange_tables(self, name: Name, other: Name) -> None:
        """Swap two names at one instant."""
        self._commit_known(lambda _: (Exchange(*name, *other),))

    def find(self, name: Name) -> str:
        """The id of a table, looked up anew; UNKNOWN_DATABASE or UNKNOWN_TABLE with the nearest name."""
        self.refresh()
        return self.known(name)

    def known(self, name: Name) -> str:
        """The id of a table, as known here. Errors: those of `find`."""
        state = self.state
        if state.version == 0:
            raise no_warehouse(self._store.url, f"Table {'.'.join(name)} does not exist: there")
        if name[0] not in state.databases:
            raise no_database(state, name[0]).as_error()
        if name[1] not in state.databases[name[0]]:
            raise no_table(state, *name).as_error()
        return state.databases[name[0]][name[1]]

    def open_table(self, name: Name) -> TableHandle:
        """The table called `name`."""
        return self.open_id(self.find(name))

    def open_id(self, table_id: str) -> TableHandle:
        """The table in this directory, whatever it is called."""
        return TableHandle.open(
            self._store, table_id, clock=self._clock, ids=self._ids, author=self._author, backends=self._backends
        )

    def log_of(self, table_id: str) -> Log[State]:
        """The log of the table in this directory, not opened yet: for those who expect it to be damaged."""
        options: dict[str, Any] = {"clock": self._clock, "ids": self._ids, "backends": self._backends}
        return Log(self._store, f"{table_id}/_log", TableMachine(), **options)

    def _existing(self, name: Name) -> str | None:
        """The id of a table that is there already; UNKNOWN_DATABASE if its database is not."""
        state = self.state
        if name[0] not in state.databases or name[1] in state.databases[name[0]]:
            state = self.refresh()
        if name[0] not in state.databases:
            raise no_database(state, name[0]).as_error()
        return state.databases[name[0]].get(name[1])

    def _taken(self, name: Name, table_id: str, if_not_exists: bool) -> TableHandle:
        if not if_not_exists:
            raise error("TABLE_ALREADY_EXISTS", f"Table {name[0]}.{name[1]} already exists", "Use IF NOT EXISTS")
        return self.open_id(table_id)

    def _commit_known(self, build: Callable[[CatalogState], Sequence[CatalogOp]]) -> None:
        """Commit what depends on existing names: judged on the newest state, not on an old one."""
        self.refresh()
        self._log.commit(build)

    def _mark_dropped(self, table_id: str) -> None:
        try:
            self.open_id(table_id).log.commit(lambda state: () if state.dropped else (DropTable(),))
        except MergelakeError as problem:  # the name is gone, which is what DROP promises
            _logger.warning("table %s lost its name, but could not be marked as dropped: %s", table_id, problem)


def no_warehouse(url: str, told: str = "There") -> MergelakeError:
    """The error of who would read where nothing has been written."""
    return error("UNKNOWN_TABLE", f"{told} is no warehouse at {url}", "Check the path; the first CREATE makes one")


def _cannot_undrop(name: Name) -> MergelakeError:
    told = f"Cannot undrop table, {'.'.join(name)} already exists"
    return error("TABLE_ALREADY_EXISTS", told, "Rename that one first")


RESERVED = ("system", "information_schema", "INFORMATION_SCHEMA")
"""Databases that every ClickHouse has."""


def _check_database(name: str) -> None:
    _check_name(name, "database")
    if name in RESERVED:
        raise error("DATABASE_ALREADY_EXISTS", f"Database {name} already exists", "It is ClickHouse's own")
    if "." in name or "/" in name:
        hint = "Paths and Python name a table as <database>.<table>"
        raise error("BAD_ARGUMENTS", f"The name of a database cannot have a dot or a slash: '{name}'", hint)


def _check_name(name: str, what: str) -> None:
    if not name or len(name.encode()) > 206 or "\0" in name:
        raise error("BAD_ARGUMENTS", f"'{name}' cannot be the name of a {what}", "Use 1 to 206 bytes")
