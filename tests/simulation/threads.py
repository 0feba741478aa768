"""Threads of a simulated process: each is a greenlet, and waits for the others by letting them run.

The engine's locks, events and pools are replaced by these, so that a thread may be stopped for hours while it holds a
lock, and requests that are made at once are carried out in any order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest import mock

from greenlet import getcurrent

_PAUSE_S = 1.0
_TURNS_MAX = 10_000
"""How often a thread may take a lock without letting others run: one that does so more often would never end."""


class SimLock:
    """A lock, also one that its owner may take again."""

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._taken = 0, 0
        """A step of the simulation, and how often the lock was taken in it."""

    def acquire(self, blocking: bool = True) -> bool:
        me = getcurrent()
        if not blocking and self._owner is not None:
            return False
        process = getattr(me, "process", None)
        step = process.kernel.steps if process is not None else 0
        self._taken = (step, self._taken[1] + 1) if self._taken[0] == step else (step, 1)
        assert process is None or self._taken[1] < _TURNS_MAX, f"{process.name} takes a lock again and again"
        _wait(lambda: self._owner in (None, me))
        self._owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> SimLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class SimEvent:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self) -> None:
        _wait(self.is_set)


class SimPool:
    """An executor whose work is done at once, that of `map` in any order."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> SimPool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, call: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        calls = list(zip(*arguments, strict=True))
        order = list(range(len(calls)))
        process = getattr(getcurrent(), "process", None)
        if process is not None:
            process.chance.shuffle(order)
        done = {at: call(*calls[at]) for at in order}
        return [done[at] for at in range(len(calls))]

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as failure:
            future.set_exception(failure)
        return future

    def shutdown(self, *_: object, **__: object) -> None:
        pass


def _wait(ready: Callable[[], bool]) -> None:
    if ready():
        return
    process = getcurrent().process  # type: ignore[attr-defined]
    process.waits = True
    while not ready():
        process.sleep(_PAUSE_S)
    process.waits = False


@contextlib.contextmanager
def simulated_threads() -> Iterator[None]:
    """The engine's threads are the simulation's."""
    fake = SimpleNamespace(Lock=SimLock, RLock=SimLock, Event=SimEvent)
    with (
        mock.patch("mergelake.log.commit.commit.threading", fake),
        mock.patch("mergelake.log.reading.checkpointing.threading", fake),
        mock.patch("mergelake.log.commit.group.threading", fake),
        mock.patch("mergelake.log.relay.leader.threading", fake),
        mock.patch("mergelake.log.reading.recent.threading", fake),
        mock.patch("mergelake.log.commit.commit.apart", lambda work, name: work()),
        mock.patch("mergelake.log.storage.at_once.Pool", SimPool),
        mock.patch("mergelake.jobs.publish.publish.Pool", SimPool),
    ):
        yield
