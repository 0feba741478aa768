"""The sets of parts that the embedded ClickHouse has attached, and how a statement reads a version with them.

A set is attached for the second statement on it, because a version of a table that changes often may be read once only.
Where attaching makes no requests (a local directory), a background thread begins with the first statement, which does
not wait. A version that differs by a few parts from an attached one is read by that table without the removed parts,
and a scan of the new ones (`layers`). If it is read again, or the difference has grown, a background thread attaches
it, while no statement waits.

The least recently used sets are dropped beyond `SETS_MAX` sets or `PARTS_HELD_MAX` parts, and after `IDLE_S` seconds
without a statement. Sets in use are kept.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from cachetools import LRUCache

from mergelake.core.base.clock import Clock, SystemClock
from mergelake.core.base.errors import MergelakeError
from mergelake.parts.read.fetch import is_remote
from mergelake.query.attach import attaching
from mergelake.query.attach.attaching import DATABASE, Attached, NotAttachedError
from mergelake.query.attach.layers import AttachedLayer, LayerCover, cover
from mergelake.query.attach.readers import READERS
from mergelake.query.embedded import engine
from mergelake.query.part_set import PARTS_AT_ONCE, PartSet
from mergelake.query.statement.access import words

SETS_MAX = 16
"""Maximum number of attached sets."""
PARTS_HELD_MAX = 40_000
"""Maximum number of parts in all attached sets: each takes some ten kilobytes of ClickHouse's memory."""
IDLE_S = 900.0
"""Seconds after which a set without statements is dropped."""
PARTS_MAX = 20_000
"""Maximum number of parts of an attached set."""
ROWS_MIN = 100_000
"""Minimum rows of a set, or of the rest beside layers, for attaching it: a scan of fewer is as fast."""
REST_MAX = 64
"""Number of parts of the rest beside layers from which it is attached."""
SCANNED_FIRST = 1
"""Number of statements that scan a set before it is attached."""
_ASKED_AGAIN = 2
"""Number of statements that read a version by layers before it is attached itself."""
_DRIFT = 10
"""A set of many parts is attached again if more than 1 in `_DRIFT` of them changed; else only its rest is."""
_KEPT_MAX = 512
_logger = logging.getLogger("mergelake.query")

DAMAGE = words(
    "attempt_to_read_after_eof cannot_decompress cannot_open_file cannot_read_all_data cannot_stat",
    "cannot_read_from_file_descriptor checksum_doesnt_match corrupted_data file_doesnt_exist s3_error",
    "too_large_size_compressed unexpected_end_of_file unknown_codec unknown_compression_method",
)
"""Errors that damaged or missing objects may cause: a scan then raises an error that names the object."""
_NOT_OF_ROWS = ("LIMIT_EXCEEDED", "MEMORY_", "QUERY_", "SET_SIZE_", "TIMEOUT_", "TOO_", "UNKNOWN_")
"""Prefixes of errors that no row causes."""


def scan_differs(failure: MergelakeError, *, viewed: bool) -> bool:
    """Whether a scan may give another error, or an answer: for damage, and if the parts lack mutations (`viewed`).

    ClickHouse may evaluate conditions of the statement for rows that a pending mutation deletes, and commands that fail
    for rows which it drops afterwards.
    """
    return failure.name.lower() in DAMAGE or (viewed and not failure.name.startswith(_NOT_OF_ROWS))


@dataclass(frozen=True, slots=True)
class Reading:
    """The attached tables, and the scan, by which a set of parts is read."""

    tables: tuple[tuple[str, tuple[str, ...]], ...]
    """(table name, names of its parts to exclude)."""
    rest: PartSet | None = None
    """Parts to scan in addition; None if there are none."""
    served: bool = False
    """Whether the endpoint serves files of any of the tables."""


