"""Counters of a node since its start, for people and tests."""

from __future__ import annotations

import logging
import mmap
import threading
from dataclasses import dataclass, field, fields
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE
_logger = logging.getLogger("mergelake.node")


def event_of(event: str, **facts: object) -> dict[str, object]:
    """The `extra` of a log record: a stable name, and facts by stable names (`api.cli.log_format` prints them)."""
    return {"event": event, "facts": facts}


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


@dataclass(slots=True)
class NodeStatus:
    """Counters over all tables of a node."""

    ticks: int = 0
    merges_started: int = 0
    merges_done: int = 0
    """Merges whose result is in the store or, for volatile parts, on this node's disk."""
    merges_lost: int = 0
    """Another writer had replaced or dropped the sources, or the table, first."""
    merges_abandoned: int = 0
    """Under way when the node had to leave; another node will select them again."""
    merges_failed: int = 0
    parts_mutated: int = 0
    """Parts that were rewritten or marked for mutations."""
    rows_merged: int = 0
    bytes_merged: int = 0
    merges_past_disk: int = 0
    """Volatile parts written straight to the store because the node's disk had no room."""
    merges_past_target: int = 0
    """Merges and uploads that pass `write_amplification_target`, because a partition has too many parts."""
    volatile_proposed: int = 0
    volatile_adopted: int = 0
    volatile_cancelled: int = 0
    volatile_published: int = 0
    bytes_uploaded: int = 0
    """Bytes of volatile parts written to the store, whether or not they could be published."""
    results_different: int = 0
    """Volatile parts that another node published with other rows than were built here: a merge was not reproducible."""
    objects_collected: int = 0
    """Deleted because no kept version needs them."""
    last_error: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def no_room(self) -> None:
        """Count a merge that goes to the store because the disk is full; logged for the first one."""
        if not self.merges_past_disk:
            text = "the node's disk has no room for merges: they go straight to the store"
            _logger.warning(text, extra=event_of("disk_full"))
        self.add(merges_past_disk=1)

    def counters(self) -> dict[str, int]:
        """All counters by name, of one moment."""
        with self._lock:
            values = {each.name: getattr(self, each.name) for each in fields(self) if not each.name.startswith("_")}
        return {name: value for name, value in values.items() if isinstance(value, int)}

    def add(self, **counts: int) -> None:
        """Add to counters; thread-safe."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)
