"""Which parts a TTL asks to drop, and which to merge: values in, values out.

ClickHouse's three selectors, in their order, before the regular one:

1. **drop**: parts of which no row stays, by the latest time of the table's own TTL. They are dropped by an entry of the
   log, in any partition at once: nothing is read, nothing is written. (Without such a TTL, parts all of whose elements
   are over are merged.)
2. **delete**: the part whose earliest time came first, with its due neighbours. Then its partition rests for
   `merge_with_ttl_timeout`. Not with `ttl_only_drop_parts`.
3. **recompress**: the part whose codec was due first, with its neighbours that have another codec than is due, too.
   Then its partition rests for `merge_with_recompression_ttl_timeout`.

When a partition was last merged so is known of its parts (`ttl.DELETED`, `ttl.RECOMPRESSED`): merges carry it on, so
all nodes know it, whichever was at work.

A part that lacks a mutation, and one whose times are not known, is not chosen.

Source: ClickHouse, `TTLMergeSelector.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.settings import TableSettings
from mergelake.core.model.ttl import TtlInfo, is_expired
from mergelake.engines.ttl.ttl import Infos, TableTtl
from mergelake.jobs.merge.ttl import DELETED, RECOMPRESSED, due_recompression, part_infos, ttl_times


class Part(Protocol):
    """The attributes of an active part that selection uses."""

    @property
    def info(self) -> PartInfo:
        """Its partition and blocks."""
        ...

    @property
    def manifest(self) -> PartManifest:
        """Its times, size and rows."""
        ...


P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class TtlMerge(Generic[P]):
    """A merge that a TTL asks for."""

    kind: str
    """`ttl_drop`, `ttl_delete` or `ttl_recompress`."""
    parts: tuple[P, ...]
    """Neighbours, in order; maybe only one."""
    due: int
    """When the first of them was due, in seconds."""


@dataclass(frozen=True, slots=True)
class TtlTimes:
    """When a TTL first asks for something in a partition, in seconds; inf: never."""

    drop: float = inf
    merge: float = inf


def dropped_at(part: Part, ttl: TableTtl) -> float:
    """When no row of a part stays; a part without rows goes at once."""
    if not part.manifest.rows:
        return 0
    if ttl.rows is None or ttl.rows.key not in part.manifest.ttl:
        return inf
    return part.manifest.ttl[ttl.rows.key][1] or inf


def expired_parts(parts: Iterable[P], ttl: TableTtl, now: int, busy: Collection[str] = ()) -> list[P]:
    """The parts of which no row stays, and that are not `busy` (ids)."""
    return [part for part in parts if dropped_at(part, ttl) <= now and part.manifest.id not in busy]


def partition_times(parts: Sequence[Part], ttl: TableTtl, settings: TableSettings) -> TtlTimes:
    """When a TTL first asks for something in a partition with these parts."""
    rests = _rests(parts, settings)
    drop = merge = inf
    for part in parts:
        drop = min(drop, dropped_at(part, ttl))
        infos = part_infos(part.manifest, ttl)
        merge = min(merge, _all_over(infos, ttl))
        if rests.deletes:
            merge = min(merge, max(_first_over(infos, ttl), rests.delete))
        codecs = [info.max for e in ttl.recompressions if (info := infos.get(e.key)) is not None and not info.finished]
        merge = min([merge, *(max(time, rests.recompress) for time in codecs if time)])
    return TtlTimes(drop, merge)


@dataclass(frozen=True, slots=True)
class _Rests:
    """Until when a partition rests, by the selectors."""

    deletes: bool
    delete: int
    recompress: int


def _rests(parts: Iterable[Part], settings: TableSettings) -> _Rests:
    times = ttl_times(part.manifest for part in parts)

    def until(name: str, setting: str) -> int:
        return times[name] + settings.integer(setting) if name in times else 0

    return _Rests(
        settings.integer("ttl_only_drop_parts") == 0,
        until(DELETED, "merge_with_ttl_timeout"),
        until(RECOMPRESSED, "merge_with_recompression_ttl_timeout"),
    )


def _all_over(infos: Infos, ttl: TableTtl) -> float:
    """When all elements of a part are over, without a TTL by which it is dropped; inf once they were applied."""
    known = [infos[e.key] for e in ttl.removing if e.key in infos]
    if ttl.rows is not None or len(known) < len(ttl.removing) or not any(map(_is_open, known)):
        return inf
    return max(info.max for info in known)


def _first_over(infos: Infos, ttl: TableTtl) -> float:
    """When the first row or value of a part expires by an element that was not applied to all rows; inf: never."""
    known = [infos[e.key] for e in ttl.removing if e.key in infos]
    return min((info.min for info in known if _is_open(info)), default=inf)


def _is_open(info: TtlInfo) -> bool:
    """Whether an element may still remove something: it concerns some row, and was not applied to all of them."""
    return not info.finished and info.min != 0


def _codec_due(infos: Infos, ttl: TableTtl, now: int) -> float:
    chosen = due_recompression(ttl, infos, now)
    return inf if chosen is None or infos[chosen.key].finished else infos[chosen.key].max


def select_ttl_merge(
    parts: Sequence[P],
    ttl: TableTtl,
    settings: TableSettings,
    now: int,
    *,
    bytes_max: int,
    busy: Collection[str] = (),
) -> TtlMerge[P] | None:
    """The merge that a TTL asks for in a partition with these parts, in order; None: there is none.

    `busy` are ids of parts that are in use, or lack a mutation. Parts to be dropped count as if they were gone.
    """
    rests = _rests(parts, settings)
    infos = [part_infos(part.manifest, ttl) for part in parts]
    free = [
        part.manifest.rows > 0 and part.manifest.id not in busy and not dropped_at(part, ttl) <= now for part in parts
    ]
    selectors: list[tuple[str, int, Callable[[Infos], float]]] = [("ttl_drop", 0, lambda each: _all_over(each, ttl))]
    if rests.deletes and now >= rests.delete:
        selectors.append(("ttl_delete", bytes_max, lambda each: _first_over(each, ttl)))
    if now >= rests.recompress:
        selectors.append(("ttl_recompress", bytes_max, lambda each: _codec_due(each, ttl, now)))
    for kind, limit, due in selectors:
        times = [due(each) if ok else inf for each, ok in zip(infos, free, strict=True)]
        chosen = _grown(parts, times, now, limit, settings.integer("max_parts_to_merge_at_once") if not limit else 0)
        if chosen is not None:
            first, end = chosen
            return TtlMerge(kind, tuple(parts[first:end]), int(min(times[first:end])))
    return None


def _grown(
    parts: Sequence[Part], times: Sequence[float], now: int, bytes_max: int, parts_max: int
) -> tuple[int, int] | None:
    """The part that was due first, with due neighbours, to its left first, up to a size; None if none is due."""
    due = [at for at, time in enumerate(times) if time != inf and is_expired(int(time), now)]
    fitting = [at for at in due if not bytes_max or parts[at].manifest.bytes_on_disk <= bytes_max]
    if not fitting:
        return None
    first = min(fitting, key=lambda at: times[at])
    end, size, chosen = first + 1, parts[first].manifest.bytes_on_disk, set(due)

    def fits(at: int) -> bool:
        enough = parts_max and end - first >= parts_max
        return at in chosen and not enough and not 0 < bytes_max < size + parts[at].manifest.bytes_on_disk

    while fits(first - 1):
        first -= 1
        size += parts[first].manifest.bytes_on_disk
    while fits(end):
        size += parts[end].manifest.bytes_on_disk
        end += 1
    return first, end


class TtlMemory(Generic[P]):
    """The partitions of a table by when a TTL first asks for something, kept from tick to tick."""

    def __init__(self, ttl: TableTtl, settings: TableSettings) -> None:
        self._ttl, self._settings = ttl, settings
        self._times: dict[str, TtlTimes] = {}

    def update(self, changed: Iterable[str], members: Callable[[str], Sequence[P]]) -> None:
        """Update the `changed` partitions."""
        for name in changed:
            parts = members(name)
            times = partition_times(parts, self._ttl, self._settings) if parts else TtlTimes()
            self._times.pop(name, None)
            if times != TtlTimes():
                self._times[name] = times

    def drops(self, now: int) -> list[str]:
        """Partitions with parts of which no row stays."""
        return [name for name, times in self._times.items() if times.drop <= now]

    def merges(self, now: int) -> list[str]:
        """Partitions in which a TTL may ask for a merge, the one that was due first before the others."""
        due = [name for name, times in self._times.items() if times.merge <= now]
        return sorted(due, key=lambda name: (self._times[name].merge, name))
