"""The best merge of each partition, cached while it does not change: the cost of an update follows the changes.

It gives the same merges as `select.select_merges`, one after another, without scoring every partition each time:

- **Rules**: what scores depend on beside the parts and the time. Each set of rules has its own ranking.
- The **standing** of a partition: its best merge with nothing busy and the largest limit, and until when that is valid.
  Parts only become easier to merge as they age (`scoring`: the bar sinks from the base to 2), so for a partition with
  nothing to merge the earliest time of a merge is known.
- The **order**: the partitions with a merge, the best one last.

1. `update` scores the partitions that changed and those whose standing has expired (a heap by time), and no others.
2. `best` takes the last one of the order. A smaller limit only excludes windows, so a standing is an upper bound: if
   its window is too large the partition is scored once more, and the search goes on until no standing is better than
   the best merge so far.
3. Partitions with busy parts are excluded (`without`): busy parts cut a partition into ranges with other scores. Their
   number follows the running work; `best_merge` scores them.

A ranking holds no parts, only numbers.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

import numpy as np

from mergelake.jobs.merge.scoring import SelectorSettings, outlook
from mergelake.jobs.merge.select import Candidate, part_ranges
from mergelake.jobs.merge.volatile import fits_disk, settled

P = TypeVar("P", bound=Candidate)


@dataclass(frozen=True, slots=True)
class Rules:
    """What scores depend on beside parts, time and busy parts."""

    selector: SelectorSettings
    bytes_max: int
    """Upper bound of the limits of all merges."""
    mutations: tuple[int, ...] = ()
    """As in `select.part_ranges`."""
    disk: int | None = None
    """`max_bytes_to_merge_volatile`, for merges on a disk, in which other parts are barriers; None otherwise."""
    fresh_only: bool = False
    """Whether these are the settled ones (`volatile.settled`), not only those too large."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best merge of a partition."""

    score: float
    """Lower is better."""
    begin: int
    end: int
    """Range of the partition's parts; `end` is exclusive."""
    needs: int
    """The smallest limit that allows it."""


def best_merge(
    members: Sequence[Candidate], rules: Rules, now_ms: int, limit: int, busy: Collection[str] = ()
) -> tuple[Found | None, float]:
    """The best merge of one partition, and the first time (in milliseconds) at which age alone may change it.

    `members`: its parts in block order. Of equal scores the later range wins, like the later window within a range.
    """
    if len(members) < 2:
        return None, inf
    sizes = np.array([part.manifest.bytes_on_disk for part in members], np.int64)
    ages = np.maximum(now_ms - np.array([part.added_ms for part in members], np.int64), 0) // 1000
    youngest, best, still_s = int(ages.min()), None, inf
    for begin, end in _ranges(members, rules, busy):
        result = outlook(
            sizes[begin:end],
            ages[begin:end],
            rules.selector,
            part_count=len(members),
            partition_min_age=youngest,
            bytes_max=limit,
        )
        still_s, window = min(still_s, result.still_s), result.window
        if window is not None and (best is None or window.score <= best.score):
            best = Found(window.score, begin + window.begin, begin + window.end, window.bytes)
    # The ages are whole seconds, and the next one may be reached in a millisecond.
    return best, now_ms + (still_s - 1) * 1000 + 1


def _ranges(members: Sequence[Candidate], rules: Rules, busy: Collection[str]) -> Iterable[tuple[int, int]]:
    barriers = set(busy)
    if rules.disk is not None:
        for part in members:
            fits = (
                not settled(part, rules.disk)
                if rules.fresh_only
                else fits_disk(rules.disk, [part.manifest.bytes_on_disk])
            )
            if not fits:
                barriers.add(part.manifest.id)
    if not barriers and not rules.mutations:
        yield 0, len(members)
        return
    at = {part.manifest.id: number for number, part in enumerate(members)}
    for run in part_ranges(members, busy=barriers, mutations=rules.mutations):
        begin = at[run[0].manifest.id]
        yield begin, begin + len(run)


@dataclass(slots=True)
class _Standing:
    """A partition's best merge, and the times between which it is valid."""

    merge: Found | None
    from_ms: float
    until_ms: float
    limited: tuple[int, float, float, Found | None] | None = None
    """The same for the last smaller limit: the limit, from, until, the merge."""


