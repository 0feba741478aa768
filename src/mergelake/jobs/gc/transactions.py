"""Collects the records of transactions (`log.reading.transactions`) that nobody will ever look for.

An entry whose record is missing is not decided. So a record goes only when, in the log of each of its tables, no entry
of the transaction can be read any more, and none can be appended. Both follow from the oldest state from which the log
can be opened: its fence has passed the version at which the transaction began there, so an entry of the transaction
can only lie before it; and the entries before it are deleted, which `log.reading.truncate` does a grace period after
nobody begins there any more. No clock is asked, and it does not matter who wrote the record, or how late.

A coordinator that wakes after that, and creates the record again, decides about nothing: no log has an entry of the
transaction. It finds out that it slept too long (`table.partitions.transaction`), and its record goes in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from mergelake.core.base.errors import MergelakeError, NotFoundError
from mergelake.log.backends.backend import version_of
from mergelake.log.reading.transactions import PREFIX, Record, read_record
from mergelake.store.interface.protocol import Store
from mergelake.table.handle.handle import OpenTable, TableHandle

_logger = logging.getLogger("mergelake.gc")


def collect_transactions(store: Store, open_table: OpenTable, *, dry_run: bool = False) -> list[str]:
    """Delete the records that are over; returns their transactions.

    One LIST; for each record a GET, and for each of its tables the requests of opening it and, once its fence has
    passed, two LISTs and a GET.
    """
    handles: dict[str, TableHandle | None] = {}

    def table(directory: str) -> TableHandle | None:
        if directory not in handles:
            try:
                handles[directory] = open_table(directory)
            except NotFoundError:
                handles[directory] = None
        return handles[directory]

    over: list[str] = []
    for meta in store.list(PREFIX):
        transaction = meta.key.rpartition("/")[2].removesuffix(".json")
        try:
            record = read_record(store, transaction)
            if record is not None and is_over(record, table):
                over.append(transaction)
        except MergelakeError as problem:
            _logger.warning("the record of transaction %s stays: %s", transaction, problem)
    if over and not dry_run:
        store.delete([f"{PREFIX}/{transaction}.json" for transaction in over])
    return over


def is_over(record: Record, table: Callable[[str], TableHandle | None]) -> bool:
    """Whether no entry of the transaction can be read or appended. `table` opens one; None if it was removed."""
    for directory, (base_version, _) in record.tables.items():
        handle = table(directory)
        if handle is not None and not _has_passed(handle, base_version):
            return False
    return True


def _has_passed(handle: TableHandle, base_version: int) -> bool:
    if handle.log.refresh().fence <= base_version:
        return False
    first = handle.log.oldest()
    if first is None or first.fence <= base_version:
        return False
    listed = (version_of(meta.key) for meta in handle.store.list(f"{handle.directory}/_log"))
    return next((version for version in islice(listed, 1) if version), first.version) >= first.version
