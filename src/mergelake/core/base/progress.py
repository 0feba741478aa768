"""How far a statement is, for people who watch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """So much of one kind of work, so far."""

    doing: str
    """`read`: by a SELECT, or from a file; `written`: of an INSERT, in parts that are committed together at its end;
    `merged`: a merge goes column by column, so this is the share of the bytes that are done."""
    rows: int
    total_rows: int = 0
    """Rows that there are to do; 0 where nobody knows."""
    bytes: int = 0
    """Of the rows in memory, or of the parts that were written; 0 where nobody counts."""

    def __post_init__(self) -> None:
        if self.total_rows < self.rows:  # more than was thought: so nobody knows
            object.__setattr__(self, "total_rows", 0)


OnProgress = Callable[[Progress], None]
"""What hears of it, from any thread."""
