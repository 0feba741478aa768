"""What is left when all faults have stopped and enough time has gone by: nothing is kept longer than it must be."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from mergelake.core.model.settings import TableSettings
from mergelake.jobs.merge.budget import BudgetRules
from mergelake.jobs.merge.volatile import settled
from mergelake.jobs.publish.plan import part_of
from mergelake.log.model.retention import foreign, partial_versions, pins, reachable
from mergelake.log.reading.truncate import is_kept
from mergelake.table.partitions.mutations import open_mutations

if TYPE_CHECKING:
    from mergelake.log.model.state import State
    from tests.simulation.table import Table

_HEX = set("0123456789abcdef")


def left_over(table: Table, alive: Collection[str]) -> list[str]:
    """Why a table is not at rest yet; `alive` are the names of nodes that are there."""
    state = table.state
    objects = [key for key in table.bucket.objects if key.startswith(f"{table.directory}/")]
    needed = reachable(state)
    if state.dropped and not needed:
        # What a late writer put behind a removed table cannot be opened: who goes through the whole warehouse finds it.
        first = f"{table.directory}/_log/{1:020d}.json"
        log = [key for key in objects if "/_log/checkpoints/" in key or key == first]
        return ["the directory of a dropped table"] if log else []
    out = [
        f"{part.name} is Live"
        for name, held in state.volatile.items()
        for part in held
        if part.owner not in alive or not _past_target(state, name)
    ]
    out += [f"{m.name} is not finished" for m in open_mutations(state)]
    kept = needed | set(table.shown.names)
    directories = {key.split("/")[1] for key in objects}
    out += [f"directory {name}" for name in sorted(directories) if _is_part(name) and not {name, part_of(name)} & kept]
    pinned = pins(state.version, state.tags, {}, state.dropped)
    partial = partial_versions(state.tags, state.tagged_partitions, {})
    shown = state.retired.still_shown(state.version, pinned, partial)
    out += [f"retired part {p.id}" for p in state.retired if p not in shown]
    out += [f"the lease of {node}" for node in state.leases if node not in alive]
    for holder in state.holds:
        there = table.tables.get(holder)
        if there is None and f"{holder}/_log/{1:020d}.json" in table.bucket.objects:
            continue  # it began, and never got a name: who goes through the whole warehouse drops it
        if there is None or not any(owner == table.directory for owner, _ in foreign(there.state)):
            out.append(f"the hold of {holder}")
    return out + _log(table, objects)


def _past_target(state: State, partition: str) -> bool:
    """Whether volatile parts of a partition stay on their disk: a target below 2 does not have its bytes uploaded."""
    rules = BudgetRules.of(TableSettings(state.schema.settings))
    fresh = [part for part in state.partitions[partition] if not settled(part, rules.disk)]
    size = sum(part.manifest.bytes_on_disk for part in fresh)
    return 0 < rules.target < 2 and size > rules.uploads_left(state.written, 0)


def _is_part(name: str) -> bool:
    name = part_of(name)
    return (len(name) == 32 and set(name) <= _HEX) or name.startswith("drop-")


def _log(table: Table, objects: list[str]) -> list[str]:
    """Entries before the checkpoint from which history can be read, and states of tags that are gone."""
    state, prefix = table.state, f"{table.directory}/_log/"
    names = [key.removeprefix(prefix) for key in objects if key.startswith(prefix)]
    good = [
        (int(name[12:32]), len(table.bucket.objects[prefix + name][0]))
        for name in names
        if name.startswith("checkpoints/") and name.endswith(".arrow") and table.stands(prefix + name)
    ]
    base = max((v for v, size in good if v <= state.history and is_kept(v, size, state.version)), default=0)
    entries = [int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdigit()]
    out = [f"entry {version} of the log" for version in sorted(entries) if version < base][:1]
    tags = [int(name[5:25]) for name in names if name.startswith("tags/")]
    return out + [f"the state of version {v}" for v in tags if v not in state.tags.values() and v < state.history]
