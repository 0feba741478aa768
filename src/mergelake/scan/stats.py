"""What a scan did: for progress bars, for `system.query_log`, for tests."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class ScanStats:
    """Counters of one scan; several threads may add to them."""

    rows: int = 0
    """Rows looked at."""
    bytes: int = 0
    """Bytes of the columns in memory, before filtering."""
    marks: int = 0
    """Granules of which at least one column was read."""
    parts: int = 0
    """Items of the plan that were begun."""
    rows_out: int = 0
    """Rows that came out."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, *, rows: int = 0, bytes_: int = 0, marks: int = 0, parts: int = 0, rows_out: int = 0) -> None:
        """Count some more."""
        with self._lock:
            self.rows += rows
            self.bytes += bytes_
            self.marks += marks
            self.parts += parts
            self.rows_out += rows_out
