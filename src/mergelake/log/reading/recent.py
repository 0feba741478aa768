"""The newest entries of a log as this process read or wrote them, for a leader.

*An attempt is in a log at most once*, because a process that appends it has read every entry since the version on which
it was built, and has not found it there. So a leader keeps the newest entries, at most `VERSIONS_MAX` and `BYTES_MAX`
bytes: the attempts in them, and their bytes, which it sends to senders that lack them. It does not append an attempt
that was built before the oldest of these entries.

The kept entries are dense. After a checkpoint was read instead of entries, they begin anew.
"""

from __future__ import annotations

import threading
from collections import deque

from mergelake.log.model.operations import Entry, ReleaseLease, RenewLease

VERSIONS_MAX = 1024
BYTES_MAX = 16 << 20


class Recent:
    """Entries `base + 1` to `last`. The log adds to it under its lock; any thread may read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: deque[tuple[bytes, tuple[str, ...]]] = deque()
        self._at: dict[str, int] = {}
        self._bytes = 0
        self.last = 0
        """The newest version known; 0 while there is none."""
        self.of_others = 0
        """Entries that other processes have appended since this one listens, without those of leases only."""

    @property
    def base(self) -> int:
        """The version before the oldest entry."""
        return self.last - len(self._entries)

    def add(self, entry: Entry, data: bytes, *, own: bool = False) -> None:
        """Add an entry of the log with its bytes; `own`: this process has appended it."""
        with self._lock:
            if self._entries and self.base < entry.version <= self.last:
                return
            self.of_others += not own and not all(isinstance(op, (RenewLease, ReleaseLease)) for op in entry.ops)
            if entry.version != self.last + 1:
                self._clear()
            self.last = entry.version
            attempts = tuple({entry.attempt, *(member.attempt for member in entry.parties)})
            self._entries.append((data, attempts))
            self._at.update(dict.fromkeys(attempts, entry.version))
            self._bytes += len(data)
            while len(self._entries) > VERSIONS_MAX or self._bytes > max(BYTES_MAX, len(data)):
                self._forget_oldest()

    def clear(self) -> None:
        """Forget all entries: the log is about to be opened anew, perhaps at a much later version."""
        with self._lock:
            self._clear()

    def find(self, attempt: str) -> int:
        """The version of the entry that holds an attempt; 0 if none of these does."""
        return self._at.get(attempt, 0)

    def reaches(self, base_version: int, version: int) -> bool:
        """Whether all entries after `base_version`, up to `version`, are among these."""
        with self._lock:
            return base_version >= version or (
                bool(self._entries) and self.base <= base_version and version <= self.last
            )

    def since(self, version: int, bytes_max: int) -> list[bytes]:
        """All entries after `version`; none if some are not known, or all are more than `bytes_max` bytes."""
        with self._lock:
            if not self._entries or not self.base <= version <= self.last:
                return []
            entries = [data for data, _ in self._entries][version - self.base :]
        return entries if sum(map(len, entries)) <= bytes_max else []

    def _forget_oldest(self) -> None:
        version = self.base + 1
        data, attempts = self._entries.popleft()
        self._bytes -= len(data)
        for attempt in attempts:
            if self._at.get(attempt) == version:
                del self._at[attempt]

    def _clear(self) -> None:
        self._entries.clear()
        self._at.clear()
        self._bytes = self.last = 0
