"""A bound of bytes a second for all uploads of a node: a token bucket that may be overdrawn by one piece."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mergelake.core.base.clock import Clock

_SLICE_S = 0.1
"""Seconds after which one who waits asks whether it is still wanted."""


class Throttle:
    """Threads take bytes before they send them; `burst_s` seconds' worth may be taken at once after a rest."""

    def __init__(self, bytes_per_s: float, clock: Clock, burst_s: float = 1.0) -> None:
        """Raises ValueError for a rate that is not positive."""
        if not bytes_per_s > 0:
            raise ValueError(f"a rate of {bytes_per_s} bytes a second")
        self._rate, self._clock, self._burst = bytes_per_s, clock, bytes_per_s * burst_s
        self._lock = threading.Lock()
        self._left, self._at_s = self._burst, clock.monotonic_s()

    def take(self, size: int, unwanted: Callable[[], bool] = lambda: False) -> bool:
        """Wait until `size` bytes may be sent; False, at once, when they are `unwanted` meanwhile."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._left = min(self._burst, self._left + (now_s - self._at_s) * self._rate) - size
            self._at_s = now_s
            # Overdrawn: the debt is waited for, and whoever comes next waits for both.
            until_s = now_s - min(self._left, 0.0) / self._rate
        while (left_s := until_s - self._clock.monotonic_s()) > 0:
            if unwanted():
                return False
            self._clock.sleep_s(min(left_s, _SLICE_S))
        return not unwanted()
