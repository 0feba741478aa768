"""Statistics of a scan: for progress bars, `system.query_log` and tests."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class ScanStats:
    """Counters of one scan; several threads may add to them."""

    rows: int = 0
    """Rows read."""
    bytes: int = 0
    """Bytes of the columns in memory, before filtering."""
    marks: int = 0
    """Granules of which at least one column was read."""
    parts: int = 0
    """Items of the plan whose reading has begun."""
    rows_out: int = 0
    """Rows returned."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, *, rows: int = 0, bytes_: int = 0, marks: int = 0, parts: int = 0, rows_out: int = 0) -> None:
        """Add to the counters."""
        with self._lock:
            self.rows += rows
            self.bytes += bytes_
            self.marks += marks
            self.parts += parts
            self.rows_out += rows_out
