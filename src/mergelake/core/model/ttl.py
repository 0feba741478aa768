"""Expiry: what the rows of a part say about when they expire, as `ttl.txt` and manifests hold it.

Times are seconds since the epoch, by the clock of the server (UTC). A time of 0 is none: such a row never expires.

Source: ClickHouse, `src/Storages/MergeTree/MergeTreeDataPartTTLInfo.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TtlInfo:
    """The times at which rows of a part expire by one element of a TTL."""

    min: int = 0
    """The earliest time but 0; 0 if there is none."""
    max: int = 0
    """The latest time."""
    finished: bool = False
    """Whether all had expired at the last merge, which applied the element (of RECOMPRESS: its codec is the part's)."""

    def with_times(self, seconds: Seconds) -> TtlInfo:
        """With the times of further rows."""
        if not len(seconds):
            return self
        known = seconds[seconds != 0]
        low = self.min
        if len(known) and (not low or known.min() < low):
            low = int(known.min())
        return TtlInfo(low, max(self.max, int(seconds.max())), self.finished)

    def is_min_expired(self, now: int) -> bool:
        """Whether some row has expired."""
        return is_expired(self.min, now)

    def is_max_expired(self, now: int) -> bool:
        """Whether all rows have expired, as far as they have a time."""
        return is_expired(self.max, now)

    def packed(self) -> tuple[int, ...]:
        """As a manifest holds it: (min, max), and 1 if it is finished."""
        return (self.min, self.max, 1) if self.finished else (self.min, self.max)

    @staticmethod
    def unpacked(values: Sequence[int]) -> TtlInfo:
        """Inverse of `packed`."""
        return TtlInfo(values[0], values[1], len(values) > 2)


def is_expired(time: int, now: int) -> bool:
    """Whether a time has come."""
    return time != 0 and time <= now


def merged_info(infos: Iterable[TtlInfo]) -> TtlInfo:
    """The times of the rows of several parts, at least one."""
    each = list(infos)
    known = [info.min for info in each if info.min]
    return TtlInfo(min(known, default=0), max(0, *(info.max for info in each)), all(info.finished for info in each))
