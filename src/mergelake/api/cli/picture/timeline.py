"""A table's life as values: when each part was born and retired, when each merge began, and where its bytes went.

Everything is read from the log and from `Table.parts`, nothing is measured on the side. `sheet` draws it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from mergelake.log.model.operations import AddVolatile, CancelVolatile, Entry, Publish


@dataclass(frozen=True, slots=True)
class PartLife:
    """One part of the bucket, from the entry that added it to the one that retired it."""

    id: str
    name: str
    min_block: int
    max_block: int
    level: int
    rows: int
    bytes: int
    born_ms: int
    died_ms: int | None
    """None while it is active."""
    merged: bool
    """Written by a merge (else by an insert)."""


class MergeFate(Enum):
    """What became of the bytes of a merge."""

    BUCKET = "in the bucket"
    DISK = "merged on, on the node's disk"
    WAITING = "on the node's disk"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class MergeLife:
    """One merge, from the entry that it began at to the one that settled where its bytes go."""

    level: int
    sources: int
    """How many it merged: parts, or results of merges that were on the node's disk."""
    min_block: int
    max_block: int
    rows: int
    bytes: int
    """Of the result where it is in the bucket; else of the inserted parts that it covers."""
    began_ms: int
    ended_ms: int | None
    """None: not settled yet."""
    volatile: bool
    """Whether it was a volatile part, to be built on a node's disk."""
    outcome: MergeFate


def part_lives(parts: pa.Table, entries: Iterable[Entry]) -> list[PartLife]:
    """The lives of all parts: from `Table.parts(active_only=False)` and the entries of its log."""
    times: dict[int, int] = {}
    merged: set[str] = set()
    for entry in entries:
        times[entry.version] = entry.timestamp_ms
        merged |= {op.part.id for op in entry.effective if isinstance(op, Publish)}
    oldest = min(times.values(), default=0)  # the log may begin after a part did
    return [
        PartLife(
            row["uuid"],
            row["name"],
            row["min_block_number"],
            row["max_block_number"],
            row["level"],
            row["rows"],
            row["bytes_on_disk"],
            times.get(row["added_version"], oldest),
            times.get(row["removed_version"]),
            merged=row["uuid"] in merged,
        )
        for row in parts.to_pylist()
    ]


def merge_lives(lives: Sequence[PartLife], entries: Iterable[Entry]) -> list[MergeLife]:
    """All merges, in the order of their beginning; those whose sources are not known any more are left out."""
    parts = {life.id: life for life in lives}
    times: dict[int, int] = {}
    direct: list[MergeLife] = []
    intended: dict[str, _Intended] = {}
    for entry in entries:
        at = times[entry.version] = entry.timestamp_ms
        for op in entry.effective:
            match op:
                case AddVolatile(volatile_id, _, sources):
                    for source in sources:
                        if source in intended:
                            intended[source].settle(at, MergeFate.DISK)
                    intended[volatile_id] = _Intended(at, sources)
                case CancelVolatile(ids):
                    _give_up(intended, set(ids), at)
                case Publish(part, replaced, kind, volatile_id) if kind != "mutation":
                    if volatile_id in intended:
                        intended[volatile_id].settle(at, MergeFate.BUCKET, part.id)
                    elif part.id in parts:
                        began = times.get(part.base_version, at)
                        direct.append(_life(parts[part.id], len(replaced), began, at, MergeFate.BUCKET))
                case _:
                    pass
    volatile = [_volatile(each, parts, intended) for each in intended.values()]
    return sorted([*direct, *(each for each in volatile if each)], key=lambda merge: merge.began_ms)


def active_parts(lives: Iterable[PartLife]) -> list[tuple[int, int]]:
    """(time, how many parts are active from then on), one for each time at which that changed."""
    changes: Counter[int] = Counter()
    for life in lives:
        changes[life.born_ms] += 1
        if life.died_ms is not None:
            changes[life.died_ms] -= 1
    return running((at, change) for at, change in changes.items() if change)


def running(steps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(time, sum of all changes until then), in order of time, each time once."""
    at_once: Counter[int] = Counter()
    for at, more in steps:
        at_once[at] += more
    total, sums = 0, []
    for at, more in sorted(at_once.items()):
        total += more
        sums.append((at, total))
    return sums


@dataclass(slots=True)
class _Intended:
    began_ms: int
    sources: tuple[str, ...]
    ended_ms: int | None = None
    outcome: MergeFate = MergeFate.WAITING
    part_id: str = ""

    def settle(self, at_ms: int | None, outcome: MergeFate, part_id: str = "") -> None:
        self.ended_ms, self.outcome, self.part_id = at_ms, outcome, part_id


def _give_up(intended: dict[str, _Intended], ids: set[str], at_ms: int) -> None:
    """Mark these merges, and those built on them, as given up; their own sources are waiting again."""
    for volatile_id, merge in intended.items():  # sources come before the merges that are built on them
        if merge.outcome in (MergeFate.WAITING, MergeFate.DISK) and not ids.isdisjoint((volatile_id, *merge.sources)):
            merge.settle(at_ms, MergeFate.GIVEN_UP)
            ids.add(volatile_id)
            for source in merge.sources:
                if source in intended and intended[source].outcome is MergeFate.DISK:
                    intended[source].settle(None, MergeFate.WAITING)


def _leaves(sources: Iterable[str], intended: dict[str, _Intended]) -> Iterable[str]:
    for source in sources:
        if source in intended and intended[source].part_id == "":
            yield from _leaves(intended[source].sources, intended)
        else:
            yield intended[source].part_id if source in intended else source


def _volatile(merge: _Intended, parts: dict[str, PartLife], intended: dict[str, _Intended]) -> MergeLife | None:
    if merge.part_id in parts:
        end = merge.ended_ms
        return _life(parts[merge.part_id], len(merge.sources), merge.began_ms, end, merge.outcome, volatile=True)
    covered = [parts[each] for each in _leaves(merge.sources, intended) if each in parts]
    if not covered:
        return None
    return MergeLife(
        _level(merge.sources, parts, intended),
        len(merge.sources),
        min(part.min_block for part in covered),
        max(part.max_block for part in covered),
        sum(part.rows for part in covered),
        sum(part.bytes for part in covered),
        merge.began_ms,
        merge.ended_ms,
        volatile=True,
        outcome=merge.outcome,
    )


def _level(sources: Iterable[str], parts: dict[str, PartLife], intended: dict[str, _Intended]) -> int:
    levels = [
        _level(intended[source].sources, parts, intended) if source in intended else parts[source].level
        for source in sources
        if source in intended or source in parts
    ]
    return max(levels, default=0) + 1


def _life(
    part: PartLife, sources: int, began: int, ended: int | None, outcome: MergeFate, *, volatile: bool = False
) -> MergeLife:
    return MergeLife(
        part.level,
        sources,
        part.min_block,
        part.max_block,
        part.rows,
        part.bytes,
        began,
        ended,
        volatile=volatile,
        outcome=outcome,
    )
