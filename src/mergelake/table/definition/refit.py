"""Parts that an insert wrote with an older schema: whether they fit the table as it was altered meanwhile.

They are read by the ids of their columns, like any older part: a column that was added has its default, one that was
dropped is not read, a type that changed is converted. What such reading cannot give is refused: the insert has to be
made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mergelake.core.base.errors import ConflictError
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import Column, TableSchema
from mergelake.log.commit.group import Committed
from mergelake.log.model.operations import AddParts, AlterMetadata, LogOp
from mergelake.log.model.state import State
from mergelake.parts.read.evolve import may_fail
from mergelake.parts.read.reader import PartReader
from mergelake.table.handle.handle import TableHandle


def commit_judged(
    handle: TableHandle, build: Callable[[State], Sequence[LogOp]], *, passes_on: Callable[[], bool] = lambda: True
) -> Committed[State]:
    """`Log.commit`, after `check_fits` of parts in an `AddParts` with a `schema_version` that were written before it.

    Whenever the table is altered in between, they are judged anew. The ids of the parts have to stay.
    """
    judged: set[tuple[str, int]] = set()
    unjudged: list[tuple[PartManifest, bool]] = []
    newest: list[TableSchema] = []

    def judging(state: State) -> Sequence[LogOp]:
        ops = build(state)
        added = [
            (p, bool(op.detached)) for op in ops if isinstance(op, AddParts) and op.schema_version for p in op.parts
        ]
        schema = next((op.schema for op in ops if isinstance(op, AlterMetadata)), state.schema)
        older = [(part, attached) for part, attached in added if part.schema_version != schema.version]
        unjudged[:] = [each for each in older if (each[0].id, schema.version) not in judged]
        newest[:] = [schema]
        return () if unjudged else ops

    while True:
        committed = handle.log.commit(judging, passes_on=passes_on)
        if not unjudged:
            return committed
        for part, attached in unjudged:
            check_fits(handle, part, newest[0], attached=attached)
            judged.add((part.id, newest[0].version))


def check_fits(handle: TableHandle, part: PartManifest, schema: TableSchema, *, attached: bool = False) -> None:
    """Raise ConflictError unless a part of an older schema has the rows that an insert would write now.

    Columns whose types changed so that a value may not fit are read: the error of CAST for such a value. Of a part that
    is `attached` the values may be others than an insert would compute.
    """
    old = handle.log.state.schemas[part.schema_version]
    reason = _other_frame(old, schema) or (None if attached else _other_values(old, schema))
    reason = reason or _varying_value(part, schema)
    if reason is not None:
        hint = "It was detached before" if attached else "Insert the rows again"
        raise ConflictError(f"The table was altered meanwhile: {reason}", hint=hint)
    convert_values(handle, part, raising_columns(old, schema))


def convert_values(handle: TableHandle, part: PartManifest, columns: Sequence[Column]) -> None:
    """Read these columns from a part, as far as it has them, and convert them. Raises the error of CAST for a value.

    Rows that are deleted by a mask count too: readers convert them before they look at the mask.
    """
    held = {column.name: column for column in columns if column.id in part.columns}
    if held and part.rows:
        for _ in PartReader(handle.store, handle.directory, part, held).read(list(held), with_deleted=True):
            pass


def _other_frame(old: TableSchema, new: TableSchema) -> str | None:
    """Why rows of a part of `old` may lie in another place, or others of them stay, than in one of `new`.

    The sorting key may have become longer by columns that the part lacks, which are equal in all of its rows.
    """
    before = (old.partition_by, old.primary_key, old.sample_by, old.engine, old.engine_args, any(old.order_desc))
    after = (new.partition_by, new.primary_key, new.sample_by, new.engine, new.engine_args, any(new.order_desc))
    longer = new.order_by[: len(old.order_by)] == old.order_by
    return None if before == after and longer else "its keys or its engine are others"


def _other_values(old: TableSchema, new: TableSchema) -> str | None:
    """Why an insert with `new` might refuse rows that one with `old` wrote, or compute other values."""
    if {c.expression for c in new.constraints if c.kind == "CHECK"} - {c.expression for c in old.constraints}:
        return "it has other constraints"
    before = {column.id: column for column in old.stored}
    for column in new.stored:
        was = before.get(column.id)
        if was is not None and column.default_kind == "MATERIALIZED" and _given(was) != _given(column):
            return f"column {column.name} is computed in another way"
    return None


def _varying_value(part: PartManifest, schema: TableSchema) -> str | None:
    """Why rows of a part would have other values with each read."""
    lacking = [column for column in schema.stored if column.default and column.id not in part.columns]
    if not lacking:
        return None
    from mergelake.table.definition.needs import varying_default  # loads kernels that opening a table does not need

    name = next((column.name for column in lacking if varying_default(column, schema) is not None), None)
    return None if name is None else f"rows have no value in column {name}, which each insert computes anew"


def _given(column: Column) -> tuple[str, str]:
    return column.default_kind, column.default


def raising_columns(old: TableSchema, new: TableSchema) -> list[Column]:
    """The stored columns of `new` whose types changed since `old` so that some value may not fit."""
    types = {column.id: column.type for column in old.stored}
    out = []
    for column in new.stored:
        kind = types.get(column.id, column.type)
        for change in column.changed_since(old.version):
            if may_fail(kind, change.type, change.null):
                out.append(column)
                break
            kind = change.type
        else:
            if may_fail(kind, column.type):  # written after a version to which the table was rolled back
                out.append(column)
    return out
