"""Plans the next actions of a node: states in, actions out.

It is called once a tick. For each table it first does housekeeping (drops bytes that are not needed, gives up failed
volatile parts, publishes uploaded ones, renews the lease), then uploads, then builds the volatile parts that it owns or
adopts, drops what has expired (`expiring`), and finally, tables in turn, selects new merges and the parts to be
rewritten for mutations (`Mutate`):

- If merges are volatile (`are_volatile`), a merge begins as a volatile part (`Propose`), which claims its blocks for
  this node. Those of fresh parts are for the disk; they may use top-level active parts and volatile parts whose bytes
  are here. Every other Live one is a **barrier**: it is among the candidates and cannot be chosen. What is uploaded,
  and which merges of parts in the store are made, is the budget's (`spending`).
  If the disk has no room for a merge (`room`), caches are deleted first; otherwise it is written to the store.
- Otherwise a merge is a `Merge`, of top-level active parts, straight to the store.

Parts in use are never chosen again. If another node chooses the same parts, the log decides: one entry lands, the other
finds its sources gone. Clocks and leases affect which node works, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import inf

from mergelake.core.model.settings import TableSettings
from mergelake.core.types.types import AggregateFunction
from mergelake.jobs.merge.select import merge_bytes_limit
from mergelake.jobs.merge.volatile import choose_uploads, same_content, volatile_allowed
from mergelake.jobs.mutate.plan import batches, due_parts, without
from mergelake.jobs.node.actions import (
    Abandon,
    Action,
    Adopt,
    Build,
    Discard,
    EndMutations,
    Merge,
    Mutate,
    NodeView,
    Propose,
    PublishVolatile,
    Renew,
    ShortWork,
    TableView,
    Upload,
)
from mergelake.jobs.node.candidates import Candidates, Memory
from mergelake.jobs.node.expiring import expired, expires, ttl_merge
from mergelake.jobs.node.room import Cached, DiskRoom, build_size
from mergelake.jobs.node.spending import Spending
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State, VolatilePart
from mergelake.log.model.volatile import dependents, inside, outermost
from mergelake.table.partitions.mutations import finished_by, open_mutations

JOINED_BYTES = 1 << 20
"""Bytes of the sources of merges that are executed together, each."""
_CHOICES = 4
"""Merges among which a node takes one, where they are executed together."""


def tick(node: NodeView, tables: Sequence[TableView], memories: dict[str, Memory] | None = None) -> list[Action]:
    """The actions to start now: short work first, and long work for the free slots.

    Tables take turns: each gets its best merge before any gets a second one, those with most active parts first.
    `memories`, by table, are kept from tick to tick: they save work and do not affect the result.
    """
    memories = {} if memories is None else memories
    spending = {
        table.table_id: _spending(node, table, memories.setdefault(table.table_id, Memory()))
        for table in tables
        if not (node.draining or table.waits) and (node.merges or node.uploads) and are_volatile(node, table)
    }
    kept = {table.table_id: _kept(table) for table in tables}
    room = DiskRoom(node, tables, [cached for each in kept.values() for cached in each.cached])
    actions: list[Action] = [
        action for table in tables for action in _housekeeping(node, table, kept[table.table_id], spending)
    ]
    awake = sorted((table for table in tables if not table.waits), key=lambda table: -table.state.part_count)
    uploads = node.slots.total - sum(len(table.uploading) for table in tables)
    for table in awake:
        chosen = _uploads(node, table, spending.get(table.table_id))[: max(0, uploads)]
        uploads -= len(chosen)
        actions += chosen
    dropping = {table.table_id: expired(node, table, memories.setdefault(table.table_id, Memory())) for table in awake}
    actions += [drop for drop in dropping.values() if drop is not None]
    used = sum(len(table.merging) + len(table.building) for table in tables)
    for table in awake:
        for work in _builds(node, table):
            if used >= node.slots.total:
                break
            placed = _placed(work, table, room)
            if placed is not None:
                actions.append(placed)
                used += 1
    due = {table.table_id: _mutations(node, table) for table in awake} if node.mutates and not node.draining else {}
    waiting = sum(map(len, due.values()))
    running = sum(len(table.mutating) for table in tables)
    # One slot is for mutations as long as any waits, so neither holds up the other; they take what merges leave.
    reserved = min(waiting, max(0, 1 - running))
    if node.merges and not node.draining:
        # Where parts are dropped now, merges wait for the next tick: they would take the same parts.
        others = [table for table in awake if dropping[table.table_id] is None]
        merges, beside = _new_merges(node, others, used, room, memories, spending, reserved)
        taken = {part_id for work in merges if isinstance(work, Merge) for part_id in work.part_ids}
        taken |= {source for work in merges if isinstance(work, Propose) for source in work.source_ids}
        actions += merges
        used += len(merges) - beside
        due = {name: _without(works, taken) for name, works in due.items()}
    actions += [work for works in due.values() for work in works][: max(0, node.slots.total - used)]
    for table_id in memories.keys() - {table.table_id for table in tables}:
        del memories[table_id]
    return [*room.discards(), *actions]


def _placed(work: Build | Adopt, table: TableView, room: DiskRoom) -> Build | Adopt | None:
    """The build on the disk, or past it without room; None if there will be room once caches are deleted."""
    if isinstance(work, Adopt):
        return work
    size = build_size(table, work.id)
    if room.take(size):
        return work
    return None if room.make(size) else replace(work, past_disk=True)


def are_volatile(node: NodeView, table: TableView) -> bool:
    """Whether this node's merges of the table begin as volatile parts."""
    policy = table.settings.text("merge_upload_policy")
    chosen = policy == "volatile" or (policy == "auto" and node.keeps_volatile)
    return chosen and table.merges and volatile_allowed(table.state.schema)


