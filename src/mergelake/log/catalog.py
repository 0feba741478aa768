"""Databases and the names of tables: a small state machine with a log of its own.

A name maps to the id of a table, which is its directory and never changes; so CREATE, DROP, RENAME and
EXCHANGE are one entry each, whatever the size of the table. The database `default` always exists.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mergelake.core.errors import CorruptDataError, there_are
from mergelake.core.ids import IdSource
from mergelake.core.json_load import loads
from mergelake.log.conflict import Reject
from mergelake.log.encoding import UNREADABLE, is_sealed, require_format, sealed
from mergelake.log.layout import SegmentLayout
from mergelake.log.operations import (
    CreateDatabase,
    DropDatabase,
    Entry,
    Exchange,
    LogOp,
    MoveLog,
    PutTable,
    RemoveTable,
    RenameDatabase,
    RenameTable,
)
from mergelake.log.segments import Segments
from mergelake.log.sequencer import BUCKET, Sequencer

CATALOG_FORMAT = 2
DEFAULT = "default"
"""The database that always exists: dropping or renaming it leaves an empty one of its name."""
CHECKPOINT_INTERVAL = 64

Databases = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class CatalogState:
    """All names at one version of the catalog's log."""

    version: int = 0
    timestamp_ms: int = 0
    databases: Databases = field(default_factory=lambda: {DEFAULT: {}})
    """Database -> table -> table id."""
    sequencer: Sequencer = BUCKET
    """Where the entries after this version lie."""

    @property
    def history(self) -> int:
        """0: every version is kept, because a catalog is small."""
        return 0

    def tables(self) -> Iterator[tuple[str, str, str]]:
        """Every (database, table, table id), sorted."""
        for database in sorted(self.databases):
            for name, table_id in sorted(self.databases[database].items()):
                yield database, name, table_id


def check(state: CatalogState, op: LogOp) -> Reject | None:
    """Whether `op` may be the next operation after `state`; None if it may."""
    match op:
        case CreateDatabase(name):
            if name in state.databases:
                return _database_exists(name, "Use IF NOT EXISTS")
        case DropDatabase(name):
            if name not in state.databases:
                return no_database(state, name)
            if state.databases[name]:
                return Reject(f"Database {name} is not empty")
        case RenameDatabase(name, new_name):
            if name not in state.databases:
                return no_database(state, name)
            if new_name in state.databases:
                return _database_exists(new_name, "Choose another name")
        case PutTable(database, name):
            return _reject_taken(state, database, name)
        case RemoveTable(database, name, table_id):
            reject = _reject_missing(state, database, name)
            if reject is None and state.databases[database][name] != table_id:
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
    near = _maybe(name, state.databases.get(database, ()))
    if not near:
        others = [f"{d}.{n}" for d, n, _ in state.tables()]
        near = _maybe(f"{database}.{name}", others) or f" SHOW TABLES FROM {database} lists those that do"
    return Reject(f"Table {database}.{name} does not exist.{near}", "UNKNOWN_TABLE", "invalid")


def _maybe(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Maybe you meant {near[0]}?" if near else ""


def _reject_missing(state: CatalogState, database: str, name: str) -> Reject | None:
    if database not in state.databases:
        return no_database(state, database)
    return None if name in state.databases[database] else no_table(state, database, name)


def _reject_taken(state: CatalogState, database: str, name: str) -> Reject | None:
    if database not in state.databases:
        return no_database(state, database)
    if name in state.databases[database]:
        reason = f"Table {database}.{name} already exists. Choose another name, or drop that one first"
        return Reject(reason, "TABLE_ALREADY_EXISTS", "invalid")
    return None


def _apply(databases: dict[str, dict[str, str]], op: LogOp) -> None:
    match op:
        case CreateDatabase(name):
            databases.setdefault(name, {})
        case DropDatabase(name):
            if name != DEFAULT:
                del databases[name]
        case RenameDatabase(name, new_name):
            databases[new_name] = databases.pop(name)
            databases.setdefault(DEFAULT, {})
        case PutTable(database, name, table_id):
            databases[database][name] = table_id
        case RemoveTable(database, name):
            del databases[database][name]
        case RenameTable(database, name, new_database, new_name):
            databases[new_database][new_name] = databases[database].pop(name)
        case Exchange(database, name, other_database, other_name):
            first, second = databases[database][name], databases[other_database][other_name]
            databases[database][name], databases[other_database][other_name] = second, first
        case _:
            raise CorruptDataError(f"The catalog's log holds {type(op).__name__}, which belongs into a table's")


def _applied(databases: dict[str, dict[str, str]], op: LogOp, version: int) -> None:
    try:
        _apply(databases, op)
    except (KeyError, TypeError) as cause:
        raise CorruptDataError(f"Entry {version} speaks of a name that is not there: {cause}") from cause


class CatalogMachine:
    """The state machine of the catalog."""

    def initial(self) -> CatalogState:
        """Only the database `default`, without tables."""
        return CatalogState()

    def fold(self, state: CatalogState, entries: Iterable[Entry]) -> CatalogState:
        """The state after `entries`."""
        databases = {name: dict(tables) for name, tables in state.databases.items()}
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
                    _applied(databases, op, version)
        return CatalogState(version, timestamp_ms, databases, sequencer)

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
        raw = {
            "format": CATALOG_FORMAT,
            "version": state.version,
            "timestamp_ms": state.timestamp_ms,
            "databases": databases,
            "sequencer": [state.sequencer.url, state.sequencer.since],
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
        require_format(newest, (CATALOG_FORMAT,), f"Checkpoint {key}")
        try:
            databases: dict[str, dict[str, str]] = {DEFAULT: {}}
            for name, tables in raw["databases"].items():
                databases[name] = {str(table): str(table_id) for table, table_id in tables.items()}
            sequencer = Sequencer(*raw["sequencer"])
            return CatalogState(int(raw["version"]), int(raw["timestamp_ms"]), databases, sequencer)
        except UNREADABLE as cause:
            raise CorruptDataError("A checkpoint is not readable", object_key=key, found=str(cause)) from cause
