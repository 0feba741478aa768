"""The sequencer of a log assigns its positions: one at a time, and the log itself names it.

A log begins in the bucket. `MoveLog` moves it from the next position on, to ZooKeeper or back, and is always committed
**in the bucket**, by create-if-absent. So every writer has folded the entry that names the sequencer, none appends to a
ZooKeeper log through the bucket by mistake, and one of two concurrent takeovers wins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sequencer:
    """Where the entries after `since` lie."""

    url: str = ""
    """`zookeeper://hosts/path` of a tree that belongs to this log alone; empty is the bucket."""
    since: int = 0
    """Version of the `MoveLog` to it; 0 is the beginning."""


BUCKET = Sequencer()
"""Where every log begins."""
