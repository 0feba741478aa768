"""Maps from keys to values in one column or several, which are combined key by key.

A map is a struct of arrays of equal lengths: the keys, then the values of one or more kinds. A
`SimpleAggregateFunction(sumMap, Tuple(Array(K), Array(V)))` is one, and so are the columns of a Nested of a
SummingMergeTree whose name ends in `Map`, taken together. `Map(K, V)` is the same with pairs. The result has each key
once, in ascending order; the values of a key are combined in the order of the rows.

Source: ClickHouse, `src/AggregateFunctions/AggregateFunctionSumMap.cpp` and `Combinators/AggregateFunctionMap.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.engines.order.normalized_keys import normalized_keys, numpy_values, same_as_previous
from mergelake.engines.order.sorting import sort_order
from mergelake.engines.rules.mode import Rule
from mergelake.engines.rules.sums import is_zero, total
from mergelake.format.serializations import ragged

Groups = NDArray[np.int64]
"""The row at which each group begins."""
KEYS = (t.Int, t.Bool, t.String, t.FixedString, t.Date, t.Date32, t.DateTime, t.Enum, t.UUID, t.IPv4, t.IPv6)
"""Types of keys of which the order is known here to be ClickHouse's."""
_ROWS_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class MapRule:
    """The `Rule` of maps: structs of arrays, or pairs."""

    key: t.DataType
    values: tuple[Rule, ...]
    """For each kind of values how those of a key are combined."""
    drops_zeros: bool
    """Whether keys go whose combined values are all 0."""

    def __call__(self, rows: pa.Array, begins: Groups) -> pa.Array:
        """The combined map of each group. BAD_ARGUMENTS for arrays of different lengths."""
        pairs = pa.types.is_list(rows.type)
        if pairs:
            entries, offsets = ragged.list_elements(rows)
            columns = entries.flatten()
        else:
            lists = [ragged.list_elements(array) for array in rows.flatten()]
            offsets = lists[0][1]
            if not all(np.array_equal(offsets, others) for _, others in lists):
                raise error("BAD_ARGUMENTS", "Arrays of keys and of values have different lengths in some row")
            columns = [elements for elements, _ in lists]
        bounds = np.append(offsets[begins], offsets[-1])
        columns, counts = self._combined(columns, bounds)
        ends = ragged.offsets_of(counts)
        if int(ends[-1]) > _ROWS_MAX:
            message = f"{ends[-1]} elements of combined maps do not fit into one block"
            raise error("TOO_LARGE_ARRAY_SIZE", message, "Keep fewer elements of a key")
        edges = pa.py_buffer(ends.astype(np.int32))
        if pairs:
            entries = pa.StructArray.from_arrays(columns, fields=list(rows.type.value_type))
            return pa.Array.from_buffers(rows.type, len(begins), [None, edges], children=[entries])
        fields = list(rows.type)
        arrays = [
            pa.Array.from_buffers(field.type, len(begins), [None, edges], children=[column])
            for field, column in zip(fields, columns, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    def _combined(self, columns: Sequence[pa.Array], bounds: Groups) -> tuple[list[pa.Array], NDArray[np.int64]]:
        """Keys and values of all groups, and how many keys each group has."""
        groups = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        if not len(groups):
            return list(columns), np.zeros(len(bounds) - 1, np.int64)
        kinds = (t.Int(64, signed=True), self.key)
        order = sort_order([pa.array(groups), columns[0]], kinds)
        if order is not None:
            columns = [column.take(pa.array(order)) for column in columns]
        starts = np.flatnonzero(~same_as_previous(normalized_keys([pa.array(groups), columns[0]], kinds)))
        groups = groups[starts]
        values = [rule(column, starts) for rule, column in zip(self.values, columns[1:], strict=True)]
        combined = [columns[0].take(pa.array(starts)), *values]
        if self.drops_zeros:
            kept = ~np.logical_and.reduce([is_zero(each) for each in values])
            groups = groups[kept]
            combined = [column.filter(pa.array(kept)) for column in combined]
        combined = [_narrowed(each, column.type) for each, column in zip(combined, columns, strict=True)]
        return combined, np.bincount(groups, minlength=len(bounds) - 1)


def wide_sum(values: pa.Array, begins: Groups) -> pa.Array:
    """Sums as they are before they are stored: of Float32 in Float64, of small integers in 64 bits."""
    kind = values.type
    if pa.types.is_float32(kind):
        return total(values.cast(pa.float64()), begins)
    if pa.types.is_integer(kind) and kind.bit_width < 64:
        return total(values.cast(pa.int64() if pa.types.is_signed_integer(kind) else pa.uint64()), begins)
    return total(values, begins)


def _narrowed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as another type of numbers; integers wrap around."""
    if values.type == kind:
        return values
    return pa.array(numpy_values(values).astype(kind.to_pandas_dtype()), kind)
