"""Which sets of parts the embedded ClickHouse has attached, and how a statement reads a version by them.

A set is attached for the second statement on it: the first may be the only one, where a table changes often. Where it
costs no request (a directory), a thread of our own begins with the first, which does not wait. A version
that differs by a few parts from one that is attached is read by that table without the parts that are gone, beside a
scan of those that are new (`layers`); where it is asked for again, or the difference has grown, it is attached anew by
a thread of our own, while no statement waits.

Sets are kept until `SETS_MAX` others, or `PARTS_HELD_MAX` parts, have been asked for, or nobody has asked for `IDLE_S`
seconds: then versions have gone on. Those in use stay.
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

from mergelake.core.clock import Clock, SystemClock
from mergelake.parts.fetch import is_remote
from mergelake.query.attach import attaching
from mergelake.query.attach.attaching import DATABASE, Attached, NotAttachedError
from mergelake.query.attach.layers import Cover, Layer, cover
from mergelake.query.attach.part_set import PARTS_AT_ONCE, PartSet
from mergelake.query.embedded import engine
from mergelake.query.statement.access import words

SETS_MAX = 16
"""Sets of parts that are kept attached."""
PARTS_HELD_MAX = 40_000
"""Parts of all sets that are kept: each is some ten kilobytes of ClickHouse's memory."""
IDLE_S = 900.0
"""Seconds after which a set is given up that no statement reads."""
PARTS_MAX = 20_000
"""Parts of a set that is attached at all."""
ROWS_MIN = 100_000
"""Rows of a set below which a scan is as fast; of a rest, from which it is attached."""
REST_MAX = 64
"""Parts of a rest, from which it is attached."""
SCANNED_FIRST = 1
"""Statements that scan a set before it is attached."""
_ASKED_AGAIN = 2
"""Statements on a version by layers, after which it is attached anew."""
_DRIFT = 10
"""A set of many parts is attached anew when more than a tenth of them changed; before that its rest is."""
_KEPT_MAX = 512
_logger = logging.getLogger("mergelake.query")

DAMAGE = words(
    "attempt_to_read_after_eof cannot_decompress cannot_open_file cannot_read_all_data cannot_stat",
    "cannot_read_from_file_descriptor checksum_doesnt_match corrupted_data file_doesnt_exist s3_error",
    "too_large_size_compressed unexpected_end_of_file unknown_codec unknown_compression_method",
)
"""Errors that may come of damaged or missing objects: a scan tells which, and where."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How ClickHouse reads a set of parts."""

    tables: tuple[tuple[str, tuple[str, ...]], ...]
    """Names of its own tables, and of the parts in each that are not to be read."""
    rest: PartSet | None = None
    """What is scanned beside them."""
    served: bool = False
    """Whether the endpoint serves any of them."""


