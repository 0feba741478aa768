"""The write amplification budget of a table: which merges it buys, and when volatile parts are uploaded. Pure.

A part of the store is **fresh** until a merge in the store has taken it; all others are **settled**. Merges on a disk
are free, so they take fresh parts alone, as often as they like. The bytes of an upload are spent, and those of a merge
of settled parts: together at most `(write_amplification_target - 1)` of the bytes inserted. Merges keep what the fresh
bytes take; where that is an upload for each byte, none is ever held back, whatever else was written.

With U fresh parts to an upload, a partition of n inserts shows about U + n / U parts to readers: fewest where both are
equal. As n is not known ahead, a partition is **due** once it has as many fresh parts as settled ones: then uploads
grow with it, and both numbers stay near the square root of 2n, at 2.0 bytes written for each byte inserted. It is also
due once its fresh bytes make up an upload of full size, and once it is **rested**: no longer filled, by its own pace.

What the target leaves beyond that buys merges of settled parts: always the neighbours that most parts go for each byte
(`Window`), of at least a share of the partition's settled parts at a time: narrow merges are cheap now, and repeat.

A partition with too many parts in the store (`parts_to_upload_volatile`) is **pressed**: it is due, and merged,
whatever the budget says. Inserts are slowed only after that.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from mergelake.core.model.settings import GIB, TableSettings
from mergelake.jobs.merge.select import part_ranges
from mergelake.jobs.merge.volatile import settled
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import WrittenBytes

_UPLOAD_PARTS = 10
"""Fresh parts of the first uploads of a partition, where the target leaves one upload for each byte."""
SLACK = 0.02
"""Share of a target below 2 by which uploads of fresh parts may pass it: a result may be larger than its sources."""
LARGE_PARTS_BYTES = GIB
"""No partition is pressed whose parts have this many bytes on average: as ClickHouse's
`max_avg_part_size_for_too_many_parts`."""
_PACE_PARTS = 10
"""The last fresh parts, whose distance in time is the pace of a partition."""


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """The settings of a table on which its budget depends."""

    target: float
    """`write_amplification_target`; 0: none."""
    disk: int
    """`max_bytes_to_merge_volatile`."""
    rest_ms: int
    """`volatile_upload_age_seconds`."""
    pressed_at: int
    """`parts_to_upload_volatile`; 0: never."""
    bytes_max: int
    """`max_bytes_to_merge_at_max_space_in_pool`."""

    @staticmethod
    def of(settings: TableSettings) -> BudgetRules:
        """From a table's settings."""
        return BudgetRules(
            settings.number("write_amplification_target"),
            settings.integer("max_bytes_to_merge_volatile"),
            settings.integer("volatile_upload_age_seconds") * 1000,
            settings.integer("parts_to_upload_volatile"),
            settings.integer("max_bytes_to_merge_at_max_space_in_pool"),
        )

    @property
    def parts_min(self) -> int:
        """A partition with fewer fresh parts is due for no other reason than rest or bytes."""
        return max(3, ceil(_UPLOAD_PARTS / max(1.0, self.target - 1)))

    @property
    def share(self) -> float:
        """The least share of a partition's settled parts that one merge takes: the less there is to spend, the less."""
        return min(0.5, max(0.1, self.target - 2))

    def least_width(self, settled_parts: int, *, pressed: bool) -> int:
        """Fewest parts of a merge of settled parts, in a partition with so many; `pressed`: as few as two."""
        return 2 if pressed else max(2, ceil(self.share * settled_parts))

    def uploads_left(self, written: WrittenBytes, under_way: int) -> float:
        """Bytes that uploads of fresh parts may write now.

        Any, where the target has an upload for each byte: none of them is uploaded twice. Parts stay on a disk for ever
        otherwise, once others wrote more: merges straight to the store, or a mutation that made fresh parts larger.
        """
        if self.target >= 2:
            return inf
        return (self.target * (1 + SLACK) - 1) * written.inserted - written.merged - under_way

    def merges_left(self, written: WrittenBytes, under_way: int, fresh: int) -> float:
        """Bytes that merges of settled parts may write now; `fresh` bytes keep what their uploads take."""
        return (self.target - 1) * written.inserted - written.merged - under_way - min(1.0, self.target - 1) * fresh


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbours in the store that may be merged."""

    parts: tuple[ActivePart, ...]
    bytes: int

    @property
    def worth(self) -> float:
        """Parts that go for each byte written."""
        return (len(self.parts) - 1) / max(1, self.bytes)


@dataclass(frozen=True, slots=True)
class Outline:
    """What the budget sees of one partition: its parts in the store, whatever volatile parts cover them."""

    fresh: int
    fresh_bytes: int
    settled: int
    rests_ms: float
    """When it is rested if no part comes."""
    rested: bool
    pressed: bool
    window: Window | None
    """The best merge of settled parts, of any size; of a rested partition, of all parts."""
    least_bytes: float
    """No merge of settled parts has fewer."""

    def is_due(self, rules: BudgetRules, sent: int = 0, sent_bytes: int = 0) -> bool:
        """Whether its fresh parts are to be uploaded, without `sent` of them, which are being uploaded."""
        left, left_bytes = self.fresh - sent, self.fresh_bytes - sent_bytes
        enough = left >= max(rules.parts_min, self.settled) or left_bytes * 2 >= rules.disk
        return left >= 2 and (enough or self.pressed or self.rested)

    @property
    def worth(self) -> float:
        """Parts that uploads of the fresh parts take away for each byte."""
        return (self.fresh - 1) / max(1, self.fresh_bytes)


def outline(parts: Sequence[ActivePart], rules: BudgetRules, now_ms: int) -> Outline:
    """The outline of a partition with these parts in the store."""
    old = [part for part in parts if settled(part, rules.disk)]
    kept = {part.manifest.id for part in old}
    fresh = [part for part in parts if part.manifest.id not in kept]
    fresh_bytes = sum(part.manifest.bytes_on_disk for part in fresh)
    size = fresh_bytes + sum(part.manifest.bytes_on_disk for part in old)
    pressed = 0 < rules.pressed_at <= len(parts) and size < LARGE_PARTS_BYTES * len(parts)
    rests_ms = _rests_ms(parts, fresh, rules)
    rested = rests_ms <= now_ms
    busy = set() if rested else {part.manifest.id for part in fresh}
    least = rules.least_width(len(old), pressed=pressed)
    window = best_window(parts, rules, least, busy=busy, rested=rested)
    return Outline(
        fresh=len(fresh),
        fresh_bytes=fresh_bytes,
        settled=len(old),
        rests_ms=rests_ms,
        rested=rested,
        pressed=pressed,
        window=window,
        least_bytes=_least_bytes(parts, least, busy) if window is not None else inf,
    )


def _least_bytes(parts: Sequence[ActivePart], width: int, busy: Collection[str]) -> float:
    sizes = [part.manifest.bytes_on_disk for part in parts if part.manifest.id not in busy]
    ends = np.concatenate(([0], np.cumsum(sizes)))  # across what lies between them: a bound all the same
    return float((ends[width:] - ends[:-width]).min()) if width <= len(sizes) else inf


def _rests_ms(parts: Sequence[ActivePart], fresh: Sequence[ActivePart], rules: BudgetRules) -> float:
    added = sorted(part.added_ms for part in fresh)[-_PACE_PARTS:]
    if not added:
        return max((part.added_ms for part in parts), default=0) + rules.rest_ms
    pace = (added[-1] - added[0]) / max(1, len(added) - 1)
    return added[-1] + max(rules.rest_ms, 4 * pace)


def best_window(
    parts: Sequence[ActivePart],
    rules: BudgetRules,
    least: int,
    *,
    busy: Collection[str],
    mutations: Sequence[int] = (),
    bytes_max: float = inf,
    rested: bool = False,
) -> Window | None:
    """The merge of neighbours without `busy` ones that buys most parts for a byte; None if there is none to buy.

    It has at least `least` parts (`BudgetRules.least_width`) and at most `bytes_max` bytes. `rested`: all neighbours at
    once, if they can be had.
    """
    runs = [run for run in part_ranges(parts, busy=busy, mutations=mutations) if len(run) >= 2]
    limit = min(bytes_max, rules.bytes_max)
    best: Window | None = None
    for run in runs:
        ends = np.concatenate(([0], np.cumsum([part.manifest.bytes_on_disk for part in run])))
        if rested and ends[-1] <= limit:
            found = Window(tuple(run), int(ends[-1]))
            best = found if best is None or found.worth > best.worth else best
            continue
        for width in _widths(least, len(run)):
            sizes = ends[width:] - ends[:-width]
            begin = int(sizes.argmin())
            size = int(sizes[begin])
            if size <= limit and (best is None or (width - 1) / max(1, size) > best.worth):
                best = Window(tuple(run[begin : begin + width]), size)
    return best


def _widths(least: int, most: int) -> Iterator[int]:
    """Some twenty widths from the least on, each a little more than the last."""
    width = least
    while width <= most:
        yield width
        width += max(1, width // 4)


class Outlines:
    """The outlines of a table's partitions, kept from tick to tick. Not thread-safe."""

    def __init__(self, rules: BudgetRules) -> None:
        self.rules = rules
        self.fresh_bytes = 0
        """Of all partitions."""
        self.due: set[str] = set()
        """Partitions that are due."""
        self.filling: int = 0
        """Partitions of more than one fresh part."""
        self._outlines: dict[str, Outline] = {}
        self._worth: list[tuple[float, str]] = []
        """Worth of a partition's window, and its name, ascending."""
        self._rests: list[tuple[float, str]] = []

    def update(self, changed: Iterable[str], members: Callable[[str], Sequence[ActivePart]], now_ms: int) -> None:
        """Draw anew what changed."""
        stale = set(changed)
        while self._rests and self._rests[0][0] <= now_ms:
            rests_ms, name = heapq.heappop(self._rests)
            known = self._outlines.get(name)
            if known is not None and known.rests_ms == rests_ms:
                stale.add(name)
        for name in stale:
            self._forget(name)
            parts = members(name)
            if len(parts) >= 2:
                self._add(name, outline(parts, self.rules, now_ms))

    def __getitem__(self, name: str) -> Outline:
        return self._outlines[name]

    def by_worth(self) -> Iterator[str]:
        """The partitions with a window, the best one first."""
        return (name for _, name in reversed(self._worth))

    def _forget(self, name: str) -> None:
        before = self._outlines.pop(name, None)
        self.due.discard(name)
        if before is None:
            return
        self.fresh_bytes -= before.fresh_bytes
        self.filling -= before.fresh >= 2
        if before.window is not None:
            del self._worth[bisect_left(self._worth, (before.window.worth, name))]

    def _add(self, name: str, known: Outline) -> None:
        self._outlines[name] = known
        self.fresh_bytes += known.fresh_bytes
        self.filling += known.fresh >= 2
        if known.is_due(self.rules):
            self.due.add(name)
        if known.window is not None:
            insort(self._worth, (known.window.worth, name))
        if not known.rested:
            heapq.heappush(self._rests, (known.rests_ms, name))


