"""Moving logs, of a table or of a whole warehouse: into ZooKeeper, and out of it again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mergelake.api.python.warehouse import CATALOG, Warehouse, author_name, split_name
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import error
from mergelake.core.base.ids import RandomIds
from mergelake.jobs.gc.tables import table_directories
from mergelake.log.backends.backends import SEALED, Backends, split_options
from mergelake.log.commit.commit import Log
from mergelake.log.commit.migrate import Takeover, new_tree, take_over
from mergelake.log.storage.catalog import CatalogMachine
from mergelake.log.storage.machine import TableMachine
from mergelake.store import open_store
from mergelake.table.catalog.catalog import LOG_PREFIX, Catalog


def seal_logs(
    location: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    table: str = "",
    force: bool = False,
    log: str | None = None,
) -> dict[str, Takeover]:
    """Make the bucket the sequencer of one table's log, or of all (the catalog's too, first).

    Returns the results by name; dropped tables without a name are named by their directory. Readers and writers go on,
    and follow by themselves. It may be repeated, also after a crash. `force` is for a ZooKeeper that is gone for ever:
    entries that were not copied from it are lost. `log` is the option of `connect`.
    """
    options, log_option = split_options(storage_options)
    store, clock, ids = open_store(location, options), SystemClock(), RandomIds()
    backends = Backends(log_option if log is None else log)
    run = partial(take_over, store, backends=backends, clock=clock, ids=ids, author=author_name(), force=force)
    done: dict[str, Takeover] = {}
    if not table:
        done[CATALOG] = run(LOG_PREFIX, CatalogMachine())
    catalog = Catalog(store, clock=clock, ids=ids, backends=Backends(SEALED) if force else backends)
    if table:
        wanted = {catalog.find(split_name(table)): ".".join(split_name(table))}
    else:
        # Also those that were dropped, which have no name: collection reads their logs.
        names = {table_id: f"{database}.{name}" for database, name, table_id in catalog.state.tables()}
        wanted = {directory: directory for directory in table_directories(store)} | names
    for table_id, name in wanted.items():
        done[name] = run(f"{table_id}/_log", TableMachine())
    return done


def move_logs(warehouse: Warehouse, *, table: str = "") -> dict[str, str]:
    """Move one table's log, or all (the catalog's too, first), to the ZooKeeper that the warehouse was opened with.

    Logs that are in a ZooKeeper already stay there. Returns the place of each log, by name. Writers go on, and follow.
    """
    address, store, clock, ids = warehouse.backends.address, warehouse.store, warehouse.clock, warehouse.ids
    if address is None:
        raise error("BAD_ARGUMENTS", "It is not said where the logs are to go", "log=zookeeper://host:port/path")
    catalog = warehouse.catalog
    state = catalog.refresh()
    logs: dict[str, Log[Any]] = {} if table else {CATALOG: catalog.log}
    for database, name, table_id in state.tables():
        if not table or split_name(table) == (database, name):
            logs[f"{database}.{name}"] = catalog.open_id(table_id).log
    if not logs:
        catalog.find(split_name(table))  # tells the nearest name
    for log in logs.values():
        if not log.refresh().sequencer.url:
            move = new_tree(address, store, log.prefix, clock, ids)
            log.commit(lambda state, move=move: () if state.sequencer.url else (move,))  # type: ignore[misc]
    return {name: log.state.sequencer.url for name, log in logs.items()}
