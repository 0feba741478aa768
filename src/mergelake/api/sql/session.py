"""What statements need of a connection: the interface between `Database`, which runs them, and the modules that do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from mergelake.api.python.table import Table
from mergelake.api.python.warehouse import Warehouse
from mergelake.api.sql.open_tables import OpenTables
from mergelake.api.sql.query_log import QueryLog
from mergelake.api.sql.statements import Name
from mergelake.core.base.progress import OnProgress
from mergelake.log.model.state import State
from mergelake.query.context import Context
from mergelake.query.result import QueryResult
from mergelake.query.source import Names, Source


class Session(Protocol):
    """A connection to a warehouse; `Database` is one, and documents each member."""

    warehouse: Warehouse
    allow_external_access: bool
    current_database: str
    open_tables: OpenTables
    query_log: QueryLog
    on_progress: OnProgress | None

    @property
    def settings(self) -> dict[str, str]:
        """Settings in force, values as SQL literals."""
        ...

    def under(self, settings: Mapping[str, str]) -> AbstractContextManager[None]:
        """Apply settings within the context, for this thread only."""
        ...

    def use(self, database: str) -> None:
        """Make a database the one of names without one."""
        ...

    def full_name(self, name: Name) -> str:
        """`database.table`."""
        ...

    def open(self, name: Name) -> Table:
        """The table of a parsed name, at its newest version."""
        ...

    def table(self, name: str) -> Table:
        """The table `name` or `database.name`, at its newest version."""
        ...

    def known_table(self, database: str, name: str) -> Table | None:
        """The table as this connection knows it, without a request."""
        ...

    def table_names(self, database: str) -> list[str]:
        """Names of the tables of a database."""
        ...

    def select(self, query: str, format: str = "") -> QueryResult:
        """Run a SELECT."""
        ...

    def resolver(self, query: str = "") -> Names:
        """What finds the tables and views of a SELECT."""
        ...

    def source_of(self, table: Table, now_ms: int, state: State | None = None) -> Source:
        """The table at a version, as a SELECT at the time `now_ms` reads it."""
        ...

    def engine_settings(self) -> dict[str, str]:
        """The settings that are passed to ClickHouse."""
        ...

    def context(self) -> Context:
        """The context in which SELECTs run."""
        ...
