"""CAST between arrays, tuples and maps: their elements are cast one by one.

Tuples are matched by position, or by name if both have names: then an element that the source lacks has the default of
its type. A tuple of two arrays is cast to a Map of their elements.

Source: ClickHouse, `src/Functions/FunctionsConversion.h`, `createTupleWrapper`, `createMapWrapper`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions.text_casts import gives_null, read_or_null
from mergelake.expr.values import (
    Vec,
    constant_vec,
    data_to_arrow,
    default_value,
    from_arrow,
    plain_type,
    to_arrow,
)

FindKernel: TypeAlias = Callable[[t.DataType, t.DataType], Kernel | None]
"""The conversion of plain data between plain types; None where there is none."""
Convert: TypeAlias = Callable[[pa.Array], pa.Array]
"""Converts an array in storage form."""


def nested_kernel(source: t.DataType, target: t.DataType, find: FindKernel) -> Kernel | None:
    """The conversion between types with elements; `find` gives those of the elements."""
    match source, target:
        case t.Array(), t.Array():
            items = _element(source.inner, target.inner, find)
            return None if items is None else _lists(items, storage_type(target))
        case t.Map(), t.Map():
            return nested_kernel(_pairs(source), _pairs(target), find)
        case t.Array(t.Tuple()), t.Map():
            return nested_kernel(source, _pairs(target), find)
        case t.Array(t.Nothing()), t.Map():
            return lambda data: constant_vec([], target).broadcast(len(data)).data
        case t.Tuple((t.Array(key), t.Array(value))), t.Map():
            entries = nested_kernel(t.Array(t.Tuple((key, value))), target, find)
            return None if entries is None else lambda data: entries(_zipped(data))
        case t.Tuple(), t.Tuple():
            return _tuples(source, target, find)
    return None


def _pairs(kind: t.Map) -> t.Array:
    """The type of the storage form of a Map."""
    return t.Array(t.Tuple((kind.key, kind.value), ("keys", "values")))


def _element(source: t.DataType, target: t.DataType, find: FindKernel) -> Convert | None:
    """The conversion of elements, NULLs and dictionaries included."""
    if source == target:
        return lambda array: array
    plain = plain_type(target)
    kernel = find(plain_type(source), plain)
    if kernel is None:
        return None
    if gives_null(source, target):
        return lambda array: to_arrow(read_or_null(from_arrow(array, source), plain), target, len(array))

    def convert(array: pa.Array) -> pa.Array:
        vec = from_arrow(array, source).decoded()
        valid = vec.valid
        if valid is None or bool(valid.all()):
            return to_arrow(_whole(kernel(vec.data), len(array)), target, len(array))
        if not t.is_nullable(target):
            message = f"Cannot convert NULL value to non-Nullable type {target}"
            raise error("CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", message)
        keep = np.flatnonzero(valid)
        if not len(keep):
            return to_arrow(constant_vec(None, target), target, len(array))
        back = np.zeros(len(array), np.int64)
        back[keep] = np.arange(len(keep))
        converted = Vec(kernel(vec.filter(keep).data)).filter(back)
        return to_arrow(Vec(converted.data, valid), target, len(array))

    return convert


def _defaults(kind: t.DataType) -> Convert:
    """As many default values of a type as there are rows."""
    return lambda array: to_arrow(constant_vec(default_value(kind, 0), kind), kind, len(array))


def _whole(data: pa.Array, rows: int) -> Vec:
    """Data of so many rows: a kernel returns one for a constant, also where there are no rows."""
    return Vec(data if len(data) == rows else Vec(data).broadcast(rows).data)


def _lists(items: Convert, want: pa.DataType) -> Kernel:
    def convert(data: pa.Array) -> pa.Array:
        lengths = np.asarray(pc.fill_null(pc.list_value_length(data), 0).to_numpy(zero_copy_only=False))
        offsets = np.zeros(len(data) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        values = items(data.flatten())
        if values.type != want.value_type:
            values = data_to_arrow(values, None, want.value_type)
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=want)

    return convert


def _zipped(data: pa.StructArray) -> pa.Array:
    """A tuple of two arrays as an array of tuples. Raises TYPE_MISMATCH."""
    keys, values = data.field(0), data.field(1)
    lengths = pc.list_value_length(keys)
    if not lengths.equals(pc.list_value_length(values)):
        raise error("TYPE_MISMATCH", "Keys and values of a Map have different lengths")
    offsets = np.zeros(len(data) + 1, np.int32)
    np.cumsum(lengths.to_numpy(), out=offsets[1:])
    pairs = pa.StructArray.from_arrays([keys.flatten(), values.flatten()], names=["1", "2"])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs)


def _tuples(source: t.Tuple, target: t.Tuple, find: FindKernel) -> Kernel | None:
    places: list[int | None] = list(range(len(source.elements)))
    if source.names and target.names:
        places = [source.names.index(name) if name in source.names else None for name in target.names]
        if source.elements and target.elements and not any(place is not None for place in places):
            message = f"{source} cannot be converted to {target}: they have no names of elements in common"
            raise error("TYPE_MISMATCH", message)
    elif len(source.elements) != len(target.elements):
        message = f"{source} cannot be converted to {target}: the numbers of elements differ"
        raise error("TYPE_MISMATCH", message)
    conversions: list[Convert] = []
    for place, element in zip(places, target.elements, strict=True):
        conversion = _defaults(element) if place is None else _element(source.elements[place], element, find)
        if conversion is None:
            return None
        conversions.append(conversion)
    want = storage_type(target)

    def convert(data: pa.StructArray) -> pa.Array:
        if not conversions:
            return pa.StructArray.from_buffers(want, len(data), [None], children=[])
        parts = [conversion(data.field(place or 0)) for place, conversion in zip(places, conversions, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(want))

    return convert
