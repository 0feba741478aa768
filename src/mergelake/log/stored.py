"""Active parts that lie in segments of a checkpoint: columns, from which objects are made for the parts in hand.

A partition of a large table is a `StoredPartition`: it knows how many parts it has and in which segments, and reads
the rows of those, and makes its parts, when somebody asks. Made parts are kept for a while, so many for all tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.errors import CorruptDataError, NotFoundError
from mergelake.log.layout import Layout
from mergelake.log.part_map import Partitions, StoredParts
from mergelake.log.segment import OpenSegment, SegmentRef
from mergelake.log.state import ActivePart


class Home:
    """A segment, and its rows once they have been read: as long as somebody has this object."""

    __slots__ = ("__weakref__", "ref", "segment")

    def __init__(self, ref: SegmentRef) -> None:
        self.ref = ref
        self.segment: OpenSegment | None = None


class SegmentSource(Protocol):
    """Reads the rows of segments."""

    def home(self, ref: SegmentRef) -> Home:
        """The one object of a segment."""
        ...

    def open(self, homes: Collection[Home]) -> list[OpenSegment]:
        """Segments, those whose rows are not here read at once. Raises NotFoundError and CorruptDataError."""
        ...

    def instead(self, partition_id: str, version: int) -> tuple[ActivePart, ...]:
        """The parts of a partition at a version, made without the segments that cannot be read; none if they cannot be.

        Raises NotFoundError and CorruptDataError.
        """
        ...

    def made(self, partition: StoredPartition) -> None:
        """It has made its parts: it is told to forget them when others need the room (`StoredPartition.forget`)."""
        ...


@dataclass(frozen=True, slots=True)
class Inside:
    """The parts of a partition in one segment."""

    home: Home
    rows: NDArray[np.int64] | None
    live: NDArray[np.bool_] | None = None
    """Where the rows are not known: which ones of the segment are alive."""

    def rows_in(self, segment: OpenSegment, partition_id: str) -> NDArray[np.int64]:
        """Their rows."""
        if self.rows is not None:
            return self.rows
        assert self.live is not None
        return segment.rows_in(partition_id, self.live)


class StoredPartition:
    """One partition, as it was in a checkpoint, and what came behind its parts since. See `part_map.StoredParts`."""

    __slots__ = ("_count", "_grown", "_inside", "_made", "beside", "partition_id", "source", "value", "version")

    def __init__(
        self,
        version: int,
        partition_id: str,
        value: str,
        count: int,
        inside: tuple[Inside, ...],
        beside: tuple[ActivePart, ...],
        source: SegmentSource,
        made: tuple[ActivePart, ...] | None = None,
        grown: int = 0,
    ) -> None:
        """`version` is that of the checkpoint, `beside` are parts of it in no segment, of which the last `grown` came
        since; `made` all of them, if they are here already.
        """
        self.version = version
        self.partition_id = partition_id
        self.value = value
        self._count = count
        self._inside = inside
        self.beside = beside
        self.source = source
        self._made = made
        self._grown = grown

    def __len__(self) -> int:
        return self._count

    @property
    def in_memory(self) -> tuple[ActivePart, ...] | None:
        """Its parts, if they are made."""
        return self._made

    @property
    def homes(self) -> tuple[Home, ...]:
        """Of the segments in which parts of it lie."""
        return tuple([inside.home for inside in self._inside])

    def rows_in(self, segment: OpenSegment) -> NDArray[np.int64]:
        """Where its parts lie in one of these."""
        found = [inside for inside in self._inside if inside.home.ref.name == segment.ref.name]
        return found[0].rows_in(segment, self.partition_id) if found else np.zeros(0, np.int64)

    @property
    def unread(self) -> Iterator[Home]:
        """Segments whose rows are not here."""
        if self._made is None:
            yield from (inside.home for inside in self._inside if inside.home.segment is None)

    def read_all(self, unread: Collection[Home]) -> None:
        """See `part_map.StoredParts`. What cannot be read is noticed when it is asked for."""
        with suppress(NotFoundError, CorruptDataError):
            self.source.open(unread)

    def rows(self) -> tuple[list[tuple[OpenSegment, NDArray[np.int64]]], tuple[ActivePart, ...]]:
        """Where its parts lie, without making them: rows of segments, and those that lie in none.

        Raises NotFoundError and CorruptDataError.
        """
        segments = self.source.open([inside.home for inside in self._inside])
        found = [
            (segment, inside.rows_in(segment, self.partition_id))
            for inside, segment in zip(self._inside, segments, strict=True)
        ]
        return found, self.beside

    def stored_keys(self) -> list[tuple[str, int]]:
        """See `part_map.StoredParts`."""
        return [key for segment, rows in self.rows()[0] for key in segment.keys(rows)]

    def _since(self) -> tuple[ActivePart, ...]:
        """Those that came since the checkpoint."""
        return self.beside[len(self.beside) - self._grown :]

    def find(self, ids: Collection[str], base_version: int) -> list[ActivePart]:
        """See `part_map.StoredParts`. A part that a checkpoint holds was begun at a version before it."""
        parts = self._since() if base_version >= self.version else self.parts()
        return [part for part in parts if part.manifest.id in ids]

    def plus(self, parts: Sequence[ActivePart]) -> StoredPartition:
        """See `part_map.StoredParts`."""
        made = None if self._made is None else (*self._made, *parts)
        count, beside, grown = self._count + len(parts), (*self.beside, *parts), self._grown + len(parts)
        told = (self.version, self.partition_id, self.value, count, self._inside, beside, self.source)
        larger = StoredPartition(*told, made, grown)
        if made is not None:
            self.source.made(larger)
        return larger

    def parts(self) -> tuple[ActivePart, ...]:
        """In block order. A segment that is damaged, or was swept, costs the way over an older checkpoint."""
        made = self._made
        if made is None:
            try:
                made = self._read()
            except (NotFoundError, CorruptDataError):
                made = (*self.source.instead(self.partition_id, self.version), *self._since())
                if len(made) != self._count:
                    raise
            self._made = made
        self.source.made(self)
        return made

    def _read(self) -> tuple[ActivePart, ...]:
        places, beside = self.rows()
        found = list(beside)
        for segment, rows in places:
            found += segment.parts(rows)
        if len(found) != self._count:
            told = f"Segments of a checkpoint do not hold what it says of partition {self.partition_id}"
            raise CorruptDataError(told, expected=str(self._count), found=str(len(found)))
        found.sort(key=lambda part: part.info.min_block)
        return tuple(found)

    def forget(self) -> None:
        """Its parts can be made again."""
        self._made = None

    def __repr__(self) -> str:
        return f"StoredPartition({self.partition_id!r}, {self._count})"


def stored_partitions(
    version: int, layout: Layout, names: Collection[str], source: SegmentSource, before: Partitions | None = None
) -> dict[str, StoredParts]:
    """Partitions of a checkpoint with parts in segments. `before`: those of a state with the same parts in them."""
    found: dict[str, StoredParts] = {}
    for name in names:
        placed, beside = layout.placed[name], layout.inline.get(name, ())
        held = before.held(name) if before is not None else None
        made = held.in_memory if isinstance(held, StoredPartition) else held
        assert made is None or isinstance(made, tuple)
        inside = tuple(_inside(layout, each, name, source, known=before is not None) for each in placed.names)
        stored = StoredPartition(version, name, placed.value, placed.parts + len(beside), inside, beside, source, made)
        found[name] = stored
        if made is not None:
            source.made(stored)
    return found


def as_rows(
    partitions: Partitions, names: Collection[str]
) -> tuple[list[tuple[OpenSegment, NDArray[np.int64]]], list[ActivePart]]:
    """The parts of some partitions, those in segments as rows of them; and the others."""
    partitions.read(names)
    rows: dict[str, list[NDArray[np.int64]]] = {}
    segments: dict[str, OpenSegment] = {}
    others: list[ActivePart] = []
    for name in names:
        held = partitions.held(name)
        try:
            found, beside = held.rows() if isinstance(held, StoredPartition) else ([], partitions[name])
        except (NotFoundError, CorruptDataError):
            found, beside = [], partitions[name]  # by another way
        others += beside
        for segment, inside in found:
            segments[segment.ref.name] = segment
            rows.setdefault(segment.ref.name, []).append(inside)
    return [(segments[name], np.concatenate(inside)) for name, inside in rows.items()], others


@dataclass(frozen=True, slots=True)
class Everything:
    """Where all parts of a state lie; no row and no part was looked at for it."""

    segments: tuple[OpenSegment, ...]
    beside: tuple[str, ...]
    """Partitions that have parts in none of these, too,"""
    whole: frozenset[str]
    """and those of which all parts are to be taken so: in no segment, or in one that cannot be read."""

    def others(self, partitions: Partitions) -> list[ActivePart]:
        """The parts that lie in none of the segments."""
        found = [part for name in self.whole for part in partitions[name]]
        held = [partitions.held(name) for name in self.beside]
        return [*found, *(part for each in held if not isinstance(each, tuple) for part in each.beside)]

    def active(self, partitions: Partitions, segment: OpenSegment, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of some rows, ascending, that are of active parts."""
        names = set(segment.rows["partition_id"].take(pa.array(rows)).to_pylist())
        held = [partitions.held(name) for name in names - self.whole]
        active = [each.rows_in(segment) for each in held if isinstance(each, StoredPartition)]
        return np.intersect1d(np.concatenate([*active, rows[:0]]), rows, assume_unique=True)


