"""What a node starts next: state in, work out.

A node asks once a tick. It never asks twice for parts that it is merging already (`running`); that another
node may choose the same parts is settled by the log: one Publish lands, the other finds its sources gone and
deletes its own attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mergelake.core.settings import TableSettings
from mergelake.log.state import ActivePart
from mergelake.merge.select import Slots, merge_bytes_limit, select_merges, select_rested_partition


@dataclass(frozen=True, slots=True)
class TableView:
    """What a tick sees of one table.

    Retired parts are none of its business: a merge covers those that it retires, and a drop takes a partition's first
    blocks, so none ever lies between two active ones (`select.part_ranges`).
    """

    table_id: str
    parts: tuple[ActivePart, ...]
    settings: TableSettings


@dataclass(frozen=True, slots=True)
class MergeWork:
    """Merge these neighbours."""

    table_id: str
    sources: tuple[ActivePart, ...]

    @property
    def part_ids(self) -> frozenset[str]:
        """Ids of the sources: busy while the work runs."""
        return frozenset(part.manifest.id for part in self.sources)

    @property
    def bytes(self) -> int:
        """Bytes of the sources on disk."""
        return sum(part.manifest.bytes_on_disk for part in self.sources)


def tick(
    tables: Sequence[TableView], now_ms: int, running: Mapping[str, frozenset[str]], slots: Slots
) -> list[MergeWork]:
    """The merges to start now, at most as many as there are free slots.

    `running` maps a work's id to the ids of the parts that it uses. Tables take turns: each gets its best merge
    before any gets a second one, those with most active parts first.
    """
    busy = frozenset().union(*running.values())
    started: list[MergeWork] = []
    waiting = sorted(tables, key=lambda table: -len(table.parts))
    while waiting and len(running) + len(started) < slots.total:
        again: list[TableView] = []
        for table in waiting:
            used = len(running) + len(started)
            if used >= slots.total:
                break
            work = _next_merge(table, now_ms, busy, used, slots)
            if work is not None:
                started.append(work)
                busy |= work.part_ids
                again.append(table)
        waiting = again
    return started


def _next_merge(table: TableView, now_ms: int, busy: frozenset[str], used: int, slots: Slots) -> MergeWork | None:
    limit = merge_bytes_limit(table.settings, used, slots)
    if limit == 0:
        return None
    chosen = select_merges(table.parts, table.settings, now_ms, bytes_max=[limit], busy=busy)
    if chosen:
        return MergeWork(table.table_id, chosen[0])
    rested = select_rested_partition(
        table.parts, table.settings, now_ms, busy_slots=used, slots=slots, bytes_max=limit, busy=busy
    )
    return MergeWork(table.table_id, rested) if rested else None
