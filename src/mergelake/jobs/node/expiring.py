"""What a TTL asks of a node: parts to drop unread, and merges that come before the regular ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.engines.ttl.ttl import has_ttl, table_ttl
from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.jobs.merge.ttl import plan_expiry
from mergelake.jobs.merge.ttl_drop import droppable_in
from mergelake.jobs.merge.ttl_select import TtlMemory, select_ttl_merge
from mergelake.jobs.node.actions import DropExpired, Merge, NodeView, TableView
from mergelake.jobs.node.candidates import Candidates, Memory
from mergelake.log.model.immutable import immutable_partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.volatile import covered, lacking, outermost, pending


def ttl_memory(table: TableView, memory: Memory) -> TtlMemory[ActivePart] | None:
    """When the TTL of a table first asks for something; None without a TTL."""
    schema = table.state.schema
    if not has_ttl(schema):
        return None
    make = TtlMemory[ActivePart]
    return memory.expiry(schema.version, table.state.partitions, lambda: make(table_ttl(schema), table.settings))


def expired(node: NodeView, table: TableView, memory: Memory) -> DropExpired | None:
    """The parts to drop, if there are any."""
    times = ttl_memory(table, memory)
    if times is None or not node.merges or node.draining or table.waits:
        return None
    busy = frozenset[str]().union(*table.merging)
    names = [name for name in times.drops(node.now_ms // 1000) if _has_droppable(table, name, node, busy)]
    return DropExpired(table.table_id, tuple(names), busy) if names else None


def _has_droppable(table: TableView, name: str, node: NodeView, busy: frozenset[str]) -> bool:
    state = table.state
    return name in state.partitions and bool(
        droppable_in(state, name, table_ttl(state.schema), node.now_ms // 1000, busy)
    )


def ttl_merge(node: NodeView, table: TableView, memory: Memory, candidates: Candidates, limit: int) -> Merge | None:
    """The merge that the TTL of a table asks for next; None: there is none.

    Parts under a Live volatile part wait until it is in the store.
    """
    times = ttl_memory(table, memory)
    if times is None:
        return None
    state, now = table.state, node.now_ms // 1000
    for name in times.merges(now):
        if immutable_partitions(state, [name]):
            continue
        parts, live = state.partitions.get(name, ()), outermost(state.volatile.get(name, ()))
        busy = {
            part.manifest.id
            for part in parts
            if part.manifest.id in candidates.busy or covered(live, part.info) or pending(state.mutations, part.info)
        }
        found = select_ttl_merge(parts, table_ttl(state.schema), table.settings, now, bytes_max=limit, busy=busy)
        if found is not None:
            return Merge(table.table_id, found.parts, kind=found.kind)
    return None


def expires(node: NodeView, table: TableView, parts: Sequence[ActivePart]) -> bool:
    """Whether a merge of these parts, now, removes rows or values, or gives them another codec."""
    state = table.state
    if not has_ttl(state.schema) or immutable_partitions(state, [parts[0].info.partition_id]):
        return False
    sources = tuple(MergeSource(p.info, p.manifest, lacks=lacking(state.mutations, p.info)) for p in parts)
    expiry = plan_expiry(MergeTask(table.table_id, state.schema, sources, parts[0].info, time_ms=node.now_ms))
    return expiry is not None and (expiry.removes or expiry.recompression is not None)
