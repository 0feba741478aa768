"""The names of the catalog as one statement sees them: tables at their versions, views and unions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mergelake.api.python.environment import is_strong_read
from mergelake.api.python.joint import JointStates
from mergelake.api.sql.settings import staleness_ms
from mergelake.api.sql.statements import Name
from mergelake.core.base.errors import MergelakeError, error
from mergelake.log.storage.catalog import CatalogState, VirtualTable
from mergelake.query.expand.unions import pattern_of
from mergelake.query.source import Source
from mergelake.query.statement.select_parser import parse_select
from mergelake.table.catalog.catalog import RESERVED

if TYPE_CHECKING:
    from mergelake.api.python.table import Table
    from mergelake.api.sql.session import Session

Where = tuple[str, str]
"""Database and table."""


class StatementNames:
    """Finds what a statement names, at the newest versions or, for `cached` reads, as known here.

    All views and unions are those of one version of the catalog.
    """

    def __init__(self, db: Session, query: str = "", looked: Iterable[set[str]] = ()) -> None:
        """The tables that `query` names are refreshed together, unless `looked` says that they just were."""
        self._db, self._query = db, query
        self._fresh = list(looked)
        self._state: CatalogState | None = None
        self._sources: dict[Where, Source | None] = {}
        self._now_ms = db.warehouse.clock.now_ms()
        self._joint: JointStates | None = None

    def __call__(self, database: str, name: str) -> Source | None:
        """The table of a name; None for one that ClickHouse serves. Raises UNKNOWN_TABLE or UNKNOWN_DATABASE.

        The same for each call.
        """
        where = database or self._db.current_database, name
        if where not in self._sources:
            self._sources[where] = self._looked_up(*where)
        return self._sources[where]

    def _looked_up(self, where: str, name: str) -> Source | None:
        db = self._db
        if where in RESERVED:
            from mergelake.api.sql.foreign import foreign_table

            return foreign_table(db, where, name)
        news = is_strong(db)
        state = self._catalog([(where, name)])
        table_id = state.databases.get(where, {}).get(name)
        if table_id is None:
            table = db.open(Name(where, name))
        else:
            table = db.open_tables.kept(table_id, f"{where}.{name}", news and table_id not in self._fresh[0])
        return db.source_of(table, self._now_ms, self._together().of(table.handle))

    def _together(self) -> JointStates:
        """The states of all tables of the statement."""
        if self._joint is None:
            self._joint = JointStates()
            known = (self._db.known_table(*where) for where in names_read(self._db, self._query).tables)
            self._joint.pin(table.handle for table in known if table is not None)
        return self._joint

    def virtual(self, database: str, name: str) -> VirtualTable | None:
        """The view or union of this name."""
        where = database or self._db.current_database
        if where in RESERVED:
            return None
        state = self._catalog()
        if not is_strong(self._db) and name not in state.names(where):  # as for a table that is not known here
            self._state = state = self._db.warehouse.catalog.refresh()
        return state.virtual_table(where, name)

    def databases(self) -> Sequence[str]:
        """Names of all databases, sorted."""
        return sorted(self._catalog().databases)

    def tables(self, database: str) -> Sequence[str]:
        """Every name in a database, sorted. Raises UNKNOWN_DATABASE."""
        state = self._catalog()
        if database not in state.databases:
            raise error("UNKNOWN_DATABASE", f"Database {database} does not exist", "SHOW DATABASES lists those that do")
        return state.names(database)

    def _catalog(self, more: Collection[Where] = ()) -> CatalogState:
        db = self._db
        if is_strong(db) and not self._fresh:
            named = [*more, *names_read(db, self._query).tables]
            self._fresh.append(db.open_tables.look(named, staleness_ms(db.settings) / 1000))
        if self._state is None:
            self._state = db.warehouse.catalog.state
        return self._state


def is_strong(db: Session) -> bool:
    """Whether a statement sees every commit that was acknowledged before it began."""
    return is_strong_read(db.settings.get("read_consistency", db.warehouse.env.read_consistency).strip("'"))


@dataclass(frozen=True, slots=True)
class NamesRead:
    """What a query reads, as known here."""

    tables: Sequence[Where]
    """Database and name of each table that it names, itself or by views and unions."""
    virtual: bool
    """Whether it names a view or a union."""
    state: CatalogState
    """The names by which this was found."""


def names_read(db: Session, query: str) -> NamesRead:
    """What a query reads; nothing if it cannot be parsed."""
    state, seen = db.warehouse.catalog.state, dict[Where, None]()

    def add(where: Where, called: bool = False) -> None:
        virtual = state.virtual_table(*where)
        if where in seen or (virtual is None and called):
            return
        seen[where] = None
        if virtual is not None and virtual.is_view:
            for name in virtual.reads:
                database, _, table = name.partition(".")
                add((database, table))
        elif virtual is not None:
            add_members(virtual.schema.engine_args)

    def add_members(arguments: Sequence[str]) -> None:
        for found in pattern_of(arguments, db.current_database).find(lambda: sorted(state.databases), state.names):
            add(found)

    unions = False
    with suppress(MergelakeError):
        parsed = parse_select(query)
        for reference in parsed.references:
            add((reference.database or db.current_database, reference.name))
        for call in parsed.calls:
            add((call.database or db.current_database, call.name), called=True)
            if call.name == "merge" and not call.database:
                unions = True
                add_members([parsed.slice(*item.range) for item in parsed.items(*call.arguments)])
    tables = [where for where in seen if state.virtual_table(*where) is None]
    return NamesRead(tables, unions or len(tables) < len(seen), state)


class KnownNames:
    """What a statement names, as it is known here, without a request: a guess that `still_so` judges."""

    def __init__(self, db: Session, read: NamesRead, tables: Mapping[Where, tuple[Table, int]], now_ms: int) -> None:
        """`tables` are those of `read` with their versions."""
        self._db, self._tables, self._now_ms = db, tables, now_ms
        self._virtual, self._state = read.virtual, read.state

    def __call__(self, database: str, name: str) -> Source | None:
        """The table of a name; None for any other."""
        where = database or self._db.current_database, name
        return self._db.source_of(self._tables[where][0], self._now_ms) if where in self._tables else None

    def virtual(self, database: str, name: str) -> VirtualTable | None:
        """The view or union of this name."""
        return self._state.virtual_table(database or self._db.current_database, name) if self._virtual else None

    def databases(self) -> Sequence[str]:
        """Names of all databases, sorted."""
        return sorted(self._state.databases)

    def tables(self, database: str) -> Sequence[str]:
        """Every name in a database, sorted."""
        return self._state.names(database)

    def still_so(self) -> bool:
        """Whether a look at the catalog since has found nothing new about these names."""
        catalog = self._db.warehouse.catalog
        same = not self._virtual or catalog.state.version == self._state.version
        return same and self._db.open_tables.unchanged(self._tables)