@dataclass(frozen=True, slots=True)
class Finish:
    """What a due partition asks for."""

    uploads: list[str] = field(default_factory=list)
    """Ids of volatile parts to upload."""
    merges: list[tuple[ActivePart, ...]] = field(default_factory=list)
    """Elements to merge first."""


def finish(
    elements: Sequence[ActivePart],
    rules: BudgetRules,
    *,
    barriers: Collection[str],
    busy: Collection[str],
    leaf_count: Callable[[ActivePart], int],
    mutations: Sequence[int] = (),
) -> Finish:
    """The uploads, and the merges before them, of the fresh parts of a due partition.

    `elements`: its top-level elements, in order. `barriers`: ids of those that do not go into an upload (settled ones
    need not be named). `busy`: those that will, but are in use now. `leaf_count`: parts of the store below an element;
    one that is in the store has 1.

    Fresh neighbours are merged into one volatile part, which is uploaded once it holds most of them: others that came
    meanwhile wait for the next upload. Of more than the disk takes at once, each upload of full size is one.
    """
    out = Finish()
    outside = {*barriers, *(part.manifest.id for part in elements if settled(part, rules.disk))}
    large = {part.manifest.id for part in elements if part.manifest.id in outside and leaf_count(part) > 1}
    out.uploads.extend(sorted(large - set(barriers) - set(busy)))
    for run in part_ranges(elements, busy=outside):
        total = sum(map(leaf_count, run))
        for free in part_ranges(run, busy=busy, mutations=mutations):
            for piece in _pieces(free, rules.disk):
                counts = [leaf_count(part) for part in piece]
                most = max(counts)
                size = sum(part.manifest.bytes_on_disk for part in piece)
                if sum(counts) * 2 < total and size * 2 < rules.disk:
                    continue  # more is being built
                if most > 1 and most * 4 >= sum(counts) * 3:
                    out.uploads.append(piece[counts.index(most)].manifest.id)
                elif len(piece) >= 2:
                    out.merges.append(tuple(piece))
    return out


def _pieces(parts: Sequence[ActivePart], limit: int) -> Iterator[list[ActivePart]]:
    """Neighbours in pieces of up to `limit` bytes."""
    piece: list[ActivePart] = []
    size = 0
    for part in parts:
        if piece and size + part.manifest.bytes_on_disk > limit:
            yield piece
            piece, size = [], 0
        piece.append(part)
        size += part.manifest.bytes_on_disk
    if piece:
        yield piece
