"""Changes of columns beside all that goes on with a table of real parts.

The columns are none of those of the model: their value is a multiple of the number of the row, by a factor that one
has for life, whatever its name and type are at the moment, and whether parts hold it or not.
"""

from __future__ import annotations

import contextlib

from mergelake.core.base.errors import ConflictError, InvalidInputError, UnsupportedError
from mergelake.core.types.types import parse_type
from mergelake.table.definition.columns import AddColumn, ColumnDefinition, DropColumn, RenameColumn
from mergelake.table.definition.command import SchemaCommand
from mergelake.table.definition.modify_column import ClearColumn, ModifyColumn
from tests.simulation.real_cast import User
from tests.simulation.real_rows import NAMES

TYPES = ("Int64", "String", "UInt64", "Nullable(Int64)", "LowCardinality(String)")
EXTRA = ("x", "y", "z")


def alters(seed: int) -> bool:
    """Whether columns change in the world of a seed: of every engine, with nodes that serve volatile parts or not."""
    return seed // 8 % 2 == 1


class Alterer(User):
    """Adds, drops, renames, clears and modifies columns, and reads them."""

    roams = 0.0

    def actions(self):
        return {self.alter: 4, self.extras: 3, self.idle: 2}

    def idle(self) -> None:
        """Nothing: time for others."""

    def alter(self) -> None:
        with contextlib.suppress(InvalidInputError, UnsupportedError, ConflictError):
            self.lake.alter([self.drawn() for _ in range(self.random.choice([1, 1, 2]))])

    def drawn(self) -> SchemaCommand:
        """A command, which may be impossible."""
        chance = self.random
        name, kind = chance.choice(EXTRA), parse_type(chance.choice(TYPES))
        whole = ColumnDefinition(name, kind, (), "DEFAULT", f"n * {chance.randint(2, 9)}")
        return chance.choice(
            [
                AddColumn(whole),
                AddColumn(whole),
                DropColumn(name),
                RenameColumn(name, chance.choice(EXTRA)),
                ClearColumn(name),
                ModifyColumn(ColumnDefinition(name, kind)),
            ]
        )

    def extras(self) -> None:
        """Columns of a version have their multiples of the number of the row."""
        version = self.random.randint(max(self.state.history, 1), self.state.version)
        if version not in self.table.readable():
            return
        columns = [column for column in self.handle.state_at(version).schema.stored if column.name not in NAMES]
        factors = [int(column.default.removeprefix("n * ")) for column in columns]
        names = [column.name for column in columns]
        for row in self.lake.scan(["n", *names], version=version) if names else ():
            number, *values = map(_number, row)
            wanted = [number * factor for factor in factors]
            assert values == wanted, f"version {version}: {names} of row {number} are {values}, not {wanted}"


def _number(value: int | str | bytes) -> int:
    return int(value)
