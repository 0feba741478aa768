"""UTC seconds to local seconds and back, whole columns at a time.

A zone is a table of the instants at which its offset changes, computed once per process: the offsets at each midnight
UTC from 1900 to 2300 come from Arrow's time zone database, and each day whose offset differs from the next is bisected.
After 2037 Arrow has no summer time, so Python's `zoneinfo` is used, week by week. As in ClickHouse, a local time that
occurs twice is the earlier instant, and one that never occurs is converted with the offset after the gap.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import error

_FIRST, _LAST = -2208988800, 10413792000  # 1900-01-01 and 2300-01-01
_DAY = 86400
_RULES_FROM = _FIRST + 50040 * _DAY  # 2037-01-01
_UTC_NAMES = ("", "UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "Etc/Zulu", "UCT", "Universal")


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """The offsets of one time zone."""

    name: str
    changes: npt.NDArray[np.int64]
    """UTC seconds at which a new offset begins, ascending."""
    offsets: npt.NDArray[np.int64]
    """Seconds east of UTC: `offsets[i]` is valid before `changes[i]`, the last one after all changes."""

    @property
    def is_fixed(self) -> bool:
        """Whether the offset never changes."""
        return len(self.changes) == 0

    def to_local(self, seconds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Local seconds since 1970-01-01 00:00 local, for UTC seconds."""
        wide = seconds.astype(np.int64, copy=False)
        return wide + self.offset(wide)

    def offset(self, seconds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | np.int64:
        """Seconds east of UTC at UTC seconds; one number if it is the same for all of them."""
        if self.is_fixed:
            return np.int64(self.offsets[0])
        if len(seconds) == 0:
            return np.int64(0)
        first = np.searchsorted(self.changes, seconds.min(), side="right")
        last = np.searchsorted(self.changes, seconds.max(), side="right")
        if first == last:
            return np.int64(self.offsets[first])
        window = self.changes[first:last]
        return np.asarray(self.offsets[first + np.searchsorted(window, seconds, side="right")])

    def to_utc(self, local: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """UTC seconds for local seconds."""
        wide = local.astype(np.int64, copy=False)
        if self.is_fixed:
            return np.asarray(wide - self.offsets[0])
        # Offsets change at the local time at which the old one ends: so a repeated hour is its first occurrence, and
        # a skipped hour has the offset after the gap.
        borders = self.changes + self.offsets[:-1]
        return wide - self.offsets[np.searchsorted(borders, wide, side="right")]

    def start_of_day(self, days: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """UTC seconds at which local days begin, as in ClickHouse's table of days.

        Where midnight is skipped a day begins at the change of the clock. Where it occurs twice it means the first,
        unless the clock went back across it, into the day before: then the day begins with the second.
        """
        midnight = days.astype(np.int64, copy=False) * _DAY
        if self.is_fixed:
            return np.asarray(midnight - self.offsets[0])
        borders = self.changes + self.offsets[1:]
        found = midnight - self.offsets[np.searchsorted(borders, midnight, side="left")]
        late = np.asarray(self.to_local(found) > midnight)
        if not bool(late.any()):
            return np.asarray(found)
        last = np.maximum(np.searchsorted(self.changes, found, side="right") - 1, 0)
        return np.where(late, self.changes[last], found)


@lru_cache(maxsize=64)
def zone(name: str) -> Zone:
    """The zone called `name`; empty means UTC. Raises BAD_ARGUMENTS for an unknown one."""
    if name in _UTC_NAMES:
        return Zone("UTC", np.zeros(0, np.int64), np.zeros(1, np.int64))
    try:
        rules = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as failure:
        raise error("BAD_ARGUMENTS", f"Cannot load time zone {name}", "Give a name of the IANA database") from failure
    near = _changes(np.arange(_FIRST, _RULES_FROM + 1, _DAY, dtype=np.int64), lambda at: _offsets(at, name))
    far = _changes(np.arange(_RULES_FROM, _LAST, 7 * _DAY, dtype=np.int64), lambda at: _rule_offsets(at, rules))
    changes = np.concatenate([near[0], far[0]])
    return Zone(name, changes, np.concatenate([near[1], far[1][1:]]))


def _changes(
    probes: npt.NDArray[np.int64], offsets: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The instants at which the offset changes, by bisection between the probes, and the offsets before and after."""
    probe_offsets = offsets(probes)
    changed = np.flatnonzero(probe_offsets[1:] != probe_offsets[:-1])
    low, high = probes[changed].copy(), probes[changed + 1].copy()
    before = probe_offsets[changed]
    while bool((high - low > 1).any()):
        middle = (low + high) // 2
        same = offsets(middle) == before
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return high, np.concatenate([probe_offsets[:1], probe_offsets[changed + 1]])


def _rule_offsets(seconds: npt.NDArray[np.int64], rules: zoneinfo.ZoneInfo) -> npt.NDArray[np.int64]:
    differences = [datetime.datetime.fromtimestamp(at, rules).utcoffset() for at in seconds.tolist()]
    return np.array([0 if each is None else each.total_seconds() for each in differences], np.int64)


def _offsets(seconds: npt.NDArray[np.int64], name: str) -> npt.NDArray[np.int64]:
    stamps = pa.array(seconds).cast(pa.timestamp("s", name))
    differences: npt.NDArray[np.int64] = pc.local_timestamp(stamps).cast(pa.int64()).to_numpy() - seconds
    return differences
