"""Databases and the names of tables: a small state machine with a log of its own.

A name maps to the id of a table, which is its directory and never changes; so CREATE, DROP, RENAME and
EXCHANGE are one entry each, whatever the size of the table. The database `default` always exists.

Other names mean a virtual table: a view or a union of tables, of which the catalog holds the whole definition. No view
can come to read itself, whatever is renamed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from mergelake.core.base.errors import CorruptDataError, there_are
from mergelake.core.base.ids import IdSource
from mergelake.core.base.json_load import loads
from mergelake.core.model.schema import TableSchema
from mergelake.log.model.conflict import Reject
from mergelake.log.model.operations import (
    CreateDatabase,
    DropDatabase,
    Entry,
    Exchange,
    LogOp,
    MoveLog,
    PutTable,
    PutVirtual,
    RemoveTable,
    RemoveVirtual,
    RenameDatabase,
    RenameTable,
)
from mergelake.log.model.sequencer import BUCKET, Sequencer
from mergelake.log.storage.encoding import UNREADABLE, is_sealed, require_format, sealed
from mergelake.log.storage.layout import SegmentLayout
from mergelake.log.storage.segments import Segments

CATALOG_FORMAT, FORMAT_OF_VIRTUAL = 2, 3
"""Formats of checkpoints: without and with virtual tables."""
DEFAULT = "default"
"""The database that always exists: dropping or renaming it leaves an empty one of its name."""
CHECKPOINT_INTERVAL = 64

Databases = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class VirtualTable:
    """A table without a log: a view, or a union of tables (engine Merge)."""

    id: str
    schema: TableSchema
    """Its engine, `View` or `Merge`, with arguments, its columns and comment. No columns: those of the query."""
    query: str = ""
    """The SELECT of a view, in which each table has its database."""
    reads: tuple[str, ...] = ()
    """`database.table` of each name that the query reads."""

    @property
    def is_view(self) -> bool:
        """Whether it is a view."""
        return self.schema.engine == "View"


Virtual = Mapping[str, Mapping[str, VirtualTable]]


@dataclass(frozen=True, slots=True)
class CatalogState:
    """All names at one version of the catalog's log."""

    version: int = 0
    timestamp_ms: int = 0
    databases: Databases = field(default_factory=lambda: {DEFAULT: {}})
    """Database -> table -> table id."""
    sequencer: Sequencer = BUCKET
    """Where the entries after this version lie."""
    virtual: Virtual = field(default_factory=dict)
    """Database -> name -> virtual table. A database without any may be missing."""

    def virtual_table(self, database: str, name: str) -> VirtualTable | None:
        """The virtual table of this name, if there is one."""
        return self.virtual.get(database, {}).get(name)

    @property
    def history(self) -> int:
        """0: every version is kept, because a catalog is small."""
        return 0

    def tables(self) -> Iterator[tuple[str, str, str]]:
        """Every (database, table, table id), sorted."""
        for database in sorted(self.databases):
            for name, table_id in sorted(self.databases[database].items()):
                yield database, name, table_id

    def names(self, database: str) -> list[str]:
        """Every name in a database, of tables and of virtual ones, sorted."""
        return sorted((*self.databases.get(database, ()), *self.virtual.get(database, ())))


def check(state: CatalogState, op: LogOp) -> Reject | None:
    """Whether `op` may be the next operation after `state`; None if it may."""
    reject = _check_names(state, op)
    moves = isinstance(op, RenameTable | Exchange | RenameDatabase) and any(state.virtual.values())
    if reject is None and (moves or isinstance(op, PutVirtual)):
        names = _Names.of(state)
        names.apply(op)
        if (loop := _loop(names.virtual)) is not None:
            return Reject(f"{loop} would read itself. Choose another name", "INFINITE_LOOP", "invalid")
    return reject


def _check_names(state: CatalogState, op: LogOp) -> Reject | None:
    match op:
        case CreateDatabase(name):
            if name in state.databases:
                return _database_exists(name, "Use IF NOT EXISTS")
        case DropDatabase(name):
            if name not in state.databases:
                return no_database(state, name)
            if state.databases[name] or state.virtual.get(name):
                return Reject(f"Database {name} is not empty")
        case RenameDatabase(name, new_name):
            if name not in state.databases:
                return no_database(state, name)
            if new_name in state.databases:
                return _database_exists(new_name, "Choose another name")
        case PutTable(database, name) | PutVirtual(database, name):
            return _reject_taken(state, database, name)
        case RemoveTable(database, name, table_id):
            reject = _reject_missing(state, database, name)
            if reject is None and state.databases[database].get(name) != table_id:
                return Reject(f"{database}.{name} is another table now")
            return reject
        case RemoveVirtual(database, name, table_id):
            reject = _reject_missing(state, database, name)
            known = state.virtual_table(database, name)
            if reject is None and (known is None or known.id != table_id):
                return Reject(f"{database}.{name} is another table now")
            return reject
        case RenameTable(database, name, new_database, new_name):
            return _reject_missing(state, database, name) or _reject_taken(state, new_database, new_name)
        case Exchange(database, name, other_database, other_name):
            return _reject_missing(state, database, name) or _reject_missing(state, other_database, other_name)
        case MoveLog(sequencer):
            if sequencer == state.sequencer.url:
                return Reject("The log lies there already", kind="duplicate")
        case _:
            return Reject(f"{type(op).__name__} belongs into a table's log", "LOGICAL_ERROR", "invalid")
    return None


