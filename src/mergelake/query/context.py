"""How a statement is run, and what is kept between statements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from cachetools import LRUCache

from mergelake.core.clock import Clock, SystemClock
from mergelake.core.progress import OnProgress
from mergelake.query.statement.rewrite import Rewritten


class RunTasks(Protocol):
    """Tasks in other processes."""

    def __call__(self, fn: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Run a picklable function on each item; results in order."""
        ...

    def exchange(
        self,
        first: Callable[[Any], Iterator[tuple[int, bytes]]],
        items: list[Any],
        second: Callable[[list[bytes]], Any],
        tasks: int,
    ) -> list[Any]:
        """Run `first` on each item, bring what it gives to one of `tasks` by its number, run `second` on what each has.

        Both are picklable. Results of tasks that have nothing are left out; in no order.
        """
        ...

    def at_once(self) -> int:
        """How many run at a time."""
        ...


T = TypeVar("T")
_KEPT = 512


class Kept(Generic[T]):
    """The last few hundred values by key; safe for threads."""

    def __init__(self) -> None:
        self._values: LRUCache[Hashable, T] = LRUCache(_KEPT)
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept by this key; else what `make` gives, in place of what was asked for longest ago."""
        with self._lock:
            if key in self._values:
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
        return value


@dataclass(frozen=True, slots=True)
class StatementCache:
    """What is kept between the statements of a connection."""

    rewritten: Kept[Rewritten] = field(default_factory=Kept)
    """Statements over scans, by their text and the versions of their tables."""
    columns: Kept[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=Kept)
    """Names and types of what statements give."""


@dataclass(frozen=True, slots=True)
class Context:
    """How to run a statement."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """ClickHouse settings as SQL literals."""
    honoured: Mapping[str, str] = field(default_factory=dict)
    """Settings that we go by ourselves, values as text."""
    database: str = "default"
    """The current database."""
    executor: str = "auto"
    """auto, local or spark."""
    run_tasks: RunTasks | None = None
    """How the Spark executor runs its tasks; None without one."""
    clock: Clock = field(default_factory=SystemClock)
    now_ms: int = 0
    """What now() and today() mean in filters: milliseconds since the epoch."""
    on_progress: OnProgress | None = None
    """Hears of what was read now and again, from another thread."""
    format: str = ""
    """Of the answer, where the statement names none itself; without either it is Arrow."""
    external: bool = False
    """Whether the statement may read files and the network: `file`, `url`, `s3`, …"""
    cache: StatementCache = field(default_factory=StatementCache)
