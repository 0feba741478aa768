"""Selects parts to merge: values in, values out.

A merge never crosses a partition, never skips a part, never uses a busy one. So the active parts, in order,
are first cut into **ranges** of parts that could be merged; then the simple selector (`scoring`) finds the
best window of every range; if there is none, all parts of a partition that has rested long enough may be
merged. OPTIMIZE merges whole partitions directly.

How large a merge may be follows from the free slots (`merge_bytes_limit`): the last slots take only small
merges, so that a long merge never starves the small ones that keep the number of parts down.

Sizes are `bytes_on_disk`, ages run from the commit that brought the part to `now_ms`.

Source: ClickHouse, `src/Storages/MergeTree/Compaction/`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Generic, Protocol, TypeVar

import numpy as np

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.settings import TableSettings
from mergelake.jobs.merge.scoring import MergeWindow, SelectorSettings, best_window


class Candidate(Protocol):
    """The attributes of an active part that selection uses; `log`'s ActivePart has them."""

    @property
    def info(self) -> PartInfo:
        """Its partition, blocks and level."""
        ...

    @property
    def manifest(self) -> PartManifest:
        """Its id, size and rows."""
        ...

    @property
    def added_ms(self) -> int:
        """When it was committed, epoch milliseconds."""
        ...


P = TypeVar("P", bound=Candidate)


@dataclass(frozen=True, slots=True)
class MergeSlots:
    """How many merges may run at once, and from how few free slots on they must be small."""

    total: int = 32
    lower_at_free: int = 8
    whole_partition_at_free: int = 25
    """Free slots required for a merge of a whole partition by age."""


def merge_bytes_limit(settings: TableSettings, busy_slots: int = 0, slots: MergeSlots | None = None) -> int:
    """Maximum bytes of the sources of a merge that starts now.

    Full size while many slots are free (or nothing else runs), then decreasing by equal factors down to 1 MiB for the
    last slot.

    >>> merge_bytes_limit(TableSettings(), busy_slots=29)
    92362699
    """
    slots = slots or MergeSlots()
    high = settings.integer("max_bytes_to_merge_at_max_space_in_pool")
    low = min(1 << 20, high)
    free = max(0, slots.total - busy_slots)
    if busy_slots <= 1 or free >= slots.lower_at_free or high == 0:
        return high
    return int(low * (high / low) ** (free / slots.lower_at_free))


def part_ranges(
    parts: Iterable[P],
    *,
    busy: Collection[str] = (),
    mutations: Sequence[int] = (),
    retired: Iterable[PartInfo] = (),
) -> list[list[P]]:
    """Active parts cut into runs of neighbours that may be merged with each other, in order.

    `busy` holds ids of parts that a running merge or mutation uses; `mutations` the `volatile.boundaries` of
    the known mutations;
    `retired` the infos of retired parts: one between two neighbours, with a higher level than both, would seem to be
    covered by their merge after a restart of a reader, so it separates them.
    """
    ordered = sorted(parts, key=_place)
    old = sorted(retired)
    ranges: list[list[P]] = []
    open_range = False
    for part in ordered:
        if part.manifest.id in busy:
            open_range = False
            continue
        if open_range and _may_join(ranges[-1][-1].info, part.info, mutations, old):
            ranges[-1].append(part)
        else:
            ranges.append([part])
        open_range = True
    return ranges


