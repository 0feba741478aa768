"""Deletes log entries that no kept version needs, in two steps, a grace period apart (`log.reading.truncate`).

A tagged version must stay readable when the entries around it are gone: its state is written first
(`log.storage.tags`). Segments of checkpoints are deleted with the entries, unless a node with a lease still reads an
older version.
"""

from __future__ import annotations

from mergelake.core.base.errors import CorruptDataError, InvalidInputError
from mergelake.jobs.gc.plan import RoundPlan
from mergelake.log.model.state import State
from mergelake.log.storage.tags import tag_key, write_tag, written_tags
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.gc_notes import Note, Notes


def shorten_log(handle: TableHandle, notes: Notes, plan: RoundPlan, state: State) -> int:
    """Execute the step that is due; returns how many entries were deleted. `state` is a committed one."""
    _keep_tags(handle, state)
    due = [note for note in plan.due if note.kind == "log"]
    sweep = not any(lease.version < state.history for lease in state.leases.values())
    cut = sum(handle.log.truncate(note.fence, sweep=sweep) for note in due)
    notes.remove(due)
    if not any(note.kind == "log" for note in plan.waiting):
        base = handle.log.retire_checkpoints(state.history)
        if base > 1 and _has_entry(handle, base - 1):
            notes.write(base, handle.clock.now_ms(), "log", Note())
    return cut


def _keep_tags(handle: TableHandle, state: State) -> None:
    """Write tagged states before their entries are deleted; delete those whose tag is gone for good."""
    prefix = f"{handle.directory}/_log"
    written = written_tags(handle.store, prefix)
    tagged = {version for version in state.tags.values() if version < state.history}
    for version in sorted(tagged - written):
        try:
            write_tag(handle.store, prefix, handle.whole_state(version))
        except InvalidInputError:
            if version in handle.log.state.tags.values():
                raise  # otherwise the tag was removed meanwhile, and another collector cut the log
    # A version before history can never be tagged again.
    gone = [version for version in written - tagged if version < state.history]
    if gone:
        handle.store.delete([tag_key(prefix, version) for version in gone])


def _has_entry(handle: TableHandle, version: int) -> bool:
    try:
        next(handle.log.entries(version, version))
    except CorruptDataError:
        return False
    return True
