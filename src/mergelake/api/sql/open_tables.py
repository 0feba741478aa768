"""The tables that a session has open. All tables that a statement names are refreshed in one round."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from mergelake.api.python.table import Table
from mergelake.api.python.warehouse import Warehouse
from mergelake.core.base.errors import MergelakeError
from mergelake.log.commit.commit import Log
from mergelake.log.storage.at_once import at_once
from mergelake.parts.read.fetch import is_remote

Where = tuple[str, str]
"""Database and table."""


class OpenTables:
    """Tables by their ids, as they are known here. Safe for threads."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._lock = threading.Lock()
        self._tables: dict[str, Table] = {}
        self._moved: frozenset[str] = frozenset()

    def clear(self) -> None:
        """Forget all tables."""
        self._tables.clear()

    def known(self, table_id: str) -> Table | None:
        """The table of an id as it is known here, without a request; None if it is not open."""
        with self._lock:
            return self._tables.get(table_id)

    def kept(self, table_id: str, full: str, news: bool = True) -> Table:
        """The table of an id, whose name is `full`. If it is open already, `news` says whether to refresh it."""
        with self._lock:
            table = self._tables.get(table_id)
        if table is None:
            table = self._warehouse.opened(table_id, full)
            with self._lock:
                self._tables[table_id] = table
        elif news:
            table.refresh()
        table.name = full
        return table

    def look(self, names: Iterable[Where], staleness_s: float = 0.0) -> set[str]:
        """Refresh the catalog and the tables that had these names, together; return the ids of those tables.

        What was refreshed less than `staleness_s` ago is left as it is. In a far store, tables that are not open yet
        are opened at the same time.
        """
        catalog, far = self._warehouse.catalog, is_remote(self._warehouse.store)
        ids = {where: self._id(where) for where in names}
        with self._lock:
            kept = {table_id: self._tables[table_id] for table_id in ids.values() if table_id in self._tables}
        unopened = {table_id: where for where, table_id in ids.items() if far and table_id and table_id not in kept}

        def problem_of(call: Callable[[], object]) -> MergelakeError | None:
            try:
                call()
            except MergelakeError as problem:  # the name may belong to another table by now
                return problem
            return None

        before = {table_id: _version(table) for table_id, table in kept.items()}
        logs: list[Log[Any]] = [catalog.log, *(table.handle.log for table in kept.values())]
        calls: list[Callable[[], object]] = [
            partial(log.fresh, staleness_s) if staleness_s else log.refresh for log in logs
        ]
        calls += [partial(self.kept, table_id, ".".join(where)) for table_id, where in unopened.items()]
        problem, *of_tables = at_once(problem_of, calls, len(calls) if far else 1)
        if problem is not None:
            raise problem
        moved = frozenset(table_id for table_id, table in kept.items() if _version(table) != before[table_id])
        self._moved = (self._moved - kept.keys()) | moved
        table_ids = (*kept, *unopened)
        return {table_id for table_id, failed in zip(table_ids, of_tables, strict=True) if failed is None}

    def at_rest(self, names: Collection[Where]) -> dict[Where, tuple[Table, int]] | None:
        """The tables of these names with their versions as known here, if the last refresh found nothing new.

        None if any of them is not open, or had changed.
        """
        by_name = {where: self._tables.get(self._id(where)) for where in names}
        out = {where: (table, _version(table)) for where, table in by_name.items() if table is not None}
        moved = any(self._id(where) in self._moved for where in out)
        return None if moved or len(out) < len(by_name) else out

    def unchanged(self, tables: Mapping[Where, tuple[Table, int]]) -> bool:
        """Whether the names still refer to the same tables at the same versions, as far as is known here."""
        return all(
            self._tables.get(self._id(where)) is table and _version(table) == version
            for where, (table, version) in tables.items()
        )

    def _id(self, where: Where) -> str:
        return self._warehouse.catalog.state.databases.get(where[0], {}).get(where[1], "")


def _version(table: Table) -> int:
    return table.handle.log.state.version
