"""Opening a table by the path that Spark users write: `<warehouse>/<database>.<table>`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import error
from mergelake.core.base.ids import RandomIds
from mergelake.log.backends.backends import Backends, split_options
from mergelake.store import StoreSpec
from mergelake.table.catalog.catalog import Catalog
from mergelake.table.handle.handle import TableHandle

AUTHOR = "spark"
"""Author of commits in the history."""


@dataclass(frozen=True, slots=True)
class TablePath:
    """A warehouse and the name of a table in it; pickles."""

    store: StoreSpec
    database: str
    table: str
    log: str | None = None
    """The option `log`: addresses of logs in ZooKeeper (`log.backends.backends`)."""

    @staticmethod
    def parse(path: str, options: Mapping[str, str] | None = None) -> TablePath:
        """Parse `s3://bucket/warehouse/default.events`: the last segment is the table. Raises BAD_ARGUMENTS."""
        url, slash, name = path.rstrip("/").rpartition("/")
        if not slash or not name or not url:
            raise error("BAD_ARGUMENTS", f"'{path}' does not name a table", "Write <warehouse>/<database>.<table>")
        database, dot, table = name.partition(".")
        store_options, log = split_options(options)
        return TablePath(StoreSpec.of(url, store_options), *((database, table) if dot else ("default", name)), log)

    def open(self) -> TableHandle:
        """Open the table that has this name now, at its newest version."""
        store = self.store.open()
        clock, ids = SystemClock(), RandomIds()
        catalog = Catalog(store, clock=clock, ids=ids, author=AUTHOR, backends=Backends(self.log))
        return catalog.open_table((self.database, self.table))


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Store and directory of a table; pickles. Unlike a name, it always refers to the same table.

    The spec is that of the opened store, with the credentials from the driver's environment.
    """

    store: StoreSpec
    directory: str
    log: str | None = None

    @staticmethod
    def of(handle: TableHandle) -> TablePlace:
        """The place of an open table."""
        return TablePlace(handle.store.spec, handle.directory, handle.log.backends.log)

    def open(self) -> TableHandle:
        """Open the table at its newest version."""
        store, clock, ids = self.store.open(), SystemClock(), RandomIds()
        backends = Backends(self.log)
        return TableHandle.open(store, self.directory, clock=clock, ids=ids, author=AUTHOR, backends=backends)
