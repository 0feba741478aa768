"""`MemoryStore`: objects in a dictionary. For tests, examples and throw-away warehouses.

A named store (`memory://name`) is shared by everything in this process that opens the same name, and lives
as long as the process; it does not reach other processes, Spark's Python workers included. A store without
a name lives as long as something refers to it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence

from mergelake.core.base.clock import Clock, SystemClock
from mergelake.core.base.errors import NotFoundError
from mergelake.core.base.ids import RandomIds
from mergelake.store.interface.keys import LIST_PAGE, check_key, directory_prefix
from mergelake.store.interface.protocol import Buffer, Counters, Lost, ObjectMeta, PutOutcome, Stored, StoreSpec
from mergelake.store.interface.ranges import coalesce, scatter, truncated
from mergelake.store.metering.meter import Meter

GAP_BYTES = 64 << 10
"""Ranges closer than this count as one request, as they would in a directory."""


class _Space:
    """The objects of one name: key -> (bytes, milliseconds), under a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, int]] = {}


_named: dict[str, _Space] = {}
_unnamed: weakref.WeakValueDictionary[str, _Space] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


class MemoryStore:
    """A `Store` in this process's memory; `prefix` makes its keys relative to a directory of the space."""

    def __init__(self, name: str = "", prefix: str = "", *, gap: int = GAP_BYTES, clock: Clock | None = None) -> None:
        with _registry_lock:
            if name:
                space = _unnamed.get(name) or _named.setdefault(name, _Space())
            else:
                name = RandomIds().new_id()
                space = _unnamed.setdefault(name, _Space())
        self._space = space
        self._prefix = directory_prefix(prefix)
        self._gap = gap
        self._clock = clock or SystemClock()
        self.url = f"memory://{name}/{self._prefix}".rstrip("/")
        self._meter = Meter(self.url)
        self.spec = StoreSpec.of(self.url, {"coalesce_gap": str(gap)})

    @property
    def counters(self) -> Counters:
        """Requests and bytes so far."""
        return self._meter.counters

    def _body(self, key: str) -> bytes:
        with self._space.lock:
            stored = self._space.objects.get(self._prefix + check_key(key))
        if stored is None:
            raise NotFoundError(f"there is no object '{key}' in {self.url}", name="FILE_DOESNT_EXIST")
        return stored[0]

    def get(self, key: str) -> bytes:
        """The whole object."""
        self._meter.count("get", key)
        body = self._body(key)
        self._meter.count("get", key, requests=0, received=len(body))
        return body

    def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One view for each (start, length); nothing is copied."""
        fetches = coalesce(ranges, self._gap)
        if not fetches:
            return scatter(ranges, [], [])
        self._meter.count("get", key, requests=len(fetches))
        body = self._body(key)
        for fetch in fetches:
            if fetch.end > len(body):
                raise truncated(key, fetch.start, fetch.length, len(body) - fetch.start)
        self._meter.count("get", key, requests=0, received=sum(fetch.length for fetch in fetches))
        view = memoryview(body)
        return scatter(ranges, fetches, [view[fetch.start : fetch.end] for fetch in fetches])

    def put(self, key: str, data: Buffer) -> None:
        """Write (or overwrite) an object."""
        self._meter.count("put", key, sent=len(data))
        with self._space.lock:
            self._space.objects[self._prefix + check_key(key)] = (bytes(data), self._clock.now_ms())

    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Write an object from a stream; counted as one put."""
        data = b"".join(chunks)
        self.put(key, data)
        return len(data)

    def create(self, key: str, data: Buffer) -> PutOutcome:
        """Write the object only if the key is free."""
        self._meter.count("put", key, sent=len(data))
        full = self._prefix + check_key(key)
        with self._space.lock:
            if full in self._space.objects:
                return Lost()
            self._space.objects[full] = (bytes(data), self._clock.now_ms())
        return Stored()

    def head(self, key: str) -> ObjectMeta:
        """Size and time of one object."""
        self._meter.count("head", key)
        size = len(self._body(key))
        with self._space.lock:
            return ObjectMeta(key, size, self._space.objects.get(self._prefix + key, (b"", 0))[1])

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[ObjectMeta]:
        """Objects below `prefix`, those greater than `after` and less than `until`, as they were at the beginning."""
        start, low, high = (self._prefix + text for text in (directory_prefix(prefix), after, until))
        with self._space.lock:
            items = [(key, len(body), ms) for key, (body, ms) in self._space.objects.items() if key.startswith(start)]
        items = sorted(item for item in items if (not after or item[0] > low) and (not until or item[0] < high))
        self._meter.count("list", prefix, requests=max(1, -(-len(items) // LIST_PAGE)))
        cut = len(self._prefix)
        return iter([ObjectMeta(key[cut:], size, ms) for key, size, ms in items])

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is no error."""
        wanted = [check_key(key) for key in keys]
        for first in range(0, len(wanted), LIST_PAGE):
            self._meter.count("delete", wanted[first])
        with self._space.lock:
            for key in wanted:
                self._space.objects.pop(self._prefix + key, None)
