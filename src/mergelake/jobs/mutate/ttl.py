"""MATERIALIZE TTL as a mutation: the rows and values that have expired at its submission, as commands.

Its time is in the log, so all who apply it, readers on the fly and those who write it down, see the same rows. Values
of MATERIALIZED columns, of types that no UPDATE can set, groups and codecs are left to merges.
"""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.core.base.errors import error
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.types import inner_type
from mergelake.engines.ttl.ttl import DAY_SECONDS, BoundTtl, table_ttl, wide_time
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode
from mergelake.expr.parser import parse
from mergelake.jobs.mutate.columns import default_value
from mergelake.jobs.mutate.commit import named
from mergelake.jobs.mutate.submit import Submitted
from mergelake.jobs.mutate.validate import Submission, validate
from mergelake.log.model.immutable import mutable_scope
from mergelake.log.model.operations import Mutation, TableOp
from mergelake.log.model.state import State
from mergelake.table.definition.commit import Follow
from mergelake.table.definition.ttl import ttl_changed
from mergelake.table.handle.handle import TableHandle
from mergelake.table.pending.commands import Command, Delete, Update, commands_text, drops_rows

_NEVER_UPDATED = (t.Variant, t.Dynamic, t.Json, t.AggregateFunction)


def ttl_commands(schema: TableSchema, now: int, partition_id: str | None = None) -> tuple[Command, ...]:
    """What MATERIALIZE TTL does at a time (seconds), in a partition or in all.

    INCORRECT_QUERY if the table has no TTL.
    """
    ttl = table_ttl(schema)
    if not ttl:
        raise error("INCORRECT_QUERY", "Cannot MATERIALIZE TTL as there is no TTL set for the table")
    rows = (ttl.rows,) if ttl.rows is not None else ()
    commands: list[Command] = [Delete(_expired(e, schema, now), partition_id) for e in (*rows, *ttl.wheres)]
    for element in ttl.columns:
        column = schema.column(element.element.column)
        if column.default_kind != "MATERIALIZED" and not t.holds(column.type, *_NEVER_UPDATED):
            values = ((column.name, _default(column)),)
            commands.append(Update(values, _expired(element, schema, now), partition_id))
    return tuple(commands)


def _expired(element: BoundTtl, schema: TableSchema, now: int) -> str:
    """The condition for rows that have expired."""
    seconds: SyntaxNode = Call("toInt64", (_widened(parse(element.element.expression), schema),))
    if isinstance(inner_type(element.time.type), t.Date | t.Date32):
        seconds = Call("multiply", (seconds, Literal(DAY_SECONDS, t.Int(64, signed=False))))
    zero, at = Literal(0, t.UINT8), Literal(now, t.Int(64, signed=False))
    parts: tuple[SyntaxNode, ...] = (Call("notEquals", (seconds, zero)), Call("lessOrEquals", (seconds, at)))
    if element.element.where:
        where = parse(element.element.where)
        parts = (*parts, Call("ifNull", (Call("notEquals", (where, zero)), zero)))
    return str(Call("and", parts))


def _widened(node: SyntaxNode, schema: TableSchema) -> SyntaxNode:
    """An expression over columns of dates and times as types with a greater range (`engines.ttl.ttl.wide_time`)."""
    if isinstance(node, ColumnRef) and schema.has(node.name):
        kind = schema.column(node.name).type
        wide = wide_time(kind)
        return node if wide == kind else Call("CAST", (node, Literal(str(wide).encode(), t.STRING)))
    return Call(node.function, tuple(_widened(a, schema) for a in node.args)) if isinstance(node, Call) else node


def _default(column: Column) -> str:
    return column.default or default_value(column.type)


def ttl_mutation(
    mutation_id: str,
    schema: TableSchema,
    now: int,
    partition_id: str | None = None,
    scope: tuple[str, ...] | None = None,
) -> Mutation:
    """The operation of MATERIALIZE TTL under a schema; `scope`: the partitions that it concerns, None for all.

    Raises the errors of `ttl_commands`.
    """
    commands = (
        validate(made, schema, Submission(now * 1000)) if (made := ttl_commands(schema, now, partition_id)) else ()
    )
    return Mutation(
        mutation_id,
        commands_text(commands, of_ttl=True),
        scope if partition_id is None else (partition_id,),
        drops_rows(commands),
        schema_version=schema.version,
    )


def materialize_ttl(handle: TableHandle, partition_id: str | None = None) -> Submitted:
    """Commit MATERIALIZE TTL, at the time of the table's clock. INCORRECT_QUERY if the table has no TTL."""
    mutation_id, now = handle.ids.new_id(), handle.clock.now_ms() // 1000
    committed = handle.log.commit(
        lambda state: (ttl_mutation(mutation_id, state.schema, now, partition_id, mutable_scope(state)),)
    )
    mutation = named(committed.state.mutations, mutation_id)
    assert mutation is not None
    return Submitted(mutation.name, mutation.version, committed.version)


def follow_new_ttl(handle: TableHandle) -> Follow:
    """Operations for an ALTER by which a TTL is new: MATERIALIZE TTL, at the time of the table's clock."""
    mutation_id, now = handle.ids.new_id(), handle.clock.now_ms() // 1000

    def follow(before: State, after: TableSchema) -> Sequence[TableOp]:
        if not ttl_changed(before.schema, after):
            return ()
        return (ttl_mutation(mutation_id, after, now, scope=mutable_scope(before)),)

    return follow
