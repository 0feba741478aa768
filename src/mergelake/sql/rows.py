"""Rows that an INSERT brings along: columns, and which of their values were left to the columns' defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mergelake.core.convert import to_public_table, to_storage
from mergelake.core.schema import TableSchema
from mergelake.table.blocks import Flags, fill_in


@dataclass(frozen=True, slots=True)
class Rows:
    """What was read, before anything is filled in."""

    table: pa.Table
    """Columns by name, as texts or in the public form. A column that no row gives is not among them."""
    count: int
    missing: Mapping[str, Flags] = field(default_factory=dict)
    """By column, flags of rows that leave the value to the default; what the table has there is some other row's."""

    def complete(self, schema: TableSchema, now_ms: int) -> pa.Table:
        """The columns with their defaults where a value was left out, as the table takes them."""
        if not self.missing and self.table.num_columns:
            return self.table
        types = schema.types
        block = pa.table({name: to_storage(self.table[name], types[name], name) for name in self.table.column_names})
        return to_public_table(fill_in(block, self.missing, schema, now_ms, self.count), types)


def stand_in(given: Flags) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each row a number among those flagged: its own, or the first one's where it is not among them."""
    return np.where(given, np.cumsum(given) - 1, 0)
