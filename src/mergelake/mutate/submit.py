"""Submission of a mutation: checked completely, then one log entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mergelake.log.operations import Mutation
from mergelake.log.state import State
from mergelake.mutate.validate import validate
from mergelake.table.handle import TableHandle
from mergelake.views.commands import Command, commands_text, drops_rows


@dataclass(frozen=True, slots=True)
class Submitted:
    """A mutation that is in the log."""

    id: str
    """`mutation_<version>.txt`, as ClickHouse names it."""
    version: int
    """Version of the table from which on readers see it."""


def submit(handle: TableHandle, commands: Sequence[Command]) -> Submitted:
    """Check the commands against the table's schema and commit them as one mutation.

    Readers of the returned version and later ones see it. Raises the errors of `validate`.
    """
    mutation_id = handle.ids.new_id()

    def build(state: State) -> Sequence[Mutation]:
        checked = validate(commands, state)
        partitions = {command.partition_id for command in checked}
        scope = None if None in partitions else tuple(sorted(name for name in partitions if name is not None))
        return (Mutation(mutation_id, commands_text(checked), scope, drops_rows(checked)),)

    committed = handle.log.commit(build)
    return Submitted(mutation_id, committed.version)
