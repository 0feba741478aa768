"""Collection over a whole warehouse: all tables, also dropped ones and those without a name.

Directories of tables are found in the bucket, not in the catalog: one LIST page each. A table that has no name and is
not dropped was left by a crash between its first entry and its name; it is dropped after a grace period. A directory
without a log holds objects that late writers left after a table was removed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import NotFoundError
from mergelake.core.base.ids import IdSource
from mergelake.core.model.settings import TABLE_SETTINGS
from mergelake.jobs.gc.collect import CollectReport, Gone, collect_round
from mergelake.jobs.gc.plan import Periods
from mergelake.jobs.gc.transactions import collect_transactions
from mergelake.jobs.publish.plan import PART_DIRECTORY
from mergelake.log.model.operations import DropTable
from mergelake.store.interface.protocol import Store
from mergelake.store.objects.reserve import freeing
from mergelake.table.catalog.catalog import Catalog
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.gc_notes import Note, Notes

_TABLE = re.compile(r"[0-9a-f]{32}")
_OURS = re.compile(rf"(_log|_gc|__meta|__root|_served|{PART_DIRECTORY}|drop-[^/]+)/.+")
_STRAY_GRACE_MS = 1000 * int(TABLE_SETTINGS["gc_grace_seconds"].default)
_logger = logging.getLogger("mergelake.gc")


def table_directories(store: Store) -> Iterator[str]:
    """Directories with the name of a table id, in order; one page of a listing each."""
    after = ""
    while (meta := next(iter(store.list("", after)), None)) is not None:
        name, slash, _ = meta.key.partition("/")
        if slash and _TABLE.fullmatch(name):
            yield name
        after = f"{name}0" if slash else name  # "0" is the character after "/"


def collect_warehouse(
    store: Store,
    catalog: Catalog,
    *,
    clock: Clock,
    ids: IdSource,
    dry_run: bool = False,
    opened: Mapping[str, TableHandle] | None = None,
) -> Iterator[tuple[str, CollectReport]]:
    """A round over every table: yields its directory and the report. One that cannot be opened is skipped.

    `opened` are handles, by directory, of tables with a name, which keep the state of their last round.
    """
    for directory in table_directories(store):
        try:
            with freeing():
                handle = opened.get(directory) if opened else None
                if handle is not None:
                    report = collect_round(handle, dry_run=dry_run, open_table=catalog.open_id)
                else:
                    report = _round(store, catalog, directory, clock, ids, dry_run)
        except Exception as problem:  # noqa: BLE001  one bad table must not end the round over the others
            _logger.warning("table %s is left out: %s", directory, problem)
        else:
            yield directory, report
    try:
        collect_transactions(store, catalog.open_id, dry_run=dry_run)
    except Exception as problem:  # noqa: BLE001  as for tables
        _logger.warning("records of transactions are left for the next round: %s", problem)


def _round(store: Store, catalog: Catalog, directory: str, clock: Clock, ids: IdSource, dry_run: bool) -> CollectReport:
    try:
        handle = catalog.open_id(directory)
    except NotFoundError:
        if _is_named(catalog, directory):
            raise  # the table was not removed, so its log has lost its beginning
        return _stray(store, directory, clock, ids, dry_run)
    if not handle.log.state.dropped and not _is_named(catalog, directory):
        _nameless(handle, catalog, dry_run)
    return collect_round(handle, dry_run=dry_run, open_table=catalog.open_id)


def _is_named(catalog: Catalog, directory: str) -> bool:
    return any(table_id == directory for _, _, table_id in catalog.refresh().tables())


def _nameless(handle: TableHandle, catalog: Catalog, dry_run: bool) -> None:
    """Note a table without a name, or drop it if it was noted a grace period ago. A catalog without entries is lost."""
    if catalog.state.version == 0:
        return
    notes = Notes(handle.store, handle.directory, handle.ids)
    grace_ms = Periods.of(handle.log.state).grace_ms
    noted = [name for name in notes.names() if name.kind == "name"]
    if dry_run:
        return
    fence = handle.log.state.version + 1
    if not noted or noted[0].fence != fence:  # written to since: CREATE OR REPLACE TABLE … AS SELECT fills it
        notes.remove(noted)
        notes.write(fence, handle.clock.now_ms(), "name", Note())
    elif noted[0].stored_ms + grace_ms <= notes.now_ms() and not _is_named(catalog, handle.directory):
        handle.log.commit(lambda state: () if state.dropped or state.version >= fence else (DropTable(),))
        notes.remove(noted)


def _stray(store: Store, directory: str, clock: Clock, ids: IdSource, dry_run: bool) -> CollectReport:
    """Note a directory without a log, then delete it; but not if it has objects that we never write."""
    report = CollectReport(0, 0)
    keys, size = [], 0
    for meta in store.list(directory):
        keys.append(meta.key)
        size += meta.size
        if not _OURS.fullmatch(meta.key[len(directory) + 1 :]) or len(keys) > 100_000:
            return report
    notes, gone = Notes(store, directory, ids), Gone(".", len(keys), size, "there is no table any more")
    noted = notes.names()
    if not noted:
        report.noted.append(gone)
        if not dry_run:
            notes.write(0, clock.now_ms(), "table", Note())
    elif all(name.stored_ms + _STRAY_GRACE_MS <= clock.now_ms() for name in noted):
        report.deleted.append(gone)
        if not dry_run:
            store.delete(keys)
    else:
        report.waiting = len(noted)
    return report
