"""Retired parts of a state, as a persistent value: those that were active once, in the order of their retirement.

They are divided into **runs**. The facts of a run are known without its rows: how many parts it has, which versions
showed them, and their sums; so counting, hashing and forgetting work run by run. The young runs are in memory; older
ones may lie in a checkpoint's segments and are read when their parts are used (`stored_runs`).

Every commit checks that its new parts are not among them. A part that was begun at version b was retired after b, so
only runs that reach further than b are searched (`find`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import is_
from typing import TYPE_CHECKING, Protocol

from mergelake.log.model.part_map import HASH_MASK, part_hash

if TYPE_CHECKING:
    from mergelake.log.model.parts import RetiredPart

RUN_MAX = 512
"""Parts of a run in memory: the most that an entry copies."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run that are known without its parts."""

    parts: int
    added: int
    """The oldest version that shows one of them."""
    first: int
    last: int
    """The lowest and the highest version at which one of them was retired."""
    noted_first: int
    noted_last: int
    """Versions of the entries that added its first and its last part to the list."""
    bytes_on_disk: int
    hash: int
    """The sum of their hashes."""

    @staticmethod
    def of(parts: Sequence[RetiredPart]) -> RunFacts:
        """The facts of these parts."""
        retired = [part.retired for part in parts]
        return RunFacts(
            len(parts),
            min(part.added for part in parts),
            min(retired),
            max(retired),
            parts[0].noted,
            parts[-1].noted,
            sum(part.bytes_on_disk for part in parts),
            sum(map(_hash, parts)) & HASH_MASK,
        )

    def followed_by(self, other: RunFacts) -> RunFacts:
        """The facts of this run and another one after it."""
        return RunFacts(
            self.parts + other.parts,
            min(self.added, other.added),
            min(self.first, other.first),
            max(self.last, other.last),
            self.noted_first,
            other.noted_last,
            self.bytes_on_disk + other.bytes_on_disk,
            (self.hash + other.hash) & HASH_MASK,
        )


