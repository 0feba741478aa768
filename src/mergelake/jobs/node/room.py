"""The free space of a node's disk as one budget for all of its tables. Pure.

Half of the free space, less the claims of the builds under way, is available for new merges: the files of a merge exist
beside those of its sources, and the disk may be shared. Published parts that stay as a cache never take more than half
of the space that could be free, and are deleted before a merge is refused. A refused merge is written straight to the
store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mergelake.jobs.merge.volatile import build_task
from mergelake.jobs.node.actions import Discard, NodeView, TableView


@dataclass(frozen=True, slots=True)
class Cached:
    """A part on the disk that the store holds, too."""

    published_ms: int
    table_id: str
    id: str
    """Id of the published volatile part."""
    bytes: int


class DiskRoom:
    """The budget of one tick."""

    def __init__(self, node: NodeView, tables: Sequence[TableView], cached: Sequence[Cached]) -> None:
        self._free = node.disk_free_bytes
        self._claimed = sum(_under_way(table) for table in tables)
        self._evicted = 0
        self._caches = sorted(cached, key=lambda each: (each.published_ms, each.id))
        self._gone: list[Cached] = []
        held = sum(each.bytes for each in cached)
        cache_bytes_max = node.cache_bytes if self._free is None else min(node.cache_bytes, (self._free + held) // 2)
        while self._caches and held > cache_bytes_max:
            held -= self._evict()

    @property
    def left(self) -> int | None:
        """Bytes that one more merge may take at most; None: no limit."""
        return None if self._free is None else max(0, (self._free + self._evicted) // 2 - self._claimed)

    def take(self, size: int) -> bool:
        """Claim room for a merge of this size; False if there is none."""
        if self.left is not None and size > self.left:
            return False
        self._claimed += size
        return True

    def make(self, size: int) -> bool:
        """Mark caches for deletion, the oldest first, until a merge of this size fits; none if that is impossible.

        Returns whether it will fit once they are deleted.
        """
        if self.left is None:
            return True
        missing = 2 * (size + self._claimed) - self._evicted - (self._free or 0)
        if missing > sum(each.bytes for each in self._caches):
            return False
        while missing > 0:
            missing -= self._evict()
        return True

    def discards(self) -> list[Discard]:
        """The caches to delete."""
        tables: dict[str, list[str]] = {}
        for each in self._gone:
            tables.setdefault(each.table_id, []).append(each.id)
        return [Discard(table_id, tuple(ids)) for table_id, ids in tables.items()]

    def _evict(self) -> int:
        oldest = self._caches.pop(0)
        self._gone.append(oldest)
        self._evicted += oldest.bytes
        return oldest.bytes


def build_size(table: TableView, volatile_id: str) -> int:
    """Bytes that a Live volatile part takes on this node's disk at most; 0 for one that does not belong on a disk."""
    part = table.state.live(volatile_id)
    if part is None:
        return 0
    task = build_task(table.table_id, table.state, part, table.local)
    return task.bytes_on_disk if task.local else 0


def _under_way(table: TableView) -> int:
    return sum(build_size(table, volatile_id) for volatile_id in table.building)
