"""Failures of work on a table, and their consequences: pauses, avoided blocks, volatile parts to give up."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mergelake.core.clock import Clock
from mergelake.core.errors import UnavailableError
from mergelake.core.names import PartInfo

BACKOFF_FIRST_S, BACKOFF_MAX_S = 1.0, 60.0
AVOID_S = 300.0
"""Seconds for which a node avoids blocks that it could not merge."""
BUILDS_MAX, SILENT_BUILDS_MAX = 3, 10
"""Failed builds after which a volatile part is given up; the second if a store or a disk did not answer."""


class FailureTracker:
    """Tracks the failures of a table. Not thread-safe: its owner holds a lock."""

    def __init__(self, clock: Clock) -> None:
        self.failed: set[str] = set()
        """Volatile parts that are to be given up."""
        self._clock = clock
        self._builds: dict[str, int] = {}
        self._avoided: list[tuple[float, PartInfo]] = []
        self._wait_s, self._until_s = BACKOFF_FIRST_S, 0.0

    @property
    def waits(self) -> bool:
        """Whether there is a pause now."""
        return self._clock.monotonic_s() < self._until_s

    def avoided(self) -> tuple[PartInfo, ...]:
        """The blocks to avoid now."""
        now_s = self._clock.monotonic_s()
        self._avoided = [(until_s, info) for until_s, info in self._avoided if until_s > now_s]
        return tuple(info for _, info in self._avoided)

    def pause(self) -> float:
        """Begin a pause before the next work, twice as long each time; returns its seconds."""
        wait_s, self._wait_s = self._wait_s, min(self._wait_s * 2, BACKOFF_MAX_S)
        self._until_s = self._clock.monotonic_s() + wait_s
        return wait_s

    def over(self) -> None:
        """Note a success: the next pause is short again."""
        self._wait_s = BACKOFF_FIRST_S

    def avoid(self, infos: Sequence[PartInfo]) -> None:
        """Avoid these blocks for `AVOID_S`."""
        until_s = self._clock.monotonic_s() + AVOID_S
        self._avoided += [(until_s, info) for info in infos]

    def build_failed(self, volatile_id: str, info: PartInfo, failure: Exception) -> None:
        """Note a failed build of a volatile part, which is given up after too many."""
        count = self._builds[volatile_id] = self._builds.get(volatile_id, 0) + 1
        if count >= (SILENT_BUILDS_MAX if isinstance(failure, UnavailableError) else BUILDS_MAX):
            self.failed.add(volatile_id)
            self.avoid([info])

    def forget(self, live: Collection[str]) -> None:
        """Forget all volatile parts but these, which are still Live."""
        self.failed.intersection_update(live)
        self._builds = {volatile_id: count for volatile_id, count in self._builds.items() if volatile_id in live}

    def built(self, volatile_id: str) -> None:
        """Note that a volatile part was built."""
        self._builds.pop(volatile_id, None)
