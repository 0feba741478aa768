"""OPTIMIZE … DEDUPLICATE: of the rows of a merge that are equal in some columns only the first stays.

Such columns include those of the keys, so equal rows have equal sorting keys and follow each other: what has to be
remembered from block to block are the rows of the last key. As in ClickHouse, the columns with which the sorting key
begins are compared as they are sorted, others by a hash of 128 bits of their bytes: NULL equals NULL; 0.0 equals -0.0
in the former, not in the latter.

Source: ClickHouse, `src/Processors/Transforms/DistinctSortedTransform.cpp` and `InterpreterOptimizeQuery.cpp`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.model.schema import TableSchema
from mergelake.engines.order.keys import table_keys
from mergelake.engines.order.normalized_keys import normalized_keys, same_as_previous
from mergelake.engines.rules.combining import concatenated
from mergelake.engines.rules.mode import Mask
from mergelake.format.serializations.siphash import siphash128_rows
from mergelake.format.serializations.values import value_cells
from mergelake.table.definition.define_projections import MODE, projection_mode


def deduplicated_columns(schema: TableSchema, names: Sequence[str] | None) -> tuple[str, ...]:
    """The columns by which rows are compared: `names`, or all stored ones.

    Raises NO_SUCH_COLUMN_IN_TABLE, COLUMN_QUERIED_MORE_THAN_ONCE, EMPTY_LIST_OF_COLUMNS_QUERIED, and
    THERE_IS_NO_COLUMN where a column of a key is missing.
    """
    if schema.projections and projection_mode(schema) == "throw":
        message = "OPTIMIZE DEDUPLICATE query is not supported for a table that has projections"
        raise error("SUPPORT_IS_DISABLED", message, f"Set {MODE} to 'drop' or 'rebuild', or drop all projections")
    stored = [column.name for column in schema.stored]
    if names is None:
        return tuple(stored)
    if not names:
        raise error("EMPTY_LIST_OF_COLUMNS_QUERIED", "DEDUPLICATE BY finds no column", "Name columns of the table")
    for name in names:
        if name not in stored:
            message = f"There is no stored column {name} to deduplicate by"
            raise error("NO_SUCH_COLUMN_IN_TABLE", message, f"There are {', '.join(stored)}")
        if list(names).count(name) > 1:
            raise error("COLUMN_QUERIED_MORE_THAN_ONCE", f"Column {name} queried more than once", "Name it once")
    keys = table_keys(schema)
    for missing in (name for key in (*keys.sorting, *keys.partition) for name in key.columns if name not in names):
        message = (
            f"DEDUPLICATE BY needs all columns of ORDER BY, PRIMARY KEY and PARTITION BY, and {missing} is missing"
        )
        raise error("THERE_IS_NO_COLUMN", message, "Add it")
    return tuple(names)


class Repetitions:
    """Finds rows that are equal to an earlier one, in blocks of rows in the order of the sorting key."""

    def __init__(self, schema: TableSchema, names: Sequence[str]) -> None:
        """`names`: as `deduplicated_columns` returns them."""
        sorting = table_keys(schema).sorting
        plain = list(itertools.takewhile(lambda key: key.plain, sorting))
        self._runs = plain or sorting
        """What the rows that are remembered have in common."""
        ordered = {name for key in plain for name in key.columns}
        self._hashed = [schema.column(name) for name in names if name not in ordered]
        self._last: list[pa.Array] | None = None
        """Values of `_runs` in the last row."""
        self._seen = _Hashes()
        """Those of the rows of the last run."""

    def push(self, block: pa.RecordBatch) -> Mask:
        """For each row of the next block, which has all columns, whether an earlier row has equal values."""
        rows = block.num_rows
        if not rows:
            return np.zeros(0, np.bool_)
        runs = np.cumsum(~self._continued(block))
        hashes = np.zeros((rows, 2), np.uint64)
        if self._hashed:
            columns = [block.column(column.name) for column in self._hashed]
            cells = value_cells(columns, [column.type for column in self._hashed])
            hashes = siphash128_rows(cells).view(np.uint64)
        order = np.lexsort((hashes[:, 0], hashes[:, 1], runs))  # stable: of equal rows the first comes first
        same = (hashes[order[1:]] == hashes[order[:-1]]).all(axis=1) & (runs[order[1:]] == runs[order[:-1]])
        repeats: Mask = np.zeros(rows, np.bool_)
        repeats[order[1:]] = same
        going_on = np.flatnonzero((runs == 0) & ~repeats)
        repeats[going_on] = self._seen.has(hashes[going_on])
        fresh = hashes[(runs == runs[-1]) & ~repeats]
        if runs[-1]:
            self._seen = _Hashes()
        self._seen.add(fresh)
        return repeats

    def _continued(self, block: pa.RecordBatch) -> Mask:
        """For each row whether it belongs to the run of the row before it."""
        if not self._runs:  # ORDER BY tuple()
            return np.ones(block.num_rows, np.bool_)
        values = [key.evaluate(block) for key in self._runs]
        joined = values
        if self._last is not None:
            joined = [concatenated(last, each) for last, each in zip(self._last, values, strict=True)]
        same = same_as_previous(normalized_keys(joined, [key.type for key in self._runs]))
        self._last = [each.slice(block.num_rows - 1) for each in values]
        continued: Mask = same[len(same) - block.num_rows :]
        return continued


class _Hashes:
    """A set of hashes, shape (rows, 2), sorted by their first halves."""

    def __init__(self) -> None:
        self._first = np.empty(0, np.uint64)
        self._second = np.empty(0, np.uint64)

    def has(self, hashes: NDArray[np.uint64]) -> Mask:
        """For each whether it is in the set."""
        first, second = hashes[:, 0], hashes[:, 1]
        begin, end = (np.searchsorted(self._first, first, side) for side in ("left", "right"))
        found: Mask = end > begin
        at = np.flatnonzero(found)
        found[at] = self._second[begin[at]] == second[at]
        for row in np.flatnonzero(end - begin > 1):  # halves that are equal by chance
            found[row] = (self._second[begin[row] : end[row]] == second[row]).any()
        return found

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Add hashes that are not in the set."""
        hashes = hashes[np.argsort(hashes[:, 0])]
        places = np.searchsorted(self._first, hashes[:, 0])
        self._first = np.insert(self._first, places, hashes[:, 0])
        self._second = np.insert(self._second, places, hashes[:, 1])
