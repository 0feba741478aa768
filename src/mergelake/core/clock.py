"""Time, passed in. Only this module reads the system clock."""

from __future__ import annotations

import time
from typing import Protocol

# Linux counts sleep in BOOTTIME only, macOS in its CLOCK_MONOTONIC (not in `time.monotonic`), Windows in all clocks.
_ELAPSED: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clock(Protocol):
    """What the rest of the code may ask of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start, never going back, and not standing still while the machine sleeps."""
        ...

    def sleep_s(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start, never going back, and not standing still while the machine sleeps."""
        return time.clock_gettime(_ELAPSED) if _ELAPSED is not None else time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when told: for tests and the simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds, the same hand as `now_ms`."""
        return self._now_ms / 1000

    def sleep_s(self, seconds: float) -> None:
        """Move the hand forward."""
        self._now_ms += round(seconds * 1000)

    advance_s = sleep_s