def select_merges(
    parts: Iterable[P],
    settings: TableSettings,
    now_ms: int,
    *,
    bytes_max: Sequence[int] | None = None,
    busy: Collection[str] = (),
    mutations: Sequence[int] = (),
    retired: Iterable[PartInfo] = (),
    base: float | None = None,
) -> list[tuple[P, ...]]:
    """The merges to start now, best first: at most one for each limit in `bytes_max`, disjoint.

    `bytes_max` holds the size limit of each merge that may start (see `merge_bytes_limit`); by default one, of full
    size. `busy`, `mutations`, `retired`: as in `part_ranges`. Each merge has at least two neighbouring parts, in order.
    """
    selector = SelectorSettings.from_table(settings)
    if base is not None:
        selector = replace(selector, base=base)
    limits = [merge_bytes_limit(settings)] if bytes_max is None else list(bytes_max)
    ordered = list(parts)
    statistics = {
        members[0].info.partition_id: (len(members), min(_age_s(part, now_ms) for part in members))
        for members in _by_partition(ordered)
    }
    shapes = [
        _Range(run, now_ms, statistics[run[0].info.partition_id])
        for run in part_ranges(ordered, busy=busy, mutations=mutations, retired=retired)
        if len(run) >= 2
    ]
    chosen: list[tuple[P, ...]] = []
    for limit in limits:
        best: tuple[float, int, int, int] | None = None
        for number, shape in enumerate(shapes):
            window = shape.best_window(selector, limit)
            # Of equal scores the later range wins, like the later window within a range.
            if window is not None and (best is None or window.score <= best[0]):
                best = (window.score, number, window.begin, window.end)
        if best is None:
            continue
        _, number, begin, end = best
        shapes[number].taken[begin:end] = True
        chosen.append(tuple(shapes[number].parts[begin:end]))
    return chosen


def select_rested_partition(
    parts: Iterable[P],
    settings: TableSettings,
    now_ms: int,
    *,
    busy_slots: int = 0,
    slots: MergeSlots | None = None,
    bytes_max: int | None = None,
    busy: Collection[str] = (),
    mutations: Sequence[int] = (),
) -> tuple[P, ...] | None:
    """All parts of the partition that has rested longest, by `min_age_to_force_merge_on_partition_only`; or None.

    Called only if `select_merges` returns nothing. A single part does not qualify.
    """
    age = rest_asked_s(settings, busy_slots, slots)
    if age == 0:
        return None
    limit = merge_bytes_limit(settings, busy_slots, slots) if bytes_max is None else bytes_max
    best: tuple[int, tuple[P, ...]] | None = None
    for members in _by_partition(parts):
        rested = min(_age_s(part, now_ms) for part in members)
        small = sum(part.manifest.bytes_on_disk for part in members) <= limit
        if len(members) >= 2 and rested >= age and small and (best is None or rested > best[0]):
            best = (rested, tuple(members))
    return best[1] if best is not None and is_free(best[1], busy, mutations) else None


def rest_asked_s(settings: TableSettings, busy_slots: int, slots: MergeSlots | None = None) -> int:
    """Seconds that a partition must have rested to be merged whole; 0 if that is off, or too few slots are free."""
    slots = slots or MergeSlots()
    if settings.integer("min_age_to_force_merge_on_partition_only") == 0:
        return 0
    if busy_slots > 1 and slots.total - busy_slots < slots.whole_partition_at_free:
        return 0
    return settings.integer("min_age_to_force_merge_seconds")


def is_free(members: Sequence[P], busy: Collection[str], mutations: Sequence[int]) -> bool:
    """Whether all parts of a partition can be merged with each other now."""
    ranges = part_ranges(members, busy=busy, mutations=mutations)
    return len(ranges) == 1 and not any(part.manifest.id in busy for part in members)


