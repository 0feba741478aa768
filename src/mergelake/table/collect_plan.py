"""One round of collection, decided. Pure: a state, the notes and a listing in, what to do out.

Nothing is deleted because of its age alone. Between noting and deleting stands a position of the log, the fence:
whoever began to write before it can no longer commit, so what is unreferenced there stays so (`docs/design/0007`).

A round has two halves, and is the second half of an earlier one:

1. **Work off** notes that are older than the grace period: commit `Collect(born=fence, history)`, and delete what they
   name and the state of that entry does not reach.
2. **Look**, if no note waits: list the table, note what is not reached, and commit once more, so that whoever begins
   after that is not mistaken for one of those who began before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from mergelake.core.settings import TableSettings
from mergelake.log.fold import apply
from mergelake.log.operations import Collect, Entry, Release, ReleaseLease, TableOp
from mergelake.log.retention import pins, reachable, still_shown
from mergelake.log.state import State
from mergelake.log.trust import GRACE_MIN_S
from mergelake.table.collect_notes import NoteName, Unused

Holds: TypeAlias = Mapping[str, tuple[str, ...]]
"""Directory of another table -> directories that it holds here."""
_COLLECTED = re.compile(r"[0-9a-f]{32}|drop-.+")
"""Directories of parts. Whatever else lies below a table is not ours to judge."""


@dataclass(frozen=True, slots=True)
class Periods:
    """How long things are kept."""

    retention_ms: int
    grace_ms: int
    step: int
    """History goes on by so many versions before that is written down for its own sake."""

    def due_ms(self, note: NoteName) -> int:
        """When a note is to be worked off."""
        # Between emptying checkpoints and cutting the log lies at least what the log itself asks for.
        return note.time_ms + (max(self.grace_ms, round(GRACE_MIN_S * 1000)) if note.kind == "log" else self.grace_ms)

    @staticmethod
    def of(state: State) -> Periods:
        """The settings of a table, also of one that was dropped."""
        settings = TableSettings(state.schemas[state.schema_version].settings)
        retention, grace = settings.integer("history_retention_seconds"), settings.integer("gc_grace_seconds")
        # A reader without a lease may count on the grace period, also for a part that was noted long before its commit.
        retention = max(retention, grace)
        return Periods(retention * 1000, grace * 1000, max(settings.integer("checkpoint_interval"), 1))


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What a round begins with."""

    due: tuple[NoteName, ...]
    """Notes that are older than the grace period."""
    waiting: tuple[NoteName, ...]
    """The others."""
    born: int
    """The fence that the due notes ask for; 0 for none."""
    history: int
    """The oldest version to keep."""
    commit: bool
    """Whether there is anything that has to stand in the log first."""

    @property
    def looks(self) -> bool:
        """Whether this round lists the table: not while what was found the last time waits."""
        return not any(note.kind in ("objects", "holders", "table") for note in self.waiting)

    def ops(self, state: State, released: Holds, over_ms: int) -> list[TableOp]:
        """The operations of its entry, on the state before it.

        `released` are holds that nobody needs, as they were seen; leases that ended before `over_ms` go too.
        """
        ops: list[TableOp] = [Release(holder) for holder, held in released.items() if state.holds.get(holder) == held]
        ops += [ReleaseLease(node) for node in silent_nodes(state, over_ms)]
        return [*ops, Collect(max(self.born, state.fence), max(self.history, state.history))]


def plan_round(state: State, notes: Iterable[NoteName], now_ms: int, periods: Periods, history: int) -> RoundPlan:
    """How to begin. `history` is the version that was the newest one retention ago."""
    noted = sorted(notes, key=lambda note: note.name)
    due = tuple(note for note in noted if periods.due_ms(note) <= now_ms)
    waiting = tuple(note for note in noted if periods.due_ms(note) > now_ms)
    history = max(history, state.history)
    born = max((note.fence for note in due if note.kind == "objects"), default=0)
    kept = still_shown(state.retired, history, pins(history, state.tags, state.leases, state.dropped))
    # History alone is worth an entry once it frees entries of the log.
    commit = born > 0 or len(kept) < len(state.retired) or history >= state.history + periods.step
    return RoundPlan(due, waiting, born, history, commit)


def silent_nodes(state: State, over_ms: int) -> list[str]:
    """Nodes whose lease ended before `over_ms`: nothing is kept for them any more."""
    return [node for node, lease in state.leases.items() if lease.until_ms < over_ms]


def foreseen(state: State, ops: Iterable[TableOp]) -> State:
    """The state after an entry with these operations, without committing it: for a dry run."""
    return apply(state, Entry(state.version + 1, "", state.timestamp_ms, "", tuple(ops)))


def reasons(before: State, after: State) -> dict[str, str]:
    """Why parts that `after` no longer remembers are not needed, by id."""
    left = {part.id for part in after.retired}
    return {p.id: f"replaced or dropped at version {p.retired}" for p in before.retired if p.id not in left}


def unused(listing: Iterable[tuple[str, int]], keep: Collection[str], why: dict[str, str]) -> Iterator[Unused]:
    """Directories of parts that are not in `keep`: `listing` gives keys below the table, in order, and sizes.

    Holds one directory at a time.
    """
    for directory, files in groupby(listing, key=lambda item: item[0].partition("/")[0]):
        if directory in keep or not _COLLECTED.fullmatch(directory):
            continue
        names = {key[len(directory) + 1 :]: size for key, size in files}
        reason = "an empty part that is not shown" if directory.startswith("drop-") else "not in the log"
        yield Unused(directory, names, why.get(directory, reason))


def still_unused(found: Iterable[Unused], state: State, shown: Collection[str]) -> list[Unused]:
    """Those that a newer state does not reach either, and that ClickHouse is not shown (`shown`: tokens)."""
    live = reachable(state)
    return [each for each in found if each.directory not in live and each.directory not in shown]


def is_gone(state: State) -> bool:
    """Whether nothing of a table is needed by anybody: all of its directory may go."""
    return state.dropped and not reachable(state)