class Run(Protocol):
    """Parts that retired one after another."""

    @property
    def name(self) -> str:
        """Name of the segment in which it lies; empty: it is in memory."""
        ...

    @property
    def facts(self) -> RunFacts:
        """See `RunFacts`."""
        ...

    def parts(self) -> tuple[RetiredPart, ...]:
        """The parts. May read from the store."""
        ...

    def find(self, part_ids: Collection[str]) -> Iterable[RetiredPart]:
        """The parts with these ids. May read from the store."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryRun:
    """A run in memory."""

    facts: RunFacts
    held: tuple[RetiredPart, ...]

    @staticmethod
    def of(parts: Iterable[RetiredPart]) -> MemoryRun:
        """A run of these parts."""
        held = tuple(parts)
        return MemoryRun(RunFacts.of(held), held)

    @property
    def name(self) -> str:
        """See `Run`."""
        return ""

    def parts(self) -> tuple[RetiredPart, ...]:
        """See `Run`."""
        return self.held

    def find(self, part_ids: Collection[str]) -> Iterable[RetiredPart]:
        """See `Run`."""
        return [part for part in self.held if part.id in part_ids]


class Retired(Collection["RetiredPart"]):
    """Parts that were active once, in the order in which they retired. It pickles, with all of them."""

    def __init__(self, runs: tuple[Run, ...] = (), digest: int = 0) -> None:
        """`digest` is the sum of all hashes."""
        self.runs = runs
        self.hash = digest

    @staticmethod
    def of(runs: Iterable[Run]) -> Retired:
        """From its runs."""
        held = tuple(runs)
        return Retired(held, sum(run.facts.hash for run in held) & HASH_MASK)

    def get(self, part_id: str) -> RetiredPart | None:
        """The part with this id, if any; may read all stored runs."""
        return self.find((part_id,)).get(part_id)

    def find(self, part_ids: Collection[str], base_version: int = 0) -> dict[str, RetiredPart]:
        """The parts with these ids, if these were begun (`PartManifest.base_version`) at `base_version` or later.

        Of a part that had several names the last one.
        """
        runs = [run for run in self.runs if run.facts.last > base_version]
        return {part.id: part for run in runs for part in run.find(part_ids)}

    def plus(self, parts: Sequence[RetiredPart]) -> Retired:
        """The same with more parts after the others."""
        if not parts:
            return self
        runs, facts = list(self.runs), RunFacts.of(parts)
        if not runs or runs[-1].name or runs[-1].facts.parts >= RUN_MAX:
            runs += memory_runs(tuple(parts))
        elif runs[-1].facts.parts + facts.parts > RUN_MAX:
            runs += memory_runs((*runs.pop().parts(), *parts))
        else:
            last = runs.pop()
            runs.append(MemoryRun(last.facts.followed_by(facts), (*last.parts(), *parts)))
        return Retired(tuple(runs), (self.hash + facts.hash) & HASH_MASK)

    def still_shown(
        self, history: int, pinned: Sequence[int], partial: Mapping[int, frozenset[str]] | None = None
    ) -> Retired:
        """Without the parts that neither a version from `history` on nor one of `pinned` (ascending) shows.

        Of a version in `partial` only the parts in its partitions count.
        """
        runs: list[Run] = []
        for run in self.runs:
            facts = run.facts
            if facts.first > history:
                runs.append(run)
            elif facts.last > history or bisect_right(pinned, facts.last - 1) != bisect_right(pinned, facts.added - 1):
                kept = tuple(part for part in run.parts() if _shown(part, history, pinned, partial or {}))
                runs += [run] if len(kept) == facts.parts else [MemoryRun.of(kept)] if kept else []
        same = len(runs) == len(self.runs) and all(map(is_, runs, self.runs))
        return self if same else Retired.of(runs)

    def held_as(self, stored: Sequence[Run]) -> Retired:
        """The same parts, those equal to one of the `stored` runs (in the order of the list) held by that run."""
        runs: list[Run] = []
        rest = list(reversed(self.runs))

        def until(noted: int) -> list[Run]:
            """The next runs, cut where `noted` reaches a version."""
            taken: list[Run] = []
            while rest and rest[-1].facts.noted_first < noted:
                run = rest.pop()
                if run.facts.noted_last >= noted:
                    if run.name:  # it begins within one of `stored`, and ends elsewhere
                        taken.append(run)
                        continue
                    parts = run.parts()
                    cut = bisect_left(parts, noted, key=lambda part: part.noted)
                    rest.append(MemoryRun.of(parts[cut:]))
                    run = MemoryRun.of(parts[:cut])
                taken.append(run)
            return taken

        for each in stored:
            runs += until(each.facts.noted_first)
            inside = until(each.facts.noted_last + 1)
            parts, digest = sum(run.facts.parts for run in inside), sum(run.facts.hash for run in inside)
            same = parts == each.facts.parts and digest & HASH_MASK == each.facts.hash
            runs += [each] if same else inside
        runs += reversed(rest)
        return Retired.of(runs)

    def since(self, older: Retired) -> tuple[list[RetiredPart], list[RetiredPart]]:
        """The parts gained since `older`, and those lost: only the runs that differ are read."""
        own_names, older_names = set(map(_name, self.runs)), set(map(_name, older.runs))
        own_parts = {_key(part): part for run in self.runs if _name(run) not in older_names for part in run.parts()}
        older_parts = {_key(part): part for run in older.runs if _name(run) not in own_names for part in run.parts()}
        return [part for key, part in own_parts.items() if key not in older_parts], [
            part for key, part in older_parts.items() if key not in own_parts
        ]

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all of them."""
        return sum(run.facts.bytes_on_disk for run in self.runs)

    @property
    def in_memory(self) -> int:
        """How many of them lie in no segment."""
        return sum(run.facts.parts for run in self.runs if not run.name)

    def oldest_within(self, limit: int, pinned: Sequence[int]) -> int:
        """The oldest version that can be kept, with all newer ones, for `limit` bytes of these parts; 0: any.

        What one of the `pinned` versions (ascending) shows is kept anyway and not counted.
        """
        left = limit
        for number, run in reversed([*enumerate(self.runs)]):
            facts = run.facts
            free = bisect_left(pinned, facts.added) == bisect_left(pinned, facts.last)
            if free and facts.bytes_on_disk <= left:
                left -= facts.bytes_on_disk
                continue
            parts = run.parts()
            for at, part in reversed([*enumerate(parts, 1)]):
                if free or bisect_left(pinned, part.added) == bisect_left(pinned, part.retired):
                    left -= part.bytes_on_disk
                if left < 0:
                    # A part that was detached for long comes after parts that were retired later.
                    older = [each.facts.last for each in self.runs[:number]]
                    return max([*older, *(each.retired for each in parts[:at])])
        return 0

    def __iter__(self) -> Iterator[RetiredPart]:
        for run in self.runs:
            yield from run.parts()

    def __len__(self) -> int:
        return sum(run.facts.parts for run in self.runs)

    def __contains__(self, part: object) -> bool:
        part_id = getattr(part, "id", None)
        return isinstance(part_id, str) and any(part == found for run in self.runs for found in run.find((part_id,)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Retired):
            return self.hash == other.hash and tuple(self) == tuple(other)
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> tuple[tuple[RetiredPart, ...]]:
        return (tuple(self),)

    def __setstate__(self, held: tuple[tuple[RetiredPart, ...]]) -> None:
        rebuilt = Retired().plus(held[0])
        self.runs, self.hash = rebuilt.runs, rebuilt.hash

    def __repr__(self) -> str:
        return f"Retired({list(self)})"


def memory_runs(parts: Sequence[RetiredPart]) -> list[MemoryRun]:
    """Parts as runs in memory."""
    return [MemoryRun.of(parts[at : at + RUN_MAX]) for at in range(0, len(parts), RUN_MAX)]


def spilled(runs: Sequence[Run], parts_max: int) -> list[Run | list[RetiredPart]]:
    """The runs of a checkpoint without any in memory: each list is to be written as one run.

    A list has the parts of neighbouring runs in memory and small stored ones (less than half of `parts_max`), cut into
    runs of about `parts_max` parts between those of two entries.
    """
    pieces: list[Run | list[RetiredPart]] = []
    for small, group in groupby(runs, lambda run: not run.name or run.facts.parts < parts_max // 2):
        stretch = list(group)
        if not small or all(run.name for run in stretch):
            pieces += stretch
            continue
        parts = [part for run in stretch for part in run.parts()]
        start = 0
        for at in range(1, len(parts)):
            if at - start >= parts_max and parts[at].noted != parts[at - 1].noted:
                pieces.append(parts[start:at])
                start = at
        pieces.append(parts[start:])
    return pieces


def _name(run: Run) -> object:
    return run.name or id(run)


def _key(part: RetiredPart) -> tuple[str, int, int]:
    """A part retires under each name that it had: more than once if mutations marked it."""
    return part.id, part.added, part.retired


def _hash(part: RetiredPart) -> int:
    return part_hash(part.id, str(part.info), part.added, part.retired)


def _shown(part: RetiredPart, history: int, pinned: Sequence[int], partial: Mapping[int, frozenset[str]]) -> bool:
    shows = pinned[bisect_left(pinned, part.added) : bisect_left(pinned, part.retired)]
    if not partial:
        return part.retired > history or bool(shows)
    name = part.info.partition_id
    return part.retired > history or any(name in partial.get(version, (name,)) for version in shows)
