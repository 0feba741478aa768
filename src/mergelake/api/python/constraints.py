"""ALTER TABLE with what has to hold for all rows: they are read, and checked as those of an insert are.

That are CHECK constraints (ClickHouse checks rows of later inserts only), and TTLs that fail for some values, such as
texts that are no times: merges would fail, and readers after MATERIALIZE TTL. If rows change meanwhile they are read
again, so that the change is in the log only if all rows before it fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mergelake.api.python.environment import Environment
from mergelake.core.base.errors import ConflictError
from mergelake.core.base.ids import seed_of
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.engines.ttl.ttl import BoundTtl, table_ttl
from mergelake.log.model.operations import TableOp
from mergelake.log.model.state import State
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.scan.read.read import read_items
from mergelake.table.definition.columns import ColumnDefinition
from mergelake.table.definition.command import SchemaCommand, altered
from mergelake.table.definition.commit import Follow, RowsChanged, alter
from mergelake.table.definition.constraints import AddConstraint, new_checks
from mergelake.table.definition.modify_column import ModifyColumn
from mergelake.table.definition.ttl import ModifyTtl
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.rows.constraints import ConstraintChecks

ATTEMPTS_MAX = 20
"""Times that rows are read because others changed meanwhile."""


def alter_checked(
    handle: TableHandle, commands: Sequence[SchemaCommand], env: Environment, follow: Follow | None = None
) -> int:
    """Commit commands as `alter` does. VIOLATED_CONSTRAINT if a row breaks a constraint that they add.

    The errors of a new TTL's expression that has no value for some row. What they have ClickHouse compute is tried
    (`Environment.check_definition`).
    """

    def checked(state: State, after: TableSchema) -> Sequence[TableOp]:
        env.check_definition(state.schema, after)
        return follow(state, after) if follow is not None else ()

    if not any(map(_needs_rows, commands)):
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


def _needs_rows(command: SchemaCommand) -> bool:
    """Whether a command may bring a constraint, or a TTL that reads texts."""
    match command:
        case AddConstraint():
            return command.constraint.kind == "CHECK"
        case ModifyColumn(ColumnDefinition(ttl=ttl, type=kind)):
            return bool(ttl) or (kind is not None and isinstance(t.inner_type(kind), t.String))
    return isinstance(command, ModifyTtl)


def _check_rows(handle: TableHandle, state: State, after: TableSchema, env: Environment) -> None:
    """Check all rows of a state, as the schema `after` shows them, by the constraints and TTLs that it adds."""
    now_ms = handle.clock.now_ms()
    checks = ConstraintChecks.of(new_checks(state.schema, after), now_ms, seed_of(handle.ids))
    ttls = _new_ttls(state.schema, after)
    if not checks.checks and not ttls:
        return
    read = {name: None for _, compiled in checks.checks for name in compiled.columns}
    read.update(dict.fromkeys(name for ttl in ttls for name in ttl.reads))
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
            for ttl in ttls:
                ttl.seconds(batch)
                ttl.matches(batch)


def _new_ttls(before: TableSchema, after: TableSchema) -> list[BoundTtl]:
    """The elements of a TTL that were not there, and have no value for some rows."""
    known = {ttl.key for ttl in table_ttl(before).elements}
    return [ttl for ttl in table_ttl(after).elements if ttl.key not in known and ttl.may_fail]
