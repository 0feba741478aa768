"""Active parts in segments of a checkpoint: columns, from which part objects are decoded on demand.

A partition of a large table is a `StoredPartition`: it knows the number of its parts and their segments, and reads rows
and decodes parts when they are first used. Decoded parts are cached, up to a number per log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.log.model.part_map import Partitions, StoredParts
from mergelake.log.model.parts import ActivePart
from mergelake.log.storage.layout import SegmentLayout
from mergelake.log.storage.segment import OpenSegment, SegmentRef


class Home:
    """A segment, and its rows once they are read: they stay in memory as long as this object is referenced."""

    __slots__ = ("__weakref__", "ref", "segment")

    def __init__(self, ref: SegmentRef) -> None:
        self.ref = ref
        self.segment: OpenSegment | None = None


class SegmentSource(Protocol):
    """Reads the rows of segments."""

    def home(self, ref: SegmentRef) -> Home:
        """The `Home` of a segment, one object per segment."""
        ...

    def open(self, homes: Collection[Home]) -> list[OpenSegment]:
        """The open segments; missing rows are read concurrently. Raises NotFoundError and CorruptDataError."""
        ...

    def instead(self, partition_id: str, version: int) -> tuple[ActivePart, ...]:
        """The parts of a partition at a version, computed without unreadable segments; empty if that is impossible.

        Raises NotFoundError and CorruptDataError.
        """
        ...

    def keep_made(self, partition: StoredPartition) -> None:
        """Cache a partition whose parts are decoded; `StoredPartition.forget` is called when it is evicted."""
        ...


@dataclass(frozen=True, slots=True)
class Inside:
    """The parts of a partition in one segment."""

    home: Home
    rows: NDArray[np.int64] | None
    live: NDArray[np.bool_] | None = None
    """If `rows` is None: the active rows of the whole segment."""

    def rows_in(self, segment: OpenSegment, partition_id: str) -> NDArray[np.int64]:
        """The rows of these parts."""
        if self.rows is not None:
            return self.rows
        assert self.live is not None
        return segment.rows_in(partition_id, self.live)


class StoredPartition:
    """One partition as of a checkpoint, and the parts that were added since. See `part_map.StoredParts`."""

    __slots__ = ("_cached", "_count", "_grown", "_inside", "beside", "partition_id", "source", "value", "version")

    def __init__(
        self,
        version: int,
        partition_id: str,
        value: str,
        count: int,
        inside: tuple[Inside, ...],
        beside: tuple[ActivePart, ...],
        source: SegmentSource,
        cached: tuple[ActivePart, ...] | None = None,
        grown: int = 0,
    ) -> None:
        """`version` is that of the checkpoint, `beside` are the parts in no segment, of which the last `grown` were
        added since; `cached` are all parts, if they are decoded already.
        """
        self.version = version
        self.partition_id = partition_id
        self.value = value
        self._count = count
        self._inside = inside
        self.beside = beside
        self.source = source
        self._cached = cached
        self._grown = grown

    def __len__(self) -> int:
        return self._count

    @property
    def in_memory(self) -> tuple[ActivePart, ...] | None:
        """Its parts, if they are decoded."""
        return self._cached

    @property
    def homes(self) -> tuple[Home, ...]:
        """The segments in which its parts lie."""
        return tuple([inside.home for inside in self._inside])

    def rows_in(self, segment: OpenSegment) -> NDArray[np.int64]:
        """The rows of its parts in one of these segments."""
        places = [inside for inside in self._inside if inside.home.ref.name == segment.ref.name]
        return places[0].rows_in(segment, self.partition_id) if places else np.zeros(0, np.int64)

    @property
    def unread(self) -> Iterator[Home]:
        """Segments whose rows are not in memory."""
        if self._cached is None:
            yield from (inside.home for inside in self._inside if inside.home.segment is None)

    def read_all(self, unread: Collection[Home]) -> None:
        """See `part_map.StoredParts`. Unreadable segments are reported when they are used."""
        with suppress(NotFoundError, CorruptDataError):
            self.source.open(unread)

    def rows(self) -> tuple[list[tuple[OpenSegment, NDArray[np.int64]]], tuple[ActivePart, ...]]:
        """Its parts without decoding them: rows of segments, and the parts that lie in none.

        Raises NotFoundError and CorruptDataError.
        """
        segments = self.source.open([inside.home for inside in self._inside])
        places = [
            (segment, inside.rows_in(segment, self.partition_id))
            for inside, segment in zip(self._inside, segments, strict=True)
        ]
        return places, self.beside

    def stored_keys(self) -> list[tuple[str, int]]:
        """See `part_map.StoredParts`."""
        return [key for segment, rows in self.rows()[0] for key in segment.keys(rows)]

    def _since(self) -> tuple[ActivePart, ...]:
        """The parts that were added since the checkpoint."""
        return self.beside[len(self.beside) - self._grown :]

    def find(self, ids: Collection[str], base_version: int) -> list[ActivePart]:
        """See `part_map.StoredParts`. A part that a checkpoint holds was begun at a version before it."""
        parts = self._since() if base_version >= self.version else self.parts()
        return [part for part in parts if part.manifest.id in ids]

    def plus(self, parts: Sequence[ActivePart]) -> StoredPartition:
        """See `part_map.StoredParts`."""
        cached = None if self._cached is None else (*self._cached, *parts)
        count, beside, grown = self._count + len(parts), (*self.beside, *parts), self._grown + len(parts)
        fields = (self.version, self.partition_id, self.value, count, self._inside, beside, self.source)
        larger = StoredPartition(*fields, cached, grown)
        if cached is not None:
            self.source.keep_made(larger)
        return larger

    def parts(self) -> tuple[ActivePart, ...]:
        """Its parts in block order. If a segment is damaged or gone, they are computed from an older checkpoint."""
        parts = self._cached
        if parts is None:
            try:
                parts = self._read()
            except (NotFoundError, CorruptDataError):
                parts = (*self.source.instead(self.partition_id, self.version), *self._since())
                if len(parts) != self._count:
                    raise
            self._cached = parts
        self.source.keep_made(self)
        return parts

    def _read(self) -> tuple[ActivePart, ...]:
        places, beside = self.rows()
        parts = list(beside)
        for segment, rows in places:
            parts += segment.parts(rows)
        if len(parts) != self._count:
            message = f"Segments of a checkpoint do not hold what it says of partition {self.partition_id}"
            raise CorruptDataError(message, expected=str(self._count), found=str(len(parts)))
        parts.sort(key=lambda part: part.info.min_block)
        return tuple(parts)

    def forget(self) -> None:
        """Drop the decoded parts, which can be decoded again."""
        self._cached = None

    def __repr__(self) -> str:
        return f"StoredPartition({self.partition_id!r}, {self._count})"


def stored_partitions(
    version: int, layout: SegmentLayout, names: Collection[str], source: SegmentSource, before: Partitions | None = None
) -> dict[str, StoredParts]:
    """Partitions of a checkpoint with parts in segments. `before`: the partitions of a state with the same parts."""
    partitions: dict[str, StoredParts] = {}
    for name in names:
        placed, beside = layout.placed[name], layout.inline.get(name, ())
        held = before.held(name) if before is not None else None
        cached = held.in_memory if isinstance(held, StoredPartition) else held
        assert cached is None or isinstance(cached, tuple)
        inside = tuple(_inside(layout, each, name, source, known=before is not None) for each in placed.names)
        stored = StoredPartition(
            version, name, placed.value, placed.parts + len(beside), inside, beside, source, cached
        )
        partitions[name] = stored
        if cached is not None:
            source.keep_made(stored)
    return partitions


def as_rows(
    partitions: Partitions, names: Collection[str]
) -> tuple[list[tuple[OpenSegment, NDArray[np.int64]]], list[ActivePart]]:
    """The parts of some partitions: rows of segments, and the parts that lie in none."""
    partitions.read(names)
    rows: dict[str, list[NDArray[np.int64]]] = {}
    segments: dict[str, OpenSegment] = {}
    others: list[ActivePart] = []
    for name in names:
        held = partitions.held(name)
        try:
            places, beside = held.rows() if isinstance(held, StoredPartition) else ([], partitions[name])
        except (NotFoundError, CorruptDataError):
            places, beside = [], partitions[name]  # from another checkpoint
        others += beside
        for segment, inside in places:
            segments[segment.ref.name] = segment
            rows.setdefault(segment.ref.name, []).append(inside)
    return [(segments[name], np.concatenate(inside)) for name, inside in rows.items()], others


@dataclass(frozen=True, slots=True)
class Everything:
    """Where all parts of a state lie, without reading a row or decoding a part."""

    segments: tuple[OpenSegment, ...]
    beside: tuple[str, ...]
    """Partitions with parts in these segments and parts in none."""
    whole: frozenset[str]
    """Partitions without parts in these segments: in none at all, or in an unreadable one."""

    def others(self, partitions: Partitions) -> list[ActivePart]:
        """The parts that lie in none of the segments."""
        parts = [part for name in self.whole for part in partitions[name]]
        held = [partitions.held(name) for name in self.beside]
        return [*parts, *(part for each in held if not isinstance(each, tuple) for part in each.beside)]

    def active(self, partitions: Partitions, segment: OpenSegment, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of active parts among some rows, ascending."""
        names = set(segment.rows["partition_id"].take(pa.array(rows)).to_pylist())
        held = [partitions.held(name) for name in names - self.whole]
        active = [each.rows_in(segment) for each in held if isinstance(each, StoredPartition)]
        return np.intersect1d(np.concatenate([*active, rows[:0]]), rows, assume_unique=True)


