"""The snapshot of a table for a read with the settings of this process."""

from __future__ import annotations

from mergelake.api.python.environment import Environment
from mergelake.api.python.sound import without_broken
from mergelake.log.model.state import State
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.volatile import volatile_snapshot
from mergelake.table.volatile.volatile_reads import volatile_mode


def snapshot_to_read(
    handle: TableHandle,
    state: State,
    env: Environment,
    *,
    read_volatile: str | None = None,
    skip_broken_parts: bool = False,
) -> Snapshot:
    """The snapshot of a state; `read_volatile`: as `volatile_mode` says (None: that of the warehouse).

    `skip_broken_parts` verifies the stored parts, which are read then.
    """
    mode = env.read_volatile if read_volatile is None else volatile_mode(read_volatile)
    if not skip_broken_parts:
        return volatile_snapshot.snapshot_to_read(handle, state, env.volatile, mode)
    sound = without_broken(handle, Snapshot.of(state), env)
    return volatile_snapshot.without_volatile(sound, state, "skip_broken_parts is set") if state.volatile else sound
