"""Mutations of a table: submission, where ClickHouse judges what `expr` refuses, and waiting for their end."""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.api.python.environment import OpenTable
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import tokenize
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.model.schema import TableSchema
from mergelake.jobs.mutate.commit import apply_mutations
from mergelake.jobs.mutate.submit import Submitted, submit
from mergelake.jobs.mutate.validate import Submission, Unsupported, unsupported_expression, validate
from mergelake.query.embedded import engine
from mergelake.query.statement.access import check_expression
from mergelake.table.pending.commands import Command

_AGGREGATED = ("ILLEGAL_AGGREGATION", "NOT_AN_AGGREGATE")


def submit_commands(
    table: OpenTable, commands: Sequence[Command], *, unfinished_max: int | None = None, schema_version: int = 0
) -> Submitted:
    """Commit commands as one mutation; see `jobs.mutate.submit`. `schema_version`: as of `Submission`.

    An expression that ClickHouse refuses has its error; one that only mergelake does not support is NOT_IMPLEMENTED.
    """
    given = Submission(table.handle.clock.now_ms(), table.name, schema_version)
    try:
        return submit(table.handle, commands, given, unfinished_max=unfinished_max)
    except MergelakeError as failure:
        raise _told(failure, commands, table.schema, given) from None


def check_commands(table: OpenTable, commands: Sequence[Command], schema: TableSchema) -> None:
    """Raise the error of `submit_commands` for commands on a table that is yet to have this schema."""
    given = Submission(table.handle.clock.now_ms(), table.name)
    try:
        validate(commands, schema, given)
    except MergelakeError as failure:
        raise _told(failure, commands, schema, given) from None


def _told(
    failure: MergelakeError, commands: Sequence[Command], schema: TableSchema, given: Submission
) -> MergelakeError:
    """The error to raise for one that `validate` raised."""
    unsupported = unsupported_expression(commands, schema, given)
    if unsupported is None or unsupported.failure.name != failure.name or not engine.available():
        return failure
    return _judged(unsupported, schema)


def finish(table: OpenTable, submitted: Submitted) -> None:
    """Rewrite the parts that lack a mutation or one before it. UNFINISHED if one of these fails for some row."""
    apply_mutations(table.handle, lambda tasks: table.env.run_mutations(table.handle, tasks), until=submitted.block)


def _judged(unsupported: Unsupported, schema: TableSchema) -> MergelakeError:
    """The error for an expression that `expr` refuses: ClickHouse's own, or NOT_IMPLEMENTED if it has none."""
    text, failure = unsupported.text, unsupported.failure
    if failure.name == "SYNTAX_ERROR" and _refusal(f"SELECT formatQuery({quote_string(_command(text))})"):
        return failure
    if any(token.upper == "SELECT" for token in tokenize(text)):
        return error("NOT_IMPLEMENTED", "Subqueries are not supported here", "Database.sql executes those of an UPDATE")
    check_expression(text)
    value = unsupported.within.replace("{}", f"({text}\n)", 1)
    columns = ", ".join(f"{back_quote(column.name)} {column.type}" for column in schema.columns)
    refusal = _refusal(f"DESCRIBE TABLE (SELECT 1 FROM null({quote_string(columns)}) WHERE ignore({value}))")
    if refusal is not None and refusal.name in _AGGREGATED and unsupported.within != "{}":
        message = "Aggregate and window functions have no place in a mutation, which sees one row at a time"
        return error("UNKNOWN_IDENTIFIER", f"{message}: {text}", "In SQL (SELECT max(a) FROM t) is evaluated once")
    if refusal is not None:
        return failure if refusal.name == failure.name else refusal
    hint = "INSERT … SELECT evaluates every expression of ClickHouse"
    if failure.name == "NOT_IMPLEMENTED":
        return error("NOT_IMPLEMENTED", failure.message, failure.hint or hint)
    return error("NOT_IMPLEMENTED", f"{text} is not supported in mutations: {failure.message}", hint)


def _command(where: str) -> str:
    return f"ALTER TABLE t DELETE WHERE {where}"


def _refusal(text: str) -> MergelakeError | None:
    """ClickHouse's error for a statement; None if there is none."""
    try:
        engine.run(text)
    except MergelakeError as failure:
        return failure
    return None
