"""Partitions from one table to another, by reference: one commit over all tables concerned, and no object is written.

The parts refer to the objects where they lie. Each table that owns some of them holds them for the table that gets the
parts (`AddReference`), by the same transaction; its collector releases them when they are needed no more
(`jobs.gc.holds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from mergelake.core.base.errors import ConflictError, error
from mergelake.log.model.operations import AddParts, AddReference, DropRange, TableOp
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.retention import refers
from mergelake.log.model.state import State
from mergelake.table.definition.fit import check_fit
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.carry import Carried, carried, held_for
from mergelake.table.partitions.transaction import Share, commit_over

TRIES_MAX = 20
Kind = Literal["move", "replace", "attach"]


class _OtherOwners(Exception):
    """The parts refer to tables that are not in the transaction."""


def bring_partition(
    source: TableHandle,
    target: TableHandle,
    partition_id: str | None,
    kind: Kind,
    open_table: Callable[[str], TableHandle],
) -> int:
    """Bring a partition of `source`, or all (None), into `target`; returns the version of the target that has it.

    `move`: it is no longer in the source. `replace`: it takes the place of the partition in the target. `attach`: its
    rows are added. Without a part in the source nothing happens, and `replace` is BAD_ARGUMENTS.

    Raises the errors of `check_fit`, and INCOMPATIBLE_COLUMNS as `carried` does.
    """
    source.refresh()
    target.refresh()
    check_fit(source.schema, target.schema)
    if source.directory == target.directory:
        return _within(target, partition_id, kind)
    seen = source.log.state
    for attempt in range(TRIES_MAX):
        if attempt:
            target.clock.sleep_s(0.05 * 2 ** min(attempt, 5) * target.ids.jitter())
            seen = source.refresh()
        try:
            return _try(seen, source, target, partition_id, kind, open_table)
        except _OtherOwners:
            continue
        except ConflictError as failure:
            if failure.name != "ABORTED" or attempt == TRIES_MAX - 1:
                raise
    raise ConflictError("The parts of the partition were replaced again and again", hint="Try again")


def _try(
    seen: State,
    source: TableHandle,
    target: TableHandle,
    partition_id: str | None,
    kind: Kind,
    open_table: Callable[[str], TableHandle],
) -> int:
    parts = _parts(seen, partition_id)
    if not parts:
        _check_any(partition_id, kind)
        return target.log.state.version
    owners = {
        name: open_table(name) for name in sorted(_owners(parts)) if name not in (source.directory, target.directory)
    }
    base_version = target.base_version()
    chosen: list[State] = []
    plan: list[Carried] = []

    def of_source(state: State) -> Sequence[TableOp]:
        chosen[:] = [state]
        parts = _parts(state, partition_id)
        if not parts or not _owners(parts) <= {*owners, source.directory, target.directory}:
            raise _OtherOwners
        plan[:] = [_plan(state, target.log.state)]
        return [*_hold(state, source.directory), *([DropRange(partition_id, "move")] if kind == "move" else ())]

    def _plan(state: State, there: State) -> Carried:
        check_fit(state.schema, there.schema)
        parts = _parts(state, partition_id)
        return carried(state, parts, source.directory, target.directory, there, target.ids, base_version)

    def _hold(state: State, owner: str) -> Sequence[TableOp]:
        directories = plan[0].holds.get(owner, ())
        return [AddReference(target.directory, held_for(state, target.directory, directories))] if directories else []

    def of_owner(owner: str) -> Callable[[State], Sequence[TableOp]]:
        return lambda state: _hold(state, owner)

    def of_target(state: State) -> Sequence[TableOp]:
        ops = _plan(chosen[0], state).ops
        return [*([DropRange(partition_id, "replace")] if kind == "replace" else ()), *ops]

    shares = [
        Share(source, of_source),
        *(Share(handle, of_owner(name)) for name, handle in owners.items()),
        Share(target, of_target),
    ]
    return commit_over(shares)[-1].version


def _parts(state: State, partition_id: str | None) -> Sequence[ActivePart]:
    """The parts of a partition, or of all."""
    return tuple(state.parts()) if partition_id is None else state.partitions.get(partition_id, ())


def _check_any(partition_id: str | None, kind: Kind) -> None:
    """The source has no part of the partition."""
    if kind == "replace":
        message = f"The source table has no parts in partition {partition_id}: REPLACE would only drop rows"
        raise error("BAD_ARGUMENTS", message, "DROP PARTITION drops them")


def _owners(parts: Sequence[ActivePart]) -> set[str]:
    """The other tables in whose directories files of these parts lie."""
    names = {name for part in parts for name in refers(part.manifest) if name.startswith("/")}
    return {name.split("/", 2)[1] for name in names}


def _within(table: TableHandle, partition_id: str | None, kind: Kind) -> int:
    """The same table on both sides: its rows once more, or as they are."""
    if not _parts(table.log.state, partition_id):
        _check_any(partition_id, kind)
        return table.log.state.version
    if kind != "attach":
        return table.log.state.version

    def build(state: State) -> Sequence[TableOp]:
        parts, own = _parts(state, partition_id), table.directory
        ops = carried(state, parts, own, own, state, table.ids, state.version).ops
        # Whatever the parts refer to in other tables is held already.
        return [replace(op, held=()) if isinstance(op, AddParts) else op for op in ops]

    return table.log.commit(build).version
