"""Ending a statement from another thread: one flag for all the work that it does.

A statement runs under a `Cancel` (`running`). Work in its thread finds it by `current` or asks `check` between pieces;
work that it hands to other threads takes the object along. What blocks outside of Python (ClickHouse, a Spark job)
registers how it is stopped (`stopping`). Without a statement nothing of this costs anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mergelake.core.errors import error


class Cancel:
    """Whether a statement is to end, and how what it waits for is stopped. Safe for threads."""

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []

    @property
    def flag(self) -> threading.Event:
        """Set once the statement is to end."""
        return self._flag

    def set(self) -> None:
        """End the statement: at its next `check`, and by stopping what it waits for."""
        with self._lock:
            self._flag.set()
            stops = list(self._stops)
        for stop in stops:
            stop()

    def check(self) -> None:
        """QUERY_WAS_CANCELLED if the statement is to end."""
        if self._flag.is_set():
            raise error("QUERY_WAS_CANCELLED", "Query was cancelled")

    def part(self) -> Cancel:
        """One for some of the statement's work, which can be ended alone; set with this one."""
        made = Cancel()
        with self._lock:
            self._stops.append(made.set)
            late = self._flag.is_set()
        if late:
            made.set()
        return made

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """While it lasts, `set` calls `stop`, which must return at once; already set, it is called now."""
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


_current: ContextVar[Cancel | None] = ContextVar("mergelake_cancel", default=None)


@contextmanager
def running(cancel: Cancel) -> Iterator[None]:
    """What this thread does meanwhile belongs to the statement that `cancel` ends."""
    token = _current.set(cancel)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Cancel | None:
    """The flag of the statement that this thread runs; None outside of one."""
    return _current.get()


def check() -> None:
    """QUERY_WAS_CANCELLED if the statement that this thread runs is to end."""
    cancel = _current.get()
    if cancel is not None:
        cancel.check()
