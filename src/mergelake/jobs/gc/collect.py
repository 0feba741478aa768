"""Executes a round of collection: history is cut, the log is shortened, and unreachable objects are deleted.

`collect_round(handle)` is one round over one table; call it now and then, from any number of processes. It may crash at
any step: what was left out is found again. `plan` decides; this module sends the requests:

==================  ===================================================================================================
begin               refresh, one LIST of the notes; a few GETs to find the oldest version to keep;
                    if there may be work, a PUT and a HEAD to learn the time, and a HEAD of that version's entry
work off            one PUT (the entry), and for each note one GET and a DELETE per thousand objects
note unused         a LIST per thousand objects of the table, without its log and its names; one or two LISTs per
                    thousand names; a PUT for each note and one for the entry
shorten the log     two LISTs; a DELETE per thousand entries
==================  ===================================================================================================

Nothing is written if there is nothing to do. While noted objects wait, the table is not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mergelake.core.base.errors import MergelakeError
from mergelake.jobs.gc.holds import Holders, look_at_holders
from mergelake.jobs.gc.log_objects import shorten_log
from mergelake.jobs.gc.plan import (
    CleanPages,
    Keep,
    Leases,
    Periods,
    RoundPlan,
    foreseen,
    is_gone,
    oldest_to_keep,
    plan_round,
    reasons,
    silent_nodes,
    still_unused,
    unused,
    wants_history,
)
from mergelake.jobs.gc.reached import Reached
from mergelake.jobs.gc.remove import remove_table
from mergelake.jobs.publish.publish import names_shown
from mergelake.jobs.publish.shown import Shown, list_names
from mergelake.log.model.operations import AdvanceGcHorizon
from mergelake.log.model.state import State
from mergelake.store.objects.reserve import freeing
from mergelake.table.handle.handle import OpenTable, TableHandle
from mergelake.table.partitions.gc_notes import Note, NoteName, Notes, Unused
from mergelake.table.partitions.listing import parts_listed

NOTE_FILES_MAX = 20_000
"""Objects in one note, which a collector holds in memory."""
_DROPPED = "the table was dropped"


@dataclass(frozen=True, slots=True)
class Gone:
    """A directory that was deleted or noted."""

    directory: str
    """Relative to the table's directory; `.` is the whole table."""
    objects: int
    bytes: int
    why: str

    @staticmethod
    def of(entry: Unused) -> Gone:
        """From an unused directory."""
        return Gone(entry.directory, len(entry.files), entry.bytes, entry.why)


class Known:
    """State that a collector keeps from its last round."""

    def __init__(self) -> None:
        self.reached = Reached()
        self.shown = Shown()
        self.clean = CleanPages()


@dataclass(slots=True)
class CollectReport:
    """The result of a round; for a dry run, what it would have done."""

    version: int
    """The table's version at the end."""
    history: int
    """The oldest version that is kept, apart from tags and leases."""
    deleted: list[Gone] = field(default_factory=list)
    noted: list[Gone] = field(default_factory=list)
    """Unused now; deleted after the grace period, if still unused."""
    waiting: int = 0
    """Notes of an earlier round whose grace period is not over."""
    due_ms: int = 0
    """Time at which the first of those is due."""
    entries: int = 0
    """Entries of the log that were deleted."""
    released: list[str] = field(default_factory=list)
    """Tables that no longer hold anything here."""
    removed: bool = False
    """Whether the table was dropped, and its whole directory was deleted."""


def collect_round(handle: TableHandle, *, dry_run: bool = False, open_table: OpenTable | None = None) -> CollectReport:
    """One round over a table, also a dropped one. `open_table` opens clones (default: as tables of the same store)."""
    with freeing(), handle.remembering(Known) as known:  # freeing: it must work on a full disk
        return _round(handle, known, dry_run, open_table or handle.neighbour)


