"""Reading a log: entries, checkpoints, the newest state.

::

    <prefix>/00000000000000000042.json               one entry
    <prefix>/checkpoints/00000000000000000064.arrow  a folded state
    <prefix>/_last_checkpoint                        {"version": 64}: only a hint; a stale one is slower, never wrong

Opening takes the hint, the checkpoint and one probe of the next position: three GETs on a quiet table.
Without a usable hint, the checkpoints are listed; without a checkpoint, the log is read from its start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic

from mergelake.core.errors import CorruptDataError, NotFoundError, error
from mergelake.log.encoding import decode_entry
from mergelake.log.machine import S, StateMachine
from mergelake.log.operations import Entry
from mergelake.store.protocol import Store

PREFETCH_MAX = 256
"""Most positions that are asked for at once."""

_logger = logging.getLogger("mergelake.log")


class LogReader(Generic[S]):
    """What can be learned from the objects of one log."""

    def __init__(self, store: Store, prefix: str, machine: StateMachine[S], threads: int = 16) -> None:
        self._store = store
        self._prefix = prefix
        self._machine = machine
        self._threads = threads

    @property
    def hint_key(self) -> str:
        """Key of the hint."""
        return f"{self._prefix}/_last_checkpoint"

    def key(self, version: int) -> str:
        """Key of an entry."""
        return f"{self._prefix}/{version:020d}.json"

    def checkpoint_key(self, version: int) -> str:
        """Key of a checkpoint."""
        return f"{self._prefix}/checkpoints/{version:020d}.arrow"

    def try_entry(self, version: int) -> Entry | None:
        """The entry at a position; None if nothing has been committed there."""
        key = self.key(version)
        try:
            data = self._store.get(key)
        except NotFoundError:
            return None
        entry = decode_entry(data, key)
        if entry.version != version:
            raise CorruptDataError(
                "A log entry says another position than its key",
                object_key=key,
                expected=str(version),
                found=str(entry.version),
            )
        return entry

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """Entries `first` to `last`, inclusive; CorruptDataError if one is missing."""
        for start in range(first, last + 1, PREFETCH_MAX):
            versions = range(start, min(start + PREFETCH_MAX, last + 1))
            for version, entry in zip(versions, self._fetch(versions), strict=True):
                if entry is None:
                    raise CorruptDataError("A log entry is missing", object_key=self.key(version))
                yield entry

    def follow(self, state: S) -> S:
        """The state after all entries that follow `state`. Asks for 1, 1, 2, 4, … positions at a time."""
        news: list[Entry] = []
        ahead = 1
        while True:
            start = state.version + len(news) + 1
            found = self._fetch(range(start, start + ahead))
            fresh = found[: found.index(None)] if None in found else found
            news += [entry for entry in fresh if entry is not None]
            if len(fresh) < ahead:
                return self._machine.fold(state, news) if news else state
            ahead = min(len(news), PREFETCH_MAX)

    def newest(self) -> S:
        """The newest state; the initial one for a log without entries."""
        hinted = self._hint()
        state = self._checkpoint(hinted) if hinted else self._machine.initial()
        if state is not None:
            state = self.follow(state)
        if state is None or state.version == 0:
            # The hint leads nowhere, or there is no beginning: an empty log, or one that was truncated.
            state = self.follow(self._nearest(self._checkpoints()))
        return state

    def state_at(self, version: int) -> S:
        """The state right after entry `version`, which exists."""
        state = self._nearest([v for v in self._checkpoints() if v <= version])
        return self._machine.fold(state, self.entries(state.version + 1, version))

    def version_at(self, newest: S, timestamp_ms: int) -> int:
        """The last version not after a time; by bisection, for timestamps never go back."""
        if timestamp_ms >= newest.timestamp_ms:
            return newest.version
        low, high = 0, newest.version
        while high - low > 1:
            middle = (low + high) // 2
            entry = next(self.entries(middle, middle))
            low, high = (middle, high) if entry.timestamp_ms <= timestamp_ms else (low, middle)
        if low == 0:
            raise error("BAD_ARGUMENTS", "The table did not exist at that time")
        return low

    def _fetch(self, versions: Sequence[int]) -> list[Entry | None]:
        if len(versions) == 1 or self._threads <= 1:
            return [self.try_entry(version) for version in versions]
        with ThreadPoolExecutor(min(self._threads, len(versions))) as pool:
            return list(pool.map(self.try_entry, versions))

    def _hint(self) -> int:
        """Version of a checkpoint; 0 without a hint, -1 for one that is not readable."""
        try:
            return int(json.loads(self._store.get(self.hint_key))["version"])
        except NotFoundError:
            return 0
        except (ValueError, KeyError, TypeError) as cause:
            _logger.warning("the hint %s is not readable (%s); going on without it", self.hint_key, cause)
            return -1

    def _checkpoints(self) -> list[int]:
        """Versions of all checkpoints, ascending."""
        found = []
        for item in self._store.list(f"{self._prefix}/checkpoints"):
            stem, _, ending = item.key.rpartition("/")[2].partition(".")
            if ending == "arrow" and stem.isdigit():
                found.append(int(stem))
        return sorted(found)

    def _nearest(self, versions: list[int]) -> S:
        """The last of these checkpoints that can be read; the initial state if none can."""
        for version in reversed(versions):
            state = self._checkpoint(version)
            if state is not None:
                return state
        return self._machine.initial()

    def _checkpoint(self, version: int) -> S | None:
        key = self.checkpoint_key(version)
        if version < 1:
            return None
        try:
            return self._machine.decode(self._store.get(key), key)
        except (NotFoundError, CorruptDataError) as cause:
            _logger.warning("a checkpoint cannot be used, an older one will do: %s", cause)
            return None
