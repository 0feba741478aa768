"""Options for running a statement, and caches between statements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from cachetools import LRUCache

from mergelake.core.base.clock import Clock, SystemClock
from mergelake.core.base.progress import OnProgress
from mergelake.query.statement.rewrite import Rewritten


class RunTasks(Protocol):
    """Runs tasks in other processes."""

    def __call__(self, fn: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Run a picklable function on each item; returns the results in order."""
        ...

    def exchange(
        self,
        first: Callable[[Any], Iterator[tuple[int, bytes]]],
        items: list[Any],
        second: Callable[[list[bytes]], Any],
        tasks: int,
    ) -> list[Any]:
        """Run `first` on each item, shuffle its (number, payload) pairs to `tasks` tasks by number, run `second` there.

        Both functions are picklable. Returns the results, unordered, without those of tasks that have no payloads.
        """
        ...

    def at_once(self) -> int:
        """Number of tasks that run at a time."""
        ...


T = TypeVar("T")
_KEPT = 512


class Kept(Generic[T]):
    """A thread-safe cache of the last few hundred values."""

    def __init__(self) -> None:
        self._values: LRUCache[Hashable, T] = LRUCache(_KEPT)
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key; if there is none, that of `make`, which replaces the least recently used one."""
        with self._lock:
            if key in self._values:
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
        return value


@dataclass(frozen=True, slots=True)
class StatementCache:
    """Caches between the statements of a connection."""

    rewritten: Kept[Rewritten] = field(default_factory=Kept)
    """Rewritten statements, by text and versions of their tables."""
    columns: Kept[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=Kept)
    """Names and types of the columns of statements."""


@dataclass(frozen=True, slots=True)
class Context:
    """Options for running a statement."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """ClickHouse settings as SQL literals."""
    honoured: Mapping[str, str] = field(default_factory=dict)
    """Settings that are handled here rather than by ClickHouse, values as text."""
    database: str = "default"
    """The current database."""
    executor: str = "auto"
    """auto, local or spark."""
    run_tasks: RunTasks | None = None
    """Runs the tasks of the Spark executor; None without Spark."""
    clock: Clock = field(default_factory=SystemClock)
    now_ms: int = 0
    """What now() and today() mean in filters: milliseconds since the epoch."""
    on_progress: OnProgress | None = None
    """Hears of what was read now and again, from another thread."""
    format: str = ""
    """Default format of the result of a statement without FORMAT; empty for Arrow."""
    external: bool = False
    """Whether the statement may read files and the network: `file`, `url`, `s3`, …"""
    cache: StatementCache = field(default_factory=StatementCache)
