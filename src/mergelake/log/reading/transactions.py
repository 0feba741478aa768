"""Transactions over several tables: one record decides, entries in the logs of the tables refer to it.

::

    _txn/<id>.json       {"format": 1, "outcome": "commit", "tables": {"<directory>": [<base version>, <version>], …},
                          "timestamp_ms": …, "digest": "…"}

The **coordinator** appends an entry with a `Prepare` to the log of each table, checked there as every entry is, and
then creates the record, if absent. That one request decides. Whoever wants to append behind an entry that is not
decided waits for `PATIENCE_S` and then creates a record with the outcome `abort`, if absent. Both read the record that
stands.

A reader does not wait: a version that is not decided does not exist yet, and for one that is, it takes one GET, which
is remembered. An entry without a record is not decided: so a record stays until nobody can read its entries any more,
and no further one can be appended (`is_over`). See `docs/design/0025`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cachetools

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError, NotFoundError, UnavailableError
from mergelake.core.base.ids import IdSource
from mergelake.core.base.json_load import loads
from mergelake.log.model.operations import Decision, Entry, Prepare
from mergelake.log.storage.encoding import UNREADABLE, is_sealed, require_format, sealed
from mergelake.store.interface.protocol import OutcomeUnknown, Store, Stored

PREFIX = "_txn"
"""Directory of the records in a warehouse."""
RECORD_FORMAT = 1
PATIENCE_S = 5.0
"""Seconds for which a writer waits for the decision of somebody else's transaction before it is given up. Only how long
transactions may take depends on it, never what is true."""
TRIES_MAX = 12
"""Requests to a silent store after which it is reported that a decision is not known."""
_REMEMBERED = 256
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.01, 0.25


@dataclass(frozen=True, slots=True)
class Record:
    """What is decided about a transaction."""

    committed: bool
    tables: Mapping[str, tuple[int, int]]
    """Directory of each table -> the version known there when the transaction began (`Prepare.base_version`), and the
    version that has it; 0 if it is not committed."""
    timestamp_ms: int = 0
    """The latest time of its entries."""

    def seen_from(self, table: str, version: int) -> Decision:
        """The decision for an entry of one of its tables. An entry at another version than the recorded one does not
        count.
        """
        if not self.committed or self.tables.get(table, (0, 0))[1] != version:
            return Decision(False)
        others = tuple((name, place) for name, (_, place) in sorted(self.tables.items()) if name != table)
        return Decision(True, others, self.timestamp_ms)


def record_key(transaction: str) -> str:
    """Key of the record of a transaction."""
    return f"{PREFIX}/{transaction}.json"


def encode_record(record: Record) -> bytes:
    """The bytes of a record."""
    return sealed(
        {
            "format": RECORD_FORMAT,
            "outcome": "commit" if record.committed else "abort",
            "tables": {name: list(places) for name, places in record.tables.items()},
            "timestamp_ms": record.timestamp_ms,
        }
    )


def decode_record(data: bytes, key: str = "") -> Record:
    """Inverse of `encode_record`; CorruptDataError if it is damaged."""
    what = "The record of a transaction"
    try:
        if not is_sealed(data, what, key):
            raise ValueError("it has no digest")
        raw: Any = loads(data)
        require_format(int(raw["format"]), (RECORD_FORMAT,), f"The record {key}")
        if raw["outcome"] not in ("commit", "abort"):
            raise ValueError(f"the outcome {raw['outcome']}")
        tables = {str(name): (int(base), int(place)) for name, (base, place) in raw["tables"].items()}
        return Record(raw["outcome"] == "commit", tables, int(raw["timestamp_ms"]))
    except UNREADABLE as cause:
        if getattr(cause, "name", "") == "UNKNOWN_FORMAT_VERSION":
            raise
        raise CorruptDataError(f"{what} is not readable", object_key=key, found=str(cause)) from cause


def read_record(store: Store, transaction: str) -> Record | None:
    """The record of a transaction; None if there is none. One GET."""
    key = record_key(transaction)
    try:
        return decode_record(store.get(key), key)
    except NotFoundError:
        return None


def decide(store: Store, transaction: str, wanted: Record, clock: Clock, ids: IdSource) -> Record:
    """Create the record of a transaction if there is none; returns the one that stands, whoever wrote it.

    UnavailableError if the store stays silent: then nothing is known, and nothing may be deleted.
    """
    key, data, reason = record_key(transaction), encode_record(wanted), ""
    for attempt in range(TRIES_MAX):
        if attempt:
            clock.sleep_s(min(_PAUSE_FIRST_S * 2**attempt, _PAUSE_MAX_S) * ids.jitter())
        try:
            outcome = store.create(key, data)
            if isinstance(outcome, Stored):
                return wanted
            reason = outcome.reason if isinstance(outcome, OutcomeUnknown) else reason
            standing = read_record(store, transaction)
        except (UnavailableError, CorruptDataError) as cause:  # also a record that was damaged on the way
            reason = str(cause)
            continue
        if standing is not None:
            return standing
    message = (
        f"It is not known whether transaction {transaction} was committed: {reason or 'the store does not answer'}"
    )
    raise UnavailableError(message, hint="Look at the history of its tables before trying again")


class Decisions:
    """The decisions of the transactions of one table, as far as they are known here. Threads may share it."""

    def __init__(self, store: Store, table: str) -> None:
        """`table` is its directory."""
        self._store, self._table = store, table
        self._lock = threading.Lock()
        self._known: cachetools.LRUCache[tuple[str, int], Decision] = cachetools.LRUCache(_REMEMBERED)

    def complete(self, entry: Entry) -> Entry | None:
        """The entry with its decision; None if it is not decided. No request for entries without a transaction."""
        prepare = entry.prepare
        if prepare is None or prepare.decision is not None:
            return entry
        decision = self._of(prepare, entry.version)
        return None if decision is None else entry.decided(decision)

    def settled(self, entry: Entry, clock: Clock, ids: IdSource, patience_s: float | None = None) -> Entry:
        """The entry with its decision. One that is not decided is awaited, and given up after `patience_s` seconds.

        None: `PATIENCE_S`.
        """
        patience_s = PATIENCE_S if patience_s is None else patience_s
        began_s, pause_s = clock.monotonic_s(), _PAUSE_FIRST_S
        while (complete := self.complete(entry)) is None:
            left_s = began_s + patience_s - clock.monotonic_s()
            if left_s <= 0:
                prepare = entry.prepare
                assert prepare is not None
                tables = {name: (base, 0) for name, base in (*prepare.others, (self._table, prepare.base_version))}
                record = decide(self._store, prepare.transaction, Record(False, tables), clock, ids)
                self.learn(prepare.transaction, entry.version, record)
                continue
            clock.sleep_s(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        return complete

    def learn(self, transaction: str, version: int, record: Record) -> Decision:
        """Remember a record; returns the decision for the entry of that version."""
        decision = record.seen_from(self._table, version)
        with self._lock:
            self._known[transaction, version] = decision
        return decision

    def _of(self, prepare: Prepare, version: int) -> Decision | None:
        with self._lock:
            known = self._known.get((prepare.transaction, version))
        if known is not None:
            return known
        record = read_record(self._store, prepare.transaction)
        return None if record is None else self.learn(prepare.transaction, version, record)
