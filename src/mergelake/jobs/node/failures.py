"""Failures of work on a table, and their consequences: pauses, avoided blocks, volatile parts to give up."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError, UnavailableError
from mergelake.core.model.names import PartInfo

BACKOFF_FIRST_S, BACKOFF_MAX_S = 1.0, 60.0
AVOID_S = 300.0
"""Seconds for which a node avoids blocks that it could not merge."""
BUILDS_MAX, SILENT_BUILDS_MAX = 3, 10
"""Failed builds after which a volatile part is given up; the second if a store or a disk did not answer."""
IN_A_ROW_MAX = 3
"""Merges of a table that fail, without one that succeeds between, before all of its work has a pause."""
_TRIES_MAX = 1000
"""Ranges of blocks whose failures are counted."""


class FailureTracker:
    """Tracks the failures of a table. Not thread-safe: its owner holds a lock."""

    def __init__(self, clock: Clock) -> None:
        self.failed: set[str] = set()
        """Volatile parts that are to be given up."""
        self._clock = clock
        self._builds: dict[str, int] = {}
        self._avoided: list[tuple[float, PartInfo, str]] = []
        self._tries: dict[tuple[str, int, int], int] = {}
        self._in_a_row = 0
        self._wait_s, self._until_s, self._reason = BACKOFF_FIRST_S, 0.0, ""

    @property
    def waits(self) -> bool:
        """Whether there is a pause now."""
        return self._clock.monotonic_s() < self._until_s

    def avoided(self) -> tuple[PartInfo, ...]:
        """The blocks to avoid now."""
        now_s = self._clock.monotonic_s()
        self._avoided = [each for each in self._avoided if each[0] > now_s]
        return tuple(info for _, info, _ in self._avoided)

    def back_offs(self) -> list[tuple[float, PartInfo | None, str]]:
        """Seconds left, blocks (None: the whole table) and reason of all that is left alone now."""
        now_s = self._clock.monotonic_s()
        table = [(self._until_s, None, self._reason)] if self.waits else []
        left: list[tuple[float, PartInfo | None, str]] = [*table, *self._avoided]
        return [(until_s - now_s, info, reason) for until_s, info, reason in left if until_s > now_s]

    def pause(self, reason: str = "") -> float:
        """Begin a pause before the next work, twice as long each time; returns its seconds."""
        self._reason = reason
        wait_s, self._wait_s = self._wait_s, min(self._wait_s * 2, BACKOFF_MAX_S)
        self._until_s = self._clock.monotonic_s() + wait_s
        return wait_s

    def over(self) -> None:
        """Note a success: the next pause is short again."""
        self._wait_s, self._in_a_row = BACKOFF_FIRST_S, 0

    def avoid(self, infos: Sequence[PartInfo], reason: str, for_s: float = AVOID_S) -> None:
        """Avoid these blocks for so many seconds."""
        until_s = self._clock.monotonic_s() + for_s
        self._avoided += [(until_s, info, reason) for info in infos]

    def merge_failed(self, infos: Sequence[PartInfo], failure: Exception) -> bool:
        """Note a failed merge of these blocks: they are avoided, each time twice as long; damaged ones long at once.

        Returns whether the fault seems to be in the blocks: not where a store is silent, or merges fail in a row.
        """
        self._in_a_row += 1
        if isinstance(failure, UnavailableError):
            return False
        key = infos[0].partition_id, infos[0].min_block, infos[-1].max_block
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        damaged = isinstance(failure, CorruptDataError)
        self.avoid(infos, str(failure), AVOID_S if damaged else min(BACKOFF_FIRST_S * 2**tries, AVOID_S))
        while len(self._tries) > _TRIES_MAX:
            del self._tries[next(iter(self._tries))]
        return self._in_a_row < IN_A_ROW_MAX

    def merged(self, infos: Sequence[PartInfo]) -> None:
        """Note that a merge of these blocks succeeded."""
        self._tries.pop((infos[0].partition_id, infos[0].min_block, infos[-1].max_block), None)

    def build_failed(self, volatile_id: str, info: PartInfo, failure: Exception) -> None:
        """Note a failed build of a volatile part, which is given up after too many."""
        count = self._builds[volatile_id] = self._builds.get(volatile_id, 0) + 1
        if count >= (SILENT_BUILDS_MAX if isinstance(failure, UnavailableError) else BUILDS_MAX):
            self.failed.add(volatile_id)
            self.avoid([info], str(failure))

    def forget(self, live: Collection[str]) -> None:
        """Forget all volatile parts but these, which are still Live."""
        self.failed.intersection_update(live)
        self._builds = {volatile_id: count for volatile_id, count in self._builds.items() if volatile_id in live}

    def built(self, volatile_id: str) -> None:
        """Note that a volatile part was built."""
        self._builds.pop(volatile_id, None)
