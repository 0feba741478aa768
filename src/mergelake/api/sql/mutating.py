"""Runs ALTER TABLE … UPDATE | DELETE, UPDATE, DELETE FROM and KILL MUTATION."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mergelake.api.python.constraints import alter_checked
from mergelake.api.python.mutating import finish, submit_commands
from mergelake.api.sql import statements as s
from mergelake.api.sql.result import Result, rows_result
from mergelake.api.sql.subqueries import Subqueries, has_subqueries
from mergelake.core.base.errors import MergelakeError, UnsupportedError, error
from mergelake.core.base.text import quote_string
from mergelake.jobs.mutate.columns import clear_column, materialize_column
from mergelake.jobs.mutate.commit import named
from mergelake.jobs.mutate.submit import Submitted, index_mutation
from mergelake.jobs.mutate.ttl import follow_new_ttl, materialize_ttl as expire_now
from mergelake.jobs.mutate.validate import check_unfinished
from mergelake.query.embedded import engine
from mergelake.query.statement.settings import DEFAULTS, Kind, kind_of, plain_value
from mergelake.table.catalog.catalog import RESERVED
from mergelake.table.pending.commands import Command, Delete, IndexCommand, Update

if TYPE_CHECKING:
    from mergelake.api.python.table import Table
    from mergelake.api.sql.session import Session
    from mergelake.core.model.schema import TableSchema
    from mergelake.log.model.operations import TableOp
    from mergelake.log.model.state import State

_KILLED = dict.fromkeys(("kill_status", "database", "table", "mutation_id", "command"), "String")
_OF_INSERTS = ("input_format_", "date_time_input_")
"""Prefixes of settings that affect the data of an INSERT only."""


def run_mutation(db: Session, statement: s.Mutate) -> None:
    """Log a mutation, and wait for its end if a setting says so."""
    check_mutation(db, statement)
    try:
        table = db.open(statement.name)
    except UnsupportedError as failure:
        raise error("BAD_ARGUMENTS", failure.message, failure.hint) if statement.deletes else failure from None
    follows = any(isinstance(command, s.ColumnMutation | s.IndexMutation) for command in statement.commands)
    schema = table.handle.refresh().schema if follows else table.schema
    commands = commands_of(table, schema, statement)
    if not commands:
        return
    subqueries = Subqueries(db, table.schema, int(_setting(db, "mutations_max_literal_size_to_replace")))
    limit = int(_setting(db, "number_of_mutations_to_throw"))
    submitted = submit_commands(
        table,
        [_evaluated(command, subqueries) for command in commands],
        unfinished_max=limit or None,
        schema_version=schema.version if follows else 0,
    )
    if int(_setting(db, "lightweight_deletes_sync" if statement.deletes else "mutations_sync")):
        finish(table, submitted)


def alter_schema(db: Session, statement: s.AlterSchema) -> None:
    """Change the definition of a table, and what it says of files of indexes, in one entry.

    What a new TTL removes goes at once if a setting says so.
    """
    materialize = plain_value(db.settings.get("materialize_ttl_after_modify", "1")) != "0"
    table = db.open(statement.name)
    if not statement.files:
        table.alter(statement.commands, materialize_ttl=materialize)
        return
    handle, mutation_id = table.handle, table.handle.ids.new_id()
    check_unfinished(handle.log.state, int(_setting(db, "number_of_mutations_to_throw")) or None)
    partitions = [None if each.partition is None else _partition_id(table, each.partition) for each in statement.files]
    files = [IndexCommand(f.index, f.clears, p) for f, p in zip(statement.files, partitions, strict=True)]
    of_ttl = follow_new_ttl(handle) if materialize else None

    def follow(before: State, new: TableSchema) -> Sequence[TableOp]:
        expired = () if of_ttl is None else of_ttl(before, new)
        return [*expired, *index_mutation(files, before, new, mutation_id)]

    version = alter_checked(handle, statement.commands, table.env, follow)
    mutation = named(handle.log.state.mutations, mutation_id)
    if mutation is None:  # the definition was as it should be, or has no such index
        run_mutation(db, s.Mutate(statement.name, statement.files))
    elif int(_setting(db, "mutations_sync")):
        finish(table, Submitted(mutation.name, mutation.version, version))


def materialize_ttl(db: Session, statement: s.MaterializeTtl) -> None:
    """Log what MATERIALIZE TTL removes, and wait for its end if a setting says so."""
    table = db.open(statement.name)
    partition_id = None if statement.partition is None else _partition_id(table, statement.partition)
    submitted = expire_now(table.handle, partition_id)
    if int(_setting(db, "mutations_sync")):
        finish(table, submitted)


def kill_mutations(db: Session, statement: s.KillMutation) -> Result:
    """Give up the unfinished mutations that the condition selects from `system.mutations`; one row for each command."""
    columns = "database, table, mutation_id, command"
    selected = db.select(f"SELECT {columns} FROM system.mutations WHERE {statement.where}\n").table.to_pylist()
    rows = [{"kill_status": _killed(db, row, test=statement.test), **row} for row in selected]
    return rows_result({name: [row[name] for row in rows] for name in _KILLED}, _KILLED) if rows else Result()


def _killed(db: Session, row: Mapping[str, str], *, test: bool) -> str:
    """ClickHouse's word for what happened to the mutation of a row of `system.mutations`."""
    if test:
        return "unknown_status"
    try:
        db.open(s.Name(row["database"], row["table"])).kill_mutation(row["mutation_id"])
    except MergelakeError as failure:
        if failure.name in ("BAD_ARGUMENTS", "UNKNOWN_TABLE", "UNKNOWN_DATABASE"):
            return "finished"
        raise
    return "waiting"