class Ranking(Generic[P]):
    """The partitions of a table by their best merges."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.scored = 0
        """Number of times a partition was scored."""
        self._standings: dict[str, _Standing] = {}
        self._order: list[tuple[float, str]] = []
        """Negative score and partition id: of equal scores the later partition is better."""
        self._due: list[tuple[float, str]] = []
        self._now_ms = 0

    def update(self, changed: Iterable[str], members: Callable[[str], Sequence[P]], now_ms: int) -> None:
        """Score the `changed` partitions and the expired ones. `members` returns a partition's parts in block order."""
        stale = set(changed)
        if now_ms < self._now_ms:
            stale.update(name for name, standing in self._standings.items() if standing.from_ms > now_ms)
        self._now_ms = now_ms
        while self._due and self._due[0][0] <= now_ms:
            until_ms, name = heapq.heappop(self._due)
            if name in self._standings and self._standings[name].until_ms == until_ms:
                stale.add(name)
        for name in stale:
            self._score(name, members(name))
        if len(self._due) > 2 * len(self._standings) + 1000:
            self._due = [(each.until_ms, name) for name, each in self._standings.items() if each.until_ms < inf]
            heapq.heapify(self._due)

    def best(
        self, limit: int, members: Callable[[str], Sequence[P]], without: Container[str] = ()
    ) -> tuple[str, Found] | None:
        """The best merge of up to `limit` bytes, and its partition, at the time of the last update.

        `without` are partitions to exclude.
        """
        chosen: tuple[tuple[float, str], Found] | None = None
        for place in reversed(self._order):
            if chosen is not None and place < chosen[0]:
                break
            name = place[1]
            if name in without:
                continue
            merge = self._best_of(name, limit, members)
            if merge is not None and (chosen is None or (-merge.score, name) > chosen[0]):
                chosen = (-merge.score, name), merge
        return (chosen[0][1], chosen[1]) if chosen else None

    def _best_of(self, name: str, limit: int, members: Callable[[str], Sequence[P]]) -> Found | None:
        """The best merge of a partition up to a limit."""
        standing = self._standings[name]
        if standing.merge is None or standing.merge.needs <= limit:
            return standing.merge
        if standing.limited is not None:
            known_limit, from_ms, until_ms, merge = standing.limited
            covers = known_limit == limit or (limit < known_limit and (merge is None or merge.needs <= limit))
            if covers and from_ms <= self._now_ms < until_ms:
                return merge
        self.scored += 1
        merge, until_ms = best_merge(members(name), self.rules, self._now_ms, limit)
        standing.limited = limit, self._since(merge), until_ms, merge
        return merge

    def _since(self, merge: Found | None) -> float:
        """Since when a result of now is valid: as bars sink, a partition without a merge had none before."""
        return 0 if merge is None and self.rules.selector.base >= 2 else self._now_ms

    def _score(self, name: str, members: Sequence[P]) -> None:
        before = self._standings.pop(name, None)
        if before is not None and before.merge is not None:
            del self._order[bisect_left(self._order, (-before.merge.score, name))]
        if len(members) < 2:
            return
        self.scored += 1
        merge, until_ms = best_merge(members, self.rules, self._now_ms, self.rules.bytes_max)
        self._standings[name] = _Standing(merge, self._since(merge), until_ms)
        if merge is not None:
            insort(self._order, (-merge.score, name))
        if until_ms < inf:
            heapq.heappush(self._due, (until_ms, name))


class Rest(Generic[P]):
    """The partitions of two parts or more by the age of their youngest part: `select.select_rested_partition`."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}
        self._order: list[tuple[int, str]] = []
        """When the youngest part was added, and partition id."""

    def update(self, changed: Iterable[str], members: Callable[[str], Sequence[P]]) -> None:
        """Update the `changed` partitions."""
        for name in changed:
            before = self._sizes.pop(name, None)
            if before is not None:
                del self._order[bisect_left(self._order, (before[0], name))]
            parts = members(name)
            if len(parts) >= 2:
                youngest_ms = max(part.added_ms for part in parts)
                self._sizes[name] = youngest_ms, sum(part.manifest.bytes_on_disk for part in parts)
                insort(self._order, (youngest_ms, name))

    def best(self, age_s: int, limit: int, now_ms: int, without: Container[str] = ()) -> tuple[int, str] | None:
        """Seconds of rest, at least `age_s`, and id of the partition that has rested longest.

        Only partitions of up to `limit` bytes and not in `without`; of equal seconds the first one by id.
        """
        chosen: tuple[int, str] | None = None
        for youngest_ms, name in self._order:
            rested_s = max(0, now_ms - youngest_ms) // 1000
            if rested_s < (age_s if chosen is None else chosen[0]):
                break
            if name not in without and self._sizes[name][1] <= limit and (chosen is None or name < chosen[1]):
                chosen = rested_s, name
        return chosen
