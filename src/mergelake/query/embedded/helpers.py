"""A pool of threads that call ClickHouse for other threads, each with its own connection.

Python runs signal handlers only in the main thread and only between bytecodes, so the main thread must not wait inside
ClickHouse; and a statement whose result is streamed runs concurrently with its reader.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

_IDLE_MAX = 4
"""Maximum number of idle threads."""
_idle: list[Helper] = []


class Helper:
    """A thread that runs calls one after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="mergelake-clickhouse", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # it references the inputs of its statement

    def run(self, call: Callable[[], object]) -> None:
        """Run `call` in the thread, without waiting."""
        self._calls.put(call)

    def leave(self, last: Callable[[], object]) -> None:
        """End the thread after running `last`."""
        self._calls.put(last)
        self._calls.put(None)

    def join(self, within_s: float) -> None:
        """Wait until the thread has ended, at most `within_s`."""
        self._thread.join(within_s)


def take() -> Helper:
    """An idle helper, or a new one."""
    while True:
        try:
            helper = _idle.pop()
        except IndexError:
            return Helper()
        if helper.pid == os.getpid():
            return helper


def give_back(helper: Helper, last: Callable[[], object]) -> None:
    """Return a helper to the pool; if that is full, end it after running `last`."""
    if len(_idle) < _IDLE_MAX:
        _idle.append(helper)
    else:
        helper.leave(last)


def end_all(last: Callable[[], object], within_s: float) -> None:
    """End all idle helpers, each after running `last`."""
    ended = []
    while _idle:
        ended.append(_idle.pop())
        ended[-1].leave(last)
    for helper in ended:
        helper.join(within_s)