def _round(handle: TableHandle, known: Known, dry_run: bool, open_table: OpenTable) -> CollectReport:
    notes = Notes(handle.store, handle.directory, handle.ids)
    names = notes.names()
    before = handle.refresh()  # after the notes were listed, so that the state is not older than their fences
    periods = Periods.of(before)
    plan, now_ms = _plan(handle, notes, names, before, periods, dry_run)
    old = _old_leases(notes, plan)
    holders = look_at_holders(handle, before, _missed(notes, plan), dry_run, open_table)
    over_ms = now_ms - periods.grace_ms
    report = CollectReport(before.version, before.history, released=list(holders.released))
    waiting = [periods.due_ms(note) for note in plan.waiting if note.kind != "history"]
    report.waiting, report.due_ms = len(waiting), min(waiting, default=0)
    after = before
    if plan.commit or holders.released or silent_nodes(before, over_ms, old):
        if dry_run:
            after = foreseen(before, plan.ops(before, holders.released, over_ms, old))
        else:
            after = handle.log.commit(
                lambda state: plan.ops(state, holders.released, over_ms, old, before.version)
            ).state
    report.history = after.history
    if is_gone(after):
        return _finish_gone(handle, notes, plan, after, report, now_ms, dry_run)
    known.reached.look(after)
    if plan.due:
        _work_off(handle, known, notes, plan, after, report, dry_run)
    if plan.looks:
        _note_unused(handle, known, notes, after, reasons(before, after), holders, report, now_ms, dry_run)
    if not dry_run:
        report.entries = shorten_log(handle, notes, plan, after)
        if wants_history(before, names, now_ms, periods):
            leases = {node: (lease.version, lease.until_ms) for node, lease in before.leases.items()}
            notes.write(before.version + 1, now_ms, "history", Note(leases=leases))
    report.version = handle.log.state.version
    return report


def _plan(
    handle: TableHandle, notes: Notes, names: list[NoteName], state: State, periods: Periods, dry_run: bool
) -> tuple[RoundPlan, int]:
    """The plan of a round, and the time: by our own clock only if nothing will be done, or in a dry run."""

    def at(now_ms: int, version_at: Callable[[TableHandle, State, int], int]) -> RoundPlan:
        def before(age_ms: int) -> int:
            return version_at(handle, state, now_ms - age_ms)

        return plan_round(state, names, now_ms, periods, oldest_to_keep(state, periods, before))

    now_ms = handle.clock.now_ms()
    plan = at(now_ms, _version_at)
    pending = names or plan.commit or state.holds or silent_nodes(state, now_ms - periods.grace_ms, {})
    if not dry_run and (pending or wants_history(state, names, now_ms, periods)):
        stored_ms = notes.now_ms()
        now_ms = min(max(now_ms, stored_ms), stored_ms + 999)  # many stores have whole seconds only
        plan = at(now_ms, _version_proven)
    return plan, now_ms


def _old_leases(notes: Notes, plan: RoundPlan) -> Leases:
    """Leases as of one retention period ago or longer, if they were noted."""
    due = [name for name in plan.due if name.kind == "history"]
    return notes.read(due[-1]).leases if due else {}


def _missed(notes: Notes, plan: RoundPlan) -> set[str]:
    """Holders that did not exist a grace period ago."""
    return {holder for name in plan.due if name.kind == "holders" for holder in notes.read(name).holders}


def _version_at(handle: TableHandle, state: State, timestamp_ms: int) -> int:
    """The version that was the newest at a time, or the oldest kept one."""
    if timestamp_ms >= state.timestamp_ms:
        return state.version
    try:
        return handle.log.version_at(timestamp_ms)
    except MergelakeError as problem:
        if problem.name != "BAD_ARGUMENTS":
            raise
        return state.history  # the history begins after that time


def _version_proven(handle: TableHandle, state: State, timestamp_ms: int) -> int:
    """The same, without versions whose entry is younger by the store's clock: their writer's clock may be slow."""

    def was_stored(version: int) -> bool:
        stored_ms = handle.log.stored_ms(version)
        return stored_ms is not None and stored_ms <= timestamp_ms

    young = _version_at(handle, state, timestamp_ms)
    if young <= state.history or was_stored(young):
        return young
    old = state.history
    while young - old > 1:
        middle = (old + young) // 2
        old, young = (middle, young) if was_stored(middle) else (old, middle)
    return old


