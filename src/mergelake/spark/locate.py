"""From the path that Spark users write (`<warehouse>/<database>.<table>`) to an open table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mergelake.core.clock import SystemClock
from mergelake.core.errors import error
from mergelake.core.ids import RandomIds
from mergelake.log.backends import Backends, split_options
from mergelake.store import StoreSpec
from mergelake.table.catalog import Catalog
from mergelake.table.handle import TableHandle

AUTHOR = "spark"
"""Who commits, in the history."""


@dataclass(frozen=True, slots=True)
class TablePath:
    """A warehouse and the name of a table in it; pickles."""

    store: StoreSpec
    database: str
    table: str
    log: str | None = None
    """The option `log`: how logs in ZooKeeper are reached (`log.backends`)."""

    @staticmethod
    def parse(path: str, options: Mapping[str, str] | None = None) -> TablePath:
        """`s3://bucket/warehouse/default.events`: the last segment is the table; BAD_ARGUMENTS if there is none."""
        url, slash, name = path.rstrip("/").rpartition("/")
        if not slash or not name or not url:
            raise error("BAD_ARGUMENTS", f"'{path}' does not name a table", "Write <warehouse>/<database>.<table>")
        database, dot, table = name.partition(".")
        store_options, log = split_options(options)
        return TablePath(StoreSpec.of(url, store_options), *((database, table) if dot else ("default", name)), log)

    def open(self) -> TableHandle:
        """The table that has this name now, at its newest version."""
        store = self.store.open()
        clock, ids = SystemClock(), RandomIds()
        catalog = Catalog(store, clock=clock, ids=ids, author=AUTHOR, backends=Backends(self.log))
        return catalog.open_table((self.database, self.table))


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table where it lies; pickles. Unlike its name, this never comes to mean another table.

    The spec is that of the opened store: what the driver's environment gave (credentials) travels in it.
    """

    store: StoreSpec
    directory: str
    log: str | None = None

    @staticmethod
    def of(handle: TableHandle) -> TablePlace:
        """Where an open table lies."""
        return TablePlace(handle.store.spec, handle.directory, handle.log.backends.log)

    def open(self) -> TableHandle:
        """The table at its newest version."""
        store, clock, ids = self.store.open(), SystemClock(), RandomIds()
        backends = Backends(self.log)
        return TableHandle.open(store, self.directory, clock=clock, ids=ids, author=AUTHOR, backends=backends)
