"""ALTER TABLE … ADD CONSTRAINT: rows that are there are read, and checked as those of an insert are.

(ClickHouse checks rows of later inserts only.) If rows change meanwhile they are read again, so that the constraint is
in the log only if all rows before it satisfy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mergelake.core.errors import ConflictError
from mergelake.core.ids import seed_of
from mergelake.core.schema import TableSchema
from mergelake.lake.environment import Environment
from mergelake.log.operations import TableOp
from mergelake.log.state import State
from mergelake.scan.plan import plan_scan
from mergelake.scan.read import read_items
from mergelake.scan.request import ScanRequest
from mergelake.table.alter.command import SchemaCommand, altered
from mergelake.table.alter.commit import Follow, RowsChanged, alter
from mergelake.table.alter.constraints import AddConstraint, new_checks
from mergelake.table.constraints import ConstraintChecks
from mergelake.table.handle import Snapshot, TableHandle

ATTEMPTS_MAX = 20
"""Times that rows are read because others changed meanwhile."""


def alter_checked(
    handle: TableHandle, commands: Sequence[SchemaCommand], env: Environment, follow: Follow | None = None
) -> int:
    """Commit commands as `alter` does. VIOLATED_CONSTRAINT if a row breaks a constraint that they add.

    What they have ClickHouse compute is tried (`Environment.check_definition`).
    """

    def checked(state: State, after: TableSchema) -> Sequence[TableOp]:
        env.check_definition(state.schema, after)
        return follow(state, after) if follow is not None else ()

    if not any(isinstance(each, AddConstraint) and each.constraint.kind == "CHECK" for each in commands):
        return alter(handle, commands, follow=checked)
    for _ in range(ATTEMPTS_MAX):
        state = handle.refresh()
        _check_rows(handle, state, altered(state.schema, commands), env)
        try:
            return alter(handle, commands, rows_of=state.version, follow=checked)
        except RowsChanged:
            continue
    message = f"Rows of the table changed during each of {ATTEMPTS_MAX} attempts to check them"
    raise ConflictError(message, hint="Add the constraint when fewer others write")


def _check_rows(handle: TableHandle, state: State, after: TableSchema, env: Environment) -> None:
    """Check all rows of a state, as the schema `after` shows them, against the CHECK constraints that it adds."""
    now_ms = handle.clock.now_ms()
    checks = ConstraintChecks.of(new_checks(state.schema, after), now_ms, seed_of(handle.ids))
    if not checks.checks:
        return
    read = {name: None for _, compiled in checks.checks for name in compiled.columns}
    columns = tuple(read or {after.stored[0].name: None})
    after = replace(after, version=state.schema_version + 1)
    snapshot = Snapshot.of(state)
    snapshot = replace(snapshot, schema=after, schemas={**snapshot.schemas, after.version: after})
    plan = plan_scan(
        handle.store, handle.directory, snapshot, ScanRequest(columns, now_ms=now_ms), env.caches, count_steps=False
    )
    for batch in read_items(handle.store, handle.directory, plan, caches=env.caches, threads=env.threads):
        if batch.num_rows:
            checks.check(batch)
