"""Commit of ALTER TABLE: one entry with the new schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mergelake.log.operations import AlterMetadata, RowsUnchanged, TableOp
from mergelake.log.state import State
from mergelake.table.alter.command import SchemaCommand, altered
from mergelake.table.alter.needs import check_pending
from mergelake.table.handle import TableHandle


def alter(handle: TableHandle, commands: Sequence[SchemaCommand]) -> int:
    """Change the definition of a table; returns the version that has all changes.

    Several commands are one entry of the log, and none if nothing changes. Raises the errors of `altered` and of
    `check_pending`, and then nothing is logged.
    """

    def build(state: State) -> Sequence[TableOp]:
        after = altered(state.schema, commands)
        if after == state.schema:
            return ()
        ops: list[TableOp] = [AlterMetadata(replace(after, version=state.schema_version + 1))]
        if after != state.schema.with_settings(after.settings):
            check_pending(state, after)
            # Rows and mutations that come before it, in the entry of a process that appends it, have to be checked too.
            ops.insert(0, RowsUnchanged(max(state.version, state.rows_version)))
        return ops

    return handle.log.commit(build, passes_on=lambda: False).version