def select_optimize(
    parts: Iterable[P],
    settings: TableSettings,
    now_ms: int,
    *,
    partition_id: str | None = None,
    final: bool = False,
    skip_merged: bool = False,
    busy: Collection[str] = (),
    mutations: Sequence[int] = (),
    throw_if_noop: bool = False,
) -> list[tuple[P, ...]]:
    """The merges of OPTIMIZE: none, one, or one for each partition.

    ==========================  ====================================================================
    OPTIMIZE                    the selector's best with base 1, over all partitions
    … PARTITION p               all parts of p, if there are two
    … PARTITION p FINAL         all parts of p, even a single one (it is written again, a level up)
    … FINAL                     the same for every partition
    ==========================  ====================================================================

    `skip_merged` (`optimize_skip_merged_partitions`) leaves out a single part of level > 0. Raises
    CANNOT_ASSIGN_OPTIMIZE if a whole partition is requested and parts of it are busy or at different mutation
    versions (refresh and try again), and, with `throw_if_noop`, if there is nothing to do.
    """
    all_parts = list(parts)
    if partition_id is None and not final:
        merges = select_merges(all_parts, settings, now_ms, busy=busy, mutations=mutations, base=1.0)
    else:
        merges = []
        for members in _by_partition(all_parts):
            if partition_id is not None and members[0].info.partition_id != partition_id:
                continue
            merged_already = len(members) == 1 and (not final or (skip_merged and members[0].info.level > 0))
            if not merged_already:
                merges.append(_whole(members, busy, mutations))
    if not merges and throw_if_noop:
        raise _noop("There is nothing to merge: no parts, or no run of them that is worth it")
    return merges


def _whole(members: list[P], busy: Collection[str], mutations: Sequence[int]) -> tuple[P, ...]:
    partition = members[0].info.partition_id
    used = [str(part.info) for part in members if part.manifest.id in busy]
    if used:
        raise _noop(f"Part {used[0]} of partition {partition} is being merged", "Wait for it and try again")
    if len(part_ranges(members, mutations=mutations)) != 1:
        raise _noop(
            f"Parts of partition {partition} are at different mutation versions", "Wait for the mutations and try again"
        )
    return tuple(members)


def _noop(message: str, hint: str = "") -> MergelakeError:
    return error("CANNOT_ASSIGN_OPTIMIZE", message, hint)


def _may_join(left: PartInfo, right: PartInfo, mutations: Sequence[int], retired: Sequence[PartInfo]) -> bool:
    if left.partition_id != right.partition_id:
        return False
    if mutations and bisect_right(mutations, left.data_version) != bisect_right(mutations, right.data_version):
        return False
    if not retired:
        return True
    level = max(left.level, right.level)
    return all(part.level <= level for part in retired[bisect_left(retired, left) : bisect_left(retired, right)])


def _by_partition(parts: Iterable[P]) -> list[list[P]]:
    ordered = sorted(parts, key=_place)
    return [list(members) for _, members in groupby(ordered, key=lambda part: part.info.partition_id)]


def _place(part: Candidate) -> tuple[str, int, int]:
    """Sort key of a part: for parts that share no block, the same order as their infos, but faster to compare."""
    return part.info.partition_id, part.info.min_block, part.info.max_block


def _age_s(part: Candidate, now_ms: int) -> int:
    return max(0, now_ms - part.added_ms) // 1000


class _Range(Generic[P]):
    """One range as arrays for scoring; `taken` marks the parts of merges that are already chosen."""

    __slots__ = ("ages", "part_count", "partition_min_age", "parts", "sizes", "taken")

    def __init__(self, parts: Sequence[P], now_ms: int, partition: tuple[int, int] | None = None) -> None:
        """`partition`: number of parts and least age of the partition, if the range is not all of it."""
        self.parts = parts
        self.sizes = np.array([part.manifest.bytes_on_disk for part in parts], np.int64)
        added_ms = np.array([part.added_ms for part in parts], np.int64)
        self.ages = np.maximum(now_ms - added_ms, 0) // 1000
        self.taken = np.zeros(len(parts), np.bool_)
        self.part_count, self.partition_min_age = partition or (len(parts), int(self.ages.min()))

    def best_window(self, selector: SelectorSettings, bytes_max: int) -> MergeWindow | None:
        """The best merge of parts that are not taken, or None."""
        return best_window(
            self.sizes,
            self.ages,
            selector,
            part_count=self.part_count,
            partition_min_age=self.partition_min_age,
            bytes_max=bytes_max,
            taken=self.taken,
        )
