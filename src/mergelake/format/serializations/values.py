"""The single value binary form: how one value stands in `primary.idx`, `partition.dat` and `minmax_*.idx`.

Values of a row follow each other without padding or separators::

    fixed-width types      the same bytes as in a column
    String                 varuint length, bytes
    Nullable(T)            01 for NULL, or 00 and the value
    LowCardinality(T)      as T
    Array(T)               varuint count, elements
    Map(K, V)              as Array(Tuple(K, V))
    Tuple(…)               its elements

Encoding works on whole columns (`ragged.VarBinaryColumn`). Decoding of rows without arrays is a compiled walk that
notes where each value lies, after which whole columns are cut out; rows with arrays, which keys hardly ever have, are
read one value at a time.

Source: ClickHouse, `ISerialization::serializeBinary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.jit.intrinsics import kernel
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type, tuple_names
from mergelake.core.types.single_value import read_value, write_value
from mergelake.format.kernels.kernels_bits import VARINT_BITS, VARINT_MORE
from mergelake.format.serializations import ragged
from mergelake.format.serializations.ragged import VarBinaryColumn

_STRING, _NULL_FLAG = 0, -1
"""Codes of the walk's program; positive codes are widths. After a flag comes the code of the value that may be NULL."""
_SHIFT_MAX = 28
"""Where the last byte of the varint length of a string goes, which has 31 bits."""


def encode_values(arrays: Sequence[pa.Array], types: Sequence[t.DataType]) -> bytes:
    """The values of each row behind each other, row by row. Arrays are in storage form and of one length."""
    return value_cells(arrays, types).tobytes()


def value_cells(arrays: Sequence[pa.Array], types: Sequence[t.DataType]) -> VarBinaryColumn:
    """The values of each row behind each other, as `encode_values`, in a row of bytes for each."""
    return ragged.join([encode_cells(array, kind) for array, kind in zip(arrays, types, strict=True)])


