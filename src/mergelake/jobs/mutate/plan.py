"""Which parts are rewritten for pending mutations. Pure.

One rewrite of a part applies all mutations that it lacks. Parts under a Live volatile part are left alone: its bytes
have the mutations, and its publishing brings them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State
from mergelake.log.model.volatile import lacking, top_level
from mergelake.table.partitions.mutations import open_mutations

BATCH_PARTS = 256
BATCH_BYTES = 64 << 20
"""Bytes of the small parts that are rewritten by one piece of work."""


def due_parts(state: State) -> Iterator[ActivePart]:
    """The active parts that lack a mutation and are under no Live volatile part, by partition and block."""
    open_ones = open_mutations(state)
    if not open_ones:
        return
    scopes = [m.partition_ids for m in open_ones]
    names: Sequence[str] = [*state.partitions]
    if all(scope is not None for scope in scopes):
        wanted = {name for scope in scopes if scope is not None for name in scope}
        names = [name for name in names if name in wanted]
    state.partitions.read(names)
    for name in names:
        parts, held = state.partitions[name], state.volatile.get(name, ())
        for element in top_level(parts, held) if held else parts:
            if isinstance(element, ActivePart) and lacking(open_ones, element.info):
                yield element


def mutation_task(
    directory: str, schema: TableSchema, part: ActivePart, state: State, until: int | None = None
) -> MergeTask:
    """The rewrite of one part: a merge of one source, whose rows are not collapsed. `until`: the last mutation."""
    lacks = lacking(state.mutations, part.info)
    lacks = tuple(m for m in lacks if until is None or m.version <= until)
    info = part.info
    name = PartInfo(info.partition_id, info.min_block, info.max_block, info.level, lacks[-1].version)
    source = MergeSource(info, part.manifest, lacks=lacks)
    return MergeTask(directory, schema, (source,), name, "mutation", state.version)


def batches(parts: Sequence[ActivePart]) -> Iterator[tuple[ActivePart, ...]]:
    """The parts in order: small ones of a partition together, large ones alone."""
    group: list[ActivePart] = []
    size = 0
    for part in parts:
        weight = part.manifest.bytes_on_disk
        full = len(group) == BATCH_PARTS or size + weight > BATCH_BYTES
        if group and (full or group[-1].info.partition_id != part.info.partition_id):
            yield tuple(group)
            group, size = [], 0
        group.append(part)
        size += weight
    if group:
        yield tuple(group)


def without(parts: Sequence[ActivePart], busy: Collection[str]) -> list[ActivePart]:
    """The parts whose ids are not `busy`."""
    return [part for part in parts if part.manifest.id not in busy]
