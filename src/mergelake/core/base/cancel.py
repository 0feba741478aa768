"""Cancellation of a statement from another thread: one flag for all its work.

A statement runs under a `CancelToken` (`running`). Code in its thread gets it by `current` or calls `check` between
pieces of work; the object is passed to other threads explicitly. Calls that block outside of Python (ClickHouse, a
Spark job) register how to stop them (`stopping`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mergelake.core.base.errors import error


class CancelToken:
    """The cancellation flag of a statement, with callbacks that stop blocking calls. Thread-safe."""

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []

    @property
    def flag(self) -> threading.Event:
        """Set once the statement is cancelled."""
        return self._flag

    def set(self) -> None:
        """Cancel the statement: its next `check` raises, and blocking calls are stopped."""
        with self._lock:
            self._flag.set()
            stops = list(self._stops)
        for stop in stops:
            stop()

    def check(self) -> None:
        """Raise QUERY_WAS_CANCELLED if the statement is cancelled."""
        if self._flag.is_set():
            raise error("QUERY_WAS_CANCELLED", "Query was cancelled")

    def part(self) -> CancelToken:
        """A `CancelToken` for a part of the statement's work, which can be cancelled alone, and is with this one."""
        child = CancelToken()
        with self._lock:
            self._stops.append(child.set)
            late = self._flag.is_set()
        if late:
            child.set()
        return child

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Register `stop`, which `set` calls and which must not block; it is called now if already cancelled."""
        with self._lock:
            self._stops.append(stop)
            late = self._flag.is_set()
        try:
            if late:
                stop()
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)


_current: ContextVar[CancelToken | None] = ContextVar("mergelake_cancel", default=None)


@contextmanager
def running(cancel: CancelToken) -> Iterator[None]:
    """Make `cancel` the current one of this thread."""
    token = _current.set(cancel)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> CancelToken | None:
    """The `CancelToken` of the statement that this thread runs; None outside of one."""
    return _current.get()


def check() -> None:
    """Raise QUERY_WAS_CANCELLED if the statement that this thread runs is cancelled."""
    cancel = _current.get()
    if cancel is not None:
        cancel.check()
