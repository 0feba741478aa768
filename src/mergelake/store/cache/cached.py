"""`CachedStore`: a bucket whose objects of parts are fetched once, and read from a local directory after that.

1. Only ranges of the objects of parts are cached: their keys contain two random ids, and are written once. Objects of
   the log, listings and existence are always requested from the bucket.
2. Exactly the missing ranges are fetched, in one call, and coalesced as without a cache. If two threads need the same
   bytes at the same time, the first one fetches them, and the other one waits.
3. `inner` is the bucket itself, for code that has to read the bytes there (`beneath`).

The cache does not check whether an object still exists in the bucket. A part that was collected can be read as long as
all needed ranges are cached, and gives the right rows; otherwise it is missing, as without a cache.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mergelake.store.cache.cache_dir import CacheDir, Piece
from mergelake.store.cache.intervals import Intervals
from mergelake.store.interface.protocol import Buffer, Counters, ObjectMeta, PutOutcome, Store, StoreSpec
from mergelake.store.interface.ranges import Fetch, coalesce, scatter
from mergelake.store.metering.meter import count_cached

_PART_OBJECT = re.compile(r"[0-9a-f]{32}/[0-9a-f]{32}/.+")


def is_part_object(key: str) -> bool:
    """Whether a key of a warehouse is that of an object of a part: `<table id>/<part or object id>/…`.

    >>> is_part_object("5f" * 16 + "/" + "a0" * 16 + "/ts.bin"), is_part_object("5f" * 16 + "/_log/00042.json")
    (True, False)
    """
    return _PART_OBJECT.fullmatch(key) is not None


def cache_of(store: Store) -> CachedStore | None:
    """The store with a cache directory that this one is, or to which it adds objects (`stored`); None for others."""
    below = getattr(store, "stored", store)
    return below if isinstance(below, CachedStore) else None


def beneath(store: Store) -> Store:
    """The store without its cache: a search for damage must read the bytes in the bucket."""
    return store.inner if isinstance(store, CachedStore) else store


def forget(store: Store, key: str) -> None:
    """Remove an object from the cache, if it has one: its cached bytes may be damaged."""
    if (cached := cache_of(store)) is not None:
        cached.forget(key)


class CachedStore:
    """A `Store` over another one, with a cache directory. Counters show the requests to the other one."""

    def __init__(self, inner: Store, cache: CacheDir) -> None:
        self.inner = inner
        self.cache = cache
        self.url = inner.url
        own = {"cache_dir": cache.path, "cache_bytes": str(cache.max_bytes)}
        self.spec = StoreSpec.of(inner.url, {**dict(inner.spec.options), **own})
        self._flights: dict[str, Intervals[_Flight]] = {}
        self._lock = threading.Lock()
        self._cached = self._bytes_cached = 0

    @property
    def counters(self) -> Counters:
        """Requests and bytes of the bucket, and ranges and bytes read from the directory instead."""
        with self._lock:
            cached, size = self._cached, self._bytes_cached
        return replace(self.inner.counters, cached=cached, bytes_cached=size)

    def get(self, key: str) -> bytes:
        """The whole object, from the bucket."""
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One view for each (start, length), from the directory and at most one call to the bucket."""
        if not is_part_object(key):
            return self.inner.get_ranges(key, ranges)
        wanted, covers = self._find(key, ranges)
        self._count(covers)
        holes = [(start, end) for pieces in covers for start, end, body in pieces if body is None]
        if holes:
            fetched: Iterator[Piece] = iter(self._fetch(key, holes))
            covers = [[piece if piece[2] is not None else next(fetched) for piece in pieces] for pieces in covers]
        return scatter(ranges, wanted, [_whole(pieces) for pieces in covers])

    def held(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer] | None:
        """The same from the directory alone; None if anything is missing."""
        if not is_part_object(key):
            return None
        wanted, covers = self._find(key, ranges)
        if any(body is None for pieces in covers for _, _, body in pieces):
            return None
        self._count(covers)
        return scatter(ranges, wanted, [_whole(pieces) for pieces in covers])

    def _find(self, key: str, ranges: Sequence[tuple[int, int]]) -> tuple[list[Fetch], list[list[Piece]]]:
        """The joined ranges, and each of them cut into cached and missing pieces."""
        wanted = coalesce(ranges, 0)
        return wanted, self.cache.find(_name(self.url, key), [(fetch.start, fetch.end) for fetch in wanted])

    def holds(self, key: str, start: int, length: int) -> bool:
        """Whether the directory seems to have all of a range; it may be evicted before it is read."""
        return is_part_object(key) and self.cache.has(_name(self.url, key), start, start + length)

    def forget(self, key: str) -> None:
        """Remove an object from the cache."""
        if is_part_object(key):
            self.cache.forget(_name(self.url, key))

    def put(self, key: str, data: Buffer) -> None:
        """Write (or overwrite) a small object."""
        self.inner.put(key, data)
        self.forget(key)

    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Write an object from a stream."""
        size = self.inner.put_large(key, chunks)
        self.forget(key)
        return size

    def create(self, key: str, data: Buffer) -> PutOutcome:
        """Write the object only if the key is free."""
        return self.inner.create(key, data)

    def head(self, key: str) -> ObjectMeta:
        """Size and time of one object, from the bucket."""
        return self.inner.head(key)

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[ObjectMeta]:
        """Objects below `prefix`, those greater than `after` and less than `until`, from the bucket."""
        return self.inner.list(prefix, after, until)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, in the cache too."""
        deleted = list(keys)
        self.inner.delete(deleted)
        for key in deleted:
            self.forget(key)

    def _count(self, covers: Sequence[Sequence[Piece]]) -> None:
        sizes = [end - start for pieces in covers for start, end, body in pieces if body is not None]
        if sizes:
            with self._lock:
                self._cached += len(sizes)
                self._bytes_cached += sum(sizes)
            count_cached(self.url, len(sizes), sum(sizes))

    def _fetch(self, key: str, holes: Sequence[tuple[int, int]]) -> Sequence[Piece]:
        """The bytes of these intervals, from the bucket or from other threads that fetch them already."""
        own: list[_Flight] = []
        parts: list[list[tuple[int, int, _Flight]]] = []
        with self._lock:
            flights = self._flights.setdefault(key, Intervals())
            for start, end in holes:
                cut = [
                    (low, high, under_way or _Flight(low, high)) for low, high, under_way in flights.cover(start, end)
                ]
                own += [flight for _, _, flight in cut if flights.add(flight)]  # not those of others
                parts.append(cut)
        try:
            if own:
                self._land(key, own)
        finally:
            with self._lock:
                for flight in own:
                    flights.remove(flight)
                    flight.landed.set()
                if not len(flights) and self._flights.get(key) is flights:
                    del self._flights[key]
        return [(cut[0][0], cut[-1][1], _whole([self._wait(key, *part) for part in cut])) for cut in parts]

    def _land(self, key: str, flights: Sequence[_Flight]) -> None:
        """Fetch and cache bytes, as far as no other thread has cached them since the directory was read."""
        name = _name(self.url, key)
        covers = self.cache.find(name, [(flight.start, flight.end) for flight in flights])
        holes = [(start, end) for pieces in covers for start, end, body in pieces if body is None]
        bodies = self.inner.get_ranges(key, [(start, end - start) for start, end in holes]) if holes else []
        fetched = iter(bodies)
        for flight, pieces in zip(flights, covers, strict=True):
            flight.body = _whole([piece if piece[2] is not None else (*piece[:2], next(fetched)) for piece in pieces])
            flight.landed.set()
        self.cache.keep(name, [(start, body) for (start, _), body in zip(holes, bodies, strict=True)])

    def _wait(self, key: str, start: int, end: int, flight: _Flight) -> Piece:
        flight.landed.wait()
        if flight.body is None:  # it failed in the thread that fetched it
            return start, end, self.inner.get_range(key, start, end - start)
        return start, end, memoryview(flight.body)[start - flight.start : end - flight.start]


class _Flight:
    """Bytes of an object that are being fetched."""

    __slots__ = ("body", "end", "landed", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.landed = threading.Event()
        self.body: Buffer | None = None


def _name(url: str, key: str) -> bytes:
    return f"{url}\0{key}".encode()


def _whole(pieces: Sequence[Piece]) -> Buffer:
    bodies = [body for _, _, body in pieces if body is not None]
    return bodies[0] if len(bodies) == 1 else b"".join(bodies)