def everything(partitions: Partitions) -> Everything:
    """The segments in which active parts lie, read concurrently, and the partitions with other parts."""
    stored = {name: held for name in partitions if isinstance(held := partitions.held(name), StoredPartition)}
    homes = {home.ref.name: home for held in stored.values() for home in held.homes}
    segments = _opened(next(iter(stored.values())).source, homes) if stored else {}
    if lost := homes.keys() - segments.keys():
        stored = {n: held for n, held in stored.items() if lost.isdisjoint(home.ref.name for home in held.homes)}
    beside = tuple(name for name, held in stored.items() if held.beside)
    return Everything(tuple(segments.values()), beside, frozenset(partitions).difference(stored))


def _opened(source: SegmentSource, homes: Mapping[str, Home]) -> dict[str, OpenSegment]:
    """The readable ones of some segments."""
    try:
        return dict(zip(homes, source.open(list(homes.values())), strict=True))
    except (NotFoundError, CorruptDataError):
        segments: dict[str, OpenSegment] = {}
        for name, home in homes.items():
            with suppress(NotFoundError, CorruptDataError):
                segments[name] = source.open([home])[0]
        return segments


def _inside(layout: SegmentLayout, segment: str, partition_id: str, source: SegmentSource, *, known: bool) -> Inside:
    """Holds the rows if they are in memory, so that a partition does not keep the bits of a whole segment alive."""
    member = layout.members[segment]
    home = source.home(member.ref)
    if home.segment is None or not known:
        return Inside(home, None, member.live)
    return Inside(home, home.segment.rows_in(partition_id, member.live))


def adopted(partitions: Partitions, version: int, layout: SegmentLayout, source: SegmentSource) -> Partitions:
    """The same partitions, those that have not changed since the checkpoint of `version` in its form.

    Only those that had changed since the checkpoint before; all of them, if segments of that one are gone.
    """
    if partitions.since > version:
        return partitions
    late = {name for name, at in partitions.touched.items() if at > version}
    names = set(layout.placed)
    if partitions.segments <= layout.members.keys():
        names.intersection_update(partitions.touched)
    same = stored_partitions(version, layout, names - late, source, partitions)
    return partitions.held_as(same, version, frozenset(layout.members))
