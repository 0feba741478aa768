"""Many processes on one log in virtual time: real code, requests that take their time, and no second of ours.

Each process is a greenlet, its clock the crowd's. A request takes `request_s`, give or take a part of it, and has its
effect in the middle. So a minute of 64 processes is a matter of seconds, and the same every time.
"""

from __future__ import annotations

import contextlib
import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from greenlet import getcurrent, greenlet

from mergelake.log.model.operations import AddParts
from mergelake.store.interface.protocol import Counters
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log, schema_with

SCHEMA = schema_with(checkpoint_interval=64)
START_MS = 1_700_000_000_000


class Crowd:
    """The clock of all, and who is woken when."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, greenlet]] = []
        self._count = 0
        self._hub = getcurrent()

    def now_ms(self) -> int:
        return START_MS + round(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep_s(self, seconds: float) -> None:
        self._wake(getcurrent(), seconds)
        self._hub.switch()

    def _wake(self, who: greenlet, seconds: float = 0.0) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now_s + seconds, self._count, who))

    def start(self, work: Callable[[], Any], after_s: float = 0.0) -> None:
        self._wake(greenlet(work, parent=self._hub), after_s)

    def run(self, until_s: float = float("inf")) -> None:
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, who = heapq.heappop(self._due)
            who.switch()

    @contextlib.contextmanager
    def pools(self) -> Iterator[None]:
        """The log's threads are greenlets of this crowd."""
        with (
            mock.patch("mergelake.log.storage.at_once.Pool", lambda threads: _Pool(self, threads)),
            mock.patch("mergelake.log.commit.commit.apart", lambda work, name: self.start(work)),
        ):
            yield


class _Pool:
    def __init__(self, crowd: Crowd, threads: int) -> None:
        self._crowd, self._threads = crowd, threads

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        todo, done = list(enumerate(items)), {}
        todo.reverse()
        left, parent, hub = [min(self._threads, len(todo))], getcurrent(), self._crowd._hub

        def work() -> None:
            while todo:
                at, item = todo.pop()
                done[at] = call(item)
            left[0] -= 1
            if not left[0]:
                self._crowd._wake(parent)

        for _ in range(left[0]):
            self._crowd.start(work)
        hub.switch()
        return [done[at] for at in range(len(done))]


class SlowStore(MemoryStore):
    """Each request takes `request_s`, give or take `spread` of it; its effect is in the middle."""

    def __init__(self, clock: Any, request_s: float = 0.03, spread: float = 0.2, seed: int = 0) -> None:
        super().__init__()
        self._clock, self._request_s, self._spread = clock, request_s, spread
        self._chance = random.Random(seed)

    def _half(self) -> None:
        self._clock.sleep_s(self._request_s / 2 * (1 + self._spread * (2 * self._chance.random() - 1)))

    def _slowly(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self._half()
        try:
            return call(*arguments)
        finally:
            self._half()

    def get(self, key: str) -> bytes:
        return self._slowly(super().get, key)  # type: ignore[no-any-return]

    def put(self, key: str, data: Any) -> None:
        self._slowly(super().put, key, data)

    def create(self, key: str, data: Any) -> Any:
        return self._slowly(super().create, key, data)

    def head(self, key: str) -> Any:
        return self._slowly(super().head, key)

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[Any]:
        return iter(self._slowly(lambda: list(super(SlowStore, self).list(prefix, after, until))))

    def delete(self, keys: Iterable[str]) -> None:
        self._slowly(super().delete, list(keys))


@dataclass
class Commits:
    """What a crowd did."""

    took_s: list[list[float]]
    """Of each writer, of each of its commits."""
    seconds: float
    requests: Counters
    store: MemoryStore

    @property
    def count(self) -> int:
        return sum(map(len, self.took_s))

    @property
    def per_s(self) -> float:
        return self.count / self.seconds

    @property
    def p99_s(self) -> float:
        took = sorted(each for writer in self.took_s for each in writer)
        return took[int(0.99 * (len(took) - 1))]

    @property
    def fairness(self) -> float:
        """Commits of the slowest writer for each of the fastest one."""
        return min(map(len, self.took_s)) / max(map(len, self.took_s))


def commit_all(
    writers: int,
    seconds: float,
    *,
    request_s: float = 0.03,
    commits: int | Callable[[int], int] = 1 << 60,
    rest_s: float = 0.0,
    schema: Any = SCHEMA,
    seed: int = 0,
) -> Commits:
    """So many processes commit one after another, until that long has gone by, or so many commits of each are done.

    `rest_s` is what they do in between, on average.
    """
    crowd = Crowd()
    store = SlowStore(crowd, request_s, seed=seed)
    done = Commits([[] for _ in range(writers)], 0.0, Counters(), store)

    def work(writer: int) -> None:
        log = open_log(store, seed=1 + writer + 1000 * seed, clock=crowd)
        chance = random.Random(writer)
        for number in range(commits(writer) if callable(commits) else commits):
            if crowd.now_s >= start_s + seconds:
                return
            crowd.sleep_s(0.002 * chance.random() + (chance.expovariate(1 / rest_s) if rest_s else 0))
            began_s = crowd.now_s
            log.commit(lambda _, number=number: [AddParts((manifest(1_000_000 * writer + number),))])
            done.took_s[writer].append(crowd.now_s - began_s)

    with crowd.pools():
        crowd.start(lambda: new_log(store, schema, clock=crowd))
        crowd.run()
        start_s, before = crowd.now_s, store.counters
        for writer in range(writers):
            crowd.start(lambda writer=writer: work(writer), 0.001 * writer)
        crowd.run()
    done.seconds, done.requests = crowd.now_s - start_s, store.counters - before
    return done
