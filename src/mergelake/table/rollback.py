"""A table as it was: one entry that drops all rows and brings those of an older version back.

The parts of that version come in under new ids and new block numbers, over the objects that they had; nothing is read
or written. The versions in between stay in history, so a rollback can be rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mergelake.core.ids import IdSource
from mergelake.log.operations import AddParts, AlterMetadata, DropRange, KnownInsert, TableOp
from mergelake.log.retention import require_kept
from mergelake.log.state import Insert, State, known_until, listed
from mergelake.table.clone import refuse_unfinished, renewed
from mergelake.table.handle import TableHandle


def rollback(handle: TableHandle, version: int | str | None = None, timestamp_ms: int | None = None) -> int:
    """Make the rows (and the schema) those of a version, a tag or a time again; the version that has them.

    The inserts that are known as done are those that were known at that version: one whose rows come back adds nothing
    when it is repeated, one whose rows go is new again. Raises BAD_ARGUMENTS for a version that is not kept (any more),
    UNFINISHED for one whose parts lack a mutation.
    """
    handle.refresh()
    target = handle.state_at(version, timestamp_ms)
    refuse_unfinished(target, "rolled back to")

    def build(state: State) -> Sequence[TableOp]:
        # Of an entry that several callers share, those before us may have changed the rows.
        if target.version == state.version and (target.partitions, target.schemas) == (state.partitions, state.schemas):
            return ()
        require_kept(state, target.version)
        return back_to(target, state, handle.ids)

    return handle.log.commit(build).version


def back_to(target: State, state: State, ids: IdSource) -> list[TableOp]:
    """The operations that make the table what it was at `target`, an older state whose objects are kept."""
    tokens = _lost(state.tokens, target.tokens, target.version)
    hashes = _lost(state.hashes, target.hashes, target.version)
    ops: list[TableOp] = [DropRange(kind="truncate", remember=target.version, tokens=tokens, hashes=hashes)]
    if target.schema_version != state.schema_version:
        ops.append(AlterMetadata(replace(target.schema, version=state.schema_version + 1)))
    # None of level 0: such a part is known to be of the insert that its entry brought, and this entry brings none.
    parts = tuple(replace(part, level=max(part.level, 1)) for part in renewed(target, ids, base_version=state.version))
    return [*ops, AddParts(parts)] if parts else ops


def _lost(window: Mapping[str, Insert], wanted: Mapping[str, Insert], version: int) -> tuple[KnownInsert, ...] | None:
    """The wanted window, if not all of it is left in this one; None where the version says enough."""
    left = known_until(window, version)
    return None if [*left.items()] == [*wanted.items()] else listed(wanted)
