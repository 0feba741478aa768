"""Columns during evaluation: plain numpy or Arrow data, with NULLs and dictionaries kept apart.

A kernel sees only `Data`, whose shape depends on the type without its wrappers:

=============================================  ==================================================
type                                           data
=============================================  ==================================================
ints to 64 bits, floats, Bool, Date…, Enum,    numpy array of the stored numbers
IPv4, Decimal to 18 digits, Interval
Int128/256, wide Decimal                       numpy object array of Python ints
UUID, IPv6                                     numpy structured array (`hi`, `lo`), compared in that order
String, FixedString, Array, Map, Tuple         Arrow array in storage form
=============================================  ==================================================

A constant is data of length 1, so numpy's broadcasting applies it. A LowCardinality column is the data of its
dictionary plus `codes`: functions of it are computed once per dictionary value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import InternalError
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type

Data = Any
"""A numpy or Arrow array, see the table above."""

UUID_DATA = np.dtype([("lo", "<u8"), ("hi", "<u8")])  # the second stored half is compared first, as in ClickHouse
_IPV6 = np.dtype([("hi", ">u8"), ("lo", ">u8")])


@dataclass(slots=True)
class Vec:
    """A column, or a constant if `data` has length 1 and there are no codes."""

    data: Data
    valid: npt.NDArray[np.bool_] | None = None
    """False where NULL, one flag for each element of `data`; None if nothing is NULL."""
    codes: npt.NDArray[np.int32] | None = None
    """For each row its position in `data`; None if `data` is the column itself."""

    @property
    def rows(self) -> int:
        """Number of rows, 1 for a constant."""
        return len(self.data) if self.codes is None else len(self.codes)

    def decoded(self) -> Vec:
        """The same column without codes."""
        if self.codes is None:
            return self
        return Vec(take(self.data, self.codes), None if self.valid is None else self.valid[self.codes])

    def broadcast(self, rows: int) -> Vec:
        """The same column with exactly `rows` rows: a constant is repeated."""
        column = self.decoded()
        if column.rows == rows:
            return column
        at = np.zeros(rows, np.int32)
        return Vec(take(column.data, at), None if column.valid is None else column.valid[at])

    def filter(self, keep: npt.NDArray[np.int64]) -> Vec:
        """The rows at positions `keep`; a dictionary stays whole. A constant has only position 0."""
        if self.codes is not None:
            return Vec(self.data, self.valid, self.codes[keep])
        return Vec(take(self.data, keep), None if self.valid is None else self.valid[keep])


def take(data: Data, at: npt.NDArray[Any]) -> Data:
    """Elements of numpy or Arrow data by position."""
    return data[at] if isinstance(data, np.ndarray) else data.take(pa.array(at))


def plain_type(data_type: t.DataType) -> t.DataType:
    """The type that decides the shape of the data: without LowCardinality, Nullable and other wrappers."""
    return t.inner_type(data_type)


def from_arrow(array: pa.Array | pa.ChunkedArray, data_type: t.DataType) -> Vec:
    """A storage-form column as a Vec; numbers are not copied."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0)
    if isinstance(array, pa.DictionaryArray):
        return _from_dictionary(array, data_type)
    valid = None
    if array.null_count:
        valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return Vec(data_from_arrow(array, plain_type(data_type)), valid)


def _from_dictionary(array: pa.DictionaryArray, data_type: t.DataType) -> Vec:
    dictionary, indices = array.dictionary, array.indices
    if indices.null_count:
        # Rows that are NULL by index become rows that point at a NULL in the dictionary.
        dictionary = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
        indices = indices.fill_null(len(dictionary) - 1)
    inner = from_arrow(dictionary, data_type)
    codes = indices.to_numpy(zero_copy_only=False)
    if len(codes) and not (int(codes.min()) >= 0 and int(codes.max()) < len(dictionary)):
        raise InternalError("A dictionary index points past its dictionary")
    if len(dictionary) > len(codes):
        return Vec(inner.data, inner.valid, codes).decoded()
    return Vec(inner.data, inner.valid, codes)


