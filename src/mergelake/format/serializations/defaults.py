"""A type's default value, as whole columns: what a column reads as in a part that lacks it.

Zero, the empty string, the empty array, NULL for Nullable; for an Enum its smallest value, for Date32 1900-01-01; but
1970-01-01 where a row of a text format leaves a Date32 out (`LEFT_OUT`).

Source: ClickHouse, `IDataType::insertDefaultInto`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.type_binary import encode_type
from mergelake.format.serializations.ragged import arrow_offsets
from mergelake.format.serializations.state_programs import state_program
from mergelake.format.serializations.states import unknown_state
from mergelake.format.serializations.values import encode_values

_DATE32_FIRST = -25567
"""The default of Date32, 1900-01-01, in days since 1970-01-01."""
LEFT_OUT = 0
"""The `date32` of a value that a row of a text format leaves out: ClickHouse's readers put 0 there."""


def default_elements(data_type: t.DataType, like: pa.Array) -> pa.Array:
    """Arrays (or maps) of defaults, as long as those of `like`: for a Nested column of which a part has a sibling."""
    assert isinstance(data_type, (t.Array, t.Map))
    if isinstance(data_type, t.Map):
        inner: t.DataType = t.Tuple((data_type.key, data_type.value), ("keys", "values"))
    else:
        inner = data_type.inner
    edges = arrow_offsets(like)
    values = default_array(inner, int(edges[-1] - edges[0]))
    offsets = pa.array((edges - edges[0]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, type=storage_type(data_type))


def default_array(data_type: t.DataType, rows: int, date32: int = _DATE32_FIRST) -> pa.Array:
    """`rows` defaults of `data_type`, in storage form."""
    kind = storage_type(data_type)
    match data_type:
        case t.SimpleAggregateFunction(_, inner):
            return default_array(inner, rows, date32)
        case t.Nullable() | t.Nothing() | t.Dynamic():
            return pa.nulls(rows, kind)
        case t.Variant():
            return pa.StructArray.from_arrays([pa.nulls(rows, f.type) for f in kind], fields=list(kind))
        case t.Json(typed):
            return _no_paths(typed, rows)
        case t.LowCardinality(inner):
            if isinstance(inner, t.Nullable):
                return pa.nulls(rows, kind)
            return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), default_array(inner, 1, date32))
        case t.String():
            offsets = pa.py_buffer(np.zeros(rows + 1, np.int32))
            return pa.BinaryArray.from_buffers(kind, rows, [None, offsets, pa.py_buffer(b"")])
        case t.AggregateFunction():
            program = state_program(data_type)
            if program is None:
                raise unknown_state(data_type)
            return pa.array([program.empty], kind).take(pa.array(np.zeros(rows, np.int32)))
        case t.Enum(_, items):
            return pa.array(np.full(rows, items[0][1], kind.to_pandas_dtype()), kind)
        case t.Date32():
            return pa.array(np.full(rows, date32, np.int32))
        case t.Array(inner):
            empty = pa.array(np.zeros(rows + 1, np.int32))
            return pa.ListArray.from_arrays(empty, default_array(inner, 0), type=kind)
        case t.Map(key, value):
            return default_array(t.Array(t.Tuple((key, value), ("keys", "values"))), rows)
        case t.Tuple(elements):
            if not elements:
                return pa.StructArray.from_buffers(kind, rows, [None], children=[])
            return pa.StructArray.from_arrays([default_array(e, rows, date32) for e in elements], fields=list(kind))
        case _:
            return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(bytes(rows * (kind.bit_width // 8)))])


def _no_paths(typed: tuple[tuple[str, t.DataType], ...], rows: int) -> pa.Array:
    """JSON objects with only those paths that the type names: every object has them, with their defaults."""
    entries = [
        {"path": name.encode(errors="surrogateescape"), "value": encode_type(kind) + _default_bytes(kind)}
        for name, kind in typed
    ]
    return pa.array([entries], storage_type(t.Json(typed))).take(pa.array(np.zeros(rows, np.int32)))


def _default_bytes(kind: t.DataType) -> bytes:
    return encode_values([default_array(kind, 1)], [kind])