def _database_exists(name: str, way_out: str) -> Reject:
    return Reject(f"Database {name} already exists. {way_out}", "DATABASE_ALREADY_EXISTS", "invalid")


def no_database(state: CatalogState, name: str) -> Reject:
    """The rejection for a database that does not exist, with the nearest name."""
    near = _maybe(name, state.databases) or f" {there_are('databases', sorted(state.databases))}"
    return Reject(f"Database {name} does not exist.{near}", "UNKNOWN_DATABASE", "invalid")


def no_table(state: CatalogState, database: str, name: str) -> Reject:
    """The rejection for a table that does not exist, with the nearest name."""
    near = _maybe(name, state.names(database))
    if not near:
        others = [f"{d}.{n}" for d in state.databases for n in state.names(d)]
        near = _maybe(f"{database}.{name}", others) or f" SHOW TABLES FROM {database} lists those that do"
    return Reject(f"Table {database}.{name} does not exist.{near}", "UNKNOWN_TABLE", "invalid")


def _maybe(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Maybe you meant {near[0]}?" if near else ""


def _reject_missing(state: CatalogState, database: str, name: str) -> Reject | None:
    if database not in state.databases:
        return no_database(state, database)
    return None if _is_taken(state, database, name) else no_table(state, database, name)


def _reject_taken(state: CatalogState, database: str, name: str) -> Reject | None:
    if database not in state.databases:
        return no_database(state, database)
    if _is_taken(state, database, name):
        reason = f"Table {database}.{name} already exists. Choose another name, or drop that one first"
        return Reject(reason, "TABLE_ALREADY_EXISTS", "invalid")
    return None


def _is_taken(state: CatalogState, database: str, name: str) -> bool:
    return name in state.databases.get(database, {}) or name in state.virtual.get(database, {})


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a state, to be changed by operations that may follow it."""

    databases: dict[str, dict[str, str]]
    virtual: dict[str, dict[str, VirtualTable]]

    @staticmethod
    def of(state: CatalogState) -> _Names:
        """A copy of those of a state."""
        return _Names(
            {database: dict(tables) for database, tables in state.databases.items()},
            {database: dict(tables) for database, tables in state.virtual.items() if tables},
        )

    def apply(self, op: LogOp) -> None:
        """Do what an operation does. KeyError for a name that is not there."""
        databases, virtual = self.databases, self.virtual
        match op:
            case CreateDatabase(name):
                databases.setdefault(name, {})
            case DropDatabase(name):
                if name != DEFAULT:
                    del databases[name]
            case RenameDatabase(name, new_name):
                databases[new_name] = databases.pop(name)
                databases.setdefault(DEFAULT, {})
                if name in virtual:
                    virtual[new_name] = virtual.pop(name)
            case PutTable(database, name, table_id):
                databases[database][name] = table_id
            case RemoveTable(database, name):
                del databases[database][name]
            case PutVirtual(database, name, table_id, schema, query, reads):
                self._put(database, name, VirtualTable(table_id, schema, query, reads))
            case RemoveVirtual(database, name):
                del virtual[database][name]
            case RenameTable(database, name, new_database, new_name):
                self._put(new_database, new_name, self._taken(database, name))
            case Exchange(database, name, other_database, other_name):
                first, second = self._taken(database, name), self._taken(other_database, other_name)
                self._put(database, name, second)
                self._put(other_database, other_name, first)
            case _:
                raise CorruptDataError(f"The catalog's log holds {type(op).__name__}, which belongs into a table's")

    def _taken(self, database: str, name: str) -> str | VirtualTable:
        known = self.virtual.get(database, {})
        return known.pop(name) if name in known else self.databases[database].pop(name)

    def _put(self, database: str, name: str, table: str | VirtualTable) -> None:
        if isinstance(table, str):
            self.databases[database][name] = table
        elif database in self.databases:
            self.virtual.setdefault(database, {})[name] = table
        else:
            raise KeyError(database)


def _loop(virtual: Virtual) -> str | None:
    """A view that reads itself, through others or not; None if there is none."""
    reads = {
        f"{database}.{name}": table.reads for database, tables in virtual.items() for name, table in tables.items()
    }
    try:
        TopologicalSorter(reads).prepare()
    except CycleError as loop:
        return str(loop.args[1][0])
    return None


def _applied(names: _Names, op: LogOp, version: int) -> None:
    try:
        names.apply(op)
    except (KeyError, TypeError) as cause:
        raise CorruptDataError(f"Entry {version} speaks of a name that is not there: {cause}") from cause


class CatalogMachine:
    """The state machine of the catalog."""

    def initial(self) -> CatalogState:
        """Only the database `default`, without tables."""
        return CatalogState()

    def fold(self, state: CatalogState, entries: Iterable[Entry]) -> CatalogState:
        """The state after `entries`."""
        names = _Names.of(state)
        version, timestamp_ms, sequencer = state.version, state.timestamp_ms, state.sequencer
        for entry in entries:
            if entry.version != version + 1:
                raise CorruptDataError(
                    "A catalog entry stands at the wrong position", expected=str(version + 1), found=str(entry.version)
                )
            version, timestamp_ms = entry.version, max(entry.timestamp_ms, timestamp_ms)
            for op in entry.ops:
                if isinstance(op, MoveLog):
                    sequencer = Sequencer(op.sequencer, version)
                else:
                    _applied(names, op, version)
        virtual = {database: tables for database, tables in names.virtual.items() if tables}
        return CatalogState(version, timestamp_ms, names.databases, sequencer, virtual)

    def step(self, state: CatalogState, entry: Entry) -> CatalogState | Reject:
        """The state after one new entry, or why it may not follow."""
        before = state
        for op in entry.ops:
            reject = check(state, op)
            if reject is not None:
                return reject
            after = self.fold(before, (replace(entry, ops=(op,)),))
            before, state = replace(after, version=before.version), after
        return replace(state, version=entry.version, timestamp_ms=max(entry.timestamp_ms, state.timestamp_ms))

    def checkpoint_interval(self, state: CatalogState) -> int:
        """Entries between two checkpoints."""
        return CHECKPOINT_INTERVAL

    def lay_out(self, state: CatalogState, segments: Segments, ids: IdSource) -> SegmentLayout | None:
        """A catalog has no parts."""
        return SegmentLayout()

    def adopt(self, state: CatalogState, version: int, layout: SegmentLayout, segments: Segments) -> CatalogState:
        """Nothing changes."""
        return state

    def complete(self, state: CatalogState, segments: Segments) -> bool:
        """True: a catalog has no segments."""
        return True

    def encode(self, state: CatalogState, layout: SegmentLayout | None = None) -> bytes:
        """A checkpoint, as JSON."""
        databases = {name: dict(sorted(tables.items())) for name, tables in sorted(state.databases.items())}
        raw: dict[str, Any] = {
            "format": FORMAT_OF_VIRTUAL if state.virtual else CATALOG_FORMAT,
            "version": state.version,
            "timestamp_ms": state.timestamp_ms,
            "databases": databases,
            "sequencer": [state.sequencer.url, state.sequencer.since],
        }
        if state.virtual:
            raw["virtual"] = {
                database: {
                    name: {
                        "id": table.id,
                        "schema": table.schema.to_json(),
                        "query": table.query,
                        "reads": list(table.reads),
                    }
                    for name, table in sorted(tables.items())
                }
                for database, tables in sorted(state.virtual.items())
            }
        return sealed(raw)

    def layout(self, data: bytes, key: str) -> SegmentLayout:
        """A catalog has no parts."""
        return SegmentLayout()

    def verify(self, state: CatalogState, key: str) -> None:
        """Nothing to do: `decode` has read all of it."""

    def decode(self, data: bytes, key: str, segments: Segments | None = None) -> CatalogState:
        """Inverse of `encode`. Old checkpoints have no digest."""
        is_sealed(data, "A checkpoint", key)
        try:
            raw = loads(data)
            newest = int(raw["format"])
        except UNREADABLE as cause:
            raise CorruptDataError("A checkpoint is not readable", object_key=key, found=str(cause)) from cause
        require_format(newest, (CATALOG_FORMAT, FORMAT_OF_VIRTUAL), f"Checkpoint {key}")
        try:
            databases: dict[str, dict[str, str]] = {DEFAULT: {}}
            for name, tables in raw["databases"].items():
                databases[name] = {str(table): str(table_id) for table, table_id in tables.items()}
            virtual = {
                str(database): {
                    str(name): VirtualTable(
                        str(held["id"]),
                        TableSchema.from_json(held["schema"]),
                        str(held["query"]),
                        tuple(map(str, held["reads"])),
                    )
                    for name, held in tables.items()
                }
                for database, tables in raw.get("virtual", {}).items()
            }
            sequencer = Sequencer(*raw["sequencer"])
            return CatalogState(int(raw["version"]), int(raw["timestamp_ms"]), databases, sequencer, virtual)
        except UNREADABLE as cause:
            raise CorruptDataError("A checkpoint is not readable", object_key=key, found=str(cause)) from cause
