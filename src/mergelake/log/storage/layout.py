"""Which active parts of a state lie in segments, which in the checkpoint itself, and which are written anew. Pure.

A checkpoint is derived from the one before it and the partitions that have changed since (`following`): for a part in a
segment a bit changes, new parts come into the checkpoint itself, with their file tables. Once these take more than
`INLINE_MAX` bytes they go into a new segment (`spilled`); a small table is one object. Segments are merged by size,
`FANOUT` of a tier at a time, those with less than half of `SEGMENT_MAX` bytes of active parts. So a part is written
into some checkpoints, and log(`SEGMENT_MAX` / `INLINE_MAX`) times into a segment, whatever the size of the table, and
at most about half of the bytes in segments belong to parts that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.storage.segment import OpenSegment, SegmentMember, SegmentRef
from mergelake.log.storage.stored_runs import PlacedRun, RunRef

INLINE_MAX = 256 << 10
"""Bytes of parts, compressed, that a checkpoint holds itself."""
SEGMENT_MAX = 16 << 20
"""Approximate bytes of a segment."""
FANOUT = 8
"""Segments of a tier that are merged at once."""
_ZIPPED = 4
"""Approximate compression ratio of file tables."""
FACTS_BYTES = 64
"""Approximate bytes of a part without its file table."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition with parts in segments."""

    value: str
    """Hex of its `partition.dat`."""
    parts: int
    """Number of its parts."""
    names: tuple[str, ...]
    """Names of the segments."""


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """Where the active parts of the state of a checkpoint lie."""

    members: Mapping[str, SegmentMember] = field(default_factory=dict)
    """By the name of the segment."""
    placed: Mapping[str, Placed] = field(default_factory=dict)
    """By partition id."""
    inline: Mapping[str, tuple[ActivePart, ...]] = field(default_factory=dict)
    """By partition id: parts in no segment, by block."""
    runs: tuple[PlacedRun, ...] = ()
    """Retired parts; for a checkpoint that was read, only those in segments."""

    @property
    def names(self) -> frozenset[str]:
        """Names of all segments."""
        return frozenset((*self.members, *(run.name for run in self.run_refs)))

    @property
    def refs(self) -> tuple[SegmentRef, ...]:
        """The segments with active parts."""
        return tuple(member.ref for member in self.members.values())

    @property
    def run_refs(self) -> tuple[RunRef, ...]:
        """The segments with retired parts."""
        return tuple(run for run in self.runs if isinstance(run, RunRef))

    @property
    def inline_bytes(self) -> int:
        """Approximate bytes of the parts in no segment."""
        return sum(size_of(part) for parts in self.inline.values() for part in parts)


def changed_since(partitions: Partitions, version: int, base: SegmentLayout, lost: Collection[str]) -> set[str]:
    """Partitions that may differ from the checkpoint of a version, or lie in segments that are `lost`."""
    if partitions.since > version:  # changes are known only since a later version
        return {*partitions, *base.placed, *base.inline}
    changed = {name for name, at in partitions.touched.items() if at > version}
    if lost:
        changed.update(name for name, placed in base.placed.items() if not set(placed.names).isdisjoint(lost))
    return changed


def following(
    base: SegmentLayout, partitions: Partitions, changed: Collection[str], opened: Callable[[str], OpenSegment]
) -> SegmentLayout:
    """The layout after `base`, if the partitions `changed` have changed; `opened` gives the segments that hold them."""
    live: dict[str, NDArray[np.bool_]] = {}
    placed, inline = dict(base.placed), dict(base.inline)

    def alive(name: str) -> NDArray[np.bool_]:
        if name not in live:
            live[name] = base.members[name].live.copy()
        return live[name]

    for partition_id in changed:
        before = placed.pop(partition_id, None)
        inline.pop(partition_id, None)
        known: dict[tuple[str, int], tuple[str, int]] = {}
        for name in before.names if before is not None else ():
            rows = opened(name).known(partition_id)
            alive(name)[list(rows.values())] = False
            known.update((each, (name, row)) for each, row in rows.items())
        places, rest = _split_known(partitions, partition_id, known)
        for name, row in places:
            alive(name)[row] = True
        if places:
            names = tuple(sorted({name for name, _ in places}))
            placed[partition_id] = Placed(partitions.partition_value(partition_id), len(places), names)
        if rest:
            inline[partition_id] = rest
    members = {
        name: replace(member, live=live[name]) if name in live else member
        for name, member in base.members.items()
        if name not in live or live[name].any()
    }
    return SegmentLayout(members, placed, inline)


