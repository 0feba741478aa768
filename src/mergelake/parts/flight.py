"""Requests to a far store: how many wait for their replies at once, and who computes meanwhile.

Waiting takes no core, so it is bounded by requests and bytes (`Limits`, options of the store), not by cores. The
requests of a process go through one pool of threads (`begin`). Work that computes does so under `Slots`, as many as
there are cores for it; while it waits for a reply somebody else has its slot.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from mergelake.store.protocol import Store

T = TypeVar("T")
A = TypeVar("A")

REQUESTS = 64
READ_AHEAD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How far ahead a read of a far store may be."""

    requests: int = REQUESTS
    """Most requests of a process that wait for their replies (`max_requests_in_flight`)."""
    bytes: int = READ_AHEAD_BYTES
    """Most bytes of one read, about, on their way or not yet taken: as they are stored, and as arrays
    (`read_ahead_bytes`)."""

    @staticmethod
    def of(store: Store) -> Limits:
        """Those of a store, by its options."""
        options = dict(store.spec.options)
        requests = int(options.get("max_requests_in_flight", REQUESTS))
        return Limits(max(1, requests), int(options.get("read_ahead_bytes", READ_AHEAD_BYTES)))


class Slots:
    """Leave to compute, for so many threads at a time."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Inside, this thread has a slot, but for the time in which it waits for a store."""
        self._free.acquire()
        _own.slots = self
        try:
            yield
        finally:
            _own.slots = None
            self._free.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, another thread has the slot of this one."""
        self._free.release()
        try:
            yield
        finally:
            self._free.acquire()


_own = threading.local()


def begin(store: Store, ask: Callable[[A], T], questions: Sequence[A]) -> Callable[[], list[T]]:
    """Ask some questions at once, each of them about one request; what is returned waits for the answers."""
    pool = _pool(os.getpid(), Limits.of(store).requests)
    asked = [pool.submit(ask, question) for question in questions]

    def answers() -> list[T]:
        slots: Slots | None = getattr(_own, "slots", None)
        try:
            if slots is None or all(each.done() for each in asked):
                return [each.result() for each in asked]
            with slots.lent():
                return [each.result() for each in asked]
        finally:
            for each in asked:
                each.cancel()

    return answers


def in_flight(store: Store, ask: Callable[[A], T], questions: Sequence[A]) -> list[T]:
    """The answers to some questions, which are asked at once."""
    return begin(store, ask, questions)()


@cache
def _pool(pid: int, requests: int) -> ThreadPoolExecutor:
    """The threads that wait for replies; a forked process (Spark's workers are) needs its own."""
    return ThreadPoolExecutor(requests, thread_name_prefix=f"mergelake-get-{pid}")
