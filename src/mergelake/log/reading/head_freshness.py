"""How old knowledge of the head of a log may get before it is no longer believed.

A process knows the head as the position that it last saw free. Old entries are deleted, so the position after an old
state may be free *again*: a process that slept (a suspended laptop, a paused machine) would take the end of the deleted
range for the head, or create an entry where no process will ever look. Collection waits for a grace period between
noting objects and deleting them; a process that believes nothing older than a fraction of that is safe.
"""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.core.base.clock import Clock

HEAD_FRESHNESS_S = 900.0
"""Seconds for which knowledge of the head is believed."""
GRACE_MIN_S = 4 * HEAD_FRESHNESS_S
"""Seconds for which the entries after a checkpoint stay after it was retired, at least."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment by both clocks, the monotonic and the wall clock."""

    monotonic_s: float
    wall_ms: int

    @staticmethod
    def now(clock: Clock) -> Instant:
        """The moment of the call."""
        return Instant(clock.monotonic_s(), clock.now_ms())

    def age_s(self, clock: Clock) -> float:
        """Seconds since then, by the clock that shows more.

        The monotonic clock runs while the machine sleeps, but not while a hypervisor pauses it; the wall clock may be
        set back. Too large an age costs only a few requests.
        """
        return max(clock.monotonic_s() - self.monotonic_s, (clock.now_ms() - self.wall_ms) / 1000)
