"""What a SELECT gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Stats:
    """What a statement cost."""

    elapsed_s: float = 0.0
    rows_read: int = 0
    """Rows that the scans gave to ClickHouse."""
    bytes_read: int = 0
    """Their bytes in memory."""
    executor: str = "local"
    """`local` or `spark`."""
    reason: str = ""
    """Why that one."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows in the public Arrow form, with the ClickHouse types of their columns."""

    table: pa.Table
    types: tuple[str, ...]
    """ClickHouse's name of each column's type."""
    stats: Stats = field(default_factory=Stats)
    totals: pa.Table | None = None
    """The row of WITH TOTALS, or None."""
    formatted: bytes | None = None
    """The answer as text where the statement itself ended in FORMAT; `table` is then empty."""
    format: str = ""
