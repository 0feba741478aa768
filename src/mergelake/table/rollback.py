"""A table as it was: one entry that drops all rows and brings those of an older version back.

The parts of that version come in under new ids and new block numbers, over the objects that they had; nothing is read
or written. The versions in between stay in history, so a rollback can be rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mergelake.log.operations import AddParts, AlterMetadata, DropRange, TableOp
from mergelake.log.retention import require_kept
from mergelake.log.state import State
from mergelake.table.clone import refuse_unfinished, renewed
from mergelake.table.handle import TableHandle


def rollback(handle: TableHandle, version: int | str | None = None, timestamp_ms: int | None = None) -> int:
    """Make the rows (and the schema) those of a version, a tag or a time again; the version that has them.

    Inserts up to that version are still known as done. Raises BAD_ARGUMENTS for a version that is not kept (any more),
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
        ops: list[TableOp] = [DropRange(kind="truncate", remember=target.version)]
        if target.schema_version != state.schema_version:
            ops.append(AlterMetadata(replace(target.schema, version=state.schema_version + 1)))
        parts = renewed(target, handle.ids, born=state.version)
        return [*ops, AddParts(parts)] if parts else ops

    return handle.log.commit(build).version
