"""Names of table engines, and what the log has to know of them."""

from __future__ import annotations

AGGREGATING = "AggregatingMergeTree"
COALESCING = "CoalescingMergeTree"
SUMMING = "SummingMergeTree"
COMBINING = frozenset((AGGREGATING, COALESCING, SUMMING))
"""Engines that make one row of several: any mutation of these has to come before they are merged."""


def precedes_merges(engine: str, drops_rows: bool) -> bool:
    """Whether a mutation, which drops rows or not, has to be applied before parts are merged."""
    return engine in COMBINING or (drops_rows and engine != "MergeTree")
