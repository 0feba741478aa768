"""Who gives out the positions of a log: one sequencer at a time, and the log itself says which.

A log begins in the bucket. `MoveLog` hands it over from the next position on, to ZooKeeper or back, and is always
committed **in the bucket**, by its create-if-absent. So whoever can append has folded the entry that says where, nobody
appends to a ZooKeeper log through the bucket by mistake, and of two who take a log over one wins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sequencer:
    """The place of the entries behind `since`."""

    url: str = ""
    """`zookeeper://hosts/path` of a tree that this log alone has, ever; empty is the bucket."""
    since: int = 0
    """Version of the `MoveLog` that made it so; 0 is the beginning."""


BUCKET = Sequencer()
"""Where every log begins."""
