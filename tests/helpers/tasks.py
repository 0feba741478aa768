"""Tasks of the Spark executor, run in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any


class TasksHere:
    """Functions and items travel as they would to a worker."""

    def __call__(self, fn: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Results in order."""
        task = pickle.dumps(fn)
        return [pickle.loads(task)(pickle.loads(pickle.dumps(item))) for item in items]

    def exchange(
        self,
        first: Callable[[Any], Iterator[tuple[int, bytes]]],
        items: list[Any],
        second: Callable[[list[bytes]], Any],
        tasks: int,
    ) -> list[Any]:
        """What has one number comes together."""
        give, take = pickle.dumps(first), pickle.dumps(second)
        held: dict[int, list[bytes]] = {}
        for item in items:
            for number, payload in pickle.loads(give)(pickle.loads(pickle.dumps(item))):
                held.setdefault(number % tasks, []).append(payload)
        return [pickle.loads(take)(payloads[::-1]) for payloads in held.values()]

    def at_once(self) -> int:
        """Two, of which each table has twice as many shares."""
        return 2