class AttachedSets:
    """The attached sets of one process. Thread-safe."""

    def __init__(self, sets_max: int = SETS_MAX, parts_max: int = PARTS_HELD_MAX, clock: Clock | None = None) -> None:
        self._sets_max, self._parts_max, self._clock = sets_max, parts_max, clock or SystemClock()
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, Attached] = OrderedDict()
        self._users: Counter[str] = Counter()
        self._used_s: dict[str, float] = {}  # when a statement last began or ended to read a table
        self._copies: Counter[str] = Counter()  # id of a part -> sets that use the copies of its files
        self._reads: LRUCache[Hashable, int] = LRUCache(_KEPT_MAX)  # number of statements on a set
        self._refused: LRUCache[Hashable, str] = LRUCache(_KEPT_MAX)  # why ClickHouse refused a set
        self._making: dict[Hashable, threading.Event] = {}
        self._beside: threading.Thread | None = None
        self._pid = 0

    def __len__(self) -> int:
        """Number of attached sets."""
        return len(self._held)

    def why_not(self, wanted: PartSet, *, exact: bool = False, count: bool = False, must: bool = False) -> str:
        """Why ClickHouse does not read a set by itself, now or ever; empty if it does.

        `exact`: one table must have exactly the set. `count`: a statement is about to read it, which is counted and may
        start attaching. `must`: the set cannot be scanned.
        """
        if wanted.rows < ROWS_MIN and not must:
            return f"it has fewer than {ROWS_MIN} rows to read"
        if not exact and wanted.worth_attaching is not wanted:
            wanted = wanted.worth_attaching
            if wanted.rows < max(ROWS_MIN, 1):
                return "its many small parts are scanned together"
        if len(wanted.parts) > PARTS_MAX and not must:
            return f"it has {len(wanted.parts)} parts to read, more than {PARTS_MAX}"
        key = wanted.key
        with self._lock:
            before = self._reads.get(key, 0)
            self._reads[key] = before + count
            if key in self._refused:
                return self._refused[key]
            if must or key in self._held or (not exact and self._layers(wanted) is not None):
                return ""
            at_once = len(wanted.parts) <= PARTS_AT_ONCE
            if at_once and before >= SCANNED_FIRST:
                return ""
        if before < SCANNED_FIRST:
            if count and at_once and not is_remote(wanted.store):  # attaching makes no requests
                self._attach_beside(wanted)
            return "the first statement on this version"
        if count:
            self._attach_beside(wanted)
        return f"its {len(wanted.parts)} parts are being attached"

    @contextmanager
    def using(self, wanted: PartSet, *, exact: bool = False) -> Iterator[Reading]:
        """Context with the tables to read a set by, which are kept meanwhile; attaches them if necessary."""
        with READERS.reading(wanted.directory), self._using(wanted, exact=exact) as reading:
            yield reading

    @contextmanager
    def _using(self, wanted: PartSet, *, exact: bool) -> Iterator[Reading]:
        worth = wanted if exact else wanted.worth_attaching
        with self._lock:
            self._begin()
            attached = self._held.get(worth.key)
            layered = None if attached is not None or exact else self._layers(worth)
        if attached is None and layered is None:
            sets = [worth] if exact else attaching.sets(worth)
            for each in sets:
                self._make(each)
            if len(sets) > 1:
                with self._lock:
                    layered = self._layers(worth)
        elif layered is not None:
            self._keep_up(worth, layered[1])
        with self._lock:
            reading = self._taken(worth, layered)
        if worth is not wanted:
            beside = reading.rest.ids if reading.rest is not None else frozenset()
            reading = replace(reading, rest=wanted.only(beside | (wanted.ids - worth.ids)))
        try:
            yield reading
        finally:
            with self._lock:
                for name, _ in reading.tables:
                    self._users[name] -= 1
                    self._used_s[name] = self._clock.monotonic_s()
                self._trim()

    def _taken(self, wanted: PartSet, layered: tuple[list[Attached], LayerCover] | None) -> Reading:
        """The reading of a set; its tables are marked as in use. Raises NotAttachedError if one was dropped."""
        attached = self._held.get(wanted.key)
        if attached is not None:
            layered = [attached], LayerCover((AttachedLayer(0, frozenset()),), frozenset())
        if layered is None or any(self._held.get(each.parts.key) is not each for each in layered[0]):
            raise NotAttachedError("what was attached is gone again")
        held, chosen = layered
        tables, served = [], False
        for layer in chosen.layers:
            table = held[layer.index]
            self._held.move_to_end(table.parts.key)
            self._users[table.name] += 1
            self._used_s[table.name] = self._clock.monotonic_s()
            served = served or bool(table.served)
            names = (part.name for part_id, part in table.parts.by_id.items() if part_id in layer.without)
            tables.append((table.name, tuple(names)))
        return Reading(tuple(tables), wanted.only(chosen.rest) if chosen.rest else None, served)

    def _layers(self, wanted: PartSet) -> tuple[list[Attached], LayerCover] | None:
        """Attached tables that cover most of a set; None if a scan of the whole set is better."""
        held = [each for each in self._held.values() if each.parts.table == wanted.table]
        chosen = cover(wanted.ids, [each.parts.ids for each in held])
        if not chosen.layers or len(chosen.rest) > max(REST_MAX, len(wanted.parts) // 2):
            return None
        rest = sum(wanted.by_id[part_id].manifest.rows for part_id in chosen.rest)
        return None if rest > wanted.rows // 2 else (held, chosen)

    def _keep_up(self, wanted: PartSet, chosen: LayerCover) -> None:
        """Attach in the background what makes the next statement on the set faster."""
        rest = wanted.only(chosen.rest)
        grown = rest.rows >= max(ROWS_MIN, 1) or len(rest.parts) >= REST_MAX
        if not grown and self._reads.get(wanted.key, 0) <= _ASKED_AGAIN:
            return
        many = len(wanted.parts) > PARTS_AT_ONCE and chosen.drift * _DRIFT < len(wanted.parts)
        if not many or len(chosen.layers) > 2:
            self._attach_beside(wanted)
        elif grown:
            self._attach_beside(rest)

    def _make(self, wanted: PartSet) -> None:
        """Attach a set; if another thread is attaching it, wait for that."""
        key = wanted.key
        with self._lock:
            if key in self._held:
                return
            if key in self._refused:
                raise NotAttachedError(self._refused[key])
            other_thread, copied = self._making.get(key), attaching.copied(wanted)
            if other_thread is None:
                mine = self._making[key] = threading.Event()
                self._copies.update(copied)  # protects them from removal
        if other_thread is not None:
            other_thread.wait()
            return
        try:
            attached = attaching.attach(wanted)
        except (NotAttachedError, OSError) as why:  # OSError: no space for the metadata files
            _logger.warning("a snapshot of %s is scanned: %s", wanted.directory, why)
            with self._lock:
                self._refused[key] = str(why)
                self._forget_copies(copied)
            raise NotAttachedError(str(why)) from why
        else:
            with self._lock:
                self._held[key] = attached
                self._used_s[attached.name] = self._clock.monotonic_s()
        finally:
            with self._lock:
                del self._making[key]
            mine.set()

    def _attach_beside(self, wanted: PartSet) -> None:
        """Attach a set in a background thread, unless one is running."""

        def work() -> None:
            with suppress(NotAttachedError):  # already logged
                self._make(wanted)
                with self._lock:
                    self._trim()

        with self._lock:
            self._begin()
            if wanted.key in self._making or wanted.key in self._held or wanted.key in self._refused:
                return
            if self._beside is not None and self._beside.is_alive():
                return  # a later statement tries again
            self._beside = threading.Thread(target=work, name="mergelake-attach", daemon=True)
            self._beside.start()

    def settle(self) -> None:
        """Wait for the background thread."""
        if self._beside is not None:
            self._beside.join()

    def _begin(self) -> None:
        """Reset the state in a forked process, whose ClickHouse has nothing attached."""
        if self._pid != os.getpid():
            if self._pid:
                self._held.clear()
                self._users.clear()
                self._used_s.clear()
                self._copies.clear()
                self._reads.clear()
                self._refused.clear()
                self._making.clear()
            engine.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE} ENGINE = Atomic")
            self._pid = os.getpid()

    def _trim(self) -> None:
        parts = sum(len(held.parts.parts) for held in self._held.values())
        idle_since = self._clock.monotonic_s() - IDLE_S
        for key, held in list(self._held.items()):
            room = len(self._held) <= self._sets_max and parts <= self._parts_max
            if not self._users[held.name] and not (room and self._used_s[held.name] > idle_since):
                del self._held[key], self._users[held.name], self._used_s[held.name]
                parts -= len(held.parts.parts)
                attaching.forget(held)
                self._forget_copies(attaching.copied(held.parts))

    def _forget_copies(self, part_ids: Collection[str]) -> None:
        """Decrease the use counts of copies and remove unused ones."""
        self._copies.subtract(part_ids)
        attaching.forget_copies(part_id for part_id in part_ids if not self._copies[part_id])


SETS = AttachedSets()
"""The attached sets of this process."""
