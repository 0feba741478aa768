"""Statistics of a scan: for progress bars, `system.query_log` and tests."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class ScanStats:
    """What a scan has read so far."""

    rows: int = 0
    """Rows read, before filtering."""
    bytes: int = 0
    """Bytes of the columns in memory, before filtering."""
    marks: int = 0
    """Granules of which at least one column was read."""
    parts: int = 0
    """Parts of which reading has begun."""
    rows_out: int = 0
    """Rows returned."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, *, rows: int = 0, bytes_: int = 0, marks: int = 0, parts: int = 0, rows_out: int = 0) -> None:
        """Add to the counters; safe for threads."""
        with self._lock:
            self.rows += rows
            self.bytes += bytes_
            self.marks += marks
            self.parts += parts
            self.rows_out += rows_out
