"""An LRU cache of marks, primary indexes and part headers; separately, of small parts and dictionaries of far stores.

Parts are immutable, so entries never become stale, and one cache may serve all tables and threads of a process.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cache
from typing import TypeVar

T = TypeVar("T")

DEFAULT_BYTES = 256 << 20
TASK_BYTES = 32 << 20
"""Capacity of the cache that the tasks of a process share."""
DATA_BYTES = 128 << 20
"""Capacity for whole files from far stores."""


class PartCache:
    """A bounded, thread-safe map from (part, kind, name) to decoded metadata."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        self._bytes = 0
        self._hits = 0
        self._misses = 0
        self._data: PartCache | None = None

    def get(self, key: Hashable) -> object | None:
        """The entry, which becomes the most recently used; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: object, size: int) -> None:
        """Add `value` of about `size` bytes and evict the least recently used entries that no longer fit."""
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._bytes -= old[1]
            if size > self._max_bytes:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped

    def get_or(self, key: Hashable, load: Callable[[], tuple[T, int]]) -> T:
        """The entry, or the value that `load` returns as (value, bytes), which is added. Threads may load it twice."""
        value = self.get(key)
        if value is None:
            value, size = load()
            self.put(key, value, size)
        return value  # type: ignore[return-value]

    @property
    def data(self) -> PartCache:
        """The cache of whole data files: separate, so that they never evict marks and indexes."""
        with self._lock:
            if self._data is None:
                self._data = PartCache(min(DATA_BYTES, self._max_bytes))
            return self._data

    @property
    def max_bytes(self) -> int:
        """Capacity in bytes."""
        return self._max_bytes

    @property
    def hits(self) -> int:
        """Number of look-ups with an entry."""
        return self._hits

    @property
    def misses(self) -> int:
        """Number of look-ups without an entry."""
        return self._misses

    @property
    def bytes(self) -> int:
        """Bytes of all entries."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)


def of_tasks() -> PartCache:
    """The cache that the tasks of this process share."""
    return _of_process(os.getpid())


@cache
def _of_process(_: int) -> PartCache:
    return PartCache(TASK_BYTES)
