"""Drops the parts of which no row stays by the TTL: one entry of the log, no object is read or written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mergelake.engines.ttl.ttl import TableTtl, table_ttl
from mergelake.jobs.merge.ttl_select import expired_parts
from mergelake.log.model.operations import DropParts, TableOp
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves, outermost, pending
from mergelake.table.handle.handle import TableHandle

PARTS_MAX = 10_000
"""Parts that one entry drops."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was dropped."""

    version: int
    parts: tuple[ActivePart, ...]

    @property
    def rows(self) -> int:
        """Rows of the parts."""
        return sum(part.manifest.rows for part in self.parts)


def droppable_in(
    state: State, partition_id: str, ttl: TableTtl, now: int, busy: Collection[str] = ()
) -> list[ActivePart]:
    """The active parts of a partition of which no row stays at a time (seconds), without `busy` ones (ids).

    Not those that lack a mutation, which may change the time. Those under a Live volatile part go together, and it with
    them.
    """
    parts = state.partitions[partition_id]
    gone = [part for part in expired_parts(parts, ttl, now, busy) if not pending(state.mutations, part.info)]
    live = outermost(state.volatile.get(partition_id, ()))
    if not gone or not live:
        return gone
    ids = {part.manifest.id for part in gone}
    below = [{leaf.manifest.id for leaf in leaves(parts, outer.info)} for outer in live]
    kept = frozenset[str]().union(*(leaf_ids for leaf_ids in below if not leaf_ids <= ids))
    return [part for part in gone if part.manifest.id not in kept]


def droppable(
    state: State, now: int, partitions: Collection[str] | None = None, busy: Collection[str] = ()
) -> list[ActivePart]:
    """The same in these partitions (None: in all)."""
    ttl = table_ttl(state.schema)
    names = [*state.partitions] if partitions is None else [name for name in partitions if name in state.partitions]
    found: list[ActivePart] = []
    for name in names:
        found += droppable_in(state, name, ttl, now, busy)
    return found[:PARTS_MAX]


def drop_expired(
    handle: TableHandle, partitions: Collection[str] | None = None, busy: Collection[str] = (), *, whole: bool = False
) -> Dropped:
    """Drop these parts, by the time of the table's clock; a version without change if there are none.

    `whole`: only where all parts of a partition go. It is decided anew for each position of the log.
    """
    now = handle.clock.now_ms() // 1000
    dropped: list[ActivePart] = []

    def build(state: State) -> Sequence[TableOp]:
        dropped[:] = [] if state.dropped else droppable(state, now, partitions, busy)
        by_partition: dict[str, list[ActivePart]] = {}
        for part in dropped:
            by_partition.setdefault(part.info.partition_id, []).append(part)
        if whole:
            by_partition = {n: parts for n, parts in by_partition.items() if len(parts) == len(state.partitions[n])}
            dropped[:] = [part for parts in by_partition.values() for part in parts]
        return [
            DropParts(name, tuple(part.manifest.id for part in parts), "expire") for name, parts in by_partition.items()
        ]

    committed = handle.log.commit(build, passes_on=lambda: False)
    return Dropped(committed.version, tuple(dropped))
