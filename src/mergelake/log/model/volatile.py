"""Live volatile parts among the active ones: which covers which. Pure, over the elements of one partition.

Live volatile parts are nested or disjoint, and the active parts within each tile its blocks exactly. An **element** is
an active or a Live volatile part; the **top-level** ones, in block order, hold every row of the partition once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from mergelake.core.model.names import PartInfo
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import PendingMutation, State, VolatilePart

Element: TypeAlias = ActivePart | VolatilePart


def element_id(element: Element) -> str:
    """The id of an active part, or of a volatile one."""
    return element.id if isinstance(element, VolatilePart) else element.manifest.id


def inside(info: PartInfo, outer: PartInfo) -> bool:
    """Whether the blocks of `info` lie within those of `outer` (of the same partition)."""
    return outer.min_block <= info.min_block and info.max_block <= outer.max_block


def top_level(parts: Sequence[ActivePart], volatile: Sequence[VolatilePart]) -> list[Element]:
    """The elements under no Live volatile part, in block order. Both arguments as a state holds them."""
    if not volatile:
        return list(parts)
    out: list[Element] = []
    at = 0
    for outer in outermost(volatile):
        end = bisect_left(parts, outer.info.min_block, at, key=_low)
        out += parts[at:end]
        out.append(outer)
        at = bisect_right(parts, outer.info.max_block, end, key=_high)
    return [*out, *parts[at:]]


def outermost(volatile: Iterable[VolatilePart]) -> list[VolatilePart]:
    """The volatile parts within no other, in block order."""
    out: list[VolatilePart] = []
    for part in volatile:
        if not out or part.info.min_block > out[-1].info.max_block:
            out.append(part)
    return out


def leaves(parts: Sequence[ActivePart], info: PartInfo) -> tuple[ActivePart, ...]:
    """The active parts within a range of blocks, in order."""
    start = bisect_left(parts, info.min_block, key=_low)
    return tuple(parts[start : bisect_right(parts, info.max_block, start, key=_high)])


def nested(volatile: Sequence[VolatilePart], outer: VolatilePart) -> tuple[VolatilePart, ...]:
    """The Live volatile parts on which `outer` is built, without itself."""
    return tuple(part for part in volatile if part.id != outer.id and inside(part.info, outer.info))


def dependents(volatile: Sequence[VolatilePart], inner: VolatilePart) -> tuple[VolatilePart, ...]:
    """The Live volatile parts that are built on `inner`, without itself."""
    return tuple(part for part in volatile if part.id != inner.id and inside(inner.info, part.info))


def sources(state: State, part: VolatilePart) -> tuple[Element, ...]:
    """The current sources of a volatile part: a published source is replaced by the active part of its blocks."""
    volatile = state.volatile.get(part.info.partition_id, ())
    parts = state.partitions.get(part.info.partition_id, ())
    live = {inner.id: inner for inner in nested(volatile, part)}
    return tuple(
        element for id, info in part.sources for element in ([live[id]] if id in live else leaves(parts, info))
    )


def covered(volatile: Sequence[VolatilePart], info: PartInfo) -> bool:
    """Whether a Live volatile part shares a block with `info`."""
    return any(part.info.min_block <= info.max_block and info.min_block <= part.info.max_block for part in volatile)


def lacking(mutations: Sequence[PendingMutation], element: PartInfo) -> tuple[PendingMutation, ...]:
    """The mutations that the rows of an element still lack, in order."""
    version, partition_id = element.data_version, element.partition_id
    return tuple(
        m
        for m in mutations
        if m.since <= version < m.version
        and not (m.killed or m.finished_ms)
        and (m.partition_ids is None or partition_id in m.partition_ids)
    )


def pending(mutations: Sequence[PendingMutation], element: PartInfo) -> tuple[int, ...]:
    """Versions of the mutations that the rows of an element still lack, ascending."""
    return tuple(m.version for m in lacking(mutations, element)) if mutations else ()


def boundaries(mutations: Iterable[PendingMutation]) -> tuple[int, ...]:
    """The data versions, ascending, at which parts begin to lack other mutations than those of the version before."""
    return tuple(sorted({at for m in mutations for at in (m.since, m.version)} - {0}))


def unfinished(state: State) -> tuple[PendingMutation, ...]:
    """The mutations that some active part still lacks."""
    open_ones = [m for m in state.mutations if not (m.killed or m.finished_ms)]
    done = list(open_ones)
    # Mostly some part that is in memory lacks them all.
    parts = chain(state.partitions.in_memory(), state.parts()) if done else ()
    for part in parts:
        if lacks := lacking(done, part.info):
            done = [m for m in done if m not in lacks]
            if not done:
                break
    return tuple(m for m in open_ones if m not in done)


def _low(part: ActivePart) -> int:
    return part.info.min_block


def _high(part: ActivePart) -> int:
    return part.info.max_block