def _announces_disk(node: NodeView, table: TableView) -> bool:
    merges = node.merges and table.merges
    return merges and node.keeps_volatile and table.settings.text("merge_upload_policy") == "auto"


def _left_to_others(node: NodeView, table: TableView) -> bool:
    """Whether merges are left to another node, which lives and has a disk: this one has none."""
    if table.settings.text("merge_upload_policy") != "auto" or node.keeps_volatile:
        return False
    return volatile_allowed(table.state.schema) and any(
        lease.disk and name not in table.silent and name != node.name and lease.until_ms > node.now_ms
        for name, lease in table.state.leases.items()
    )


def _spending(node: NodeView, table: TableView, memory: Memory) -> Spending:
    return Spending(node, table, Candidates(node, table, memory, claimed=True), memory)


def _housekeeping(
    node: NodeView, table: TableView, kept: _Kept, spending: Mapping[str, Spending]
) -> Iterator[ShortWork]:
    if kept.lost:
        yield Discard(table.table_id, tuple(kept.lost), tuple(kept.different))
    if table.waits:
        return
    own = [part for live in table.state.volatile.values() for part in live if part.owner == node.name]
    failed = tuple(part.id for part in own if part.id in table.failed)
    if failed:
        yield Abandon(table.table_id, failed, "it cannot be built")
    if node.draining:
        unbuildable = tuple(p.id for p in _absent(table) if p.owner == node.name and p.id not in table.failed)
        if unbuildable:
            yield Abandon(table.table_id, unbuildable, "its owner leaves")
    if node.mutates and not node.draining and _are_over(table.state):
        yield EndMutations(table.table_id)
    for volatile_id in sorted(table.uploaded):
        yield PublishVolatile(table.table_id, volatile_id)
    listens = None if node.draining else table.listens
    short = lease_left_ms(table.state, node.name, node.now_ms) * 3 <= lease_ms(table.state)
    # The lease tells nodes without a disk to leave the merges to this one.
    fills = _announces_disk(node, table) and table.table_id in spending and spending[table.table_id].outlines.filling
    if ((own or listens or fills) and short) or (listens and listens != _announced(table.state, node.name)):
        yield Renew(table.table_id)


def _announced(state: State, node: str) -> tuple[str, str] | None:
    lease = state.leases.get(node)
    return (lease.address, lease.token) if lease else None


def lease_ms(state: State) -> int:
    """Duration of a lease, also for a dropped table."""
    return TableSettings(state.schemas[state.schema_version].settings).integer("volatile_lease_seconds") * 1000


def lease_left_ms(state: State, node: str, now_ms: int) -> int:
    """Remaining duration of a node's lease, by this clock; 0 without one."""
    lease = state.leases.get(node)
    return max(0, lease.until_ms - now_ms) if lease else 0


def _outermost(state: State) -> list[VolatilePart]:
    return [part for live in state.volatile.values() for part in outermost(live)]


