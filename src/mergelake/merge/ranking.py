"""The best merge of each partition, kept while nothing changes it: a look costs what changed since the last one.

`select.select_merges` says what is to be merged; this gives the same answer, one merge after another, without scoring
every partition each time. Its nouns:

- **Rules**: what a score follows from beside the parts and the time. Other rules, another ranking.
- A partition's **standing**: its best merge with nothing busy and the largest limit, and how long that is true. Parts
  only become easier to merge as they age (`scoring`: the bar sinks from the base to 2), so for a partition with
  nothing to merge the moment is known before which there will be nothing.
- The **order**: partitions that have something to merge, the best one last.

1. `update` scores the partitions that changed and those whose moment has come (a heap by time), and no others.
2. `best` takes the last one of the order. A smaller limit only takes windows away, so a standing is the best that can
   be hoped for: where its window is too large the partition is scored once more, and the walk goes on until no standing
   is better than what was found.
3. Partitions in which something is busy are not looked up here (`without`): what is busy cuts a partition into ranges,
   and ranges have other scores. Their number follows the work that runs; `best_merge` scores them.

No parts are held, only numbers.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

import numpy as np

from mergelake.merge.scoring import SelectorSettings, outlook
from mergelake.merge.select import Candidate, part_ranges
from mergelake.merge.volatile import fits_disk

P = TypeVar("P", bound=Candidate)


@dataclass(frozen=True, slots=True)
class Rules:
    """What scores depend on beside parts, time and what is busy."""

    selector: SelectorSettings
    bytes_max: int
    """No merge that is asked for may be larger."""
    mutations: tuple[int, ...] = ()
    """As in `select.part_ranges`."""
    disk: int | None = None
    """`max_bytes_to_merge_volatile`, where parts too large for a merge on a disk are barriers."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best merge of a partition."""

    score: float
    """Lower is better."""
    begin: int
    end: int
    """Which of the partition's parts; exclusive."""
    needs: int
    """The smallest limit with which it is found."""


def best_merge(
    members: Sequence[Candidate], rules: Rules, now_ms: int, limit: int, busy: Collection[str] = ()
) -> tuple[Found | None, float]:
    """The best merge of one partition, and the first time (in milliseconds) at which age alone may make it another.

    `members`: its parts in block order. With the same score the later range wins, as the later window does inside one.
    """
    if len(members) < 2:
        return None, inf
    sizes = np.array([part.manifest.bytes_on_disk for part in members], np.int64)
    ages = np.maximum(now_ms - np.array([part.added_ms for part in members], np.int64), 0) // 1000
    youngest, best, still_s = int(ages.min()), None, inf
    for begin, end in _ranges(members, rules, busy):
        seen = outlook(
            sizes[begin:end],
            ages[begin:end],
            rules.selector,
            part_count=len(members),
            partition_min_age=youngest,
            bytes_max=limit,
        )
        still_s, window = min(still_s, seen.still_s), seen.window
        if window is not None and (best is None or window.score <= best.score):
            best = Found(window.score, begin + window.begin, begin + window.end, window.bytes)
    # An age in whole seconds is one more a millisecond from now at the earliest.
    return best, now_ms + (still_s - 1) * 1000 + 1


def _ranges(members: Sequence[Candidate], rules: Rules, busy: Collection[str]) -> Iterable[tuple[int, int]]:
    barriers = set(busy)
    if rules.disk is not None:
        sizes = ((part.manifest.id, part.manifest.bytes_on_disk) for part in members)
        barriers.update(part_id for part_id, size in sizes if not fits_disk(rules.disk, [size]))
    if not barriers and not rules.mutations:
        yield 0, len(members)
        return
    at = {part.manifest.id: number for number, part in enumerate(members)}
    for found in part_ranges(members, busy=barriers, mutations=rules.mutations):
        begin = at[found[0].manifest.id]
        yield begin, begin + len(found)


@dataclass(slots=True)
class _Standing:
    """A partition's best merge, and the times between which it is that."""

    found: Found | None
    from_ms: float
    until_ms: float
    limited: tuple[int, float, float, Found | None] | None = None
    """The same for a smaller limit, as it was asked last: the limit, from, until, the merge."""


