"""Commit of ALTER TABLE: one entry with the new schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mergelake.core.model.schema import TableSchema
from mergelake.log.model.operations import AlterMetadata, CancelVolatile, RowsUnchanged, TableOp
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.schema_rules import outdated_merges
from mergelake.log.model.state import State
from mergelake.table.definition.command import SchemaCommand, altered
from mergelake.table.definition.keys import check_key_defaults
from mergelake.table.definition.needs import check_lacked, check_pending
from mergelake.table.definition.values import check_values, parts_to_judge
from mergelake.table.handle.handle import TableHandle


class RowsChanged(Exception):
    """Rows of the table have changed since they were read."""


Follow = Callable[[State, TableSchema], Sequence[TableOp]]
"""(state before, new schema) -> operations that follow in the same entry."""


def alter(
    handle: TableHandle,
    commands: Sequence[SchemaCommand],
    *,
    rows_of: int | None = None,
    follow: Follow | None = None,
) -> int:
    """Change the definition of a table; returns the version that has all changes.

    Several commands are one entry of the log, and none if nothing changes. Raises the errors of `altered`,
    `check_pending` and `check_values`, and then nothing is logged. Columns that get a type which not every value fits
    are read first, those of parts that are added meanwhile too.

    `rows_of`: the version whose rows were checked for the commands. Raises RowsChanged if others are there now.
    """
    if rows_of is None:
        handle.refresh()  # others may have altered it
    attempt = Attempt(commands, rows_of, follow)
    while True:
        committed = handle.log.commit(attempt.build, passes_on=lambda: False)
        if not attempt.unjudged:
            return committed.version
        check_values(handle, attempt.unjudged, attempt.before, attempt.after)
        attempt.judged.update(part.manifest.id for part in attempt.unjudged)


@dataclass
class Attempt:
    """The operations of an ALTER, and the parts whose values have to be looked at before."""

    commands: Sequence[SchemaCommand]
    rows_of: int | None = None
    follow: Follow | None = None
    judged: set[str] = field(default_factory=set)
    """Parts whose values fit the schema `after`."""
    unjudged: list[ActivePart] = field(default_factory=list)
    """Parts that the last `build` found and did not know; then it made no operations."""
    before: TableSchema = field(default_factory=lambda: TableSchema(()))
    after: TableSchema = field(default_factory=lambda: TableSchema(()))

    def build(self, state: State) -> Sequence[TableOp]:
        """The operations on a state; none if nothing changes, or parts have to be looked at first."""
        if self.rows_of is not None and state.rows_version > self.rows_of:
            raise RowsChanged
        if state.schema != self.before:
            self.before, self.after = state.schema, altered(state.schema, self.commands)
            self.judged.clear()
        before, after = self.before, self.after
        self.unjudged = []
        if after == before:
            return ()
        ops: list[TableOp] = [AlterMetadata(replace(after, version=state.schema_version + 1))]
        if after != before.with_settings(after.settings):
            check_pending(state, after)
            check_lacked(state, after)
            check_key_defaults(state.schemas.values(), before, after)
            self.unjudged = [part for part in parts_to_judge(state, after) if part.manifest.id not in self.judged]
            if self.unjudged:
                return ()
            if outdated := tuple(outdated_merges(state, after)):
                ops.insert(0, CancelVolatile(outdated, "the table was altered"))
            # Rows and mutations that come before it, in the entry of a process that appends it, have to be checked too.
            ops.insert(0, RowsUnchanged(max(state.version, state.rows_version)))
        if self.follow is not None:
            ops += self.follow(state, replace(after, version=state.schema_version + 1))
        return ops
