"""Overwriting: rows of a table go and others take their place, in one log entry.

What goes is decided at the entry's position, so that an overwrite never conflicts: of the whole table, of the
partitions that got new rows (`dynamic`), or where a condition is true. Rows that others inserted before the entry go,
too. Partitions are dropped as a whole if the condition is over columns by which the table is partitioned; otherwise a
mutation of the entry deletes the rows that match. Either way the new rows come after it.

New rows must satisfy the condition: they are written under a CHECK constraint that no schema has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mergelake.core.base.errors import ConflictError, error
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import Constraint, TableSchema
from mergelake.engines.order.keys import table_keys
from mergelake.engines.rules.modes import mode_of
from mergelake.expr import compile_expression
from mergelake.jobs.mutate.validate import Submission, check_unfinished, validate
from mergelake.log.model.operations import DropRange, LogOp, Mutation, RowsUnchanged
from mergelake.log.model.state import State
from mergelake.scan.prune.keys import partition_values, scan_keys
from mergelake.table.pending.commands import Delete, commands_text

_NAME = "replaceWhere"


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Which rows new ones replace. Pickles."""

    where: str = ""
    """A condition without `now()` and the like; empty: all rows."""
    dynamic: bool = False
    """The rows of the partitions that get new ones."""
    unchanged_since: int | None = None
    """A version: nothing may have changed since."""
    mutation_id: str = ""
    schema_version: int = 0
    """The schema for which the condition was written."""

    @staticmethod
    def of(
        schema: TableSchema,
        where: str | None,
        given: Submission,
        mutation_id: str,
        *,
        dynamic: bool = False,
        unchanged_since: int | None = None,
    ) -> Overwrite:
        """A checked request. Raises BAD_ARGUMENTS, and the errors of a DELETE with this condition."""
        if where is None:
            return Overwrite("", dynamic, unchanged_since, mutation_id, schema.version)
        if not isinstance(where, str):
            raise error("TYPE_MISMATCH", f"where is {where!r}", "Give a ClickHouse expression as text")
        if dynamic:
            message = "A condition and the partitions of the new rows both say what is replaced"
            raise error("BAD_ARGUMENTS", message, "Give one of them")
        (command,) = validate((Delete(where, lightweight=True),), schema, given)
        assert isinstance(command, Delete)
        keys = table_keys(schema)
        of_keys = {name for key in (*keys.partition, *keys.sorting) for name in key.columns}
        others = sorted(_columns(command.where, schema) - of_keys) if mode_of(schema) is not None else []
        if others:
            message = f"A {schema.engine} makes one row of several, and {others[0]} is in none of its keys"
            raise error("BAD_ARGUMENTS", message, "Use columns of the partition key and of the sorting key")
        return Overwrite(command.where, dynamic, unchanged_since, mutation_id, schema.version)

    def writing(self, schema: TableSchema) -> TableSchema:
        """The schema with which new rows are written: VIOLATED_CONSTRAINT for one that the condition does not hold."""
        if not self.where:
            return schema
        return replace(schema, constraints=(*schema.constraints, Constraint(_NAME, "CHECK", self.where)))

    def operations(self, state: State, parts: Sequence[PartManifest]) -> list[LogOp]:
        """What removes the old rows, to be followed by the new `parts`.

        Raises TOO_MANY_MUTATIONS, and ConflictError if the columns are others than those of the condition.
        """
        ops: list[LogOp] = [] if self.unchanged_since is None else [RowsUnchanged(self.unchanged_since)]
        if self.dynamic:
            there = dict.fromkeys(part.partition_id for part in parts)
            return [*ops, *(DropRange(name, "replace") for name in there if name in state.partitions)]
        if not self.where:
            return [*ops, DropRange(kind="replace")]
        if state.schemas[self.schema_version].columns != state.schema.columns:
            raise ConflictError("The table was altered meanwhile", hint="Write it again")
        matching = _matching_partitions(self.where, state)
        if matching is not None:
            return [*ops, *(DropRange(name, "replace") for name in matching)]
        check_unfinished(state)
        commands = (Delete(self.where, lightweight=True),)
        return [*ops, Mutation(self.mutation_id, commands_text(commands))]


def _columns(where: str, schema: TableSchema) -> set[str]:
    return set(compile_expression(where, schema.types).columns)


def _matching_partitions(where: str, state: State) -> list[str] | None:
    """The partitions whose rows all match; None if that depends on more than the values of their columns."""
    schema = state.schema
    keys = table_keys(schema).partition
    compiled = compile_expression(where, schema.types)
    if not compiled.columns or not set(compiled.columns) <= {key.text for key in keys if key.plain}:
        return None
    names = list(state.partitions)
    values = partition_values([state.partitions.partition_value(name) for name in names], scan_keys(schema))
    block = pa.table(list(values), names=[key.text for key in keys])
    matches = compiled.mask(block).tolist() if names else []
    return [name for name, match in zip(names, matches, strict=True) if match]
