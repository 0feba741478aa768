"""SummingMergeTree([columns]): of the rows with one key, the sums of the numbers; of other columns the first value.

- Summed are the listed columns that are numbers, or else all; never one that the sorting or the partition key reads.
- Integers and decimals wrap around at the ends of their type, floats are added to 0.0 one after the other, which is
  never -0.0, NULLs are skipped.
- SimpleAggregateFunction columns are combined by their functions (`aggregates`), aggregate states are merged
  (`states`), if listed or there is no list.
- A row is removed, also a single one, if each of its sums is the default of its type: 0, or NULL of a Nullable. None is
  where columns are combined by functions.

Merging in any grouping gives the same sums of integers; which row comes first, and which rows are removed on the way,
may depend on it, here as in ClickHouse.

Source: ClickHouse, `src/Processors/Merges/Algorithms/SummingSortedAlgorithm.cpp`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core import types as t
from mergelake.core.engines import SUMMING
from mergelake.core.errors import error
from mergelake.core.schema import Column, TableSchema
from mergelake.order.aggregates import changes_single_rows, float_sum, simple_aggregate
from mergelake.order.coalescing import is_nullable, key_sources, listed_columns
from mergelake.order.combining import FirstStream
from mergelake.order.mode import Combination, Judge, Mask, Mode, Rule
from mergelake.order.normalized_keys import fixed_bytes, numpy_values
from mergelake.order.states import state_rule
from mergelake.order.sums import total


def summing_mode(schema: TableSchema) -> Mode:
    """The mode of a SummingMergeTree, checked; raises as `listed_columns` does, and NOT_IMPLEMENTED."""
    listed = listed_columns(schema)
    fixed = key_sources(schema)
    rules: dict[str, Rule] = {}
    nothing: dict[str, Judge] = {}
    aggregated = single = False
    for column in schema.stored:
        _refuse_map(column)
        if column.name in fixed or not (listed is None or column.name in listed):
            continue
        if isinstance(column.type, t.AggregateFunction):
            rules[column.name] = state_rule(column)
            aggregated = True
        elif isinstance(column.type, t.SimpleAggregateFunction):
            rules[column.name] = simple_aggregate(column, SUMMING)
            single = single or changes_single_rows(column.type)
            aggregated = True
        elif _is_number(column):
            floats = isinstance(t.inner_type(column.type), t.Float)
            rules[column.name] = float_sum if floats else total
            single = single or floats
            nothing[column.name] = is_null if is_nullable(column.type) else is_zero
    combination = Combination(rules, {} if aggregated else nothing, single_rows=single, by_columns=bool(nothing))
    return Mode(SUMMING, lambda final: FirstStream(), combination=combination)


def is_null(values: pa.Array) -> Mask:
    """Which sums are NULL."""
    return np.asarray(pc.is_null(values))


def is_zero(values: pa.Array) -> Mask:
    """Which sums are 0."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_fixed_size_binary(values.type):
        zero: Mask = np.equal(fixed_bytes(values, values.type.byte_width).max(axis=1, initial=0), 0)
    else:
        zero = np.equal(numpy_values(values), 0)
    return zero


def _is_number(column: Column) -> bool:
    kind = column.type
    if isinstance(kind, t.LowCardinality):
        kind = kind.inner
    if isinstance(kind, t.Nullable):
        kind = kind.inner
    if isinstance(kind, t.BFloat16):
        message = f"Column {column.name}: sums of {column.type} in a {SUMMING} are not supported"
        raise error("NOT_IMPLEMENTED", message, "Use Float32, or list the columns to sum")
    return isinstance(kind, t.Int | t.Float | t.Decimal | t.Bool)


def _refuse_map(column: Column) -> None:
    """NOT_IMPLEMENTED for an array of a Nested whose name ends in Map: ClickHouse sums such arrays key by key."""
    nested, dot, _ = column.name.rpartition(".")
    if dot and nested.endswith("Map") and isinstance(column.type, t.Array):
        message = f"Column {column.name}: a Nested whose name ends in Map, in a {SUMMING}, is not supported"
        raise error("NOT_IMPLEMENTED", message, "Give it another name, and keep a row for each of its keys")
