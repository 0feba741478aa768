"""The binary form of a single value, in keys and, after the bytes of its type, in Dynamic values.

Values of fixed width are as in a column, strings have their length before them, arrays and maps their count, Nullable
and Variant a byte. This module converts one value at a time, for rare or nested types; `format.serializations.values`
converts whole columns of keys.

Source: ClickHouse, `ISerialization::serializeBinary`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type, tuple_names
from mergelake.core.types.type_binary import NOTHING, decode_type, encode_type
from mergelake.core.types.varuint import read_varuint, write_varuint

_NO_VARIANT = 255
"""Discriminator of NULL in a Variant."""


def read_value(data: bytes, at: int, data_type: t.DataType) -> tuple[Any, int]:
    """(Python value of the storage form at `at`: None, number, bytes, list or dict; offset of its end)."""
    match data_type:
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return read_value(data, at, inner)
        case t.Nullable(inner):
            _need(data, at, 1)
            return (None, at + 1) if data[at] or isinstance(inner, t.Nothing) else read_value(data, at + 1, inner)
        case t.String():
            length, at = read_varuint(data, at)
            _need(data, at, length)
            return data[at : at + length], at + length
        case t.Array(inner):
            return _read_list(data, at, inner)
        case t.Map(key, value):
            return _read_list(data, at, t.Tuple((key, value), ("keys", "values")))
        case t.Tuple(elements):
            named: dict[str, Any] = {}
            for name, element in zip(tuple_names(data_type), elements, strict=True):
                named[name], at = read_value(data, at, element)
            return named, at
        case t.Nothing():
            return None, at
        case t.Variant(alternatives, names):
            _need(data, at, 1)
            which = data[at]
            variant: dict[str, Any] = dict.fromkeys(names)
            if which == _NO_VARIANT:
                return variant, at + 1
            if which >= len(alternatives):
                raise CorruptDataError("A Variant names a type that it has not", offset=at, found=str(which))
            variant[names[which]], at = read_value(data, at + 1, alternatives[which])
            return variant, at
        case t.Dynamic():
            kind, end = decode_type(data, at)
            if isinstance(kind, t.Nothing):
                return None, end
            _, end = read_value(data, end, kind)
            return data[at:end], end
        case t.Json():
            return _read_json(data, at, data_type)
        case t.AggregateFunction() | t.Unknown():
            raise error("NOT_IMPLEMENTED", f"A single value of type {data_type} has no end that is known here")
        case _:
            kind = storage_type(data_type)
            width = kind.bit_width // 8
            _need(data, at, width)
            if isinstance(data_type, t.Int) and width <= 8:
                return int.from_bytes(data[at : at + width], "little", signed=data_type.signed), at + width
            array = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data[at : at + width])])
            return array[0].as_py(), at + width


def _read_list(data: bytes, at: int, inner: t.DataType) -> tuple[list[Any], int]:
    count, at = read_varuint(data, at)
    # Every element takes at least a byte, so a wrong count is refused before a list is built.
    _need(data, at, 0 if isinstance(inner, t.Tuple) and not inner.elements else count)
    items: list[Any] = []
    for _ in range(count):
        value, at = read_value(data, at, inner)
        items.append(value)
    return items, at


def _read_json(data: bytes, at: int, kind: t.Json) -> tuple[list[dict[str, bytes]], int]:
    typed = dict(kind.typed)
    count, at = read_varuint(data, at)
    _need(data, at, count)
    entries: dict[bytes, bytes] = {}
    for _ in range(count):
        path, at = read_value(data, at, t.STRING)
        inner = typed.get(path.decode(errors="surrogateescape"))
        start = at
        if inner is None:
            value, at = read_value(data, at, t.Dynamic())
            if value is None:
                continue
            entries[path] = value
        else:
            _, at = read_value(data, at, inner)
            entries[path] = encode_type(inner) + data[start:at]
    return [{"path": path, "value": entries[path]} for path in sorted(entries)], at


def write_value(value: Any, data_type: t.DataType) -> bytes:
    """Inverse of `read_value`."""
    match data_type:
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return write_value(value, inner)
        case t.Nullable(inner):
            return b"\1" if value is None else b"\0" + write_value(value, inner)
        case t.String():
            return write_varuint(len(value)) + bytes(value)
        case t.Array(inner):
            return write_varuint(len(value)) + b"".join(write_value(each, inner) for each in value)
        case t.Map(key, value_type):
            return write_value(value, t.Array(t.Tuple((key, value_type), ("keys", "values"))))
        case t.Tuple(elements):
            names = tuple_names(data_type)
            return b"".join(write_value(value[name], each) for name, each in zip(names, elements, strict=True))
        case t.Nothing():
            return b""
        case t.Variant(alternatives, names):
            for which, name in enumerate(names):
                if value[name] is not None:
                    return bytes([which]) + write_value(value[name], alternatives[which])
            return bytes([_NO_VARIANT])
        case t.Dynamic():
            return NOTHING if value is None else bytes(value)
        case t.Json(typed):
            parts = [write_varuint(len(value))]
            fixed = {path.encode(errors="surrogateescape"): len(encode_type(kind)) for path, kind in typed}
            for entry in value:
                path, cell = entry["path"], entry["value"]
                parts += [write_varuint(len(path)), path, cell[fixed.get(path, 0) :]]
            return b"".join(parts)
        case t.AggregateFunction() | t.Unknown():
            raise error("NOT_IMPLEMENTED", f"A single value of type {data_type} is not written here")
        case _:
            kind = storage_type(data_type)
            return bytes(pa.array([value], kind).buffers()[1].to_pybytes()[: kind.bit_width // 8])


def _need(data: bytes, at: int, length: int) -> None:
    if at + length > len(data):
        raise CorruptDataError(
            "A value ends too early", offset=at, expected=f"{length} bytes", found=f"{len(data) - at} bytes"
        )
