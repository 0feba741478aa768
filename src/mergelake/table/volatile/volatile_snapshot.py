"""The snapshot that a read uses: the stored parts or, if `read_volatile` asks for it, merged ones from nodes."""

from __future__ import annotations

from dataclasses import replace

from mergelake.log.model.state import State
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot, with_merged
from mergelake.table.handle.volatile_choice import choose, unread
from mergelake.table.volatile.volatile_reads import OFF, VolatileReads


def snapshot_to_read(handle: TableHandle, state: State, reads: VolatileReads, mode: str) -> Snapshot:
    """The snapshot of a state, with volatile parts in place of stored ones where `reads` finds their bytes.

    `mode`: as `volatile_mode` returns it. Without Live volatile parts nobody is asked.
    """
    stored = Snapshot.of(state)
    if not state.volatile:
        return stored
    if mode == OFF:
        return without_volatile(stored, state, "read_volatile is off")
    merged, found = choose(state, reads.ready(handle.directory, state, handle.log.state.leases, mode))
    key = "read", state.version, tuple((part.id, part.manifest.id, part.place) for part in merged), found
    return state.partitions.remembered(key, lambda: with_merged(stored, merged, found))


def without_volatile(stored: Snapshot, state: State, why: str) -> Snapshot:
    """The stored parts, with the reason for EXPLAIN."""
    return replace(stored, volatile=unread(state, why))
