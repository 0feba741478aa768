"""The parts of a state as persistent values: a change copies what it touches, and shares the rest.

`Partitions` holds the active parts; `retired` has those that were active once. Both carry precomputed counts, sums, and
a hash of their content.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import immutables

if TYPE_CHECKING:
    from mergelake.log.model.parts import ActivePart

T = TypeVar("T")
STEPS_MAX, STEP_TOUCHED_MAX = 256, 1024
"""Changes that a journal remembers, and partitions of one change: with more it begins anew."""
HASH_MASK = (1 << 128) - 1
"""Hashes of parts are added up modulo 2^128."""


def part_hash(part_id: str, name: str, *versions: int) -> int:
    """128 bits for a part with this id and name, between these versions; the hash of a set is the sum, modulo 2^128.

    A drawn id never names two contents, so the content itself need not go in.
    """
    text = f"{part_id} {name} {versions}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a set of active parts."""

    parts: int = 0
    rows: int = 0
    bytes_on_disk: int = 0
    hash: int = 0
    masked: int = 0
    """Parts with a mask that hides rows."""

    def after(self, gained: Iterable[ActivePart], lost: Iterable[ActivePart]) -> Totals:
        """The sums after some parts were gained and some lost."""
        parts, rows, size, digest, masked = self.parts, self.rows, self.bytes_on_disk, self.hash, self.masked
        for sign, changed in ((1, gained), (-1, lost)):
            for part in changed:
                manifest = part.manifest
                parts += sign
                rows += sign * manifest.rows
                size += sign * manifest.bytes_on_disk
                masked += sign * manifest.masked
                digest += sign * part_hash(manifest.id, part.name, part.added)
        return Totals(parts, rows, size, digest & HASH_MASK, masked)


class StoredParts(Protocol):
    """The parts of a partition that lie in a checkpoint, and are decoded when they are first used. Immutable."""

    def __len__(self) -> int:
        """Number of parts; known without a request."""
        ...

    @property
    def value(self) -> str:
        """Hex of `partition.dat`, as `PartManifest.partition`; known without a request."""
        ...

    @property
    def unread(self) -> Iterable[Any]:
        """The segments that have to be read first."""
        ...

    @property
    def beside(self) -> tuple[ActivePart, ...]:
        """The parts in no segment, in block order."""
        ...

    @property
    def in_memory(self) -> tuple[ActivePart, ...] | None:
        """Its parts, if they are decoded."""
        ...

    def stored_keys(self) -> list[tuple[str, int]]:
        """Id and `added` of the parts in segments. May read the store; raises NotFoundError and CorruptDataError."""
        ...

    def parts(self) -> tuple[ActivePart, ...]:
        """The parts in block order. May read from the store."""
        ...

    def find(self, ids: Collection[str], base_version: int) -> list[ActivePart]:
        """The parts with one of these ids, begun at version `base_version` or later. May read from the store."""
        ...

    def plus(self, parts: Sequence[ActivePart]) -> StoredParts:
        """The same with more parts after them."""
        ...

    def read_all(self, unread: Collection[Any]) -> None:
        """Read the unread segments of several such partitions, concurrently."""
        ...


Held: TypeAlias = "tuple[ActivePart, ...] | StoredParts"


class Journal:
    """Which partitions the last changes touched, from older values to this one.

    Each immutable value has a journal of its own; the steps are shared. An old value may be older than its first step.
    """

    __slots__ = ("_mark", "_steps")

    def __init__(self, steps: tuple[tuple[object, frozenset[str]], ...] = ()) -> None:
        self._mark = object()
        self._steps = steps
        """The journal's mark before a change, and what the change touched; the oldest first."""

    def then(self, touched: Collection[str]) -> Journal:
        """After one more change."""
        if len(touched) > STEP_TOUCHED_MAX:
            return Journal()
        return Journal((*self._steps[1 - STEPS_MAX :], (self._mark, frozenset(touched))))

    def since(self, older: Journal) -> frozenset[str] | None:
        """The partitions touched since `older`; None if that is not known."""
        if older._mark is self._mark:
            return frozenset()
        for at in range(len(self._steps) - 1, -1, -1):
            if self._steps[at][0] is older._mark:
                return frozenset().union(*(touched for _, touched in self._steps[at:]))
        return None