def data_from_arrow(array: pa.Array, plain: t.DataType) -> Data:
    """The data of a storage-form array; values under NULLs are left unchanged."""
    match plain:
        case t.UUID() | t.IPv6():
            return _fixed(array, 16).view(UUID_DATA if isinstance(plain, t.UUID) else _IPV6).ravel()
        case t.String() | t.FixedString() | t.Array() | t.Map() | t.Tuple() | t.Nothing():
            return array
        case t.Variant() | t.Dynamic() | t.Json() | t.AggregateFunction():  # as they are: no function takes them
            return array
        case t.Int(bits) if bits > 64:
            return _wide_ints(array, bits, plain.signed)
        case t.Decimal() if plain.bits > 64:
            return _wide_ints(array, plain.bits, signed=True)
    dtype = array.type.to_pandas_dtype()
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, count=array.offset + len(array))[array.offset :]


def to_arrow(vec: Vec, data_type: t.DataType, rows: int) -> pa.Array:
    """A Vec as an Arrow array of the storage form with `rows` rows."""
    target = storage_type(data_type)
    encoded = pa.types.is_dictionary(target)  # LowCardinality, also in a SimpleAggregateFunction
    if encoded and vec.codes is not None:
        values = data_to_arrow(vec.data, vec.valid, target.value_type)
        return _distinct(vec.codes, values)
    column = vec.broadcast(rows)
    if encoded:
        return data_to_arrow(column.data, column.valid, target.value_type).dictionary_encode().cast(target)
    return data_to_arrow(column.data, column.valid, target)


def _distinct(codes: npt.NDArray[np.int32], values: pa.Array) -> pa.DictionaryArray:
    """A dictionary array as ClickHouse demands: no value twice, though a function may make values equal, and no NULL.

    It would read a NULL of a dictionary as the default of the type, or refuse the dictionary.
    """
    encoded = values.dictionary_encode()
    rows = pa.array(codes, pa.int32())
    if len(encoded.dictionary) < len(values):
        return pa.DictionaryArray.from_arrays(encoded.indices.take(rows), encoded.dictionary)
    return pa.DictionaryArray.from_arrays(rows, values)


def data_to_arrow(data: Data, valid: npt.NDArray[np.bool_] | None, target: pa.DataType) -> pa.Array:
    """Data as an Arrow array of type `target`, NULL where `valid` is False."""
    if pa.types.is_null(target):
        return pa.nulls(len(data))
    if not isinstance(data, np.ndarray):
        array = data if data.type == target else data.cast(target)
        if valid is None or bool(valid.all()):
            return array
        return pc.if_else(pa.array(valid), array, pa.scalar(None, target))
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    if data.dtype == object:
        raw = _wide_bytes(data, target.byte_width)
    elif data.dtype.names:
        raw = np.ascontiguousarray(data)
    else:
        raw = np.ascontiguousarray(data, dtype=target.to_pandas_dtype())
    return pa.Array.from_buffers(target, len(data), [bitmap, pa.py_buffer(raw)])


def mask_array(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """A Boolean Arrow array as numpy, NULL as False."""
    if array.null_count:
        array = array.fill_null(False)
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)


