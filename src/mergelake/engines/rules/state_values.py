"""Aggregate states of single values: what `-State` of one row is, byte for byte as ClickHouse writes it.

Merged by `states.StateRule`, the states of the rows of a group are the state of the group. Known are the functions
whose states are merged here (`states.state_rule`), over numbers, dates, times, texts and Nullable of these.

Source: ClickHouse, `src/AggregateFunctions/` (`add` and `serialize` of each).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import InternalError
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.engines.rules.states import without_if
from mergelake.format.serializations import ragged
from mergelake.format.serializations.ragged import VarBinaryColumn
from mergelake.format.serializations.state_programs import plain_arguments, state_program

_WHOLE = (t.Int, t.Date, t.Date32, t.DateTime, t.DateTime64, t.UUID, t.IPv4, t.IPv6, t.Float, t.Decimal)
_EXTREMES = ("min", "max", "any", "anyLast")
_BITS = ("groupBitAnd", "groupBitOr", "groupBitXor")
_CONDITIONS = ("UInt8", "Bool")
FUNCTIONS = ("count", "sum", "sumWithOverflow", "avg", *_EXTREMES, *_BITS)
"""Functions whose states are made here."""


def makes_states(data_type: t.AggregateFunction) -> bool:
    """Whether states of this type are made here."""
    name, arguments = without_if(data_type.function), plain_arguments(data_type)
    if name != data_type.function:
        if not arguments or not isinstance(arguments[-1], t.Bool | t.Int) or str(arguments[-1]) not in _CONDITIONS:
            return False
        arguments = arguments[:-1]
        if name == "count" and arguments:
            return False
    if name not in FUNCTIONS or len(arguments) > 1 or data_type.version:
        return False
    if name == "count":
        return True
    if not arguments:
        return False
    kind = arguments[0].inner if arguments and isinstance(arguments[0], t.Nullable) else arguments[0]
    if name in _EXTREMES:
        return isinstance(kind, (*_WHOLE, t.String))
    if name in _BITS:
        return isinstance(kind, t.Int)
    return isinstance(kind, (t.Int, t.Float, t.Decimal) if name != "sumWithOverflow" else (t.Int, t.Float))


def states_of(data_type: t.AggregateFunction, values: Sequence[pa.Array], rows: int) -> pa.Array:
    """The state of each of `rows` rows as a binary array; `values` are those of the arguments, in storage form.

    The type is one of those that `makes_states`.
    """
    name = without_if(data_type.function)
    if name == data_type.function:
        return _states(data_type, values[0] if values else None, rows)
    arguments = plain_arguments(data_type)[:-1]
    base = t.AggregateFunction(name, arguments)
    chosen = _raw(values[-1], t.Int(8, signed=False))[:, 0] != 0
    program = state_program(data_type)
    if program is None:
        raise InternalError(f"States of {data_type} are not known")
    kept = [array.filter(pa.array(chosen)) for array in values[:-1]]
    states = _states(base, kept[0] if kept else None, int(chosen.sum()))
    places = np.where(chosen, np.cumsum(chosen) - 1, len(states))
    return pa.concat_arrays([states, pa.array([program.empty], pa.binary())]).take(pa.array(places))


def _states(data_type: t.AggregateFunction, values: pa.Array | None, rows: int) -> pa.Array:
    name, arguments = data_type.function, plain_arguments(data_type)
    if values is not None and pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if name == "count":
        counted = np.ones(rows, np.int64) if values is None else np.asarray(values.is_valid()).astype(np.int64)
        return _array(ragged.varuints(counted))
    if values is None or not makes_states(data_type):
        raise InternalError(f"States of {data_type} are not made here")
    (kind,) = arguments
    if not isinstance(kind, t.Nullable):
        return _array(_bodies(name, kind, values))
    present = np.asarray(values.is_valid())
    bodies = _bodies(name, kind.inner, values.filter(pa.array(present)))
    places = np.where(present, np.cumsum(present) - 1, -1)
    flags = ragged.fixed(present.astype(np.uint8).reshape(-1, 1))
    return _array(ragged.join([flags, ragged.pick(bodies, places)]))


def _bodies(name: str, kind: t.DataType, values: pa.Array) -> VarBinaryColumn:
    """States of values without NULL."""
    if name in _EXTREMES:
        if isinstance(kind, t.String):
            return _texts(values)
        raw = _raw(values, kind)
        return ragged.fixed(np.concatenate([np.ones((len(raw), 1), np.uint8), raw], axis=1))
    if name in _BITS or name == "sumWithOverflow":
        return ragged.fixed(_raw(values, kind))
    sums = ragged.fixed(_widened(values, kind))
    return sums if name == "sum" else ragged.join([sums, ragged.varuints(np.ones(len(values), np.int64))])


def _texts(values: pa.Array) -> VarBinaryColumn:
    """A length, i32, then the bytes and a zero, which the length counts."""
    offsets = ragged.arrow_offsets(values)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    texts = VarBinaryColumn(data[offsets[0] : offsets[-1]], (offsets - offsets[0]).astype(np.int64))
    lengths = (texts.lengths() + 1).astype("<i4").view(np.uint8).reshape(-1, 4)
    return ragged.join([ragged.fixed(lengths), texts, ragged.repeat(b"\0", len(texts))])


def _raw(values: pa.Array, kind: t.DataType) -> NDArray[np.uint8]:
    """The bytes of values of fixed width, as (rows, width)."""
    if values.type != storage_type(kind):
        values = pc.cast(values, storage_type(kind))
    width = values.type.bit_width // 8
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    return data[values.offset * width : (values.offset + len(values)) * width].reshape(len(values), width)


def _widened(values: pa.Array, kind: t.DataType) -> NDArray[np.uint8]:
    """Values as a sum holds them: 64 bits at least, decimals 128 at least, floats as Float64."""
    raw = _raw(values, kind)
    if isinstance(kind, t.Float):
        numbers = np.ascontiguousarray(raw).view("<f4" if kind.bits == 32 else "<f8").reshape(-1)
        # A sum begins at 0.0, so that it is never -0.0.
        return (numbers.astype("<f8") + 0.0).view(np.uint8).reshape(-1, 8)
    width = raw.shape[1]
    wanted = 8
    signed = True
    if isinstance(kind, t.Decimal):
        wanted = 32 if kind.bits == 256 else 16
    elif isinstance(kind, t.Int):
        signed = kind.signed
    if width >= wanted:
        return raw
    fill = np.where(raw[:, -1:] >= 128, 255, 0).astype(np.uint8) if signed else np.zeros((len(raw), 1), np.uint8)
    return np.concatenate([raw, np.repeat(fill, wanted - width, axis=1)], axis=1)


def _array(cells: VarBinaryColumn) -> pa.Array:
    offsets = pa.py_buffer(cells.offsets.astype(np.int32))
    return pa.Array.from_buffers(
        pa.binary(), len(cells), [None, offsets, pa.py_buffer(np.ascontiguousarray(cells.data))]
    )