class Ranking(Generic[P]):
    """The partitions of a table by their best merges."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.looked = 0
        """How many times a partition was scored."""
        self._standings: dict[str, _Standing] = {}
        self._order: list[tuple[float, str]] = []
        """Score, negative, and partition id: of equal scores the later partition is the better one."""
        self._due: list[tuple[float, str]] = []
        self._now_ms = 0

    def update(self, changed: Iterable[str], members: Callable[[str], Sequence[P]], now_ms: int) -> None:
        """Score what changed and what time has changed. `members` gives the parts of a partition, in block order."""
        again = set(changed)
        if now_ms < self._now_ms:
            again.update(name for name, standing in self._standings.items() if standing.from_ms > now_ms)
        self._now_ms = now_ms
        while self._due and self._due[0][0] <= now_ms:
            until_ms, name = heapq.heappop(self._due)
            if name in self._standings and self._standings[name].until_ms == until_ms:
                again.add(name)
        for name in again:
            self._score(name, members(name))
        if len(self._due) > 2 * len(self._standings) + 1000:
            self._due = [(each.until_ms, name) for name, each in self._standings.items() if each.until_ms < inf]
            heapq.heapify(self._due)

    def best(
        self, limit: int, members: Callable[[str], Sequence[P]], without: Container[str] = ()
    ) -> tuple[str, Found] | None:
        """The best merge of up to `limit` bytes, and its partition, at the time of the last update.

        `without` are partitions that do not take part.
        """
        chosen: tuple[tuple[float, str], Found] | None = None
        for place in reversed(self._order):
            if chosen is not None and place < chosen[0]:
                break
            name = place[1]
            if name in without:
                continue
            found = self._found(name, limit, members)
            if found is not None and (chosen is None or (-found.score, name) > chosen[0]):
                chosen = (-found.score, name), found
        return (chosen[0][1], chosen[1]) if chosen else None

    def _found(self, name: str, limit: int, members: Callable[[str], Sequence[P]]) -> Found | None:
        """The best merge of a partition with a limit."""
        standing = self._standings[name]
        if standing.found is None or standing.found.needs <= limit:
            return standing.found
        if standing.limited is not None:
            asked, from_ms, until_ms, found = standing.limited
            enough = asked == limit or (limit < asked and (found is None or found.needs <= limit))
            if enough and from_ms <= self._now_ms < until_ms:
                return found
        self.looked += 1
        found, until_ms = best_merge(members(name), self.rules, self._now_ms, limit)
        standing.limited = limit, self._since(found), until_ms, found
        return found

    def _since(self, found: Found | None) -> float:
        """Since when an answer of now is true: bars sink, so who has nothing to merge had nothing before."""
        return 0 if found is None and self.rules.selector.base >= 2 else self._now_ms

    def _score(self, name: str, members: Sequence[P]) -> None:
        before = self._standings.pop(name, None)
        if before is not None and before.found is not None:
            del self._order[bisect_left(self._order, (-before.found.score, name))]
        if len(members) < 2:
            return
        self.looked += 1
        found, until_ms = best_merge(members, self.rules, self._now_ms, self.rules.bytes_max)
        self._standings[name] = _Standing(found, self._since(found), until_ms)
        if found is not None:
            insort(self._order, (-found.score, name))
        if until_ms < inf:
            heapq.heappush(self._due, (until_ms, name))


class Rest(Generic[P]):
    """The partitions of two parts or more by the age of their youngest part: `select.select_rested_partition`."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}
        self._order: list[tuple[int, str]] = []
        """When the youngest part was added, and partition id."""

    def update(self, changed: Iterable[str], members: Callable[[str], Sequence[P]]) -> None:
        """Look at what changed."""
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
        """How many seconds the partition has rested that rested longest, `age_s` at least, and which one it is.

        Of up to `limit` bytes; with the same seconds the first one by its id. `without` do not take part.
        """
        chosen: tuple[int, str] | None = None
        for youngest_ms, name in self._order:
            rested_s = max(0, now_ms - youngest_ms) // 1000
            if rested_s < (age_s if chosen is None else chosen[0]):
                break
            if name not in without and self._sizes[name][1] <= limit and (chosen is None or name < chosen[1]):
                chosen = rested_s, name
        return chosen
