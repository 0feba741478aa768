"""Formatting of storage values as ClickHouse text: that of `toString`, and of TSV without escapes.

`to_text` formats whole columns; types without a vectorised implementation are formatted once per distinct value.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.text import quote_string
from mergelake.core.convert.timezones import zone
from mergelake.core.types import types as t
from mergelake.core.types.arrow import tuple_names


def literal_text(value: Any, data_type: t.DataType) -> str:
    """One storage value (number, bytes, list, tuple or dict for Tuple, None) as ClickHouse prints it."""
    if value is None:
        return "\\N"
    if isinstance(data_type, t.Bool):
        return "true" if value else "false"
    plain = t.inner_type(data_type)
    write: Callable[[Any, Any], str] = _BY_KIND.get(type(plain), _plain)
    return write(value, plain)


def quoted_text(value: Any, data_type: t.DataType) -> str:
    """One storage value as a literal in a statement: strings, dates and similar types quoted, NULL by its name."""
    if value is None:
        return "NULL"
    text = literal_text(value, data_type)
    bare = (t.Int, t.Float, t.Bool, t.Decimal, t.Array, t.Tuple, t.Map, t.Interval)
    return text if isinstance(t.inner_type(data_type), bare) else quote_string(text)


def to_text(array: pa.Array, data_type: t.DataType) -> pa.Array:
    """A storage-form array as a binary array of texts; NULL stays NULL."""
    plain = t.inner_type(data_type)
    if isinstance(array, pa.DictionaryArray):
        return to_text(array.dictionary, data_type).take(array.indices)
    match plain:
        case t.String():
            return array
        case t.FixedString():
            return array.cast(pa.binary())
        case t.Int(bits) if bits <= 64:
            return array.cast(pa.string()).cast(pa.binary())
        case t.Date() | t.Date32():
            days = _numbers(array).astype("datetime64[D]")
            return _with_nulls(fixed_text(np.datetime_as_string(days), 10), array)
        case t.DateTime(name):
            return _with_nulls(_datetime_text(zone(name).to_local(_numbers(array))), array)
        case t.DateTime64(precision, name):
            return _with_nulls(_datetime64_text(_numbers(array), precision, name), array)
        case t.UUID():
            return _with_nulls(_uuid_text(array), array)
    return by_distinct(array, lambda value: literal_text(value, plain).encode(errors="surrogateescape"), pa.binary())


def by_distinct(array: pa.Array, convert: Callable[[Any], Any], target: pa.DataType) -> pa.Array:
    """`convert` applied to the Python form of each distinct value; NULL stays NULL."""
    if pa.types.is_nested(array.type):
        return pa.array([None if v is None else convert(v) for v in array.to_pylist()], target)
    if pa.types.is_floating(array.type):
        # Compared by bits: -0.0 and 0.0 have distinct texts, and NaN is not equal to itself.
        bits = pa.int32() if array.type == pa.float32() else pa.int64()
        encoded = array.view(bits).dictionary_encode()
        values = encoded.dictionary.view(array.type).to_pylist()
    else:
        encoded = array.dictionary_encode()
        values = encoded.dictionary.to_pylist()
    return pa.array([None if v is None else convert(v) for v in values], target).take(encoded.indices)


def fixed_text(texts: npt.NDArray[Any], width: int) -> pa.Array:
    """A numpy array of ASCII `str`, all of `width` characters, as a binary array."""
    raw = np.char.encode(texts, "ascii") if texts.dtype.kind == "U" else texts
    return binary_of_width(np.ascontiguousarray(raw.astype(f"S{width}")).view(np.uint8), len(texts), width)


def binary_of_width(raw: npt.NDArray[np.uint8], rows: int, width: int) -> pa.Array:
    """`rows` consecutive values of `width` bytes as a binary array."""
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def float_text(value: float, bits: int = 64) -> str:
    """A float as ClickHouse prints it: shortest digits, exponents from `1e21` and up to `1e-7`."""
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    shortest = str(np.float32(value)) if bits == 32 else repr(value)
    sign = "-" if shortest.startswith("-") else ""
    mantissa, _, exponent = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0"
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        return sign + (digits.ljust(point, "0") if len(digits) <= point else f"{digits[:point]}.{digits[point:]}")
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{point - 1}"


def decimal_text(value: int, scale: int) -> str:
    """A scaled integer with its decimal point, without trailing zeros, as in ClickHouse."""
    sign, digits = ("-" if value < 0 else ""), str(abs(value)).rjust(scale + 1, "0")
    if scale == 0:
        return sign + digits
    fraction = digits[-scale:].rstrip("0")
    return sign + digits[:-scale] + (f".{fraction}" if fraction else "")


def time_text(ticks: int, precision: int) -> str:
    """Ticks of 10^-precision seconds as `hh:mm:ss.…`."""
    seconds, fraction = divmod(abs(ticks), 10**precision)
    tail = f".{fraction:0{precision}d}" if precision else ""
    return f"{'-' if ticks < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}"


def uuid_text(stored: bytes) -> str:
    """The canonical text of a UUID's stored bytes."""
    return str(uuid.UUID(bytes=stored[7::-1] + stored[:7:-1]))


