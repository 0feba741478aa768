"""Plans one round of collection. Pure: a state, the notes and a listing in, the work out.

Nothing is deleted because of its age alone. Between noting and deleting there is a log position, the fence: a writer
that began before it can no longer commit, so what is unreferenced there stays unreferenced (`docs/design/0007`).

A round has two halves; the first one completes an earlier round:

1. **Work off** notes that are older than the grace period: commit `AdvanceGcHorizon(base_version=fence, history)`, and
   delete the directories that they name and the state of that entry does not reach.
2. **Note unused directories**, if no note waits: list the table, note what is not reached, and commit once more, so
   that writers that begin later have a base version after the fence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from mergelake.core.model.settings import TableSettings
from mergelake.jobs.publish.plan import PART_DIRECTORY, part_of
from mergelake.log.model.fold import apply
from mergelake.log.model.operations import AdvanceGcHorizon, DropReference, Entry, ReleaseLease, TableOp
from mergelake.log.model.retention import partial_versions, pins, reachable
from mergelake.log.model.state import State
from mergelake.log.reading.head_freshness import GRACE_MIN_S
from mergelake.table.partitions.gc_notes import NoteName, Unused

Holds: TypeAlias = Mapping[str, tuple[str, ...]]
"""Directory of another table -> directories that it holds here."""
Leases: TypeAlias = Mapping[str, tuple[int, int]]
"""Node -> the version and the end of its lease."""
Listed: TypeAlias = tuple[str, int, *tuple[object, ...]]
"""Key and size of an object, and further fields of a listing."""
Keep: TypeAlias = Sequence[Container[str]]
"""Sets of directories: a directory in any of them is kept."""
_UNBOUNDED = 1 << 63
_KEY = itemgetter(0)
AHEAD_MS = 60_000
"""A clock may be ahead by this much: it only delays the cutting of history."""
_COLLECTED = re.compile(rf"{PART_DIRECTORY}|drop-.+")
"""Directories of parts. Others below a table are never deleted."""


@dataclass(frozen=True, slots=True)
class Periods:
    """The periods of retention and collection."""

    retention_ms: int
    grace_ms: int
    step: int
    """Versions that history advances before an entry is committed for that alone."""
    retention_bytes: int = _UNBOUNDED
    """Maximum bytes of retired parts kept for older versions, except those of the last grace period."""

    def due_ms(self, note: NoteName) -> int:
        """When a note is to be worked off, by the store's clock."""
        # The log has a minimum for the time between emptying checkpoints and cutting.
        waits = {"log": max(self.grace_ms, round(GRACE_MIN_S * 1000)), "history": self.retention_ms}
        return note.stored_ms + waits.get(note.kind, self.grace_ms)

    @staticmethod
    def of(state: State) -> Periods:
        """From the settings of a table, also of a dropped one."""
        settings = TableSettings(state.schemas[state.schema_version].settings)
        retention, grace = settings.integer("history_retention_seconds"), settings.integer("gc_grace_seconds")
        # A reader without a lease relies on the grace period, also for a part that was noted long before its commit.
        retention = max(retention, grace)
        share = int(settings.number("retention_max_ratio") * state.partitions.totals.bytes_on_disk)
        # A dropped table has no active parts: UNDROP is limited by time alone.
        limit = _UNBOUNDED if state.dropped else max(settings.integer("retention_max_bytes"), share)
        return Periods(retention * 1000, grace * 1000, max(settings.integer("checkpoint_interval"), 1), limit)


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The plan of a round."""

    due: tuple[NoteName, ...]
    """Notes that are older than the grace period."""
    waiting: tuple[NoteName, ...]
    """The others."""
    base_version: int
    """The fence of the due notes; 0 for none."""
    history: int
    """The oldest version to keep."""
    commit: bool
    """Whether an entry has to be committed."""

    @property
    def looks(self) -> bool:
        """Whether this round lists the table: not while noted objects wait."""
        return not any(note.kind in ("objects", "holders", "table") for note in self.waiting)

    def ops(
        self, state: State, released: Holds, over_ms: int, old: Leases | None = None, looked: int | None = None
    ) -> list[TableOp]:
        """The operations of its entry, on the state before it.

        `released` are holds that are not needed, as they were read; leases of `silent_nodes` are released, too. No hold
        is released for a table that has got parts from here since version `looked`, before the holders were read.
        """
        looked = state.version if looked is None else looked
        ops: list[TableOp] = [
            DropReference(holder)
            for holder, held in released.items()
            if state.holds.get(holder) == held and not _joined_since(state, holder, looked)
        ]
        ops += [ReleaseLease(node) for node in silent_nodes(state, over_ms, old or {})]
        return [*ops, AdvanceGcHorizon(max(self.base_version, state.fence), max(self.history, state.history))]


def _joined_since(state: State, holder: str, version: int) -> bool:
    """Whether a transaction with another table may have come after a version; those before `history` are forgotten."""
    joint = state.joint.get(holder)
    return state.history > version or (joint is not None and joint.version > version)


def oldest_to_keep(state: State, periods: Periods, before: Callable[[int], int]) -> int:
    """The oldest version to keep, by time and by bytes: `before(ms)` is the version that was the newest so long ago."""
    by_time = before(periods.retention_ms)
    # Versions with tags and leases are kept anyway.
    # Those of which some partitions are kept do not count: what these hold is not known here.
    pinned = pins(state.version, state.whole_tags, state.leases, state.dropped)
    by_price = state.retired.oldest_within(periods.retention_bytes, pinned)
    # Readers without a lease rely on the grace period, regardless of the limit in bytes.
    return min(by_price, before(periods.grace_ms)) if by_price > by_time else by_time


def plan_round(state: State, notes: Iterable[NoteName], now_ms: int, periods: Periods, history: int) -> RoundPlan:
    """The plan of a round; `history` is the result of `oldest_to_keep`."""
    noted = sorted(notes, key=lambda note: note.name)
    due = tuple(note for note in noted if periods.due_ms(note) <= now_ms)
    waiting = tuple(note for note in noted if periods.due_ms(note) > now_ms)
    history = max(history, state.history, *(note.fence - 1 for note in due if note.kind == "history"))
    base_version = max((note.fence for note in due if note.kind == "objects"), default=0)
    partial = partial_versions(state.tags, state.tagged_partitions, state.leases)
    kept = state.retired.still_shown(history, pins(history, state.tags, state.leases, state.dropped), partial)
    # Advancing history alone is worth an entry once it frees parts or enough log entries.
    commit = base_version > 0 or len(kept) < len(state.retired) or history >= state.history + periods.step
    # So is the end of the time in which UNDROP is possible.
    commit = commit or state.history < state.dropped_version <= history
    return RoundPlan(due, waiting, base_version, history, commit)


def silent_nodes(state: State, over_ms: int, old: Leases) -> list[str]:
    """Nodes for which nothing is kept any more: their lease ended before `over_ms`, or is still one of the `old` ones.

    Those were noted one retention period ago: a lease that has not changed since has expired, whatever its end is.
    """
    leases = state.leases.items()
    return [n for n, lease in leases if lease.until_ms < over_ms or old.get(n) == (lease.version, lease.until_ms)]


def wants_history(state: State, notes: Iterable[NoteName], now_ms: int, periods: Periods) -> bool:
    """Whether to write a `history` note: the log has times of a clock that is ahead, and has new entries."""
    ahead_ms = max((lease.until_ms - periods.retention_ms for lease in state.leases.values()), default=0)
    if max(state.timestamp_ms, ahead_ms) <= now_ms + AHEAD_MS:
        return False
    newest = max((note for note in notes if note.kind == "history"), key=lambda note: note.fence, default=None)
    if newest is None:
        return True
    return newest.fence <= state.version and newest.stored_ms + periods.retention_ms // 8 <= now_ms


def foreseen(state: State, ops: Iterable[TableOp]) -> State:
    """The state after an entry with these operations, without a commit, for a dry run."""
    return apply(state, Entry(state.version + 1, "", state.timestamp_ms, "", tuple(ops)))


def reasons(before: State, after: State) -> dict[str, str]:
    """Why parts that `after` has forgotten are not needed, by id."""
    _, forgotten = after.retired.since(before.retired)
    return {part.id: f"replaced or dropped at version {part.retired}" for part in forgotten}


class CleanPages:
    """Pages of a listing without unused directories: they need no further check while `keep` loses no members."""

    def __init__(self) -> None:
        self.judged = 0
        """Number of pages checked so far."""
        self._kept: object = None
        self._before: dict[str, int] = {}
        self._now: dict[str, int] = {}

    def begin(self, kept: object) -> None:
        """Begin a listing. `kept` equals the last value only if `keep` has lost no members; None if that is unknown."""
        self._before = self._now if kept is not None and kept == self._kept else {}
        self._kept, self._now = kept, {}

    def passes(self, page: Sequence[Listed]) -> bool:
        """Whether the same page was clean in the last listing."""
        first, digest = page[0][0], _digest(page)
        if self._before.get(first) != digest:
            self.judged += 1
            return False
        self._now[first] = digest
        return True

    def add(self, page: Sequence[Listed]) -> None:
        """Note a page without unused directories."""
        self._now[page[0][0]] = _digest(page)


def _digest(page: Sequence[Listed]) -> int:
    return hash(tuple(map(_KEY, page)))


def unused(
    listing: Iterable[Sequence[Listed]],
    keep: Keep,
    reason_of: dict[str, str],
    below: str = "",
    clean: CleanPages | None = None,
) -> Iterator[Unused]:
    """Directories of parts that are not in `keep`: `listing` yields objects in order of their keys, by pages.

    `below` is the prefix of keys before the directory. Holds a page and one directory at a time. Pages that `clean`, of
    which `begin` was called, passes are skipped.
    """
    last, files, cut = "", dict[str, int](), len(below)
    clean = clean or CleanPages()
    for page in listing:
        if not files and clean.passes(page):
            continue
        directories = [key[cut:].partition("/")[0] for key in map(_KEY, page)]
        unused_names = set(_unused_of(dict.fromkeys(directories), keep))
        if not unused_names and not files:
            clean.add(page)
            continue
        for directory, (key, size, *_) in zip(directories, page, strict=True):
            if directory != last:
                if files:
                    yield _why_unused(last, files, reason_of)
                last, files = directory, {}
            if directory in unused_names:
                files[key[cut + len(directory) + 1 :]] = size
    if files:
        yield _why_unused(last, files, reason_of)


def _why_unused(directory: str, files: dict[str, int], reason_of: dict[str, str]) -> Unused:
    reason = "an empty part that is not shown" if directory.startswith("drop-") else "not in the log"
    return Unused(directory, files, reason_of.get(part_of(directory), reason))


def still_unused(noted: Iterable[Unused], keep: Keep) -> list[Unused]:
    """The noted directories that are not in `keep`: those that a newer state reaches, and those of published names.

    The content of a note is not trusted: names that are no directories of parts are ignored.
    """
    noted = list(noted)
    left = set(_unused_of((each.directory for each in noted), keep))
    return [each for each in noted if each.directory in left]


def _unused_of(directories: Iterable[str], keep: Keep) -> list[str]:
    """The directories of parts of which neither the directory nor the part is kept. Called for all of a table."""
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
    """Whether nothing of a table is needed, or ever will be, so that its whole directory may be deleted."""
    return state.dropped and state.history >= state.dropped_version and not reachable(state)
