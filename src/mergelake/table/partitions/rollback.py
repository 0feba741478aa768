"""Rollback: one entry that drops all rows and restores those of an older version.

The parts of that version are added under new ids and new block numbers, over the same objects, and with them the
mutations that some of them lack; no object is read or written. The versions in between stay in history, so a rollback
can be rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mergelake.core.base.errors import error
from mergelake.core.base.ids import IdSource
from mergelake.core.model.schema import TableSchema
from mergelake.log.model.operations import AlterMetadata, DropRange, KnownInsert, TableOp
from mergelake.log.model.retention import require_kept
from mergelake.log.model.state import RememberedInsert, State, known_until, listed
from mergelake.table.definition.indexes import brought_back
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.clone import restored


def rollback(handle: TableHandle, version: int | str | None = None, timestamp_ms: int | None = None) -> int:
    """Restore the rows (and the schema) of a version, a tag or a time; returns the version that has them.

    The deduplication windows are restored, too: repeating an insert whose rows are restored adds nothing, repeating one
    whose rows are dropped adds them again. Raises BAD_ARGUMENTS for a version that is not kept (any more).
    """
    newest = handle.refresh()
    if isinstance(version, str) and version in newest.tagged_partitions:
        names = ", ".join(newest.tagged_partitions[version])
        message = f"'{version}' keeps only some partitions ({names}), and a rollback would drop all others"
        raise error("BAD_ARGUMENTS", message, "Clone it, and replace the partitions by those of the clone")
    target = handle.state_at(version, timestamp_ms)

    def build(state: State) -> Sequence[TableOp]:
        # In a shared entry, operations of other callers before ours may have changed the rows.
        if target.version == state.version and (target.partitions, target.schemas) == (state.partitions, state.schemas):
            return ()
        require_kept(state, target.version)
        return back_to(target, state, handle.ids)

    # Another process might append it behind operations of others, where the windows that follow from the version may be
    # others than at that version: an insert may have displaced one that is to be remembered.
    return handle.log.commit(build, passes_on=lambda: False).version


def back_to(target: State, state: State, ids: IdSource) -> list[TableOp]:
    """The operations that restore `target`, an older state whose objects are kept."""
    tokens = _lost(state.tokens, target.tokens, target.version)
    hashes = _lost(state.hashes, target.hashes, target.version)
    ops: list[TableOp] = [DropRange(kind="truncate", remember=target.version, tokens=tokens, hashes=hashes)]
    if target.schema_version != state.schema_version:
        ops.append(AlterMetadata(_schema_again(target.schema, state)))
    # At least level 1, as a part of level 0 has the rows of the insert of its entry, and this entry has none.
    return [*ops, *restored(target, ids, base_version=state.version, level_min=1)]


def _schema_again(old: TableSchema, state: State) -> TableSchema:
    """An older schema as the next one. What was added since, to which parts that come back may refer, is not reused:
    ids of columns, indexes by their names, and the names of projections.
    """
    now, version = state.schemas[state.schema_version], state.schema_version + 1
    past = (each for each in (*now.past_projections, *now.projections) if each not in old.projections)
    return replace(
        old,
        version=version,
        next_column_id=max(old.next_column_id, now.next_column_id),
        indices=brought_back(old.indices, state.schemas.values(), version),
        past_projections=tuple(past),
    )


def _lost(
    window: Mapping[str, RememberedInsert], wanted: Mapping[str, RememberedInsert], version: int
) -> tuple[KnownInsert, ...] | None:
    """The wanted window, if the current one has lost some of it; None if it follows from the version."""
    left = known_until(window, version)
    return None if [*left.items()] == [*wanted.items()] else listed(wanted)
