"""Rows of a key made one: the values of a column, of each group of rows, become one value.

A column's rule is a function of its values and of the rows at which groups begin. Applied to the values of a part of
the rows first, it gives the same, so that a column is combined in pieces (`GroupStream`). Columns without a rule take
the value of the first row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.engines.order.keys import Block, whole_column
from mergelake.engines.rules.mode import Combination, Mask, Rule, Words


class FirstStream:
    """`KeepStream` of the first row of each key."""

    def push(self, repeats: Mask, words: Words) -> list[Mask]:
        """The block itself: nothing that follows changes it."""
        return [~repeats]

    def finish(self) -> list[Mask]:
        """Nothing is left."""
        return []


class GroupStream:
    """Combines one column whose groups may be spread over many arrays."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._open: pa.Array | None = None

    def push(self, values: pa.Array, begins: Mask) -> pa.Array:
        """The values of the groups that end in these rows; `begins` says of each row whether it begins a group."""
        if self._open is not None:
            values, begins = concatenated(self._open, values), np.concatenate(([True], begins))
        if not len(values):
            return values
        combined = self._rule(values, np.flatnonzero(begins))
        self._open = combined.slice(len(combined) - 1)
        return combined.slice(0, len(combined) - 1)

    def finish(self) -> pa.Array | None:
        """The value of the last group; None if there was no row."""
        last, self._open = self._open, None
        return last


def combine_block(block: Block, repeats: Mask, combination: Combination) -> pa.Table:
    """The rows of a sorted block as one row for each key; `repeats[i]`: row i has the key of the row before it.

    The block has all columns of `combination.nothing`, and all or none of each of `combination.maps`.
    """
    begins = np.flatnonzero(~repeats)
    table = block if isinstance(block, pa.Table) else pa.Table.from_batches([block])
    if not block.num_rows:
        return table
    if len(begins) < block.num_rows or combination.single_rows:
        rules, names = combination.rules, block.schema.names
        maps = {
            each: rules[each[0]](together(block, each), begins)
            for each in dict.fromkeys(combination.maps.values())
            if each[0] in names
        }

        def combined(name: str) -> pa.Array:
            columns = combination.maps.get(name)
            if columns is not None:
                return maps[columns].field(columns.index(name))
            return rules.get(name, first_value)(whole_column(block, name), begins)

        table = pa.table({name: combined(name) for name in names})
    gone = None
    for name, judge in combination.nothing.items():
        found = judge(whole_column(table, name))
        gone = found if gone is None else gone & found
    return table if gone is None or not gone.any() else table.filter(pa.array(~gone))


def together(block: Block, names: Sequence[str]) -> pa.Array:
    """Columns of a block as one array of structs."""
    arrays = [whole_column(block, name) for name in names]
    fields = [pa.field(name, array.type, nullable=False) for name, array in zip(names, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def concatenated(first: pa.Array, second: pa.Array) -> pa.Array:
    """Two arrays as one; dictionaries are unified."""
    if not pa.types.is_dictionary(first.type):
        return pa.concat_arrays([first, second])
    whole = pa.chunked_array([first, second]).unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def first_value(values: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
    """The value of the first row of each group."""
    return values.take(pa.array(begins))


def last_row(values: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
    """The value of the last row of each group."""
    return values.take(pa.array(np.append(begins[1:], len(values)) - 1))


def last_value(values: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
    """The last value of each group that is not NULL; NULL if there is none."""
    rows = np.arange(len(values))
    if values.null_count:
        rows[np.asarray(pc.is_null(values))] = -1
    last = np.maximum.reduceat(rows, begins)
    return values.take(pa.array(np.where(last < 0, begins, last)))