def _work_off(
    handle: TableHandle,
    known: Known,
    notes: Notes,
    plan: RoundPlan,
    state: State,
    report: CollectReport,
    dry_run: bool,
) -> None:
    """Delete the directories that the due notes name and the state of our entry does not reach; not those of the log.

    A `history` note is kept until its version is in the log.
    """
    shown, passing = _shown(handle, known, state)
    keep = (known.reached.directories, *shown, *passing)
    for name in plan.due:
        if name.kind == "log" or (name.kind == "history" and name.fence > state.history + 1):
            continue
        directories = still_unused(notes.read(name).unused, keep)
        if not dry_run:
            keys = [f"{handle.directory}/{each.directory}/{file}" for each in directories for file in each.files]
            if keys:
                handle.store.delete(keys)
            notes.remove([name])
        report.deleted += map(Gone.of, directories)


def _note_unused(
    handle: TableHandle,
    known: Known,
    notes: Notes,
    state: State,
    reason_of: dict[str, str],
    holders: Holders,
    report: CollectReport,
    now_ms: int,
    dry_run: bool,
) -> None:
    """List the table and note the directories that are not reached."""
    gone_already = {each.directory for each in report.deleted} if dry_run else set()
    noted = False
    shown, passing = _shown(handle, known, state)
    lasting = not any((*passing, gone_already))
    known.clean.begin((known.reached.shrunk, known.shown.shrunk, bool(shown)) if lasting else None)
    keep = (known.reached.directories, *shown, *passing, gone_already)
    for page in _pages(unused(parts_listed(handle), keep, reason_of, f"{handle.directory}/", known.clean)):
        # The fence is read after the page was listed: the objects on it were begun at an older version.
        newest = state if dry_run else handle.refresh()
        still_unreached = still_unused(page, [known.reached.newer(newest)])  # the rest of `keep` was just checked
        report.noted += map(Gone.of, still_unreached)
        if still_unreached and not dry_run:
            notes.write(newest.version + 1, now_ms, "objects", Note(unused=tuple(still_unreached)))
            noted = True
    if holders.absent and not dry_run:
        notes.write(handle.refresh().version + 1, now_ms, "holders", Note(holders=holders.absent))
    if noted:
        handle.log.commit(lambda newest: [AdvanceGcHorizon(newest.fence, newest.history)])


def _pages(directories: Iterator[Unused]) -> Iterator[list[Unused]]:
    page: list[Unused] = []
    files = 0
    for each in directories:
        page.append(each)
        files += len(each.files)
        if files >= NOTE_FILES_MAX:
            yield page
            page, files = [], 0
    if page:
        yield page


def _shown(handle: TableHandle, known: Known, state: State) -> tuple[Keep, list[set[str]]]:
    """Tokens of the published names, a set that loses members only when `Shown.shrunk` increases.

    And further sets for this round: tokens of names that were just added or removed, and of empty parts that a
    publisher would show.
    """
    listed = list_names(handle)
    if not listed or state.dropped:
        return (), [{meta.key.split("/__meta/")[1].partition("/")[0] for meta in listed}]
    names_shown(handle, known.shown)
    planned = known.shown.plan(handle.clock.now_ms(), 0)
    return known.shown.tokens, [known.shown.lacks(listed), {cover.token for cover in planned.cover}]


def _finish_gone(
    handle: TableHandle,
    notes: Notes,
    plan: RoundPlan,
    state: State,
    report: CollectReport,
    now_ms: int,
    dry_run: bool,
) -> CollectReport:
    """Collect a dropped table that is not needed any more: note it first, remove it a grace period later."""
    if any(name.kind == "table" for name in plan.due):
        report.removed = True
        if not dry_run:
            report.deleted.append(Gone(".", *remove_table(handle), _DROPPED))
        return report
    if not any(name.kind == "table" for name in plan.waiting):
        objects = size = 0
        for meta in handle.store.list(handle.directory):
            objects, size = objects + 1, size + meta.size
        report.noted.append(Gone(".", objects, size, _DROPPED))
        if not dry_run:
            notes.write(state.version + 1, now_ms, "table", Note())
    report.version = state.version
    return report
