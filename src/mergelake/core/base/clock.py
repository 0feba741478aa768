"""Clocks, which are passed as arguments. Only this module reads the system clock."""

from __future__ import annotations

import time
from typing import Protocol

# Time asleep counts in BOOTTIME on Linux, in CLOCK_MONOTONIC (not `time.monotonic`) on macOS, in all on Windows.
_ELAPSED: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clock(Protocol):
    """Protocol of clocks."""

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
    """A clock that only `sleep_s` advances: for tests and the simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds, of the same time as `now_ms`."""
        return self._now_ms / 1000

    def sleep_s(self, seconds: float) -> None:
        """Advance the clock."""
        self._now_ms += round(seconds * 1000)

    advance_s = sleep_s
