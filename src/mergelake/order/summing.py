"""SummingMergeTree([columns]): of the rows with one key, the sums of the numbers; of other columns the first value.

- Summed are the listed columns that are numbers, or else all; never one that the sorting or the partition key reads.
- Integers and decimals wrap around at the ends of their type, floats are added one after the other, NULLs are skipped.
- A row is removed, also a single one, if each of its sums is the default of its type: 0, or NULL of a Nullable.

Merging in any grouping gives the same sums of integers; which row comes first, and which rows are removed on the way,
may depend on it, here as in ClickHouse.

Source: ClickHouse, `src/Processors/Merges/Algorithms/SummingSortedAlgorithm.cpp`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core import types as t
from mergelake.core.engines import SUMMING
from mergelake.core.errors import error
from mergelake.core.schema import Column, TableSchema
from mergelake.order.coalescing import is_nullable, key_sources, listed_columns, refuse_aggregates
from mergelake.order.combining import FirstStream
from mergelake.order.mode import Combination, Judge, Mask, Mode, Rule
from mergelake.order.normalized_keys import fixed_bytes, numpy_values

_SHORT = 32
"""Rows of a group that is added up together with others."""


def summing_mode(schema: TableSchema) -> Mode:
    """The mode of a SummingMergeTree, checked; raises as `listed_columns` does, and NOT_IMPLEMENTED."""
    listed = listed_columns(schema)
    fixed = key_sources(schema)
    rules: dict[str, Rule] = {}
    nothing: dict[str, Judge] = {}
    for column in schema.stored:
        _refuse_map(column)
        if column.name in fixed or not (listed is None or column.name in listed):
            continue
        refuse_aggregates(column, SUMMING)
        if _is_number(column):
            rules[column.name] = total
            nothing[column.name] = is_null if is_nullable(column.type) else is_zero
    return Mode(SUMMING, lambda final: FirstStream(), combination=Combination(rules, nothing))


def total(values: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
    """The sum of each group, in the type of the values; NULL if all are."""
    if pa.types.is_dictionary(values.type):
        return total(values.dictionary_decode(), begins).dictionary_encode()
    kind, count = values.type, len(begins)
    valid = None
    if values.null_count:
        present = np.asarray(values.is_valid())
        valid = np.logical_or.reduceat(present, begins)
    if pa.types.is_fixed_size_binary(kind):
        sums = _wide_sums(fixed_bytes(values, kind.byte_width), begins, None if valid is None else present)
    else:
        numbers = numpy_values(values)
        if valid is not None:
            numbers = np.where(present, numbers, numbers.dtype.type(0))
        sums = _sums(numbers, begins)
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(np.ascontiguousarray(sums))])


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


def _sums(numbers: NDArray[Any], begins: NDArray[np.int64]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        if numbers.dtype.kind == "f":
            return _add_floats(numbers, begins)
        return np.add.reduceat(numbers, begins, dtype=numbers.dtype)


def _wide_sums(raw: NDArray[np.uint8], begins: NDArray[np.int64], present: Mask | None) -> NDArray[np.uint32]:
    """Sums of integers of more than 64 bits: in 32-bit digits, which cannot overflow 64 bits, then carried."""
    digits = np.ascontiguousarray(raw).view("<u4").astype(np.uint64)
    if present is not None:
        digits[~present] = 0
    sums = np.add.reduceat(digits, begins, axis=0)
    for at in range(sums.shape[1] - 1):
        sums[:, at + 1] += sums[:, at] >> np.uint64(32)
    return sums.astype(np.uint32)


def _add_floats(numbers: NDArray[Any], begins: NDArray[np.int64]) -> NDArray[Any]:
    """Sums of floats, each rounded to the type of the numbers after each addition, from first to last."""
    lengths = np.diff(begins, append=len(numbers))
    sums = numbers[begins]
    for group in np.flatnonzero(lengths > _SHORT).tolist():
        sums[group] = np.add.accumulate(numbers[begins[group] : begins[group] + lengths[group]])[-1]
    left, at = np.flatnonzero((lengths > 1) & (lengths <= _SHORT)), 1
    while len(left):
        sums[left] += numbers[begins[left] + at]
        at += 1
        left = left[lengths[left] > at]
    return sums
