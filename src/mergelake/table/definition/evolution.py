"""Columns that an insert adds or widens, in the one entry with its rows (`merge_schema`). Pure.

A column that the table lacks is added as the last one, Nullable where its type can be. A number that is wider in the
data than in the table (with a sign in both, or in neither) makes the column wider; columns of keys stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mergelake.core.base.errors import ConflictError
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.types import DataType
from mergelake.log.model.operations import AlterMetadata, TableOp
from mergelake.log.model.state import State
from mergelake.parts.read.evolve import can_evolve
from mergelake.table.definition.columns import AddColumn, ColumnDefinition
from mergelake.table.definition.command import SchemaCommand
from mergelake.table.definition.commit import Attempt
from mergelake.table.definition.modify_column import ModifyColumn
from mergelake.table.definition.needs import key_columns


def _commands_for(schema: TableSchema, types: Mapping[str, DataType]) -> list[SchemaCommand]:
    commands: list[SchemaCommand] = []
    fixed = key_columns(schema)
    for name, kind in types.items():
        if not schema.has(name):
            commands.append(AddColumn(ColumnDefinition(name, _nullable(kind))))
        elif name not in fixed and (wider := _wider(schema.column(name).type, kind)) is not None:
            commands.append(ModifyColumn(ColumnDefinition(name, wider)))
    return commands


def _nullable(kind: DataType) -> DataType:
    match kind:
        case t.Nullable() | t.Array() | t.Map() | t.Tuple():
            return kind
        case t.LowCardinality(inner):
            return kind if isinstance(inner, t.Nullable) else t.LowCardinality(t.Nullable(inner))
    return t.Nullable(kind)


def _wider(own: DataType, given: DataType) -> DataType | None:
    """The column's type with the numbers of the data; None if these are not wider."""
    match own:
        case t.Nullable(inner):
            wider = _wider(inner, given)
            return None if wider is None else t.Nullable(wider)
        case t.Int(bits, signed):
            plain = t.inner_type(given)
            same_sign = isinstance(plain, t.Int) and plain.signed == signed
            return plain if same_sign and isinstance(plain, t.Int) and bits < plain.bits <= 64 else None
        case t.Float(bits):
            plain = t.inner_type(given)
            return plain if isinstance(plain, t.Float) and plain.bits > bits else None
        case t.Decimal(precision, scale):
            plain = t.inner_type(given)
            fits = isinstance(plain, t.Decimal) and plain.scale == scale and plain.precision > precision
            return plain if fits and can_evolve(own, plain) else None
    return None


@dataclass(frozen=True, slots=True)
class Evolution:
    """The change of a table's schema by an insert."""

    schema: TableSchema
    """The new schema, with its version: the parts are written with it."""
    before: TableSchema
    """The schema for which it was made."""
    commands: tuple[SchemaCommand, ...]

    @staticmethod
    def of(state: State, types: Mapping[str, DataType]) -> Evolution | None:
        """The change that columns of these types need; None if it is none. Raises the errors of ALTER TABLE."""
        commands = _commands_for(state.schema, types)
        attempt = Attempt(commands)
        ops = attempt.build(state)
        assert not attempt.unjudged, "a number that becomes wider always fits"
        schemas = [op.schema for op in ops if isinstance(op, AlterMetadata)]
        return Evolution(schemas[0], state.schema, tuple(commands)) if schemas else None

    def operations(self, state: State) -> Sequence[TableOp]:
        """What comes before the rows in their entry. ConflictError if the table was altered in another way."""
        if state.schema == self.schema:
            return ()  # another insert has added the same columns
        if state.schema != self.before:
            raise ConflictError("The table was altered meanwhile", hint="Insert the rows again")
        return Attempt(self.commands).build(state)
