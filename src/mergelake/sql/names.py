"""The names of the catalog as one statement sees them: tables at their versions, views and unions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from mergelake.core.errors import MergelakeError, error
from mergelake.lake.environment import is_strong_read
from mergelake.lake.joint import JointStates
from mergelake.log.catalog import CatalogState, VirtualTable
from mergelake.query.expand.unions import pattern_of
from mergelake.query.source import Source
from mergelake.query.statement.select_parser import parse_select
from mergelake.sql.settings import staleness_ms
from mergelake.sql.statements import Name
from mergelake.table.catalog import RESERVED

if TYPE_CHECKING:
    from mergelake.sql.database import Database

Where = tuple[str, str]
"""Database and table."""


class StatementNames:
    """Finds what a statement names, at the newest versions or, for `cached` reads, as known here.

    All views and unions are those of one version of the catalog.
    """

    def __init__(self, db: Database, query: str = "", looked: Iterable[set[str]] = ()) -> None:
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
            from mergelake.sql.foreign import foreign_table

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
            known = (self._db.known_table(*where) for where in names_read(self._db, self._query))
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
            named = [*more, *names_read(db, self._query)]
            self._fresh.append(db.open_tables.look(named, staleness_ms(db.settings) / 1000))
        if self._state is None:
            self._state = db.warehouse.catalog.state
        return self._state


def is_strong(db: Database) -> bool:
    """Whether a statement sees every commit that was acknowledged before it began."""
    return is_strong_read(db.settings.get("read_consistency", db.warehouse.env.read_consistency).strip("'"))


def names_read(db: Database, query: str) -> list[Where]:
    """Database and name of the tables that a query names, itself or by views and unions, as known here.

    A hint: none if it cannot be parsed.
    """
    state, seen = db.warehouse.catalog.state, dict[Where, None]()

    def add(where: Where, called: bool = False) -> None:
        if where in seen:
            return
        virtual = state.virtual_table(*where)
        if virtual is None and called:
            return
        seen[where] = None
        if virtual is not None and virtual.is_view:
            for name in virtual.reads:
                database, _, table = name.partition(".")
                add((database, table))
        elif virtual is not None:
            for found in _members(state, virtual.schema.engine_args, db.current_database):
                add(found)

    with suppress(MergelakeError):
        parsed = parse_select(query)
        for reference in parsed.references:
            add((reference.database or db.current_database, reference.name))
        for call in parsed.calls:
            add((call.database or db.current_database, call.name), called=True)
            if call.name.lower() == "merge" and not call.database:
                arguments = [parsed.slice(*item.range) for item in parsed.items(*call.arguments)]
                for found in _members(state, arguments, db.current_database):
                    add(found)
    return [where for where in seen if state.virtual_table(*where) is None]


def _members(state: CatalogState, arguments: Sequence[str], database: str) -> list[Where]:
    pattern = pattern_of(arguments, database)
    return pattern.find(lambda: sorted(state.databases), state.names)
