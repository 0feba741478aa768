"""The tables that a session has open, and news of them: of all that a statement names in one round."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from mergelake.core.errors import MergelakeError
from mergelake.lake.table import Table
from mergelake.lake.warehouse import Warehouse
from mergelake.log.at_once import at_once
from mergelake.log.commit import Log
from mergelake.parts.fetch import is_remote

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
        """Let go of all."""
        self._tables.clear()

    def kept(self, table_id: str, full: str, news: bool = True) -> Table:
        """The table of an id, which is called `full`; if it is open already, asked for `news` now."""
        with self._lock:
            found = self._tables.get(table_id)
        if found is None:
            found = self._warehouse.opened(table_id, full)
            with self._lock:
                self._tables[table_id] = found
        elif news:
            found.refresh()
        found.name = full
        return found

    def look(self, names: Iterable[Where], staleness_s: float = 0.0) -> set[str]:
        """Ask for news of the catalog and of the tables that had these names, at once; the ids of those tables.

        What was asked for less than `staleness_s` ago is not asked again. In a far store tables that are not open yet
        are opened meanwhile.
        """
        catalog, far = self._warehouse.catalog, is_remote(self._warehouse.store)
        ids = {where: self._id(where) for where in names}
        with self._lock:
            kept = {table_id: self._tables[table_id] for table_id in ids.values() if table_id in self._tables}
        unopened = {table_id: where for where, table_id in ids.items() if far and table_id and table_id not in kept}

        def ask(call: Callable[[], object]) -> MergelakeError | None:
            try:
                call()
            except MergelakeError as problem:  # of a table that is not called so any more it is nobody's
                return problem
            return None

        before = {table_id: _version(table) for table_id, table in kept.items()}
        logs: list[Log[Any]] = [catalog.log, *(table.handle.log for table in kept.values())]
        calls: list[Callable[[], object]] = [
            partial(log.fresh, staleness_s) if staleness_s else log.refresh for log in logs
        ]
        calls += [partial(self.kept, table_id, ".".join(where)) for table_id, where in unopened.items()]
        problem, *of_tables = at_once(ask, calls, len(calls) if far else 1)
        if problem is not None:
            raise problem
        moved = frozenset(table_id for table_id, table in kept.items() if _version(table) != before[table_id])
        self._moved = (self._moved - kept.keys()) | moved
        asked = (*kept, *unopened)
        return {table_id for table_id, failed in zip(asked, of_tables, strict=True) if failed is None}

    def at_rest(self, names: Collection[Where]) -> dict[Where, tuple[Table, int]] | None:
        """The tables of these names and their versions as known here, where nothing was new when they were last asked.

        None if any of them is not open, or did change.
        """
        found = {where: self._tables.get(self._id(where)) for where in names}
        out = {where: (table, _version(table)) for where, table in found.items() if table is not None}
        moved = any(self._id(where) in self._moved for where in out)
        return None if moved or len(out) < len(found) else out

    def unchanged(self, tables: Mapping[Where, tuple[Table, int]]) -> bool:
        """Whether names mean the same tables, at the same versions, as far as is known here by now."""
        return all(
            self._tables.get(self._id(where)) is table and _version(table) == version
            for where, (table, version) in tables.items()
        )

    def _id(self, where: Where) -> str:
        return self._warehouse.catalog.state.databases.get(where[0], {}).get(where[1], "")


def _version(table: Table) -> int:
    return table.handle.log.state.version
