"""`CachedStore`: a bucket whose objects of parts are fetched once, and read from a local directory after that.

1. Kept are ranges of the objects of parts: their keys have two drawn ids, and nobody writes them twice. Whatever the
   log consists of, listings, and what is or is not there, is asked of the bucket each time.
2. Fetched is what was asked for and is missing, no byte more, in one call: ranges join as they do without a cache. What
   two threads want at the same time is fetched by the first, and the other one waits.
3. `inner` is the bucket itself, for what has to look at the bytes there (`beneath`).

What is held is not asked whether it is still in the bucket. A part that was collected can be read here as long as
all that is read of it is held, and its rows are the right ones; else it is missing, as it is without a cache.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mergelake.store.cache_dir import CacheDir, Piece
from mergelake.store.intervals import Intervals
from mergelake.store.protocol import Buffer, Counters, ObjectMeta, PutOutcome, Store
from mergelake.store.ranges import coalesce, scatter
from mergelake.store.spec import StoreSpec

_PART_OBJECT = re.compile(r"[0-9a-f]{32}/[0-9a-f]{32}/.+")


def is_part_object(key: str) -> bool:
    """Whether a key of a warehouse is that of an object of a part: `<table id>/<part or object id>/…`.

    >>> is_part_object("5f" * 16 + "/" + "a0" * 16 + "/ts.bin"), is_part_object("5f" * 16 + "/_log/00042.json")
    (True, False)
    """
    return _PART_OBJECT.fullmatch(key) is not None


def beneath(store: Store) -> Store:
    """The store that holds the bytes: what looks for damage there must not be given what was kept elsewhere."""
    return store.inner if isinstance(store, CachedStore) else store


def forget(store: Store, key: str) -> None:
    """Keep nothing of an object whose bytes are not what they should be: they may have been damaged on the way."""
    if isinstance(store, CachedStore):
        store.forget(key)


class CachedStore:
    """A `Store` over another one, with a cache directory. Counters tell what the other one was asked."""

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
        """Requests and bytes of the bucket, and what was read from the directory in place of them."""
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
        """One view for each (start, length), of what the directory holds and of one call to the bucket."""
        if not is_part_object(key):
            return self.inner.get_ranges(key, ranges)
        wanted = coalesce(ranges, 0)
        found = self.cache.find(_name(self.url, key), [(fetch.start, fetch.end) for fetch in wanted])
        self._count(found)
        holes = [(start, end) for pieces in found for start, end, body in pieces if body is None]
        if holes:
            fetched: Iterator[Piece] = iter(self._fetch(key, holes))
            found = [[piece if piece[2] is not None else next(fetched) for piece in pieces] for pieces in found]
        return scatter(ranges, wanted, [_whole(pieces) for pieces in found])

    def held(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer] | None:
        """The same without asking the bucket; None if anything is missing."""
        if not is_part_object(key):
            return None
        wanted = coalesce(ranges, 0)
        found = self.cache.find(_name(self.url, key), [(fetch.start, fetch.end) for fetch in wanted])
        if any(body is None for pieces in found for _, _, body in pieces):
            return None
        self._count(found)
        return scatter(ranges, wanted, [_whole(pieces) for pieces in found])

    def holds(self, key: str, start: int, length: int) -> bool:
        """Whether the directory seems to have all of a range; it may go before it is read."""
        return is_part_object(key) and self.cache.has(_name(self.url, key), start, start + length)

    def forget(self, key: str) -> None:
        """Keep nothing of an object."""
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

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectMeta]:
        """Objects below `prefix`, those greater than `after`, from the bucket."""
        return self.inner.list(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, here too."""
        gone = list(keys)
        self.inner.delete(gone)
        for key in gone:
            self.forget(key)

    def _count(self, found: Sequence[Sequence[Piece]]) -> None:
        sizes = [end - start for pieces in found for start, end, body in pieces if body is not None]
        if sizes:
            with self._lock:
                self._cached += len(sizes)
                self._bytes_cached += sum(sizes)

    def _fetch(self, key: str, holes: Sequence[tuple[int, int]]) -> Sequence[Piece]:
        """Each of these intervals, asked of the bucket, as far as no other thread does so just now."""
        mine: list[_Flight] = []
        parts: list[list[tuple[int, int, _Flight]]] = []
        with self._lock:
            flights = self._flights.setdefault(key, Intervals())
            for start, end in holes:
                cut = [(low, high, found or _Flight(low, high)) for low, high, found in flights.cover(start, end)]
                mine += [flight for _, _, flight in cut if flights.add(flight)]  # not those of others
                parts.append(cut)
        try:
            if mine:
                self._land(key, mine)
        finally:
            with self._lock:
                for flight in mine:
                    flights.remove(flight)
                    flight.landed.set()
                if not len(flights) and self._flights.get(key) is flights:
                    del self._flights[key]
        return [(cut[0][0], cut[-1][1], _whole([self._wait(key, *part) for part in cut])) for cut in parts]

    def _land(self, key: str, flights: Sequence[_Flight]) -> None:
        """Fetch, and keep. What another thread has fetched since the directory was looked at is there by now."""
        name = _name(self.url, key)
        found = self.cache.find(name, [(flight.start, flight.end) for flight in flights])
        holes = [(start, end) for pieces in found for start, end, body in pieces if body is None]
        bodies = self.inner.get_ranges(key, [(start, end - start) for start, end in holes]) if holes else []
        fetched = iter(bodies)
        for flight, pieces in zip(flights, found, strict=True):
            flight.body = _whole([piece if piece[2] is not None else (*piece[:2], next(fetched)) for piece in pieces])
            flight.landed.set()
        self.cache.keep(name, [(start, body) for (start, _), body in zip(holes, bodies, strict=True)])

    def _wait(self, key: str, start: int, end: int, flight: _Flight) -> Piece:
        flight.landed.wait()
        if flight.body is None:  # its own thread was told why
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
