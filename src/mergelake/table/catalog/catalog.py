"""Names of databases and tables, on the catalog's own log under `_catalog/log`.

CREATE writes the first entry of the table's log and then its name, so a name always has a table (a crash in between
leaves a table without a name, which collection removes). DROP removes the name and then marks the table as dropped, so
that an insert under way fails. A replacement removes one name and puts another in a single entry.

Views and unions of tables are in this log alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import ConflictError, InvalidInputError, MergelakeError, NotFoundError, error
from mergelake.core.base.ids import IdSource
from mergelake.core.model.schema import TableSchema
from mergelake.log.backends.backends import Backends
from mergelake.log.commit.commit import Log
from mergelake.log.commit.migrate import new_tree, place_of_new
from mergelake.log.model.operations import (
    CatalogOp,
    CreateDatabase,
    DropDatabase,
    DropTable,
    Exchange,
    PutTable,
    PutVirtual,
    RemoveTable,
    RemoveVirtual,
    RenameDatabase,
    RenameTable,
    TableOp,
)
from mergelake.log.model.state import State
from mergelake.log.storage.catalog import DEFAULT, CatalogMachine, CatalogState, VirtualTable, no_database, no_table
from mergelake.log.storage.machine import TableMachine
from mergelake.store.interface.protocol import Store
from mergelake.store.objects.probe import probe_create_if_absent
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.clone import check_holds, plan_clone, take_holds
from mergelake.table.partitions.undrop import (
    Removal,
    definition_of,
    last_drop,
    last_drop_of_database,
    named_ids,
    require_undroppable,
    undrop,
)

LOG_PREFIX = "_catalog/log"
"""Prefix of the catalog's log."""
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
        """Read the newest names: one GET if nothing has changed."""
        return self._log.refresh()

    def begin(self) -> None:
        """Prepare the first write to a new warehouse; nothing to do in an existing one.

        A store without a working create-if-absent is refused (SUPPORT_IS_DISABLED). If the log is to be in ZooKeeper,
        it is moved there. Reading never calls this, and so creates nothing.
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

    def drop_database(self, name: str, *, if_exists: bool = False, tables_only: bool = False) -> None:
        """Remove a database with all its tables, atomically; UNKNOWN_DATABASE unless it may be missing.

        `default` is empty afterwards, but still exists; so does any with `tables_only`.
        """
        dropped: list[str] = []

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            dropped[:] = state.databases.get(name, {}).values()
            if name not in state.databases:
                return () if if_exists else (DropDatabase(name),)
            removals = [_removal(state, (name, table)) for table in state.names(name)]
            return removals if tables_only else [*removals, DropDatabase(name)]

        self._commit_known(build)
        for table_id in dropped:
            self._mark_dropped(table_id)

    def create_table(self, name: Name, schema: TableSchema, *, if_not_exists: bool = False) -> TableHandle:
        """A new table; TABLE_ALREADY_EXISTS unless `if_not_exists`, which returns the existing one."""
        _check_name(name[1], "table")
        existing = self._existing(name)
        if existing is not None:
            return self._taken(name, existing, if_not_exists)
        return self._put(name, self._begin_checked(schema), if_not_exists)

    def _begin_checked(self, schema: TableSchema) -> TableHandle:
        from mergelake.table.definition.define import check_schema  # loads kernels that opening a table does not need

        return self._begin_table(self._ids.new_id(), check_schema(schema.of_new_table()))

    def begin_table(self, name: Name, schema: TableSchema) -> TableHandle:
        """A new table that is to be called `name`, and is not yet: `put_table` or `drop_nameless` follows.

        If the process ends before, collection removes it. UNKNOWN_DATABASE if the database is missing.
        """
        _check_name(name[1], "table")
        self._existing(name)
        return self._begin_checked(schema)

    def drop_nameless(self, handle: TableHandle) -> None:
        """Drop a table that never got its name."""
        self._mark_dropped(handle.directory)

    def check_free(self, name: Name) -> None:
        """Raise TABLE_ALREADY_EXISTS if something has a name."""
        existing = self._existing(name)
        if existing is not None:
            self._taken(name, existing, if_not_exists=False)

    def put_table(self, name: Name, handle: TableHandle, *, must_exist: bool = False, replace: bool = True) -> None:
        """Give a table without a name this one, in place of what has it: that is dropped, in the same entry.

        TABLE_ALREADY_EXISTS if something has it and it shall not be replaced. UNKNOWN_TABLE if nothing has it and it
        `must_exist`, or if the new table was taken for a forgotten one and collected. If this raises, the table is
        dropped.
        """
        if handle.refresh().dropped:
            what = f"The new table {'.'.join(name)} was not written to for gc_grace_seconds, and has been collected"
            raise error("UNKNOWN_TABLE", what, "Try again, or raise gc_grace_seconds of the table")
        try:
            if replace:
                self._replace(name, PutTable(*name, handle.directory), must_exist)
            else:
                self._put(name, handle, if_not_exists=False)
        except (ConflictError, InvalidInputError, NotFoundError):
            self._mark_dropped(handle.directory)
            raise

    def create_virtual(
        self,
        name: Name,
        schema: TableSchema,
        query: str = "",
        reads: Sequence[Name] = (),
        *,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> bool:
        """A new view or union of tables (see `VirtualTable`); whether it was made.

        With `replace` in place of what has the name, which is dropped. TABLE_ALREADY_EXISTS for a name that is taken,
        unless `if_not_exists` or `replace`; INFINITE_LOOP if it would read itself.
        """
        _check_name(name[1], "table")
        self.begin()
        op = PutVirtual(*name, self._ids.new_id(), schema, query, tuple(map(".".join, reads)))
        if replace:
            self._replace(name, op, must_exist=False)
            return True
        committed = self._log.commit(lambda state: () if if_not_exists and name[1] in state.names(name[0]) else (op,))
        return committed.entry is not None

    def _replace(self, name: Name, put: PutTable | PutVirtual, must_exist: bool) -> None:
        dropped: list[str] = []

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            dropped[:] = _tables_of(state, name)
            if name[1] not in state.names(name[0]):
                return (RemoveTable(*name, ""), put) if must_exist else (put,)
            return (_removal(state, name), put)

        self._commit_known(build, passes_on=False)  # what is replaced depends on the state
        for table_id in dropped:
            self._mark_dropped(table_id)

    def clone_table(
        self,
        name: Name,
        source: TableHandle,
        state: State,
        *,
        if_not_exists: bool = False,
        replace: bool = False,
        must_exist: bool = False,
    ) -> TableHandle:
        """A new table with the rows of a state of another, without copying them; see `clone`.

        With `replace` in place of what has the name, as in `put_table`, which may be the other itself.
        TABLE_ALREADY_EXISTS as in `create_table`; ConflictError if objects that it would refer to are gone.
        """
        _check_name(name[1], "table")
        existing = self._existing(name)
        if existing is not None and not replace:
            return self._taken(name, existing, if_not_exists)
        if existing is None and must_exist:
            raise no_table(self.state, *name).as_error()
        table_id = self._ids.new_id()
        plan = plan_clone(state, source.directory, self._ids)
        owners = take_holds(table_id, plan, lambda owner: source if owner == source.directory else self.open_id(owner))
        handle = self._begin_table(table_id, plan.schema, plan.more)
        try:
            check_holds(table_id, owners)
            if replace:
                self.put_table(name, handle, must_exist=must_exist)
                return handle
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
        """Give a new table its name; returns the table that has it already, if that is allowed."""

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            taken = name[1] in state.names(name[0])
            return () if if_not_exists and taken else (PutTable(*name, handle.directory),)

        committed = self._log.commit(build)
        if committed.entry is None:
            return self._taken(name, _id_of(committed.state, name), if_not_exists)
        return handle

    def drop_table(self, name: Name, *, if_exists: bool = False, view: bool = False) -> None:
        """Remove a table or a virtual one; UNKNOWN_TABLE unless it may be missing.

        With `view` nothing but a view: INCORRECT_QUERY for others.
        """
        dropped: list[str] = []

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            dropped[:] = _tables_of(state, name)
            if name[1] not in state.names(name[0]):
                return () if if_exists else (RemoveTable(*name, ""),)
            virtual = state.virtual_table(*name)
            if view and (virtual is None or not virtual.is_view):
                raise error("INCORRECT_QUERY", f"Table {'.'.join(name)} is not a View", "DROP TABLE drops it")
            return (_removal(state, name),)

        self._commit_known(build)
        for table_id in dropped:
            self._mark_dropped(table_id)

    def undrop_table(self, name: Name, table_id: str = "") -> TableHandle | None:
        """Restore a dropped table: the last one with this name, or the one with this id. None if it is a virtual one.

        TABLE_ALREADY_EXISTS if the name is taken, UNKNOWN_TABLE if there was none, or if its objects were collected.
        """
        if self._existing(name) is not None:
            raise _cannot_undrop(name)
        dropped = last_drop(self._log, *name, table_id)
        if dropped is None:
            label = ".".join(name) + (f" ({table_id})" if table_id else "")
            message = f"Table {label} was not dropped, or is there under another name"
            raise error("UNKNOWN_TABLE", message, f"SHOW TABLES FROM {name[0]} lists those that exist")
        return next(iter(self._undrop([dropped])), None)

    def undrop_database(self, name: str) -> list[TableHandle]:
        """Restore a database and the tables that it had when it was dropped; none of them, if one cannot be restored.

        DATABASE_ALREADY_EXISTS if it exists (except for `default`, whose tables are restored), UNKNOWN_DATABASE if it
        was never dropped, UNKNOWN_TABLE if objects were collected since.
        """
        state = self.refresh()
        if name in state.databases and name != DEFAULT:
            hint = f"UNDROP TABLE {name}.… brings single tables back"
            raise error("DATABASE_ALREADY_EXISTS", f"Cannot undrop database, {name} already exists", hint)
        removed = last_drop_of_database(self._log, name)
        if removed is None:
            raise no_database(state, name).as_error()
        taken = next((op.name for op in removed if op.name in state.names(name)), None)
        if taken is not None:
            raise _cannot_undrop((name, taken))
        named = named_ids(state)
        wanted = [op for op in removed if op.table_id not in named]
        return self._undrop(wanted, () if name == DEFAULT else (CreateDatabase(name),))

    def _undrop(self, wanted: Sequence[Removal], first: Sequence[CatalogOp] = ()) -> list[TableHandle]:
        """Restore the tables, then all of their names in one entry: after a crash in between, collection drops them."""
        handles: list[TableHandle] = []
        lost: list[str] = []
        names: list[CatalogOp] = []
        for op in wanted:
            if isinstance(op, RemoveVirtual):
                names.append(definition_of(self._log, op))
                continue
            names.append(PutTable(op.database, op.name, op.table_id))
            try:
                handles.append(self.open_id(op.table_id))
                require_undroppable(handles[-1].log.state)
            except NotFoundError:
                lost.append(f"{op.database}.{op.name}")
        if lost:
            message = f"What was in {', '.join(lost)} has been collected since it was dropped"
            hint = "CREATE DATABASE makes the database anew, and UNDROP TABLE brings back the others" if first else ""
            raise error("UNKNOWN_TABLE", message, hint)
        for handle in handles:
            undrop(handle)
        self._commit_known(lambda _: [*first, *names])
        return handles

    def rename_database(self, name: str, new_name: str) -> None:
        """Rename a database, with its tables."""
        _check_database(new_name)
        self._commit_known(lambda _: (RenameDatabase(name, new_name),))

    def rename_tables(self, pairs: Sequence[tuple[Name, Name]]) -> None:
        """Rename tables, in the same or another database: one after the other, all in one entry."""
        for _, (_, table) in pairs:
            _check_name(table, "table")
        self._commit_known(lambda _: [RenameTable(*old, *new) for old, new in pairs])

    def exchange_tables(self, name: Name, other: Name) -> None:
        """Swap two names atomically; nothing changes if they are one that exists."""

        def build(state: CatalogState) -> Sequence[CatalogOp]:
            return () if name == other and name[1] in state.names(name[0]) else (Exchange(*name, *other),)

        self._commit_known(build)

    def find(self, name: Name) -> str:
        """The id of a table, after a refresh; UNKNOWN_DATABASE or UNKNOWN_TABLE with the nearest name."""
        self.refresh()
        return self.known(name)

    def known(self, name: Name) -> str:
        """The id of a table, as known here. Errors: those of `find`."""
        state = self.state
        if state.version == 0:
            raise no_warehouse(self._store.url, f"Table {'.'.join(name)} does not exist: there")
        if name[0] not in state.databases:
            raise no_database(state, name[0]).as_error()
        return _id_of(state, name)

    def open_table(self, name: Name) -> TableHandle:
        """The table called `name`."""
        return self.open_id(self.find(name))

    def open_id(self, table_id: str) -> TableHandle:
        """The table with this id, under any name."""
        return TableHandle.open(
            self._store, table_id, clock=self._clock, ids=self._ids, author=self._author, backends=self._backends
        )

    def log_of(self, table_id: str) -> Log[State]:
        """The log of the table with this id, not opened, as it may be damaged."""
        options: dict[str, Any] = {"clock": self._clock, "ids": self._ids, "backends": self._backends}
        return Log(self._store, f"{table_id}/_log", TableMachine(), **options)

    def _existing(self, name: Name) -> str | None:
        """The id of the table with this name, "" if it is a virtual one, None if there is none.

        UNKNOWN_DATABASE if its database is missing.
        """
        state = self.state
        if name[0] not in state.databases or name[1] in state.names(name[0]):
            state = self.refresh()
        if name[0] not in state.databases:
            raise no_database(state, name[0]).as_error()
        return "" if state.virtual_table(*name) is not None else state.databases[name[0]].get(name[1])

    def _taken(self, name: Name, table_id: str, if_not_exists: bool) -> TableHandle:
        if not if_not_exists:
            raise error("TABLE_ALREADY_EXISTS", f"Table {name[0]}.{name[1]} already exists", "Use IF NOT EXISTS")
        return self.open_id(table_id or _id_of(self.state, name))

    def _commit_known(self, build: Callable[[CatalogState], Sequence[CatalogOp]], *, passes_on: bool = True) -> None:
        """Refresh, then commit operations that depend on existing names; `passes_on` as in `Log.commit`."""
        self.refresh()
        self._log.commit(build, passes_on=lambda: passes_on)

    def _mark_dropped(self, table_id: str) -> None:
        try:
            self.open_id(table_id).log.commit(lambda state: () if state.dropped else (DropTable(),))
        except MergelakeError as problem:  # the name is removed, which is all that DROP guarantees
            _logger.warning("table %s lost its name, but could not be marked as dropped: %s", table_id, problem)


def _id_of(state: CatalogState, name: Name) -> str:
    """The id of a table; UNKNOWN_TABLE if there is none, NOT_IMPLEMENTED for a virtual one."""
    table_id = state.databases[name[0]].get(name[1])
    if table_id is None:
        virtual = state.virtual_table(*name)
        raise no_table(state, *name).as_error() if virtual is None else has_no_rows(name, virtual)
    return table_id


def has_no_rows(name: Name, virtual: VirtualTable) -> MergelakeError:
    """The error for doing to a view or a union what needs rows of its own."""
    what = f"{'.'.join(name)} is a {virtual.schema.engine}, which has no rows of its own"
    return error(
        "NOT_IMPLEMENTED", what, "SELECT reads it, and its result has .spark(); write to the tables that it reads"
    )


def _tables_of(state: CatalogState, name: Name) -> list[str]:
    """The id of the table with this name; none if it is missing or a virtual one."""
    table_id = state.databases.get(name[0], {}).get(name[1])
    return [] if table_id is None else [table_id]


def _removal(state: CatalogState, name: Name) -> CatalogOp:
    """The operation that removes a name that exists."""
    virtual = state.virtual_table(*name)
    if virtual is not None:
        return RemoveVirtual(*name, virtual.id)
    return RemoveTable(*name, state.databases[name[0]][name[1]])


def no_warehouse(url: str, subject: str = "There") -> MergelakeError:
    """The error for reading from a location without a warehouse."""
    return error("UNKNOWN_TABLE", f"{subject} is no warehouse at {url}", "Check the path; the first CREATE makes one")


def _cannot_undrop(name: Name) -> MergelakeError:
    message = f"Cannot undrop table, {'.'.join(name)} already exists"
    return error("TABLE_ALREADY_EXISTS", message, "Rename that one first")


RESERVED = ("system", "information_schema", "INFORMATION_SCHEMA")
"""Databases that every ClickHouse has."""


def _check_database(name: str) -> None:
    _check_name(name, "database")
    if name in RESERVED:
        raise error("DATABASE_ALREADY_EXISTS", f"Database {name} already exists", "It is ClickHouse's own")
    if "." in name or "/" in name:
        hint = "Paths and Python name a table as <database>.<table>"
        raise error("BAD_ARGUMENTS", f"The name of a database cannot have a dot or a slash: '{name}'", hint)


def _check_name(name: str, noun: str) -> None:
    if not name or len(name.encode()) > 206 or "\0" in name:
        raise error("BAD_ARGUMENTS", f"'{name}' cannot be the name of a {noun}", "Use 1 to 206 bytes")
