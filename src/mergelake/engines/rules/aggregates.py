"""Aggregate functions of SimpleAggregateFunction columns, as rules that combine the values of groups of rows.

==============================================  ================================================================
`sum`, `sumWithOverflow`                        the sum; wraps around at the ends of the type
`min`, `max`                                    the least or greatest value, of equal ones the first
`any`, `anyLast`                                the first or last value that is not NULL
`any_respect_nulls`, `anyLast_respect_nulls`    the value of the first or last row
`groupBitAnd`, `groupBitOr`, `groupBitXor`      the bits of all numbers
`groupArrayArray`                               all elements, in order
`groupUniqArrayArray`                           all different elements, in the order of their first appearance
`sumMap`, `minMap`, `maxMap`                    key by key, the sum, the least or greatest value (`maps`)
==============================================  ================================================================

NULLs are skipped, and the result is NULL where all values are.

Source: ClickHouse, `src/DataTypes/DataTypeCustomSimpleAggregateFunction.cpp` and `src/AggregateFunctions/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import Column
from mergelake.core.types import types as t
from mergelake.engines.order.normalized_keys import fixed_bytes, normalized_keys, numpy_values
from mergelake.engines.rules.combining import first_value, last_row, last_value
from mergelake.engines.rules.maps import KEYS, MapRule
from mergelake.engines.rules.mode import Mask, Rule
from mergelake.engines.rules.sums import total
from mergelake.format.serializations import ragged
from mergelake.format.serializations.array_order import array_key_bytes, order_cells

_LOWER = {"any_value": "any", "first_value": "any", "last_value": "anyLast", "bit_and": "groupBitAnd"} | {
    "bit_or": "groupBitOr", "bit_xor": "groupBitXor", "sum": "sum", "min": "min", "max": "max",
}  # fmt: skip
"""Names that may be written in any case -> the function."""
_OTHER = {
    "anyRespectNulls": "any_respect_nulls", "any_value_respect_nulls": "any_respect_nulls",
    "first_value_respect_nulls": "any_respect_nulls", "anyLastRespectNulls": "anyLast_respect_nulls",
    "last_value_respect_nulls": "anyLast_respect_nulls",
}  # fmt: skip
_MAX = np.uint64(0xFFFFFFFFFFFFFFFF)

Groups = NDArray[np.int64]
"""The row at which each group begins."""


def simple_aggregate(column: Column, engine: str) -> Rule:
    """The rule of a SimpleAggregateFunction column.

    Raises NOT_IMPLEMENTED for a function, or a type of its values, that is not supported here, BAD_ARGUMENTS if the
    function has results of another type, and ILLEGAL_TYPE_OF_ARGUMENT if it does not take such values.
    """
    kind = column.type
    assert isinstance(kind, t.SimpleAggregateFunction), kind
    name = _LOWER.get(kind.function.lower()) or _OTHER.get(kind.function) or kind.function
    make = _FUNCTIONS.get(name)
    if make is None:
        message = f"Column {column.name}: the aggregate function {kind.function} is not supported by {engine}"
        raise error("NOT_IMPLEMENTED", message, f"Supported are {', '.join(_FUNCTIONS)}")
    top = kind.inner.inner if isinstance(kind.inner, t.LowCardinality) else kind.inner
    plain = top.inner if isinstance(top, t.Nullable) else top
    if any(isinstance(each, t.LowCardinality) for each in t.parts(plain)):
        raise _incompatible(name, column)
    return make(name, plain, column)


def changes_single_rows(kind: t.DataType) -> bool:
    """Whether the function may give another value than that of a single row: -0.0, or an array with equal elements."""
    if not isinstance(kind, t.SimpleAggregateFunction):
        return False
    sums = kind.function.lower().startswith("sum") and isinstance(t.inner_type(kind), t.Float)
    return sums or kind.function == "groupUniqArrayArray" or "Map" in kind.function


def _incompatible(name: str, column: Column) -> MergelakeError:
    kind = column.type.inner if isinstance(column.type, t.SimpleAggregateFunction) else column.type
    message = f"Column {column.name}: the aggregate function {name} of {kind} has results of another type"
    return error("BAD_ARGUMENTS", message, "Declare the column with the type of the results")


def _illegal(name: str, plain: t.DataType, column: Column) -> MergelakeError:
    message = f"Column {column.name}: the aggregate function {name} does not take values of type {plain}"
    return error("ILLEGAL_TYPE_OF_ARGUMENT", message)


def _unsupported(name: str, plain: t.DataType, column: Column, hint: str) -> MergelakeError:
    message = f"Column {column.name}: the aggregate function {name} of {plain} is not supported"
    return error("NOT_IMPLEMENTED", message, hint)


# --- sums


def _make_sum(name: str, plain: t.DataType, column: Column) -> Rule:
    widens = name == "sum"
    match plain:
        case t.Int(bits):
            fits = bits >= 64 or not widens
        case t.Float(bits):
            fits = bits == 64 or not widens
        case t.Decimal(precision):
            fits = precision in (38, 76) or not widens
        case t.Bool():
            fits = not widens
        case t.BFloat16() if not widens:
            raise _unsupported(name, plain, column, "Use Float32")
        case t.BFloat16() | t.Enum():
            fits = False
        case _:
            raise _illegal(name, plain, column)
    if not fits:
        raise _incompatible(name, column)
    return float_sum if isinstance(plain, t.Float) else total


def float_sum(values: pa.Array, begins: Groups) -> pa.Array:
    """The sum, which begins at 0.0: it is never -0.0."""
    if pa.types.is_dictionary(values.type):
        return float_sum(values.dictionary_decode(), begins).dictionary_encode()
    sums = total(values, begins)
    return pc.add(sums, pa.scalar(0.0, sums.type))


# --- rows of a group


def _make_row(name: str, plain: t.DataType, column: Column) -> Rule:
    last = name.startswith("anyLast")
    # Variant and Dynamic have NULL as a value like others.
    if name.endswith("_respect_nulls") or not _skips_nulls(column.type):
        return last_row if last else first_value
    return last_value if last else _first_valid


def _skips_nulls(kind: t.DataType) -> bool:
    while isinstance(kind, t.SimpleAggregateFunction | t.LowCardinality):
        kind = kind.inner
    return isinstance(kind, t.Nullable)


def _first_valid(values: pa.Array, begins: Groups) -> pa.Array:
    """The first value of each group that is not NULL; NULL if there is none."""
    if not values.null_count:
        return first_value(values, begins)
    return values.take(pa.array(first_of(np.asarray(values.is_valid()), begins)))


def first_of(chosen: Mask, begins: Groups) -> Groups:
    """The first chosen row of each group, or its first row if none is."""
    rows = len(chosen)
    first = np.minimum.reduceat(np.where(chosen, np.arange(rows), rows), begins)
    found: Groups = np.where(first == rows, begins, first)
    return found


# --- the least and the greatest value


def _make_extreme(name: str, plain: t.DataType, column: Column) -> Rule:
    if isinstance(plain, t.Variant | t.Dynamic):
        raise _illegal(name, plain, column)
    # Of NULL and NaN inside of arrays and tuples ClickHouse's order depends on where they are.
    nested = isinstance(plain, t.Array | t.Map | t.Tuple)
    inside = tuple(t.parts(plain))
    unordered = (t.Variant, t.Dynamic, t.Json, t.AggregateFunction, t.Nothing)
    if any(isinstance(each, unordered) for each in inside) or (
        nested and any(isinstance(each, t.Nullable | t.Float | t.BFloat16) for each in inside)
    ):
        raise _unsupported(name, plain, column, "It compares values without NULL and floats inside of them")
    rows_of = extreme_rows(plain, greatest=name == "max")
    return lambda values, begins: values.take(pa.array(rows_of(values, begins)))


def extreme_rows(kind: t.DataType, *, greatest: bool) -> Callable[[pa.Array, Groups], Groups]:
    """The function that finds the row of the least or greatest value of each group, the first of equal ones."""

    def rows(values: pa.Array, begins: Groups) -> Groups:
        lengths = np.diff(begins, append=len(values))
        left = np.asarray(values.is_valid())
        for word in _words(values, kind, greatest):
            ranks = np.where(left, ~word if greatest else word, _MAX)
            left &= ranks == np.repeat(np.minimum.reduceat(ranks, begins), lengths)
        return first_of(left, begins)

    return rows


def _words(values: pa.Array, kind: t.DataType, greatest: bool) -> list[NDArray[np.uint64]]:
    """Numbers whose order, from first to last, is the order of the values; any for NULL. NaN is never an extreme."""
    if pa.types.is_dictionary(values.type):
        codes = numpy_values(pc.fill_null(values.indices, 0)).astype(np.int64)
        if not len(values.dictionary):
            return [np.zeros(len(values), np.uint64)]
        return [word[codes] for word in _words(values.dictionary, kind, greatest)]
    match kind:
        case t.String():
            encoded = values.dictionary_encode()
            ranks = np.empty(max(len(encoded.dictionary), 1), np.uint64)
            ranks[np.asarray(pc.sort_indices(encoded.dictionary))] = np.arange(len(encoded.dictionary), dtype=np.uint64)
            return [ranks[np.asarray(pc.fill_null(encoded.indices, 0))]]
        case t.Array() | t.Map():
            return _words(array_key_bytes(values, kind), t.String(), greatest)
        case t.Tuple(elements):
            fields = zip(values.flatten(), elements, strict=True)
            return [word for field, element in fields for word in _words(field, element, greatest)]
        case t.Float() if greatest:
            word = normalized_keys([values], [kind]).words[:, 0].copy()
            word[np.isnan(numpy_values(values))] = 0
            return [word]
    matrix = normalized_keys([values], [kind]).words
    return [matrix[:, at] for at in range(matrix.shape[1])]


# --- bits


def _make_bits(name: str, plain: t.DataType, column: Column) -> Rule:
    if not isinstance(plain, t.Int | t.Bool):
        raise _illegal(name, plain, column)
    function: np.ufunc = {"And": np.bitwise_and, "Or": np.bitwise_or, "Xor": np.bitwise_xor}[
        name.removeprefix("groupBit")
    ]
    neutral = 0xFF if name == "groupBitAnd" else 0

    def bits(values: pa.Array, begins: Groups) -> pa.Array:
        if pa.types.is_dictionary(values.type):
            return bits(values.dictionary_decode(), begins).dictionary_encode()
        width = values.type.byte_width
        raw: NDArray[Any] = fixed_bytes(values, width)
        validity = None
        if values.null_count:
            valid = np.asarray(values.is_valid())
            raw = np.where(valid[:, np.newaxis], raw, np.uint8(neutral))
            known = np.logical_or.reduceat(valid, begins)
            validity = pa.py_buffer(np.packbits(known, bitorder="little"))
        words = np.ascontiguousarray(raw).view(f"<u{min(width, 8)}")
        combined = np.ascontiguousarray(function.reduceat(words, begins, axis=0))
        return pa.Array.from_buffers(values.type, len(begins), [validity, pa.py_buffer(combined)])

    return bits


# --- arrays


def _make_array(name: str, plain: t.DataType, column: Column) -> Rule:
    if not isinstance(plain, t.Array):
        raise _illegal(name, plain, column)
    element = plain.inner
    if isinstance(element, t.Nullable):
        raise _incompatible(name, column)
    if name == "groupArrayArray":
        return _all_elements
    # Within arrays and tuples 0.0 and -0.0 have the same key, and are different elements.
    refused = (t.Variant, t.Dynamic, t.Json, t.AggregateFunction, t.Nothing)
    floats = isinstance(element, t.Array | t.Map | t.Tuple) and t.holds(element, t.Float, t.BFloat16)
    if floats or t.holds(element, *refused):
        raise _unsupported(name, plain, column, "Use groupArrayArray")
    return lambda values, begins: _different_elements(values, begins, element)


def _all_elements(values: pa.Array, begins: Groups) -> pa.Array:
    elements, offsets = ragged.list_elements(values)
    return _lists(values.type, elements, np.append(offsets[begins], offsets[-1]))


def _different_elements(values: pa.Array, begins: Groups, kind: t.DataType) -> pa.Array:
    elements, offsets = ragged.list_elements(values)
    bounds = np.append(offsets[begins], offsets[-1])
    if not len(elements):
        return _lists(values.type, elements, bounds)
    groups = np.repeat(np.arange(len(begins)), np.diff(bounds))
    codes = _codes(elements, kind)
    _, first = np.unique(groups * (int(codes.max()) + 1) + codes, return_index=True)
    kept = np.sort(first)
    counts = np.bincount(groups[kept], minlength=len(begins))
    return _lists(values.type, elements.take(pa.array(kept)), ragged.offsets_of(counts))


def _codes(elements: pa.Array, kind: t.DataType) -> NDArray[np.int64]:
    """A number for each element; of equal ones the same."""
    if pa.types.is_nested(elements.type):
        elements = order_cells(elements, kind).to_arrow()
    elif pa.types.is_floating(elements.type):  # by their bits: NaN is NaN, and 0.0 is not -0.0
        bits = numpy_values(elements).view(f"u{elements.type.bit_width // 8}")
        elements = pa.array(bits)
    return np.asarray(elements.dictionary_encode().indices).astype(np.int64)


def _lists(kind: pa.DataType, elements: pa.Array, offsets: NDArray[np.int64]) -> pa.Array:
    if int(offsets[-1]) > np.iinfo(np.int32).max:
        message = f"{offsets[-1]} elements of combined arrays do not fit into one block"
        raise error("TOO_LARGE_ARRAY_SIZE", message, "Keep fewer elements of a key")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), elements, type=kind)


# --- maps


def _make_map(name: str, plain: t.DataType, column: Column) -> Rule:
    summed = name == "sumMap"
    make = _make_sum if summed else _make_extreme
    match plain:
        case t.Map(key, value):
            if isinstance(key, t.Nullable):
                raise _incompatible(name, column)
            if not isinstance(key, KEYS) or isinstance(key, t.Date32):
                raise _illegal(name, plain, column)
            rule = make(name[:3], value.inner if isinstance(value, t.Nullable) else value, column)
            return MapRule(key, (rule,), drops_zeros=False)
        case t.Tuple(elements) if len(elements) > 1 and all(isinstance(each, t.Array) for each in elements):
            key, *values = (each.inner for each in elements if isinstance(each, t.Array))
            if any(isinstance(each, t.Nullable) for each in values):
                raise _incompatible(name, column)
            if not isinstance(key, KEYS):
                raise _unsupported(name, plain, column, "Use keys that are integers, dates or texts")
            small = [each for each in values if isinstance(each, t.Decimal) and each.precision not in (38, 76)]
            if summed and small:
                raise _unsupported(name, plain, column, "Use Decimal(38, s) or Decimal(76, s)")
            if not summed and any(isinstance(each, t.Float | t.BFloat16) for each in values):
                raise _unsupported(name, plain, column, "Use Map(K, V)")
            rules = tuple(make(name[:3], value, column) for value in values)
            return MapRule(key, (total,) * len(rules) if summed else rules, drops_zeros=summed)
        case _:
            raise _illegal(name, plain, column)


_FUNCTIONS: Mapping[str, Callable[[str, t.DataType, Column], Rule]] = {
    "sum": _make_sum,
    "sumWithOverflow": _make_sum,
    "min": _make_extreme,
    "max": _make_extreme,
    "any": _make_row,
    "anyLast": _make_row,
    "any_respect_nulls": _make_row,
    "anyLast_respect_nulls": _make_row,
    "groupBitAnd": _make_bits,
    "groupBitOr": _make_bits,
    "groupBitXor": _make_bits,
    "groupArrayArray": _make_array,
    "groupUniqArrayArray": _make_array,
    "sumMap": _make_map,
    "minMap": _make_map,
    "maxMap": _make_map,
}
