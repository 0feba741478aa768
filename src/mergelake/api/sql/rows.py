"""Inline rows of an INSERT: columns, and which of their values are left to the columns' defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.convert.storage import to_public_table, to_storage
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.expr import Seed
from mergelake.table.rows.blocks import Flags, fill_in


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows as read, before defaults are filled in."""

    table: pa.Table
    """Columns by name, as texts or in the public form. A column that no row gives is not among them."""
    count: int
    missing: Mapping[str, Flags] = field(default_factory=dict)
    """By column, flags of the rows that take the default; `table` has another row's value there."""

    def complete(self, schema: TableSchema, now_ms: int, seed: Seed) -> pa.Table:
        """The columns with their defaults where a value was left out, as the table takes them."""
        if not self.missing and self.table.num_columns:
            return self.table
        types = schema.types
        block = pa.table({name: to_storage(self.table[name], types[name], name) for name in self.table.column_names})
        return to_public_table(fill_in(block, self.missing, schema, now_ms, seed, self.count), types)


def stand_in(present: Flags) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each row its index among the flagged rows; 0, the first of them, for a row that is not flagged."""
    return np.where(present, np.cumsum(present) - 1, 0)


EMPTY_IS_ZERO = (t.Int, t.Decimal, t.Interval)
"""Types for which ClickHouse's readers of formats take an empty cell as 0."""


def text_column(cells: Sequence[str | None], kind: t.DataType, name: str) -> pa.Array:
    """Cells of a text format as a column: of bytes for Strings and nested types, of text for others."""
    plain = t.inner_type(kind)
    if isinstance(plain, t.String | t.FixedString | t.Array | t.Map | t.Tuple):
        encoded = [None if cell is None else cell.encode("utf-8", "surrogateescape") for cell in cells]
        return pa.array(encoded, pa.binary())
    if isinstance(plain, t.Date | t.Date32):
        # A literal in SQL may have a time, which is cut off; the formats do not take one.
        long = next((cell for cell in cells if cell is not None and len(cell) > _DATE_LENGTH), None)
        if long is not None:
            message = f"Cannot parse date '{long[:40]}' (column {name})"
            raise error("CANNOT_PARSE_INPUT_ASSERTION_FAILED", message, "Write it as YYYY-MM-DD")
    if isinstance(plain, EMPTY_IS_ZERO):
        cells = ["0" if cell == "" else cell for cell in cells]
    try:
        return pa.array(cells, pa.string())
    except UnicodeEncodeError:
        message = f"Column {name} of type {kind} holds text that is not UTF-8"
        raise error("CANNOT_PARSE_TEXT", message) from None


_DATE_LENGTH = len("YYYY-MM-DD")