class AttachedSets:
    """What is attached in one process. Safe for threads."""

    def __init__(self, sets_max: int = SETS_MAX, parts_max: int = PARTS_HELD_MAX, clock: Clock | None = None) -> None:
        self._sets_max, self._parts_max, self._clock = sets_max, parts_max, clock or SystemClock()
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, Attached] = OrderedDict()
        self._users: Counter[str] = Counter()
        self._used_s: dict[str, float] = {}  # when statements began to read a table, or ended
        self._copies: Counter[str] = Counter()  # id of a part -> sets that use the copies of its files
        self._asked: LRUCache[Hashable, int] = LRUCache(_KEPT_MAX)  # how many statements have read it
        self._refused: LRUCache[Hashable, str] = LRUCache(_KEPT_MAX)  # why ClickHouse did not take it
        self._making: dict[Hashable, threading.Event] = {}
        self._beside: threading.Thread | None = None
        self._pid = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._held)

    def why_not(self, wanted: PartSet, *, exact: bool = False, count: bool = False, must: bool = False) -> str:
        """Why ClickHouse does not read a set by itself, for now or at all; empty if it does.

        `exact`: one table must have all of it. `count`: a statement is about to read it. `must`: it cannot be scanned.
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
            before = self._asked.get(key, 0)
            self._asked[key] = before + count
            if key in self._refused:
                return self._refused[key]
            if must or key in self._held or (not exact and self._layers(wanted) is not None):
                return ""
            few = len(wanted.parts) <= PARTS_AT_ONCE
            if few and before >= SCANNED_FIRST:
                return ""
        if before < SCANNED_FIRST:
            if count and few and not is_remote(wanted.store):  # it costs no request
                self._attach_beside(wanted)
            return "the first statement on this version"
        if count:
            self._attach_beside(wanted)
        return f"its {len(wanted.parts)} parts are being attached"

    @contextmanager
    def using(self, wanted: PartSet, *, exact: bool = False) -> Iterator[Reading]:
        """The tables to read a set by, which stay as long as they are needed; attached now if there are none."""
        worth = wanted if exact else wanted.worth_attaching
        with self._lock:
            self._begin()
            found = self._held.get(worth.key)
            layered = None if found is not None or exact else self._layers(worth)
        if found is None and layered is None:
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

    def _taken(self, wanted: PartSet, layered: tuple[list[Attached], Cover] | None) -> Reading:
        """How the set is read, by tables that are counted as in use from now on."""
        found = self._held.get(wanted.key)
        if found is not None:
            layered = [found], Cover((Layer(0, frozenset()),), frozenset())
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
            names = (part.name for part in table.parts.parts if part.manifest.id in layer.without)
            tables.append((table.name, tuple(names)))
        return Reading(tuple(tables), wanted.only(chosen.rest) if chosen.rest else None, served)

    def _layers(self, wanted: PartSet) -> tuple[list[Attached], Cover] | None:
        """Tables that have most of a set; None if what they lack is better read with the rest, by a scan of all."""
        held = [each for each in self._held.values() if each.parts.table == wanted.table]
        found = cover(wanted.ids, [each.parts.ids for each in held])
        if not found.layers or len(found.rest) > max(REST_MAX, len(wanted.parts) // 2):
            return None
        rest = sum(part.manifest.rows for part in wanted.parts if part.manifest.id in found.rest)
        return None if rest > wanted.rows // 2 else (held, found)

    def _keep_up(self, wanted: PartSet, found: Cover) -> None:
        """Have attached, beside this statement, what pays from the next one on."""
        rest = wanted.only(found.rest)
        grown = rest.rows >= max(ROWS_MIN, 1) or len(rest.parts) >= REST_MAX
        if not grown and self._asked.get(wanted.key, 0) <= _ASKED_AGAIN:
            return
        many = len(wanted.parts) > PARTS_AT_ONCE and found.drift * _DRIFT < len(wanted.parts)
        if not many or len(found.layers) > 2:
            self._attach_beside(wanted)
        elif grown:
            self._attach_beside(rest)

    def _make(self, wanted: PartSet) -> None:
        """Attach a set, unless another thread does just now: then wait for it."""
        key = wanted.key
        with self._lock:
            if key in self._held:
                return
            if key in self._refused:
                raise NotAttachedError(self._refused[key])
            made, copied = self._making.get(key), attaching.copied(wanted)
            if made is None:
                mine = self._making[key] = threading.Event()
                self._copies.update(copied)  # from now on nobody removes them
        if made is not None:
            made.wait()
            return
        try:
            found = attaching.attach(wanted)
        except (NotAttachedError, OSError) as why:  # without room for the texts, too
            _logger.warning("a snapshot of %s is scanned: %s", wanted.directory, why)
            with self._lock:
                self._refused[key] = str(why)
                self._forget_copies(copied)
            raise NotAttachedError(str(why)) from why
        else:
            with self._lock:
                self._held[key] = found
                self._used_s[found.name] = self._clock.monotonic_s()
        finally:
            with self._lock:
                del self._making[key]
            mine.set()

    def _attach_beside(self, wanted: PartSet) -> None:
        """By a thread of its own; one at a time."""

        def work() -> None:
            with suppress(NotAttachedError):  # told already
                self._make(wanted)
                with self._lock:
                    self._trim()

        with self._lock:
            self._begin()
            if wanted.key in self._making or wanted.key in self._held or wanted.key in self._refused:
                return
            if self._beside is not None and self._beside.is_alive():
                return  # it will be asked for again
            self._beside = threading.Thread(target=work, name="mergelake-attach", daemon=True)
            self._beside.start()

    def settle(self) -> None:
        """Wait until nothing is attached beside any more."""
        if self._beside is not None:
            self._beside.join()

    def _begin(self) -> None:
        """Of a forked process nothing is attached."""
        if self._pid != os.getpid():
            if self._pid:
                self._held.clear()
                self._users.clear()
                self._used_s.clear()
                self._copies.clear()
                self._asked.clear()
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
        """One set less uses these."""
        self._copies.subtract(part_ids)
        attaching.forget_copies(part_id for part_id in part_ids if not self._copies[part_id])


SETS = AttachedSets()
"""Those of this process."""
