"""SummingMergeTree([columns]): of the rows with one key, the sums of the numbers; of other columns the first value.

- Summed are the listed columns that are numbers, or else all; never one that the sorting or the partition key reads.
- Integers and decimals wrap around at the ends of their type, floats are added to 0.0 one after the other, which is
  never -0.0, NULLs are skipped.
- SimpleAggregateFunction columns are combined by their functions (`aggregates`), aggregate states are merged
  (`states`), if listed or there is no list.
- The columns of a Nested whose name ends in `Map`, whatever is listed, are summed key by key (`maps`): the first one is
  the keys, the others are numbers. Keys whose sums are all 0 go.
- A row is removed, also a single one, if each of its sums is the default of its type: 0, or NULL of a Nullable. None is
  where columns are combined by functions.

Merging in any grouping gives the same sums of integers; which row comes first, and which rows are removed on the way,
may depend on it, here as in ClickHouse.

Source: ClickHouse, `src/Processors/Merges/Algorithms/SummingSortedAlgorithm.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.engines import SUMMING
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.engines.rules.aggregates import changes_single_rows, float_sum, simple_aggregate
from mergelake.engines.rules.coalescing import is_nullable, key_sources, listed_columns
from mergelake.engines.rules.combining import FirstStream
from mergelake.engines.rules.maps import KEYS, MapRule, wide_sum
from mergelake.engines.rules.mode import Combination, Judge, Mask, Mode, Rule
from mergelake.engines.rules.states import state_rule
from mergelake.engines.rules.sums import is_zero, total

_SUMMED = (t.Int, t.Float, t.BFloat16, t.Decimal, t.Bool)
_MORE_KEYS = ("ID", "Key", "Type")
"""Ends of names of further columns of keys in a Nested."""


def summing_mode(schema: TableSchema) -> Mode:
    """The mode of a SummingMergeTree, checked; raises as `listed_columns` does, and NOT_IMPLEMENTED."""
    listed = listed_columns(schema)
    fixed = key_sources(schema)
    rules: dict[str, Rule] = {}
    nothing: dict[str, Judge] = {}
    aggregated = single = False
    maps: dict[str, tuple[str, ...]] = {}
    for names, rule in _nested_maps(schema, fixed).items():
        maps |= dict.fromkeys(names, names)
        rules |= dict.fromkeys(names, rule)
        aggregated = single = True
    for column in schema.stored:
        if column.name in maps or column.name in fixed or not (listed is None or column.name in listed):
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
    combination = Combination(rules, {} if aggregated else nothing, maps, single, bool(nothing or maps))
    return Mode(SUMMING, lambda final: FirstStream(), combination=combination)


def is_null(values: pa.Array) -> Mask:
    """Which sums are NULL."""
    return np.asarray(pc.is_null(values))


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


def _nested_maps(schema: TableSchema, fixed: frozenset[str]) -> dict[tuple[str, ...], MapRule]:
    """The columns of each Nested whose name ends in Map and that is summed, and how.

    NOT_IMPLEMENTED for several columns of keys, and types that are not supported.
    """
    found: dict[str, list[Column]] = {}
    for column in schema.stored:
        nested, dot, _ = column.name.partition(".")
        if dot and nested.endswith("Map") and isinstance(column.type, t.Array):
            found.setdefault(nested, []).append(column)
    out: dict[tuple[str, ...], MapRule] = {}
    for columns in found.values():
        names = tuple(column.name for column in columns)
        rule = _map_rule(columns) if len(columns) > 1 and not fixed & set(names) else None
        if rule is not None:
            out[names] = rule
    return out


def _map_rule(columns: Sequence[Column]) -> MapRule | None:
    first, *others = [column.type.inner for column in columns if isinstance(column.type, t.Array)]
    more = [column for column in columns[1:] if column.name.endswith(_MORE_KEYS)]
    summed = [t.inner_type(kind) for column, kind in zip(columns[1:], others, strict=True) if column not in more]
    if not isinstance(_plain(first), KEYS) or not all(isinstance(kind, _SUMMED) for kind in summed):
        return None
    if more:
        raise _unsupported(more[0], "a Nested whose name ends in Map, with several columns of keys", "Rename it")
    for column, kind in zip(columns, (first, *others), strict=True):
        if isinstance(kind, t.Nullable | t.LowCardinality | t.BFloat16):
            raise _unsupported(
                column, f"elements of type {kind} in a Nested whose name ends in Map", f"Use {_plain(kind)}"
            )
    return MapRule(first, (wide_sum,) * len(others), drops_zeros=True)


def _plain(kind: t.DataType) -> t.DataType:
    if isinstance(kind, t.LowCardinality):
        kind = kind.inner
    return kind


def _unsupported(column: Column, what: str, hint: str) -> MergelakeError:
    message = f"Column {column.name}: {what}, in a {SUMMING}, is not supported"
    return error("NOT_IMPLEMENTED", message, hint)
