"""Concurrency of requests to a far store.

Waiting takes no core, so it is bounded by requests and bytes (`Limits`, options of the store), not by cores. All
requests of a process go through one thread pool (`begin`). Computation is bounded by `CoreSlots`, as many as there are
cores for it; a thread that waits for a reply lends its slot to another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from mergelake.store.interface.protocol import Store
from mergelake.store.metering.meter import Pool

T = TypeVar("T")
A = TypeVar("A")

REQUESTS = 64
READ_AHEAD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the prefetching of a read from a far store."""

    requests: int = REQUESTS
    """Maximum number of concurrent requests of a process (`max_requests_in_flight`)."""
    bytes: int = READ_AHEAD_BYTES
    """Approximate maximum of the bytes of one read that are requested or not yet consumed, compressed and decoded
    (`read_ahead_bytes`)."""

    @staticmethod
    def of(store: Store) -> Limits:
        """The limits in the options of a store."""
        options = dict(store.spec.options)
        requests = int(options.get("max_requests_in_flight", REQUESTS))
        return Limits(max(1, requests), int(options.get("read_ahead_bytes", READ_AHEAD_BYTES)))


class CoreSlots:
    """A semaphore that bounds the number of threads that compute at a time."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Hold a slot, except while this thread waits for a store."""
        self._free.acquire()
        _own.slots = self
        try:
            yield
        finally:
            _own.slots = None
            self._free.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the slot of this thread to another thread."""
        self._free.release()
        try:
            yield
        finally:
            self._free.acquire()


_own = threading.local()


def begin(store: Store, request: Callable[[A], T], arguments: Sequence[A]) -> Callable[[], list[T]]:
    """Call `request` on each of `arguments` concurrently; the returned function waits for the results.

    A call should make about one request to the store.
    """
    pool = _pool(os.getpid(), Limits.of(store).requests)
    futures = [pool.submit(request, argument) for argument in arguments]

    def answers() -> list[T]:
        slots: CoreSlots | None = getattr(_own, "slots", None)
        try:
            if slots is None or all(each.done() for each in futures):
                return [each.result() for each in futures]
            with slots.lent():
                return [each.result() for each in futures]
        finally:
            for each in futures:
                each.cancel()

    return answers


def in_flight(store: Store, request: Callable[[A], T], arguments: Sequence[A]) -> list[T]:
    """The results of `request` on each of `arguments`, called concurrently."""
    return begin(store, request, arguments)()


@cache
def _pool(pid: int, requests: int) -> Pool:
    """The threads that wait for replies; a forked process, like a worker of Spark, needs its own."""
    return Pool(requests, thread_name_prefix=f"mergelake-get-{pid}")