def fixed_bytes(array: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of a fixed_size_binary array as a matrix (rows, width)."""
    return _fixed(array, width).reshape(-1, width)


def _fixed(array: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) * width, np.uint8)
    return np.frombuffer(buffer, np.uint8, count=len(array) * width, offset=array.offset * width)


def _wide_ints(array: pa.Array, bits: int, signed: bool) -> npt.NDArray[Any]:
    words = _fixed(array, bits // 8).view("<u8").reshape(len(array), bits // 64)
    total = words[:, -1].view("<i8").astype(object) if signed else words[:, -1].astype(object)
    for i in range(bits // 64 - 2, -1, -1):
        total = total * (1 << 64) + words[:, i].astype(object)
    return total


def _wide_bytes(data: npt.NDArray[Any], width: int) -> npt.NDArray[np.uint8]:
    words = np.empty((len(data), width // 8), "<u8")
    rest = data
    for i in range(width // 8):
        words[:, i] = (rest % (1 << 64)).astype(np.uint64)
        rest = rest // (1 << 64)
    return words.view(np.uint8)


def constant_vec(value: Any, data_type: t.DataType) -> Vec:
    """A constant given as a storage value: a number, bytes, None, a list (Array) or a tuple (Tuple)."""
    plain = plain_type(data_type)
    if value is None:
        if isinstance(plain, t.Nothing):
            return Vec(pa.nulls(1), np.zeros(1, np.bool_))
        return Vec(data_from_arrow(pa.nulls(1, storage_type(plain)), plain), np.zeros(1, np.bool_))
    is_wide = (isinstance(plain, t.Int) and plain.bits > 64) or (isinstance(plain, t.Decimal) and plain.bits > 64)
    if is_wide:
        data = np.empty(1, object)
        data[0] = value
        return Vec(data)
    return Vec(data_from_arrow(pa.array([arrow_value(value, plain)], storage_type(plain)), plain))


def arrow_value(value: Any, data_type: t.DataType) -> Any:
    """A storage value as pyarrow takes it: tuples become dicts, wide ints bytes."""
    plain = plain_type(data_type)
    if value is None:
        return None
    match plain:
        case t.Tuple(elements):
            names = plain.names or tuple(str(i + 1) for i in range(len(elements)))
            return {n: arrow_value(v, e) for n, v, e in zip(names, value, elements, strict=True)}
        case t.Array(inner):
            return arrow_values(value, inner)
        case t.Map(key, item):
            pair = t.Tuple((key, item), ("keys", "values"))
            return [arrow_value(v, pair) for v in value]
        case t.Int(bits) if bits > 64:
            return int(value).to_bytes(bits // 8, "little", signed=plain.signed)
        case t.Decimal() if plain.bits > 64:
            return int(value).to_bytes(plain.bits // 8, "little", signed=True)
    return value


def arrow_values(values: list[Any], data_type: t.DataType) -> list[Any]:
    """`arrow_value` of each."""
    return values if _is_same_in_arrow(data_type) else [arrow_value(value, data_type) for value in values]


def _is_same_in_arrow(data_type: t.DataType) -> bool:
    """Whether storage values of the type are what pyarrow takes and gives."""
    plain = plain_type(data_type)
    wide = isinstance(plain, (t.Int, t.Decimal)) and plain.bits > 64
    return not (wide or isinstance(plain, (t.Tuple, t.Array, t.Map)))


def storage_value(vec: Vec, data_type: t.DataType) -> Any:
    """The storage value of a constant Vec: inverse of `constant_vec`."""
    return python_value(to_arrow(vec, data_type, 1)[0], data_type)


def python_value(scalar: pa.Scalar, data_type: t.DataType) -> Any:
    """The storage value in one Arrow scalar."""
    plain = plain_type(data_type)
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return python_value(scalar.value, data_type)
    match plain:
        case t.Tuple(elements):
            return tuple(python_value(scalar[i], e) for i, e in enumerate(elements))
        case t.Array(inner):
            if scalar.values is None:
                return []
            if _is_same_in_arrow(inner):
                return scalar.as_py()
            return [python_value(v, inner) for v in scalar.values]
        case t.Map(key, item):
            pair = t.Tuple((key, item), ("keys", "values"))
            return [python_value(v, pair) for v in scalar.values] if scalar.values is not None else []
        case t.Int(bits) if bits > 64:
            return int.from_bytes(scalar.as_py(), "little", signed=plain.signed)
        case t.Decimal() if plain.bits > 64:
            return int.from_bytes(scalar.as_py(), "little", signed=True)
    return scalar.as_py()


def default_value(kind: t.DataType, date32: int = -25567) -> object:
    """The default storage value of a type: NULL if it is Nullable, else zero, empty or the first element of an enum.

    `date32` is that of a Date32, in days: of 1900 as a value, of 1970 where ClickHouse extends a column.
    """
    if t.is_nullable(kind):
        return None
    plain = t.inner_type(kind)
    match plain:
        case t.String():
            return b""
        case t.FixedString(length):
            return b"\0" * length
        case t.UUID() | t.IPv6():
            return b"\0" * 16
        case t.Enum(_, items):
            return items[0][1]
        case t.Float():
            return 0.0
        case t.Array() | t.Map():
            return []
        case t.Tuple(elements):
            return tuple(default_value(element, date32) for element in elements)
        case t.Date32():
            return date32
    return 0
