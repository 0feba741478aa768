"""Counters of requests and bytes: of a store (`Meter`), and of one operation wherever its threads send them (`Tally`).

A request counts for its store, and for the operation on whose behalf it is sent: `metered` begins one in the current
thread; `Pool`, `carried` and `counted` take it along into other threads.

    >>> from mergelake.store.objects.memory import MemoryStore
    >>> store = MemoryStore()
    >>> with metered(store) as tally:
    ...     store.put("5f/all_1_1_0/a.bin", b"1234")
    >>> store.put("5f/all_1_1_0/b.bin", b"1")
    >>> (tally.counters.put, tally.counters.bytes_put, store.counters.put, store.counters.tables["5f"].bytes_put)
    (1, 4, 2, 5)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, ParamSpec, Protocol, TypeVar

from mergelake.store.interface.protocol import Counters

Kind = Literal["put", "get", "list", "head", "delete"]
P = ParamSpec("P")
T = TypeVar("T")


def key_class(key: str) -> str:
    """The class under which a key is counted: its first segment with a leading `_`, else `data`.

    >>> key_class("5f/_log/00042.json"), key_class("5f/all_1_1_0/a.bin"), key_class("_catalog/_log/1.json")
    ('_log', 'data', '_catalog')
    """
    return next((segment for segment in key.split("/") if segment.startswith("_")), "data")


class _Sum:
    """Counters under a lock."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._lock = threading.Lock()

    def copy(self) -> Counters:
        with self._lock:
            return self._counters.copy()

    def add(self, kind: Kind, key: str, requests: int, sent: int, received: int) -> None:
        detail = f"{kind} {key_class(key)}"
        directory, inside, _ = key.partition("/")
        with self._lock:
            counters = self._counters
            counters.add(kind, requests, sent, received)
            counters.details[detail] = counters.details.get(detail, 0) + requests
            if inside or kind == "list":
                of_table = counters.tables.get(directory)
                if of_table is None:
                    of_table = counters.tables[directory] = Counters()
                of_table.add(kind, requests, sent, received)

    def include(self, other: Counters) -> None:
        with self._lock:
            self._counters.include(other)

    def more(self, *, retries: int = 0, cached: int = 0, bytes_cached: int = 0) -> None:
        with self._lock:
            self._counters.retries += retries
            self._counters.cached += cached
            self._counters.bytes_cached += bytes_cached


class Tally:
    """Requests and bytes of one operation to one store. Thread-safe; it still counts what threads do after its end."""

    def __init__(self, url: str, outer: Tally | None = None) -> None:
        """`url` is that of the store; `outer` the operation of which this one is a part: it counts the same."""
        self.url = url
        self.outer = outer
        self._sum = _Sum()

    @property
    def counters(self) -> Counters:
        """Requests and bytes so far."""
        return self._sum.copy()


_current: ContextVar[Tally | None] = ContextVar("mergelake_tally", default=None)


class _HasUrl(Protocol):
    @property
    def url(self) -> str: ...


@contextmanager
def metered(store: _HasUrl) -> Iterator[Tally]:
    """Count the requests to a store that this thread, and pools that it gives work to, send within the context."""
    tally = Tally(store.url, _current.get())
    with counting(tally):
        yield tally


@contextmanager
def counting(tally: Tally | None) -> Iterator[None]:
    """Count what this thread requests within the context for `tally`; None: for no operation."""
    token = _current.set(tally)
    try:
        yield
    finally:
        _current.reset(token)


def current_tally() -> Tally | None:
    """The operation that this thread works for; None outside of `metered` and `counting`."""
    return _current.get()


def counted(tally: Tally | None, items: Iterator[T]) -> Iterator[T]:
    """Pass the items through. What making them requests counts for `tally`, whatever thread takes them."""
    while True:
        with counting(tally):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def carried(fn: Callable[P, T]) -> Callable[P, T]:
    """The function for another thread: there, too, what it requests counts for the operation of this thread."""
    tally = _current.get()
    if tally is None:
        return fn

    def work(*args: P.args, **kwargs: P.kwargs) -> T:
        with counting(tally):
            return fn(*args, **kwargs)

    return work


class Pool(ThreadPoolExecutor):
    """A pool of threads in which work counts for the operation of the thread that submits it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call in the pool."""
        return super().submit(carried(fn), *args, **kwargs)


class Meter:
    """Counts requests and bytes of one store, and those of the operations that send them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sum = _Sum()

    @property
    def counters(self) -> Counters:
        """Requests and bytes so far; a copy that later requests do not change."""
        return self._sum.copy()

    def count(self, kind: Kind, key: str, *, requests: int = 1, sent: int = 0, received: int = 0) -> None:
        """Add `requests` of one kind about `key`, with the bytes that they moved."""
        self._sum.add(kind, key, requests, sent, received)
        for tally in _tallies(self._url):
            tally._sum.add(kind, key, requests, sent, received)

    def retried(self) -> None:
        """Add a retry (its request is counted apart)."""
        self._sum.more(retries=1)
        for tally in _tallies(self._url):
            tally._sum.more(retries=1)


def count_elsewhere(url: str, requests: Counters) -> None:
    """Count what other processes asked of a store for the operation of this thread."""
    for tally in _tallies(url):
        tally._sum.include(requests)


def count_cached(url: str, ranges: int, size: int) -> None:
    """Count ranges that were read from a cache directory instead of the store, for the operation of this thread."""
    for tally in _tallies(url):
        tally._sum.more(cached=ranges, bytes_cached=size)


def _tallies(url: str) -> Iterator[Tally]:
    """The operations that this thread works for, as far as they are about this store."""
    tally = _current.get()
    while tally is not None:
        if tally.url == url:
            yield tally
        tally = tally.outer