def everything(partitions: Partitions) -> Everything:
    """The segments in which active parts lie, read at once, and what lies beside them."""
    stored = {name: held for name in partitions if isinstance(held := partitions.held(name), StoredPartition)}
    homes = {home.ref.name: home for held in stored.values() for home in held.homes}
    segments = _opened(next(iter(stored.values())).source, homes) if stored else {}
    if lost := homes.keys() - segments.keys():
        stored = {n: held for n, held in stored.items() if lost.isdisjoint(home.ref.name for home in held.homes)}
    beside = tuple(name for name, held in stored.items() if held.beside)
    return Everything(tuple(segments.values()), beside, frozenset(partitions).difference(stored))


def _opened(source: SegmentSource, homes: Mapping[str, Home]) -> dict[str, OpenSegment]:
    """Those of some segments that can be read."""
    try:
        return dict(zip(homes, source.open(list(homes.values())), strict=True))
    except (NotFoundError, CorruptDataError):
        found: dict[str, OpenSegment] = {}
        for name, home in homes.items():
            with suppress(NotFoundError, CorruptDataError):
                found[name] = source.open([home])[0]
        return found


def _inside(layout: Layout, segment: str, partition_id: str, source: SegmentSource, *, known: bool) -> Inside:
    """With the rows, where they are here: a partition must not keep the bits of a whole segment alive for long."""
    member = layout.members[segment]
    home = source.home(member.ref)
    if home.segment is None or not known:
        return Inside(home, None, member.live)
    return Inside(home, home.segment.rows_in(partition_id, member.live))


def adopted(partitions: Partitions, version: int, layout: Layout, source: SegmentSource) -> Partitions:
    """The same partitions, those that have not changed since a checkpoint of a version held as it has them.

    Those that had changed since the checkpoint before; all of them, if it has other segments than that one.
    """
    if partitions.since > version:
        return partitions
    late = {name for name, at in partitions.touched.items() if at > version}
    names = set(layout.placed)
    if partitions.segments <= layout.members.keys():
        names.intersection_update(partitions.touched)
    same = stored_partitions(version, layout, names - late, source, partitions)
    return partitions.held_as(same, version, frozenset(layout.members))