def ipv6_text(stored: bytes) -> str:
    """The text of an IPv6 address; a mapped IPv4 address is printed as IPv4."""
    if stored[:12] == b"\x00" * 10 + b"\xff\xff":
        return f"::ffff:{ipaddress.IPv4Address(stored[12:])}"
    return str(ipaddress.IPv6Address(stored))


def _plain(value: Any, data_type: t.DataType) -> str:
    return str(value)


def _wide(value: Any, data_type: t.Int) -> str:
    return str(int.from_bytes(value, "little", signed=data_type.signed) if isinstance(value, bytes) else value)


def _decimal(value: Any, data_type: t.Decimal) -> str:
    number = int.from_bytes(value, "little", signed=True) if isinstance(value, bytes) else value
    return decimal_text(number, data_type.scale)


def _bytes(value: bytes, data_type: t.DataType) -> str:
    return value.decode(errors="surrogateescape")


def _enum(value: int, data_type: t.Enum) -> str:
    return next((name for name, number in data_type.items if number == value), str(value))


def _through_array(value: Any, data_type: t.DataType) -> str:
    from mergelake.core.types.arrow import storage_type

    text: bytes = to_text(pa.array([value], storage_type(data_type)), data_type)[0].as_py()
    return text.decode()


def _list(value: Any, data_type: t.Array) -> str:
    return f"[{','.join(quoted_text(v, data_type.inner) for v in value)}]"


def _map(value: Any, data_type: t.Map) -> str:
    pairs = [tuple(v.values()) if isinstance(v, dict) else v for v in value]
    return "{" + ",".join(f"{quoted_text(k, data_type.key)}:{quoted_text(v, data_type.value)}" for k, v in pairs) + "}"


def _tuple(value: Any, data_type: t.Tuple) -> str:
    values = [value[name] for name in tuple_names(data_type)] if isinstance(value, dict) else value
    return f"({','.join(quoted_text(v, e) for v, e in zip(values, data_type.elements, strict=True))})"


_BY_KIND: dict[type, Callable[[Any, Any], str]] = {
    t.Int: _wide,
    t.Float: lambda value, kind: float_text(value, kind.bits),
    t.BFloat16: lambda value, kind: float_text(float(np.uint32(int(value) << 16).view(np.float32)), 32),
    t.Time: lambda value, kind: time_text(int(value), 0),
    t.Time64: lambda value, kind: time_text(int(value), kind.precision),
    t.Bool: lambda value, kind: "true" if value else "false",
    t.String: _bytes,
    t.FixedString: _bytes,
    t.AggregateFunction: _bytes,
    t.Date: lambda value, kind: str(np.datetime64(int(value), "D")),
    t.Date32: lambda value, kind: str(np.datetime64(int(value), "D")),
    t.DateTime: _through_array,
    t.DateTime64: _through_array,
    t.Enum: _enum,
    t.UUID: lambda value, kind: uuid_text(value),
    t.IPv4: lambda value, kind: str(ipaddress.IPv4Address(int(value))),
    t.IPv6: lambda value, kind: ipv6_text(value),
    t.Decimal: _decimal,
    t.Array: _list,
    t.Map: _map,
    t.Tuple: _tuple,
}


def _numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled.cast(pa.int64()).to_numpy())


def _with_nulls(texts: pa.Array, source: pa.Array) -> pa.Array:
    if not source.null_count:
        return texts
    return pc.if_else(source.is_valid(), texts, pa.scalar(None, pa.binary()))


def _datetime_text(local: npt.NDArray[np.int64]) -> pa.Array:
    return _with_space(np.datetime_as_string(local.astype("datetime64[s]")), 19)


def _with_space(texts: npt.NDArray[Any], width: int) -> pa.Array:
    raw = np.char.encode(texts, "ascii").astype(f"S{width}").view(np.uint8).reshape(len(texts), width)
    raw[:, 10] = ord(" ")
    return binary_of_width(raw, len(texts), width)


def _datetime64_text(ticks: npt.NDArray[np.int64], precision: int, name: str) -> pa.Array:
    scale = 10**precision
    seconds, rest = ticks // scale, ticks % scale
    local = _datetime_text(zone(name).to_local(seconds))
    if precision == 0:
        return local
    head = np.frombuffer(local.buffers()[2], np.uint8, count=len(ticks) * 19).reshape(-1, 19)
    raw = np.empty((len(ticks), 20 + precision), np.uint8)
    raw[:, :19] = head
    raw[:, 19] = ord(".")
    for i in range(precision):
        raw[:, 20 + i] = rest // 10 ** (precision - 1 - i) % 10 + ord("0")
    return binary_of_width(raw, len(ticks), 20 + precision)


_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def _uuid_text(array: pa.Array) -> pa.Array:
    rows = len(array)
    raw = np.full((rows, 36), ord("-"), np.uint8)
    if rows:
        stored = np.frombuffer(array.buffers()[1], np.uint8, count=rows * 16, offset=array.offset * 16).reshape(-1, 16)
        at = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34]
        for position, source in zip(at, [*range(7, -1, -1), *range(15, 7, -1)], strict=True):
            raw[:, position] = _HEX[stored[:, source] >> 4]
            raw[:, position + 1] = _HEX[stored[:, source] & 15]
    return binary_of_width(raw, rows, 36)
