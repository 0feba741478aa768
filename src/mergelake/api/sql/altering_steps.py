"""Runs an ALTER TABLE with commands of several kinds: neighbours of one kind together, each step a commit of its own.

All steps are checked before the first one, each as if those before it were done. What rows or other writers decide is
met when a step's turn comes (a value that does not fit a new type): then the steps before it are done, as in
ClickHouse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mergelake.api.python.mutating import check_commands
from mergelake.api.sql import statements as s
from mergelake.api.sql.altering_partitions import check_partitions
from mergelake.api.sql.mutating import check_mutation, commands_of
from mergelake.api.sql.subqueries import has_subqueries
from mergelake.log.model.volatile import unfinished
from mergelake.table.definition.command import altered
from mergelake.table.definition.needs import affected_column, check_pending
from mergelake.table.pending.commands import Command, Delete, Update

if TYPE_CHECKING:
    from mergelake.api.python.table import Table
    from mergelake.api.sql.session import Session


def alter_in_steps(db: Session, statement: s.AlterSteps, run: Callable[[s.Statement], object]) -> None:
    """Check all steps, then `run` one after the other."""
    table = db.open(statement.name)
    _check(db, table, statement)
    mutates = False
    for step in statement.steps:
        if mutates and isinstance(step, s.AlterSchema):
            _finish_affected(table, step)
        run(step)
        mutates = mutates or isinstance(step, s.Mutate)


def _check(db: Session, table: Table, statement: s.AlterSteps) -> None:
    """Raise what can be known to be wrong with a step before any is done."""
    state = table.handle.refresh()
    schema = state.schema
    for step in statement.steps:
        if isinstance(step, s.AlterSchema):
            schema = replace(altered(schema, step.commands), version=schema.version + 1)
            check_pending(state, schema)
        elif isinstance(step, s.Mutate):
            check_mutation(db, step)
            known = [command for command in commands_of(table, schema, step) if not _is_evaluated(command)]
            if known:
                check_commands(table, known, schema)
        elif isinstance(step, s.AlterPartitions):
            check_partitions(db, table, step)


def _is_evaluated(command: Command) -> bool:
    """Whether a command has subqueries, whose results are to be those of its turn."""
    if not isinstance(command, Delete | Update):
        return False
    assigned = command.assignments if isinstance(command, Update) else ()
    return any(has_subqueries(text) for text in (command.where, *(text for _, text in assigned)))


def _finish_affected(table: Table, step: s.AlterSchema) -> None:
    """Write pending mutations down, if one of them uses a column that the step changes: it would be refused."""
    state = table.handle.refresh()
    after = altered(state.schema, step.commands)
    if any(affected_column(mutation, state.schema, after) for mutation in unfinished(state)):
        table.apply_mutations()