def _split_known(
    partitions: Partitions, partition_id: str, known: Mapping[tuple[str, int], tuple[str, int]]
) -> tuple[list[tuple[str, int]], tuple[ActivePart, ...]]:
    """Where the parts of a partition lie in segments, and those that lie in none of the `known` places.

    Parts in segments are not decoded for it, if possible.
    """
    parts = partitions.held(partition_id)
    places: list[tuple[str, int]] = []
    if not isinstance(parts, tuple):
        stored = parts
        try:
            places, parts = [known[key] for key in stored.stored_keys()], stored.beside
        except (KeyError, NotFoundError, CorruptDataError):  # they lie elsewhere, or the segment is unreadable
            parts = stored.parts()
    keys = [(part.manifest.id, part.added) for part in parts]
    places += [known[key] for key in keys if key in known]
    return places, tuple(part for part, key in zip(parts, keys, strict=True) if key not in known)


def spilled(
    layout: SegmentLayout, partitions: Partitions, merged: Mapping[str, OpenSegment], new: Sequence[OpenSegment]
) -> SegmentLayout:
    """The layout once all parts outside of segments, and those in `merged` segments, lie in `new` segments."""
    placed = dict(layout.placed)
    homes: dict[str, list[str]] = {}
    for segment in new:
        for partition_id in segment.ranges:
            homes.setdefault(partition_id, []).append(segment.ref.name)
    for partition_id, names in homes.items():
        before = placed[partition_id].names if partition_id in placed else ()
        every = (*(name for name in before if name not in merged), *names)
        value, count = partitions.partition_value(partition_id), len(partitions.held(partition_id))
        placed[partition_id] = Placed(value, count, tuple(sorted(every)))
    members = {name: member for name, member in layout.members.items() if name not in merged}
    members |= {segment.ref.name: SegmentMember(segment.ref, np.ones(segment.ref.rows, np.bool_)) for segment in new}
    return SegmentLayout(members, placed)


def size_of(part: ActivePart) -> int:
    """Approximate compressed bytes of a part with its file table."""
    files = part.manifest.files
    return FACTS_BYTES + (len(files.text) // _ZIPPED if files.in_memory else 0)


def to_merge(members: Collection[SegmentMember]) -> list[str]:
    """Names of the segments to merge, together with the new parts, when a segment is written."""
    tiers: dict[int, list[SegmentMember]] = {}
    for member in sorted(members, key=lambda each: (each.live_bytes, each.ref.name)):
        if member.live_bytes < SEGMENT_MAX // 2:
            tiers.setdefault(_tier(member.live_bytes), []).append(member)
    names: list[str] = []
    left = SEGMENT_MAX
    for tier in sorted(tiers):
        for member in tiers[tier] if len(tiers[tier]) >= FANOUT - 1 else ():
            left -= member.live_bytes
            if left >= 0:
                names.append(member.ref.name)
    return names


def _tier(size: int) -> int:
    tier = 0
    while size > INLINE_MAX * FANOUT**tier:
        tier += 1
    return tier


def cuts(sizes: Sequence[int]) -> list[slice]:
    """Rows of these sizes cut into segments of about `SEGMENT_MAX` bytes at most."""
    ends: list[int] = []
    size = 0
    for row, each in enumerate(sizes):
        size += each
        if size > SEGMENT_MAX and row > (ends[-1] if ends else 0):
            ends.append(row)
            size = each
    return [slice(start, end) for start, end in zip([0, *ends], [*ends, len(sizes)], strict=True)]