def encode_cells(array: pa.Array, data_type: t.DataType) -> VarBinaryColumn:
    """The single value binary form of each value of one column (storage form, LowCardinality also plain)."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    match data_type:
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return encode_cells(array, inner)
        case t.Nullable(inner):
            return _nullable_cells(array, inner)
        case t.Nothing():
            return ragged.fixed(np.empty((len(array), 0), np.uint8))
        case t.String():
            return ragged.with_length(binary_cells(array))
        case t.AggregateFunction():
            return binary_cells(array)
        case t.Variant() | t.Dynamic() | t.Json():
            return by_value(array, data_type)
        case t.Array(inner):
            return _list_cells(array, inner)
        case t.Map(key, value):
            return _list_cells(array, t.Tuple((key, value), ("keys", "values")))
        case t.Tuple(elements):
            return value_cells(array.flatten(), elements) if elements else ragged.repeat(b"", len(array))
        case _:
            return ragged.fixed(fixed_bytes(array))


def fixed_bytes(array: pa.Array) -> NDArray[np.uint8]:
    """The bytes of a fixed-width array as a (rows, width) matrix, without copying. NULLs hold anything."""
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros((len(array), width), np.uint8)
    flat = np.frombuffer(buffer, np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    return flat.reshape(len(array), width)


def binary_cells(array: pa.Array) -> VarBinaryColumn:
    """The raw bytes of each value of a string column, without copying. NULLs may hold anything."""
    _, offsets_buffer, data_buffer = array.buffers()
    if offsets_buffer is None or len(array) == 0:
        return ragged.repeat(b"", len(array))
    offsets = ragged.arrow_offsets(array)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    return VarBinaryColumn(data[offsets[0] : offsets[-1]], offsets - offsets[0])


def by_value(array: pa.Array, data_type: t.DataType) -> VarBinaryColumn:
    """The single value binary form of each value, made one by one: for types whose values differ in type."""
    # A NULL of a Nullable has no bytes; those of Variant and Dynamic have.
    nullable = not isinstance(data_type, (t.Variant, t.Dynamic))
    pieces = [b"" if v is None and nullable else write_value(v, data_type) for v in array.to_pylist()]
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    return VarBinaryColumn(np.frombuffer(b"".join(pieces), np.uint8), ragged.offsets_of(lengths))


def _nullable_cells(array: pa.Array, inner: t.DataType) -> VarBinaryColumn:
    if array.null_count == 0:
        return ragged.join([ragged.repeat(b"\0", len(array)), encode_cells(array, inner)])
    null = pc.is_null(array).to_numpy(zero_copy_only=False)
    flags = ragged.fixed(null.astype(np.uint8).reshape(-1, 1))
    if isinstance(inner, t.Nothing):
        return flags
    return ragged.join([flags, ragged.take(encode_cells(array, inner), ~null)])


def _list_cells(array: pa.Array, inner: t.DataType) -> VarBinaryColumn:
    elements, offsets = ragged.list_elements(array)
    return ragged.join([ragged.varuints(np.diff(offsets)), ragged.regroup(encode_cells(elements, inner), offsets)])


def decode_values(data: bytes, types: Sequence[t.DataType], rows: int) -> tuple[pa.Array, ...]:
    """The columns of `rows` rows; LowCardinality comes back as its inner type, the rest in storage form.

    Raises `CorruptDataError` when `data` does not hold exactly that many rows.
    """
    columns, end = decode_prefix(data, types, rows)
    if end != len(data):
        raise CorruptDataError(
            f"Key values of {rows} rows are followed by something else",
            offset=end,
            expected=f"{end} bytes",
            found=f"{len(data)} bytes",
        )
    return columns


def decode_prefix(data: bytes, types: Sequence[t.DataType], rows: int) -> tuple[tuple[pa.Array, ...], int]:
    """`decode_values` for data that may go on after the rows; returns the columns and where they end."""
    plain = [plain_type(kind) for kind in types]
    if any(_has_list(kind) for kind in plain):
        return _decode_by_value(data, plain, rows)
    program: list[int] = []
    for kind in plain:
        _compile(kind, program)
    source = np.frombuffer(data, np.uint8)
    starts = np.zeros((len(program), rows), np.int64)
    lengths = np.zeros((len(program), rows), np.int64)
    end = _walk(source, np.array(program, np.int64), rows, starts, lengths)
    if end < 0:
        raise CorruptDataError("Key values end too early", offset=len(data), expected=f"{rows} rows", found="the end")
    spans = iter(zip(program, starts, lengths, strict=True))
    return tuple(_cut(source, kind, spans) for kind in plain), int(end)


def plain_type(data_type: t.DataType) -> t.DataType:
    """The type whose single value form this is: without LowCardinality and SimpleAggregateFunction."""
    match data_type:
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return plain_type(inner)
        case t.Nullable(inner):
            return t.Nullable(plain_type(inner))
        case t.Array(inner):
            return t.Array(plain_type(inner))
        case t.Map(key, value):
            return t.Array(t.Tuple((plain_type(key), plain_type(value)), ("keys", "values")))
        case t.Tuple(elements, names):
            return t.Tuple(tuple(plain_type(e) for e in elements), names)
        case _:
            return data_type


def _has_list(data_type: t.DataType) -> bool:
    """Whether values of the type have parts whose number is not known: `_walk` cannot step over them."""
    match data_type:
        case t.Array() | t.Variant() | t.Dynamic() | t.Json():
            return True
        case t.Tuple(elements):
            return any(map(_has_list, elements))
        case t.Nullable(inner):
            return isinstance(inner, (t.Tuple, t.Json))
        case _:
            return False


def _compile(data_type: t.DataType, program: list[int]) -> None:
    """Append the codes of one value to the program of `_walk`."""
    match data_type:
        case t.Nullable(inner):
            program.append(_NULL_FLAG)
            if not isinstance(inner, t.Nothing):
                _compile(inner, program)
        case t.String():
            program.append(_STRING)
        case t.Tuple(elements):
            for element in elements:
                _compile(element, program)
        case _:
            program.append(storage_type(data_type).bit_width // 8)


@kernel
def _walk(source: Any, program: Any, rows: int, starts: Any, lengths: Any) -> int:
    """Note where every value lies; returns the end, or -1 when the source ends first."""
    at = 0
    size = len(source)
    for row in range(rows):
        skip = False
        for step in range(len(program)):
            code = program[step]
            if skip:
                skip = False
                starts[step, row] = at
                continue
            if code == _NULL_FLAG:
                if at >= size:
                    return -1
                starts[step, row] = at
                lengths[step, row] = 1
                skip = source[at] != 0
                at += 1
                continue
            length = code
            if code == _STRING:
                length = 0
                shift = 0
                while True:
                    if at >= size or shift > _SHIFT_MAX:
                        return -1
                    byte = np.int64(source[at])
                    at += 1
                    length |= (byte & VARINT_BITS) << shift
                    shift += 7
                    if byte < VARINT_MORE:
                        break
            if length > size - at:
                return -1
            starts[step, row] = at
            lengths[step, row] = length
            at += length
    return at


def _cut(source: NDArray[np.uint8], data_type: t.DataType, spans) -> pa.Array:  # type: ignore[no-untyped-def]
    """The column of `data_type`; takes a (code, starts, lengths) from `spans` for each code of the type."""
    kind = storage_type(data_type)
    match data_type:
        case t.Tuple(elements):
            children = [_cut(source, element, spans) for element in elements]
            names = [pa.field(n, c.type, nullable=t.is_nullable(e)) for n, c, e in zip(
                tuple_names(data_type), children, elements, strict=True)]  # fmt: skip
            return pa.StructArray.from_arrays(children, fields=names)
        case t.Nullable(inner):
            _, flags, _ = next(spans)
            null = source[flags] != 0
            if isinstance(inner, t.Nothing):
                return pa.nulls(len(null))
            return pc.if_else(pa.array(null), pa.scalar(None, kind), _cut(source, inner, spans))
        case t.String():
            _, starts, lengths = next(spans)
            offsets = ragged.offsets_of(lengths)
            out = np.empty(int(offsets[-1]), np.uint8)
            ragged.gather(source, starts, offsets, out)
            buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
            return pa.BinaryArray.from_buffers(kind, len(lengths), buffers)
        case _:
            width, starts, lengths = next(spans)
            offsets = np.arange(len(starts) + 1, dtype=np.int64) * width
            out = np.zeros(len(starts) * width, np.uint8)
            if lengths.all():
                ragged.gather(source, starts, offsets, out)
            else:  # some are NULL: their places stay zero
                whole = lengths > 0
                out.reshape(-1, width)[whole] = source[starts[whole, None] + np.arange(width)]
            return pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(out)])


def _decode_by_value(data: bytes, types: Sequence[t.DataType], rows: int) -> tuple[tuple[pa.Array, ...], int]:
    """`decode_prefix` value by value."""
    columns: list[list[object]] = [[] for _ in types]
    at = 0
    for _ in range(rows):
        for column, kind in zip(columns, types, strict=True):
            value, at = read_value(data, at, kind)
            column.append(value)
    return tuple(pa.array(c, storage_type(k)) for c, k in zip(columns, types, strict=True)), at
