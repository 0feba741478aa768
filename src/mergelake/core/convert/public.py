"""Conversion of the storage form to the public form, which readers of a table get.

Numbers are views of the same memory if both forms have the same width; strings keep their buffers and are not checked
to be UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import error
from mergelake.core.convert.json_text import dynamic_text, json_text
from mergelake.core.convert.text_write import to_text
from mergelake.core.types import types as t
from mergelake.core.types.arrow import arrow_schema, arrow_type, storage_type


def to_public_table(table: pa.Table | pa.RecordBatch, types: Mapping[str, t.DataType]) -> pa.Table:
    """A table of storage columns as a table of public columns; `types` by column name."""
    schema = arrow_schema({name: types[name] for name in table.schema.names})
    columns = []
    for i, name in enumerate(table.schema.names):
        column = table.column(i)
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        columns.append(pa.chunked_array([to_public(chunk, types[name]) for chunk in chunks], schema.field(i).type))
    return pa.Table.from_arrays(columns, schema=schema)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches as tuples of Python values."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def to_public(array: pa.Array, data_type: t.DataType) -> pa.Array:
    """A storage-form array in the public form of `data_type`, with as many rows and the same NULLs."""
    match data_type:
        case t.Nullable(inner) | t.SimpleAggregateFunction(_, inner):
            return to_public(array, inner)
        case t.LowCardinality(inner):
            return pa.DictionaryArray.from_arrays(array.indices, to_public(array.dictionary, inner))
        case t.Bool():
            return array.cast(pa.bool_())
        case t.String():
            return _as_string(array)
        case t.Date():
            return array.cast(pa.int32()).view(pa.date32())
        case t.Date32():
            return array.view(pa.date32())
        case t.DateTime():
            return array.cast(pa.int64()).view(arrow_type(data_type))
        case t.DateTime64(precision):
            return _timestamps(array, precision, arrow_type(data_type))
        case t.Enum(bits, items):
            return _enum(array, bits, items)
        case t.UUID() | t.IPv4() | t.IPv6():
            return _as_string(to_text(array, data_type))
        case t.Decimal():
            return _decimal(array, data_type)
        case t.Array(inner):
            return _list(array, arrow_type(data_type), to_public(array.values, inner))
        case t.Map(key, value):
            pairs = array.values
            keys, items = to_public(pairs.field(0), key), to_public(pairs.field(1), value)
            target = arrow_type(data_type)
            struct = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
            return _list(array, target, struct)
        case t.Tuple(elements):
            fields = [to_public(array.field(i), element) for i, element in enumerate(elements)]
            if not fields:
                return array
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(fields, fields=list(arrow_type(data_type)), mask=mask)
        case t.Variant(alternatives):
            fields = [to_public(child, each) for child, each in zip(array.flatten(), alternatives, strict=True)]
            return pa.StructArray.from_arrays(fields, fields=list(arrow_type(data_type)))
        case t.Dynamic() | t.Json():
            texts = dynamic_text(array) if isinstance(data_type, t.Dynamic) else json_text(array)
            return pa.ExtensionArray.from_storage(arrow_type(data_type), _as_string(texts))
    return array


def _as_string(array: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count, array.offset)


def _list(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, array.offset, children=[values])


def _timestamps(array: pa.Array, precision: int, target: pa.DataType) -> pa.Array:
    factor = 10 ** (-precision % 3)
    if factor == 1:
        return array.view(target)
    extremes = pc.min_max(array)
    limit = ((1 << 63) - 1) // factor
    if extremes["min"].as_py() is not None and not (
        -limit <= extremes["min"].as_py() and extremes["max"].as_py() <= limit
    ):
        raise error(
            "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", f"A DateTime64({precision}) is beyond what Arrow's {target} can hold"
        )
    return pc.multiply(array, pa.scalar(factor, pa.int64())).view(target)


def _enum(array: pa.Array, bits: int, items: tuple[tuple[str, int], ...]) -> pa.Array:
    kind = storage_type(t.Enum(bits, items))
    values = pa.array([number for _, number in items], kind)
    indices = pc.index_in(array, value_set=values).cast(kind)
    return pa.DictionaryArray.from_arrays(indices, pa.array([name for name, _ in items], pa.string()))


def _decimal(array: pa.Array, kind: t.Decimal) -> pa.Array:
    target = arrow_type(kind)
    width = target.byte_width
    if pa.types.is_fixed_size_binary(array.type) and array.type.byte_width == width:
        return pa.Array.from_buffers(target, len(array), array.buffers(), array.null_count, array.offset)
    numbers = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False).astype(np.int64)
    words: npt.NDArray[Any] = np.empty((len(numbers), width // 8), np.int64)
    words[:, 0] = numbers
    words[:, 1:] = (numbers >> 63)[:, None]  # sign extension
    bitmap = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(target, len(array), [bitmap, pa.py_buffer(words)])