def check_mutation(db: Session, statement: s.Mutate) -> None:
    """Refuse system tables, statements that a setting disables, and settings that would change what they mean."""
    deletes = statement.deletes
    if (statement.name.database or db.current_database) in RESERVED:
        name = "BAD_ARGUMENTS" if deletes else "NOT_IMPLEMENTED"
        raise error(name, f"The table {statement.name} does not support mutations", "It tells of the warehouse")
    switch = "enable_lightweight_delete" if deletes else "enable_lightweight_update"
    if statement.lightweight and plain_value(db.settings.get(switch, "1")) == "0":
        what = "Lightweight deletes" if deletes else "Lightweight updates"
        raise error("SUPPORT_IS_DISABLED", f"{what} are not allowed", f"SET {switch} = 1")
    names = [
        name for name in db.engine_settings() if kind_of(name) is Kind.MEANING and not name.startswith(_OF_INSERTS)
    ]
    if not names:
        return
    listed = ", ".join(map(quote_string, names))
    text = f"SELECT name FROM system.settings WHERE name IN ({listed}) AND value != default"
    text += " AND (name, value) != ('session_timezone', 'UTC')"
    for name in engine.run(text, settings=db.engine_settings()).table()["name"].to_pylist():
        message = f"The setting {name} may change what an expression means, and a mutation outlives the session"
        raise error("NOT_IMPLEMENTED", message, f"SET {name} = DEFAULT")


def _setting(db: Session, name: str) -> str:
    return plain_value(db.settings.get(name, DEFAULTS.get(name, "0")))


def commands_of(table: Table, schema: TableSchema, statement: s.Mutate) -> list[Command]:
    """The commands of a mutation of `table`, whose schema is `schema`; without those that have nothing to do.

    Subqueries stand in them as they were written. Raises the errors of values of partitions, and of unknown columns.
    """
    made = [_command(table, schema, command, lightweight=statement.lightweight) for command in statement.commands]
    return [command for command in made if command is not None]


def _command(
    table: Table,
    schema: TableSchema,
    command: s.MutationCommand | s.ColumnMutation | s.IndexMutation,
    *,
    lightweight: bool,
) -> Command | None:
    partition_id = None if command.partition is None else _partition_id(table, command.partition)
    if isinstance(command, s.IndexMutation):
        known = any(index.name == command.index for index in schema.indices)
        return IndexCommand(command.index, command.clears, partition_id) if known else None
    if isinstance(command, s.ColumnMutation):
        if command.if_exists and not schema.has(command.column):
            return None
        if command.clears and partition_id is not None:
            return clear_column(schema, command.column, partition_id)
        return materialize_column(schema, command.column, partition_id)
    if command.assignments:
        return Update(command.assignments, command.where, partition_id)
    return Delete(command.where, partition_id, lightweight)


def _partition_id(table: Table, partition: s.PartitionClause) -> str:
    return partition.id or table.partition_id(partition.value)


def _evaluated(command: Command, subqueries: Subqueries) -> Command:
    """The command with the results of its subqueries."""

    def evaluated(text: str) -> str:
        return subqueries.replaced(text) if has_subqueries(text) else text

    if isinstance(command, IndexCommand):
        return command
    where = evaluated(command.where)
    if isinstance(command, Delete):
        return replace(command, where=where)
    return replace(command, where=where, assignments=tuple((name, evaluated(x)) for name, x in command.assignments))
