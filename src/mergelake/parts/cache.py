"""What readers keep in memory: marks, primary indexes and part headers, least recently used out first; apart from them
the data of small parts and dictionaries of far stores.

Parts never change, so an entry is right for as long as it is kept, and one cache may serve all tables and
threads of a process.
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
"""Of the cache that the tasks of a process share."""
DATA_BYTES = 128 << 20
"""Of the whole files that a far store gave."""


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
        """The entry, which becomes the most recently used one; None if there is none."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: object, size: int) -> None:
        """Keep `value`, which takes about `size` bytes, and drop the oldest entries that no longer fit."""
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

    def get_or(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """The entry, or what `make` returns (value, bytes), which is kept. Two threads may make it at once."""
        found = self.get(key)
        if found is None:
            found, size = make()
            self.put(key, found, size)
        return found  # type: ignore[return-value]

    @property
    def data(self) -> PartCache:
        """Whole files with data, as they are stored: apart, so that they never push out marks and indexes."""
        with self._lock:
            if self._data is None:
                self._data = PartCache(min(DATA_BYTES, self._max_bytes))
            return self._data

    @property
    def max_bytes(self) -> int:
        """Bytes that may be held."""
        return self._max_bytes

    @property
    def hits(self) -> int:
        """Look-ups that found something."""
        return self._hits

    @property
    def misses(self) -> int:
        """Look-ups that found nothing."""
        return self._misses

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)


def of_tasks() -> PartCache:
    """The cache of a process that runs one task after another, each of them from a plan that was sent to it."""
    return _of_process(os.getpid())


@cache
def _of_process(_: int) -> PartCache:
    return PartCache(TASK_BYTES)
