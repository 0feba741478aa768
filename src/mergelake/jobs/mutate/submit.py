"""Submission of a mutation: checked completely, then one log entry. Giving it up is another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mergelake.core.base.errors import ConflictError, error, there_are
from mergelake.core.model.schema import TableSchema
from mergelake.jobs.mutate.commit import named
from mergelake.jobs.mutate.validate import Submission, check_unfinished, validate
from mergelake.log.model.immutable import mutable_scope
from mergelake.log.model.operations import KillMutation, Mutation
from mergelake.log.model.state import PendingMutation, State
from mergelake.log.model.volatile import unfinished
from mergelake.table.handle.handle import TableHandle
from mergelake.table.pending.commands import Command, IndexCommand, commands_text, drops_rows


@dataclass(frozen=True, slots=True)
class Submitted:
    """A mutation that is in the log."""

    id: str
    """`mutation_<block number>.txt`, as ClickHouse names it."""
    block: int
    """Its block number: it concerns the rows of parts with a lower data version."""
    version: int
    """Version of the table from which on readers see it."""


def submit(
    handle: TableHandle, commands: Sequence[Command], given: Submission, *, unfinished_max: int | None = None
) -> Submitted:
    """Check the commands against the table's schema and commit them as one mutation.

    Readers of the returned version and later ones see it. `unfinished_max` overrides the table's setting
    `number_of_mutations_to_throw`. Raises the errors of `validate`, and TOO_MANY_MUTATIONS.
    """
    mutation_id = handle.ids.new_id()

    def build(state: State) -> Sequence[Mutation]:
        if given.schema_version not in (0, state.schema_version):
            raise ConflictError("The table was altered meanwhile", hint="Run the statement again")
        checked = validate(commands, state.schema, given)
        check_unfinished(state, unfinished_max)
        return (_mutation(checked, state, state.schema_version, mutation_id),)

    committed = handle.log.commit(build)
    mutation = named(committed.state.mutations, mutation_id)
    assert mutation is not None
    return Submitted(mutation.name, mutation.version, committed.version)


def index_mutation(
    commands: Sequence[IndexCommand], state: State, schema: TableSchema, mutation_id: str
) -> Sequence[Mutation]:
    """The mutation of commands about indexes, to be logged after `state` with the schema that they are for.

    None if it has no such indexes.
    """
    known = {index.name for index in schema.indices}
    some = [command for command in commands if command.name in known]
    return [_mutation(some, state, schema.version, mutation_id)] if some else []


def _mutation(commands: Sequence[Command], state: State, schema_version: int, mutation_id: str) -> Mutation:
    """Checked commands as an operation on the partitions that they name, or on all that are mutable."""
    partitions = {command.partition_id for command in commands}
    stated = tuple(sorted(name for name in partitions if name is not None))
    scope = stated if None not in partitions else mutable_scope(state, stated)
    return Mutation(mutation_id, commands_text(commands), scope, drops_rows(commands), schema_version=schema_version)


def kill(handle: TableHandle, name: str) -> int:
    """Give up an unfinished mutation, by its id or name; returns the version from which on no part gets it.

    Parts that were rewritten before keep its effect. BAD_ARGUMENTS if there is no such mutation, or it is finished.
    """

    def build(state: State) -> Sequence[KillMutation]:
        open_ones = unfinished(state)
        return (KillMutation(_found(open_ones, name).id),)

    return handle.log.commit(build).version


def _found(mutations: Sequence[PendingMutation], name: str) -> PendingMutation:
    found = named(mutations, name)
    if found is None:
        hint = there_are("unfinished mutations", [mutation.name for mutation in mutations])
        raise error("BAD_ARGUMENTS", f"There is no unfinished mutation {name}", hint)
    return found