class Partitions(Mapping[str, "tuple[ActivePart, ...]"]):
    """Active parts by partition id, in block order; no partition is empty. Iterates in the order of the ids.

    Partitions of a large table from a checkpoint are read when they are first used (`StoredParts`).
    """

    def __init__(
        self,
        held: immutables.Map[str, Held],
        totals: Totals,
        sizes: Mapping[int, int],
        touched: immutables.Map[str, int] | None = None,
        since: int = 0,
        segments: frozenset[str] = frozenset(),
        journal: Journal | None = None,
    ) -> None:
        self._held = held
        self.totals = totals
        self._sizes = sizes
        self.touched: immutables.Map[str, int] = immutables.Map() if touched is None else touched
        """Partitions that have changed since version `since`, and a version after which they have not."""
        self.since = since
        self.segments = segments
        """Names of the segments in which some of the parts may lie."""
        self._journal = journal or Journal()
        self._memo: dict[object, object] = {}

    @staticmethod
    def of(partitions: Mapping[str, Sequence[ActivePart]]) -> Partitions:
        """From a plain mapping; computes the sums."""
        if isinstance(partitions, Partitions):
            return partitions
        return Partitions(immutables.Map(), Totals(), {}).changed(
            partitions, [part for parts in partitions.values() for part in parts], ()
        )

    @staticmethod
    def stored(held: Mapping[str, Held], totals: Totals, version: int, segments: frozenset[str]) -> Partitions:
        """The partitions of a checkpoint, whose sums are known."""
        sizes = Counter(map(len, held.values()))
        return Partitions(immutables.Map(held), totals, sizes, since=version, segments=segments)

    def changed(
        self,
        partitions: Mapping[str, Sequence[ActivePart]],
        gained: Collection[ActivePart],
        lost: Collection[ActivePart],
        version: int = 0,
        appended: Mapping[str, Sequence[ActivePart]] = MappingProxyType({}),
    ) -> Partitions:
        """The same with `partitions` replaced, and parts `appended` to others, at `version`.

        `gained` and `lost` are the parts of the difference.
        """
        sizes = Counter(self._sizes)
        with self._held.mutate() as held, self.touched.mutate() as touched:
            for partition_id in (*partitions, *appended):
                before = held.get(partition_id, ())
                if partition_id in partitions:
                    parts: Held = tuple(partitions[partition_id])
                elif isinstance(before, tuple):
                    parts = (*before, *appended[partition_id])
                else:
                    parts = before.plus(appended[partition_id])
                sizes[len(before)] -= 1
                sizes[len(parts)] += 1
                touched[partition_id] = version
                if len(parts):
                    held[partition_id] = parts
                elif len(before):
                    del held[partition_id]
            after, now = held.finish(), touched.finish()
        sizes.pop(0, None)
        journal = self._journal.then((*partitions, *appended))
        return Partitions(after, self.totals.after(gained, lost), +sizes, now, self.since, self.segments, journal)

    def held_as(self, stored: Mapping[str, StoredParts], version: int, segments: frozenset[str]) -> Partitions:
        """The same parts, with the `stored` partitions held by a checkpoint of `version`, which they equal."""
        touched = immutables.Map((name, at) for name, at in self.touched.items() if at > version)
        return Partitions(
            self._held.update(stored), self.totals, self._sizes, touched, version, segments, self._journal
        )

    def held(self, partition_id: str) -> Held:
        """The parts of a partition, read or not; empty if there is no such partition."""
        parts: Held = self._held.get(partition_id, ())
        return parts

    def find(self, partition_id: str, ids: Collection[str], base_version: int) -> list[ActivePart]:
        """The parts of a partition with one of these ids, which were begun at version `base_version` or later.

        No request if they must be younger than the parts that are not read yet.
        """
        held = self.held(partition_id)
        if isinstance(held, tuple):
            return [part for part in held if part.manifest.id in ids]
        return held.find(ids, base_version)

    def partition_value(self, partition_id: str) -> str:
        """Hex of a partition's `partition.dat`; no request."""
        held = self._held[partition_id]
        return held[0].manifest.partition if isinstance(held, tuple) else held.value

    def read(self, partition_ids: Iterable[str]) -> None:
        """Read the unread segments of some partitions, concurrently."""
        stored = [held for held in map(self.held, partition_ids) if not isinstance(held, tuple)]
        unread = {each for held in stored for each in held.unread}
        if unread:
            stored[0].read_all(unread)

    def all_parts(self) -> Iterator[ActivePart]:
        """All parts, by partition id and block."""
        self.read(self)
        for partition_id in self:
            yield from self[partition_id]

    def in_memory(self) -> Iterator[ActivePart]:
        """The parts that are there without a request, in no order; not all of those that were decoded may be."""
        for held in self._held.values():
            yield from held if isinstance(held, tuple) else held.in_memory or held.beside

    def touched_since(self, older: Partitions) -> frozenset[str] | None:
        """Ids of the partitions that may differ from those of `older`; None if that is not known.

        It is known within one process, if these partitions were derived from `older` by not too many changes.
        """
        return self._journal.since(older._journal)

    def remembered(self, key: object, make: Callable[[], T]) -> T:
        """The result of `make`, which depends on these partitions only, computed once."""
        if key not in self._memo:
            self._memo[key] = make()
        return cast(T, self._memo[key])

    def __getstate__(self) -> tuple[object, ...]:
        self.read(self)
        held = immutables.Map((name, self[name]) for name in self)
        return held, self.totals, self._sizes, self.touched, self.since

    def __setstate__(self, held: tuple[Any, ...]) -> None:
        self._held, self.totals, self._sizes, self.touched, self.since = held
        self.segments = frozenset()
        self._journal = Journal()
        self._memo = {}

    @property
    def most(self) -> int:
        """Number of parts of the largest partition."""
        return max(self._sizes, default=0)

    def __getitem__(self, partition_id: str) -> tuple[ActivePart, ...]:
        held = self._held[partition_id]
        return held if isinstance(held, tuple) else held.parts()

    def __contains__(self, partition_id: object) -> bool:
        return partition_id in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self.remembered("ids", lambda: sorted(self._held)))

    def __len__(self) -> int:
        return len(self._held)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Partitions):
            if self.totals != other.totals or len(self) != len(other):
                return False
            self.read(self)
            other.read(other)
            return all(name in other and other[name] == self[name] for name in self)
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Partitions({dict(self.items())})"
