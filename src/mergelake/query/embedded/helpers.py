"""Threads that call ClickHouse for others, kept for the next call: each has its own connection.

Python runs signal handlers in the main thread alone and only between its own steps, so that thread never waits inside
ClickHouse; and a statement whose answer is read piece by piece computes while its reader does something else.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

_IDLE_MAX = 4
"""Threads that are kept without work."""
_idle: list[Helper] = []


class Helper:
    """A thread that does what it is asked, one call after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="mergelake-clickhouse", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # it holds what its statement read

    def run(self, call: Callable[[], object]) -> None:
        """Have it called there."""
        self._calls.put(call)

    def leave(self, last: Callable[[], object]) -> None:
        """End it, after `last`."""
        self._calls.put(last)
        self._calls.put(None)

    def join(self, within_s: float) -> None:
        """Wait until it has ended."""
        self._thread.join(within_s)


def take() -> Helper:
    """One that has nothing to do."""
    while True:
        try:
            helper = _idle.pop()
        except IndexError:
            return Helper()
        if helper.pid == os.getpid():
            return helper


def give_back(helper: Helper, last: Callable[[], object]) -> None:
    """It has nothing to do any more; where enough wait already, it ends after `last`."""
    if len(_idle) < _IDLE_MAX:
        _idle.append(helper)
    else:
        helper.leave(last)


def end_all(last: Callable[[], object], within_s: float) -> None:
    """End those that wait, each after `last`."""
    ended = []
    while _idle:
        ended.append(_idle.pop())
        ended[-1].leave(last)
    for helper in ended:
        helper.join(within_s)
