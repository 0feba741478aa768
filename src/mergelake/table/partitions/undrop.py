"""Restores a dropped table while its objects are kept, by one entry.

A drop retires the parts and deletes nothing; their objects are collected when the version before the drop is no longer
kept (`history_retention_seconds`). Until then the parts can be added again as in a rollback, under new ids over the
same objects, and with the mutations that some of them lack. Nothing else is restored: no volatile parts, no detached
parts (a dropped table keeps their objects for as long as versions before the DETACH are kept, which may have ended),
and no tags of versions that were no longer part of history. A view is put back as it was defined, at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import (
    DropDatabase,
    Entry,
    PutVirtual,
    RemoveTable,
    RemoveVirtual,
    TableOp,
    UndropTable,
)
from mergelake.log.model.state import State
from mergelake.log.storage.catalog import CatalogState
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.rollback import back_to

_CHUNK = 256


def undrop(handle: TableHandle) -> None:
    """Restore a dropped table; nothing to do for one that was not dropped. UNKNOWN_TABLE if it is too late."""
    state = handle.refresh()
    if not state.dropped:
        return
    require_undroppable(state)
    target = handle.log.state_at(state.dropped_version - 1)

    def build(state: State) -> Sequence[TableOp]:
        if not state.dropped:
            return ()
        require_undroppable(state)
        return [UndropTable(), *back_to(target, state, handle.ids)]

    handle.log.commit(build)


def require_undroppable(state: State) -> None:
    """Raise UNKNOWN_TABLE if a table was dropped too long ago to be restored."""
    if state.dropped and not max(state.history, 1) < state.dropped_version:
        raise error("UNKNOWN_TABLE", "The table has been dropped, and its rows have been collected since")


Removal = RemoveTable | RemoveVirtual


def last_drop(log: Log[CatalogState], database: str, table: str, table_id: str = "") -> Removal | None:
    """The last drop of a table or a virtual one with this name, if there is one; restored ones do not count."""
    named = named_ids(log.state)
    for entry in _backwards(log):
        for op in reversed(entry.ops):
            if not isinstance(op, Removal) or (op.database, op.name) != (database, table):
                continue
            if op.table_id not in named and table_id in ("", op.table_id):
                return op
    return None


def named_ids(state: CatalogState) -> set[str]:
    """The ids of all tables and virtual ones that have a name."""
    virtual = (table.id for tables in state.virtual.values() for table in tables.values())
    return {*(held for _, _, held in state.tables()), *virtual}


def definition_of(log: Log[CatalogState], removed: RemoveVirtual) -> PutVirtual:
    """The operation that puts a removed view or union back under the name that it had."""
    for entry in _backwards(log):
        for op in entry.ops:
            if isinstance(op, PutVirtual) and op.table_id == removed.table_id:
                return replace(op, database=removed.database, name=removed.name)
    raise CorruptDataError(f"The catalog's log removes {removed.database}.{removed.name}, and never made it")


def last_drop_of_database(log: Log[CatalogState], database: str) -> list[Removal] | None:
    """The removals of what a database had when it was last dropped; None if it never was."""
    for entry in _backwards(log):
        if DropDatabase(database) in entry.ops:
            return [op for op in entry.ops if isinstance(op, Removal) and op.database == database]
    return None


def _backwards(log: Log[CatalogState]) -> Iterator[Entry]:
    """All entries, the newest first; those of the catalog are never collected."""
    last = log.state.version
    while last > 0:
        first = max(1, last - _CHUNK + 1)
        yield from reversed(list(log.entries(first, last)))
        last = first - 1
