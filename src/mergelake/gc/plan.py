"""One round of collection, decided. Pure: a state, the notes and a listing in, what to do out.

Nothing is deleted because of its age alone. Between noting and deleting stands a position of the log, the fence:
whoever began to write before it can no longer commit, so what is unreferenced there stays so (`docs/design/0007`).

A round has two halves, and is the second half of an earlier one:

1. **Work off** notes that are older than the grace period: commit `AdvanceGcHorizon(base_version=fence, history)`, and
   delete what they name and the state of that entry does not reach.
2. **Look**, if no note waits: list the table, note what is not reached, and commit once more, so that whoever begins
   after that is not mistaken for one of those who began before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from mergelake.core.settings import TableSettings
from mergelake.log.fold import apply
from mergelake.log.head_freshness import GRACE_MIN_S
from mergelake.log.operations import AdvanceGcHorizon, DropReference, Entry, ReleaseLease, TableOp
from mergelake.log.retention import pins, reachable
from mergelake.log.state import State
from mergelake.publish.plan import PART_DIRECTORY, part_of
from mergelake.table.gc_notes import NoteName, Unused

Holds: TypeAlias = Mapping[str, tuple[str, ...]]
"""Directory of another table -> directories that it holds here."""
Leases: TypeAlias = Mapping[str, tuple[int, int]]
"""Node -> the version and the end of its lease."""
Listed: TypeAlias = tuple[str, int, *tuple[object, ...]]
"""Key and size of an object, and whatever else a listing says."""
Keep: TypeAlias = Sequence[Container[str]]
"""Sets of directories: what is in any of them stays. One is asked after the other, of many names at once."""
_UNBOUNDED = 1 << 63
_KEY = itemgetter(0)
AHEAD_MS = 60_000
"""A clock that is ahead by less does no harm: history is late by as much."""
_COLLECTED = re.compile(rf"{PART_DIRECTORY}|drop-.+")
"""Directories of parts. Whatever else lies below a table is not ours to judge."""


@dataclass(frozen=True, slots=True)
class Periods:
    """How long things are kept."""

    retention_ms: int
    grace_ms: int
    step: int
    """History goes on by so many versions before that is written down for its own sake."""
    retention_bytes: int = _UNBOUNDED
    """Most bytes of retired parts that are kept for older versions, but for those of the last grace period."""

    def due_ms(self, note: NoteName) -> int:
        """When a note is to be worked off, by the store's clock."""
        # Between emptying checkpoints and cutting the log lies at least what the log itself asks for.
        waits = {"log": max(self.grace_ms, round(GRACE_MIN_S * 1000)), "history": self.retention_ms}
        return note.stored_ms + waits.get(note.kind, self.grace_ms)

    @staticmethod
    def of(state: State) -> Periods:
        """The settings of a table, also of one that was dropped."""
        settings = TableSettings(state.schemas[state.schema_version].settings)
        retention, grace = settings.integer("history_retention_seconds"), settings.integer("gc_grace_seconds")
        # A reader without a lease may count on the grace period, also for a part that was noted long before its commit.
        retention = max(retention, grace)
        share = int(settings.number("retention_max_ratio") * state.partitions.totals.bytes_on_disk)
        # Nothing is active in a dropped table: its way back is kept for the time alone.
        limit = _UNBOUNDED if state.dropped else max(settings.integer("retention_max_bytes"), share)
        return Periods(retention * 1000, grace * 1000, max(settings.integer("checkpoint_interval"), 1), limit)


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What a round begins with."""

    due: tuple[NoteName, ...]
    """Notes that are older than the grace period."""
    waiting: tuple[NoteName, ...]
    """The others."""
    base_version: int
    """The fence that the due notes ask for; 0 for none."""
    history: int
    """The oldest version to keep."""
    commit: bool
    """Whether there is anything that has to stand in the log first."""

    @property
    def looks(self) -> bool:
        """Whether this round lists the table: not while what was found the last time waits."""
        return not any(note.kind in ("objects", "holders", "table") for note in self.waiting)

    def ops(self, state: State, released: Holds, over_ms: int, old: Leases | None = None) -> list[TableOp]:
        """The operations of its entry, on the state before it.

        `released` are holds that nobody needs, as they were seen; `silent_nodes` go too.
        """
        ops: list[TableOp] = [
            DropReference(holder) for holder, held in released.items() if state.holds.get(holder) == held
        ]
        ops += [ReleaseLease(node) for node in silent_nodes(state, over_ms, old or {})]
        return [*ops, AdvanceGcHorizon(max(self.base_version, state.fence), max(self.history, state.history))]


def oldest_to_keep(state: State, periods: Periods, before: Callable[[int], int]) -> int:
    """The oldest version to keep for history, by time and by price: `before(ms)` was the newest one so long ago."""
    by_time = before(periods.retention_ms)
    # What tags and leases keep is kept anyway.
    pinned = pins(state.version, state.tags, state.leases, state.dropped)
    by_price = state.retired.oldest_within(periods.retention_bytes, pinned)
    # Readers without a lease count on the grace period, whatever that costs.
    return min(by_price, before(periods.grace_ms)) if by_price > by_time else by_time


def plan_round(state: State, notes: Iterable[NoteName], now_ms: int, periods: Periods, history: int) -> RoundPlan:
    """How to begin; `history` is what `oldest_to_keep` said."""
    noted = sorted(notes, key=lambda note: note.name)
    due = tuple(note for note in noted if periods.due_ms(note) <= now_ms)
    waiting = tuple(note for note in noted if periods.due_ms(note) > now_ms)
    history = max(history, state.history, *(note.fence - 1 for note in due if note.kind == "history"))
    base_version = max((note.fence for note in due if note.kind == "objects"), default=0)
    kept = state.retired.still_shown(history, pins(history, state.tags, state.leases, state.dropped))
    # History alone is worth an entry once it frees entries of the log.
    commit = base_version > 0 or len(kept) < len(state.retired) or history >= state.history + periods.step
    # So does what ends the time in which a dropped table can come back.
    commit = commit or state.history < state.dropped_version <= history
    return RoundPlan(due, waiting, base_version, history, commit)


def silent_nodes(state: State, over_ms: int, old: Leases) -> list[str]:
    """Nodes for which nothing is kept any more: their lease ended before `over_ms`, or is one of the `old` ones still.

    Those were noted one retention ago: if a lease has not changed since, whatever end it says is of no account.
    """
    leases = state.leases.items()
    return [n for n, lease in leases if lease.until_ms < over_ms or old.get(n) == (lease.version, lease.until_ms)]


def wants_history(state: State, notes: Iterable[NoteName], now_ms: int, periods: Periods) -> bool:
    """Whether a `history` note is to be written: the log has times of a clock that is ahead, and has gone on."""
    ahead_ms = max((lease.until_ms - periods.retention_ms for lease in state.leases.values()), default=0)
    if max(state.timestamp_ms, ahead_ms) <= now_ms + AHEAD_MS:
        return False
    newest = max((note for note in notes if note.kind == "history"), key=lambda note: note.fence, default=None)
    if newest is None:
        return True
    return newest.fence <= state.version and newest.stored_ms + periods.retention_ms // 8 <= now_ms


def foreseen(state: State, ops: Iterable[TableOp]) -> State:
    """The state after an entry with these operations, without committing it: for a dry run."""
    return apply(state, Entry(state.version + 1, "", state.timestamp_ms, "", tuple(ops)))


def reasons(before: State, after: State) -> dict[str, str]:
    """Why parts that `after` no longer remembers are not needed, by id."""
    _, gone = after.retired.since(before.retired)
    return {part.id: f"replaced or dropped at version {part.retired}" for part in gone}


class CleanPages:
    """Pages of a listing on which nothing was unused: the same ones need no second look while nothing leaves `keep`."""

    def __init__(self) -> None:
        self.judged = 0
        """How many pages were looked at so far."""
        self._kept: object = None
        self._before: dict[str, int] = {}
        self._now: dict[str, int] = {}

    def begin(self, kept: object) -> None:
        """A new listing. `kept` is what it was the last time only if nothing has left `keep`; None if something may."""
        self._before = self._now if kept is not None and kept == self._kept else {}
        self._kept, self._now = kept, {}

    def passes(self, page: Sequence[Listed]) -> bool:
        """Whether it was seen as it is, and clean."""
        first, digest = page[0][0], _digest(page)
        if self._before.get(first) != digest:
            self.judged += 1
            return False
        self._now[first] = digest
        return True

    def add(self, page: Sequence[Listed]) -> None:
        """Nothing on it is unused."""
        self._now[page[0][0]] = _digest(page)


def _digest(page: Sequence[Listed]) -> int:
    return hash(tuple(map(_KEY, page)))


def unused(
    listing: Iterable[Sequence[Listed]],
    keep: Keep,
    why: dict[str, str],
    below: str = "",
    clean: CleanPages | None = None,
) -> Iterator[Unused]:
    """Directories of parts that are not in `keep`: `listing` gives objects in order of their keys, by pages.

    `below` is what keys begin with before the directory. Holds a page and one directory at a time. What is `clean` has
    begun with this listing, and is passed over.
    """
    last, files, cut = "", dict[str, int](), len(below)
    clean = clean or CleanPages()
    for page in listing:
        if not files and clean.passes(page):
            continue
        directories = [key[cut:].partition("/")[0] for key in map(_KEY, page)]
        judged = set(_unused_of(dict.fromkeys(directories), keep))
        if not judged and not files:
            clean.add(page)
            continue
        for directory, (key, size, *_) in zip(directories, page, strict=True):
            if directory != last:
                if files:
                    yield _why_unused(last, files, why)
                last, files = directory, {}
            if directory in judged:
                files[key[cut + len(directory) + 1 :]] = size
    if files:
        yield _why_unused(last, files, why)


def _why_unused(directory: str, files: dict[str, int], why: dict[str, str]) -> Unused:
    reason = "an empty part that is not shown" if directory.startswith("drop-") else "not in the log"
    return Unused(directory, files, why.get(part_of(directory), reason))


def still_unused(found: Iterable[Unused], keep: Keep) -> list[Unused]:
    """Those that are not in `keep`: what a newer state reaches, and what ClickHouse is shown.

    A note is a file like others, and may hold anything: what is no directory of a part stays.
    """
    found = list(found)
    left = set(_unused_of((each.directory for each in found), keep))
    return [each for each in found if each.directory in left]


def _unused_of(directories: Iterable[str], keep: Keep) -> list[str]:
    """Those of parts, where neither they nor their parts are kept. Asked for every directory of a table."""
    left = _without(directories, keep)
    parts = list(map(part_of, left))
    bare = set(_without(parts, keep))
    return [name for name, part in zip(left, parts, strict=True) if part in bare and _COLLECTED.fullmatch(name)]


def _without(names: Iterable[str], keep: Keep) -> list[str]:
    left = list(names)
    for each in keep:
        left = [name for name in left if name not in each]
    return left


def is_gone(state: State) -> bool:
    """Whether nothing of a table is needed by anybody, and never will be: all of its directory may go."""
    return state.dropped and state.history >= state.dropped_version and not reachable(state)