def _absent(table: TableView) -> list[VolatilePart]:
    """The outermost volatile parts whose bytes are neither here nor being built, the oldest first."""
    available = {*table.local, *table.building, *table.uploaded}
    return sorted((part for part in _outermost(table.state) if part.id not in available), key=lambda part: part.added)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The parts on the disk that are not needed for Live volatile parts."""

    lost: list[str]
    """Ids of those to delete."""
    different: list[tuple[str, int]]
    """Ids of those of `lost` that differ from the part of their name, with the version that brought it."""
    cached: list[Cached]
    """Those that the store holds, too: they stay as a cache while there is room."""


def _kept(table: TableView) -> _Kept:
    """Which parts on the disk are deleted, and which may stay as a cache.

    A Live volatile part stays, unless one built on it is here; published ones may stay as a cache for the equal parts
    in the store. Parts that a build reads from are in neither list.
    """
    live = {part.id: (part, held) for held in table.state.volatile.values() for part in held}
    reading = [live[volatile_id][0].info for volatile_id in table.building if volatile_id in live]
    # The bytes of equal states may differ: they depend on which were merged first.
    with_states = any(isinstance(column.type, AggregateFunction) for column in table.state.schema.stored)
    kept = _Kept([], [], [])
    for local in table.local.values():
        if local.id in live:
            part, held = live[local.id]
            if any(outer.id in table.local for outer in dependents(held, part)):
                kept.lost.append(local.id)
            continue
        published = table.state.find(str(local.info))
        if published is not None and same_content(local.manifest, published.manifest):
            if not any(inside(local.info, info) for info in reading):
                size = local.manifest.bytes_on_disk
                kept.cached.append(Cached(published.added_ms, table.table_id, local.id, size))
        else:
            kept.lost.append(local.id)
            if published is not None and not (with_states and published.manifest.rows == local.manifest.rows):
                kept.different.append((local.id, published.added))
    return kept


def _are_over(state: State) -> bool:
    """Whether no part lacks any mutation, and the log does not say so yet of all."""
    return bool(open_mutations(state)) and next(due_parts(state), None) is None and bool(finished_by(state, {}))


def _mutations(node: NodeView, table: TableView) -> list[Mutate]:
    """The mutations of parts that are due: not of those in use, nor where one failed not long ago."""
    state = table.state
    open_ones = open_mutations(state)
    # Where projections may need what merges here lack, both are left to others.
    if not open_ones or (state.schema.projections and not table.merges):
        return []
    wait_ms = table.settings.integer("min_age_to_apply_mutations_seconds") * 1000
    many = len(open_ones) >= table.settings.integer("mutations_to_apply_early")
    if not many and node.now_ms - open_ones[0].added_ms < wait_ms:
        return []
    busy = set().union(*table.merging)
    avoided = table.avoided
    parts = [
        part
        for part in due_parts(state)
        if part.manifest.id not in busy and not any(area.intersects(part.info) for area in avoided)
    ]
    return [Mutate(table.table_id, batch) for batch in batches(parts)]


def _without(works: Sequence[Mutate], taken: Collection[str]) -> list[Mutate]:
    left = [replace(work, sources=tuple(without(work.sources, taken))) for work in works]
    return [work for work in left if work.sources]


def _uploads(node: NodeView, table: TableView, spending: Spending | None) -> list[Upload]:
    if not (node.uploads or node.draining):
        return []
    under_way = table.uploading | table.uploaded
    tops = {part.id: part for part in _outermost(table.state)}
    ready = {
        volatile_id: local
        for volatile_id, local in table.local.items()
        if volatile_id in tops and tops[volatile_id].owner == node.name and volatile_id not in under_way
    }
    due = spending.uploads if spending is not None else {}
    chosen = choose_uploads(table.state, table.settings, ready, due, everything=spending is None)
    chosen.sort(key=lambda part: part.id not in due)
    if spending is not None:
        spending.candidates.busy.update(part.id for part in chosen)
    return [Upload(table.table_id, part.id, due.get(part.id, False)) for part in chosen]


def _builds(node: NodeView, table: TableView) -> Iterator[Build | Adopt]:
    """Own volatile parts without bytes, the oldest first; then those of silent owners."""
    if node.draining:
        return
    absent = [part for part in _absent(table) if part.id not in table.failed]
    yield from (Build(table.table_id, part.id) for part in absent if part.owner == node.name)
    if node.merges and table.merges:
        for part in absent:
            if part.owner != node.name and (part.owner in table.silent or part.owner not in table.state.leases):
                yield Adopt(table.table_id, part.id, part.owner)


def _new_merges(
    node: NodeView,
    tables: Sequence[TableView],
    used: int,
    room: DiskRoom,
    memories: dict[str, Memory],
    spending: Mapping[str, Spending],
    reserved: int = 0,
) -> tuple[list[Merge | Propose], int]:
    """The merges to begin, and how many of them share the slot of another; `reserved` slots are left free, not all."""
    started: list[Merge | Propose] = []
    total = max(node.slots.total - reserved, min(1, node.slots.total - used))
    if used >= total:
        return started, 0
    running = sum(len(table.expiring) for table in tables)
    waiting = [table for table in tables if table.merges and not _left_to_others(node, table)]
    candidates = {
        table.table_id: Candidates(node, table, memories.setdefault(table.table_id, Memory()), claimed=False)
        for table in waiting
        if table.table_id not in spending
    }
    while waiting and used + len(started) < total:
        again: list[TableView] = []
        for table in waiting:
            if used + len(started) >= total:
                break
            budget = spending.get(table.table_id)
            elements = candidates[table.table_id] if budget is None else budget.candidates
            busy_slots = used + len(started)
            limit = merge_bytes_limit(table.settings, busy_slots, node.slots)
            work: Merge | Propose | None = None
            if limit:
                expiring = running + sum(isinstance(each, Merge) and each.kind != "regular" for each in started)
                if expiring < table.settings.integer("max_number_of_merges_with_ttl_in_pool"):
                    work = ttl_merge(node, table, memories[table.table_id], elements, limit)
            if limit and work is None:
                work = (
                    _direct(table, busy_slots, limit, elements)
                    if budget is None
                    else _of_budget(node, table, busy_slots, limit, budget, room)
                )
            if work is not None:
                started.append(work)
                elements.take(work.part_ids if isinstance(work, Merge) else work.source_ids, work.partition_id)
                again.append(table)
        waiting = again
    beside = list(_beside(node, tables, started, used, candidates))
    return [*started, *beside], len(beside)


def _direct(table: TableView, used: int, limit: int, candidates: Candidates) -> Merge | None:
    sources = candidates.best(candidates.busy | candidates.volatile, used, limit)
    return None if sources is None else Merge(table.table_id, sources, table.joins and _are_small(table, sources))


def _beside(
    node: NodeView,
    tables: Sequence[TableView],
    started: Sequence[Merge | Propose],
    used: int,
    candidates: Mapping[str, Candidates],
) -> Iterator[Merge]:
    """More merges of small parts, executed together with a first one: a table of many partitions has many.

    Nothing is claimed, so of the best ones each node takes others: nodes that chose alike would lose most of them.
    """
    left = node.together - 1
    small = {work.table_id for work in started if isinstance(work, Merge) and work.joins}
    for table in (table for table in tables if table.table_id in small):
        elements, found = candidates[table.table_id], list[Merge]()
        while len(found) < left * _CHOICES:
            work = _direct(table, used, JOINED_BYTES, elements)
            if work is None or not work.joins:
                break
            elements.take(work.part_ids, work.partition_id)
            found.append(work)
        found.sort(key=lambda work: blake2b(f"{node.name} {work.partition_id}".encode(), digest_size=8).digest())
        yield from found[:left]
        left -= len(found[:left])


def _are_small(table: TableView, sources: Sequence[ActivePart]) -> bool:
    manifests = [part.manifest for part in sources]
    rows, size = sum(each.rows for each in manifests), sum(each.bytes_on_disk for each in manifests)
    return rows <= table.settings.integer("index_granularity") and size <= JOINED_BYTES


def _of_budget(
    node: NodeView, table: TableView, used: int, limit: int, spending: Spending, room: DiskRoom
) -> Merge | Propose | None:
    """The next volatile part: for an upload that is due, on the disk, of settled parts, or one that a user forces.

    Nothing expires in a volatile part. So stored parts in which something has expired are merged without one.
    """
    candidates, cap = spending.candidates, spending.rules.disk
    sources, past_target = spending.next_finish(), False
    if sources is None and node.keeps_volatile:
        unusable = candidates.busy | candidates.absent | spending.finishing
        sources = _for_disk(
            lambda bytes_max: candidates.best(unusable, used, bytes_max, disk=cap), min(cap, limit), room
        )
        if sources == ():
            return None  # there will be room once caches are deleted
    if sources is None:
        stored = candidates.busy | candidates.volatile
        if spending.rules.target:
            sources, past_target = spending.next_settled(limit) or (None, False)
            if sources is None and table.settings.integer("min_age_to_force_merge_seconds"):
                sources = candidates.best(stored, used, limit, base=inf)
        else:
            sources = candidates.best(stored, used, limit)
        if sources is not None and expires(node, table, sources):
            return Merge(table.table_id, sources, past_target=past_target)
    if sources is None:
        return None
    ids = tuple(part.manifest.id for part in sources)
    return Propose(table.table_id, sources[0].info.partition_id, ids, past_target)


def _for_disk(
    chosen: Callable[[int], tuple[ActivePart, ...] | None], limit: int, room: DiskRoom
) -> tuple[ActivePart, ...] | None:
    """The merge to build on the disk next; None if there is none, empty if it waits for caches to be deleted.

    If the disk has no room for any, the best one all the same: it is built in the store (`_placed`).
    """
    sources = chosen(limit if room.left is None else min(limit, room.left))
    if sources is None and room.left is not None and room.left < limit:
        sources = chosen(limit)
        if sources is None:
            return None
        if room.make(sum(part.manifest.bytes_on_disk for part in sources)):
            return ()
    if sources is not None:
        room.take(sum(part.manifest.bytes_on_disk for part in sources))
    return sources
