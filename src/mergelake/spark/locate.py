"""From the path that Spark users write (`<warehouse>/<database>.<table>`) to an open table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mergelake.core.clock import SystemClock
from mergelake.core.errors import error
from mergelake.core.ids import RandomIds
from mergelake.store import StoreSpec
from mergelake.table.catalog import Catalog
from mergelake.table.handle import TableHandle


@dataclass(frozen=True, slots=True)
class TablePath:
    """A warehouse and the name of a table in it; pickles."""

    store: StoreSpec
    database: str
    table: str

    @staticmethod
    def parse(path: str, options: Mapping[str, str] | None = None) -> TablePath:
        """`s3://bucket/warehouse/default.events`: the last segment is the table; BAD_ARGUMENTS if there is none."""
        url, slash, name = path.rstrip("/").rpartition("/")
        if not slash or not name or not url:
            raise error("BAD_ARGUMENTS", f"'{path}' does not name a table", "Write <warehouse>/<database>.<table>")
        database, dot, table = name.partition(".")
        return TablePath(StoreSpec.of(url, options), *((database, table) if dot else ("default", name)))

    def open(self) -> TableHandle:
        """The table at its newest version."""
        store = self.store.open()
        clock, ids = SystemClock(), RandomIds()
        return Catalog(store, clock=clock, ids=ids, author="spark").open_table((self.database, self.table))
