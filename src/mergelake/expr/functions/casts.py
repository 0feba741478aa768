"""CAST and the toT functions: conversion of values from one type to another.

`kernel(source, target)` gives the conversion of plain data. Numbers wrap (CAST(300 AS UInt8) is 44), floats are
truncated, text is parsed (`core.convert.text_read`), dates go through local time where the zone matters.

Source: ClickHouse, `src/Functions/FunctionsConversion.h`; edge cases follow chdb's results.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import error
from mergelake.core.convert.text_read import read_text
from mergelake.core.convert.text_write import to_text
from mergelake.core.convert.timezones import zone
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions.nested_casts import nested_kernel
from mergelake.expr.values import Data, constant_vec, data_from_arrow, data_to_arrow

_NESTED = (t.Array, t.Tuple, t.Map)
_DATES = (t.Date, t.Date32, t.DateTime)
_NUMBER = (t.Int, t.Float, t.Bool)
_DAY = 86400
_FIRST_DATE32, _LAST_DATE32 = -719528, 2932896  # 0000-01-01 and 9999-12-31


def number_dtype(kind: t.DataType) -> np.dtype[Any]:
    """The numpy dtype of the stored number of a plain type up to 64 bits."""
    dtype: np.dtype[Any] = np.dtype(storage_type(kind).to_pandas_dtype())
    return dtype


def can_raise(source: t.DataType, target: t.DataType) -> bool:
    """Whether some values of `source` have no counterpart in `target`."""
    if source == target or isinstance(target, (t.String, t.Bool)):
        return isinstance(source, t.String) and not isinstance(target, t.String)
    if isinstance(source, (t.String, t.FixedString)) or isinstance(target, (t.Decimal, t.Enum)):
        return True
    if isinstance(source, t.DateTime64):
        return isinstance(target, (t.Int, t.DateTime64))
    if isinstance(source, (t.Array, t.Map, t.Tuple)):
        return True
    return isinstance(source, t.Float) and not isinstance(target, t.Float)


def kernel(source: t.DataType, target: t.DataType) -> Kernel:
    """The conversion of plain data between plain types.

    Where there is none, raises CANNOT_CONVERT_TYPE, or another of ClickHouse's errors, which depends on the types.
    """
    conversion = _kernel(source, target)
    if conversion is None:
        raise error(_refusal(source, target), f"Conversion from {source} to {target} is not supported")
    return conversion


def _refusal(source: t.DataType, target: t.DataType) -> str:
    """The name of ClickHouse's error for types between which there is no conversion."""
    if isinstance(target, _NESTED):
        return "TYPE_MISMATCH"
    if isinstance(target, t.FixedString):
        return "NOT_IMPLEMENTED"
    if isinstance(source, t.Decimal) or (isinstance(target, t.Decimal) and isinstance(source, _DATES)):
        return "ILLEGAL_COLUMN"
    if isinstance(target, (t.DateTime64, t.Decimal, t.Enum)):
        return "CANNOT_CONVERT_TYPE"
    if isinstance(source, _NESTED):
        return "ILLEGAL_TYPE_OF_ARGUMENT"
    addresses = (t.UUID, t.IPv4)
    return (
        "NOT_IMPLEMENTED" if isinstance(source, addresses) or isinstance(target, addresses) else "CANNOT_CONVERT_TYPE"
    )


def _same(data: Data) -> Data:
    return data


def _kernel(source: t.DataType, target: t.DataType) -> Kernel | None:
    if source == target or isinstance(source, t.Nothing):
        return _same if source == target else lambda data: constant_vec(None, target).broadcast(len(data)).data
    if isinstance(target, t.String) and isinstance(source, t.FixedString):
        return strip_padding
    if isinstance(target, t.String):
        return lambda data: to_text(data_to_arrow(data, None, storage_type(source)), source)
    if isinstance(source, t.FixedString) and isinstance(target, t.FixedString):
        return None
    if isinstance(source, (t.String, t.FixedString)) and isinstance(target, t.Map):
        return None
    if isinstance(source, t.String):
        return lambda data: _parse(data, target)
    if isinstance(source, t.FixedString):
        return lambda data: _parse(padded_text(data, target), target)
    if isinstance(source, t.Decimal) or isinstance(target, t.Decimal):
        return _decimal(source, target)
    if isinstance(source, t.Enum):
        return _to_number(t.Int(source.bits, signed=True), target) if isinstance(target, _NUMBER) else None
    if isinstance(target, t.Enum):
        return _to_enum(source, target)
    if isinstance(source, _NUMBER) and isinstance(target, _NUMBER):
        return _to_number(source, target)
    if isinstance(target, t.IPv4):
        return _to_number(source, target) if _is_unsigned(source) and source.bits <= 64 else None
    if isinstance(source, t.IPv4):
        return _to_number(t.Int(32, signed=False), target) if _is_unsigned(target) and target.bits >= 32 else None
    if isinstance(source, t.Interval) and isinstance(target, t.Int):
        return _to_number(t.Int(64, signed=True), target)
    if isinstance(source, (t.Date, t.Date32, t.DateTime, t.DateTime64)):
        return _from_date(source, target)
    if isinstance(source, _NUMBER):
        wide = isinstance(source, t.Int) and source.bits > 64
        return None if wide and isinstance(target, t.DateTime64) else _number_to_date(target)
    return nested_kernel(source, target, _kernel)


def _is_unsigned(kind: t.DataType) -> TypeGuard[t.Int]:
    return isinstance(kind, t.Int) and not kind.signed


def _parse(data: pa.Array, target: t.DataType) -> Data:
    return data_from_arrow(read_text(data, target, wrap=True), target)


def strip_padding(data: pa.Array) -> pa.Array:
    """FixedString data as String data without the zero bytes at the end."""
    values = [None if value is None else value.rstrip(b"\0") for value in data.to_pylist()]
    return pa.array(values, pa.binary())


def padded_text(data: pa.Array, target: t.DataType) -> pa.Array:
    """FixedString data as text to parse; for integers a value of nothing but padding is zero."""
    text = strip_padding(data)
    return pc.if_else(pc.equal(text, b""), b"0", text) if isinstance(target, t.Int) else text


# --- numbers


def _to_number(source: t.DataType, target: t.DataType) -> Kernel:
    if isinstance(target, t.Bool):
        return lambda data: (data != 0).astype(np.uint8)
    if isinstance(target, t.Float):
        dtype = number_dtype(target)

        def to_float(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
            with np.errstate(all="ignore"):
                return data.astype(dtype)

        return to_float
    kind = target if isinstance(target, t.Int) else t.Int(32, signed=False)
    if isinstance(source, t.Float):
        return lambda data: float_to_int(data, kind)
    return lambda data: wrap(data, kind)


def wrap(data: npt.NDArray[Any], kind: t.Int) -> npt.NDArray[Any]:
    """Integers truncated to the bits of `kind` in two's complement."""
    bits = kind.bits
    if bits <= 64:
        if data.dtype == object:
            data = (data % (1 << 64)).astype(np.uint64)
        return data.astype(number_dtype(kind), copy=False)
    low = data.astype(object) % (1 << bits)
    return np.where(low >= 1 << (bits - 1), low - (1 << bits), low) if kind.signed else low


def float_to_int(data: npt.NDArray[Any], kind: t.Int) -> npt.NDArray[Any]:
    """Floats truncated to integers, out of range as on x86. Raises CANNOT_CONVERT_TYPE for infinities and NaN."""
    if not bool(np.isfinite(data).all()):
        raise error("CANNOT_CONVERT_TYPE", "Unexpected inf or nan to integer conversion")
    if kind.bits > 64:
        whole = np.array([int(value) for value in data.tolist()], dtype=object)
        return wrap(whole, kind)
    with np.errstate(all="ignore"):
        if kind.bits == 64 and not kind.signed:
            big = data >= 2.0**63
            low = np.where(big, data - 2.0**63, data).astype(np.int64).view(np.uint64)
            return np.where(data >= 2.0**64, np.uint64(1 << 63), np.where(big, low ^ np.uint64(1 << 63), low))
        if kind.bits == 64 or (kind.bits == 32 and not kind.signed):
            return data.astype(np.int64).astype(number_dtype(kind))
        inside = (data > -(2.0**31) - 1) & (data < 2.0**31)
        narrow = np.where(inside, data, -(2.0**31)).astype(np.int32)
        return narrow.astype(number_dtype(kind))


def _to_enum(source: t.DataType, target: t.Enum) -> Kernel | None:
    if not isinstance(source, (t.Int, t.Enum)):
        return None
    values = np.array([number for _, number in target.items])

    def checked(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
        unknown = ~np.isin(data, values)
        if bool(unknown.any()):
            raise error("UNKNOWN_ELEMENT_OF_ENUM", f"Unexpected value {data[unknown][0]} in enum")
        return data.astype(number_dtype(target))

    return checked


def _decimal(source: t.DataType, target: t.DataType) -> Kernel | None:
    if isinstance(target, t.Decimal):
        if isinstance(source, t.Float):
            return lambda data: _float_to_decimal(data, target)
        if not isinstance(source, (t.Decimal, t.Int, t.Bool)):
            return None
        shift = target.scale - (source.scale if isinstance(source, t.Decimal) else 0)
        return lambda data: fit_decimal(rescale(data.astype(object), shift), target)
    if not isinstance(source, t.Decimal):
        return None
    scale = source.scale
    if isinstance(target, t.Float):
        dtype = number_dtype(target)
        return lambda data: (data.astype(np.float64) / 10.0**scale).astype(dtype)
    if isinstance(target, t.Bool):
        return lambda data: (data != 0).astype(np.uint8)
    if isinstance(target, t.Int):
        return lambda data: _decimal_to_int(data, scale, target)
    return None


def rescale(data: npt.NDArray[Any], shift: int) -> npt.NDArray[Any]:
    """Python ints times 10^shift, truncated towards zero."""
    if shift >= 0:
        return np.asarray(data * 10**shift)
    return np.asarray(np.where(data < 0, -(-data // 10**-shift), data // 10**-shift))


def fit_decimal(data: npt.NDArray[Any], target: t.Decimal) -> npt.NDArray[Any]:
    """Python ints as the data of `target`. Raises DECIMAL_OVERFLOW for more digits than its precision."""
    limit = 10**target.precision
    if len(data) and bool((abs(data) >= limit).any()):
        raise error("DECIMAL_OVERFLOW", f"Decimal convert overflow: a value does not fit {target}")
    return data if target.bits > 64 else data.astype(number_dtype(target))


def _float_to_decimal(data: npt.NDArray[Any], target: t.Decimal) -> npt.NDArray[Any]:
    if not bool(np.isfinite(data).all()):
        raise error("DECIMAL_OVERFLOW", "Decimal convert overflow. Cannot convert infinity or NaN to decimal")
    scaled = data * (np.float64(10.0) ** target.scale).astype(data.dtype)
    if bool((np.abs(scaled.astype(np.float64)) >= 2.0 ** (target.bits - 1)).any()):
        raise error("DECIMAL_OVERFLOW", "Decimal convert overflow. Float is out of Decimal range")
    if target.bits > 64:
        return np.array([int(value) for value in scaled.tolist()], dtype=object)
    cut: npt.NDArray[Any] = scaled.astype(number_dtype(target))
    return cut


def _decimal_to_int(data: npt.NDArray[Any], scale: int, target: t.Int) -> npt.NDArray[Any]:
    whole = rescale(data.astype(object), -scale)
    low, high = (-(1 << (target.bits - 1)), 1 << (target.bits - 1)) if target.signed else (0, 1 << target.bits)
    if len(whole) and bool(((whole < low) | (whole >= high)).any()):
        raise error("DECIMAL_OVERFLOW", "Convert overflow")
    return wrap(whole, target)


# --- dates


def _from_date(source: t.DataType, target: t.DataType) -> Kernel | None:
    if isinstance(target, t.Bool):
        return None
    if isinstance(target, _NUMBER):
        if isinstance(source, t.DateTime64):
            scale = 10**source.precision
            if isinstance(target, t.Float):
                return lambda data: (data.astype(np.float64) / scale).astype(number_dtype(target))
            return lambda data: _seconds_to_int(cut(data, scale), target)
        return _to_number(_stored(source), target)
    if isinstance(target, (t.Date, t.Date32)):
        return _to_days(source, target)
    if isinstance(target, t.DateTime):
        return _to_seconds(source, target)
    if isinstance(target, t.DateTime64):
        return _to_ticks(source, target)
    return None


def _seconds_to_int(seconds: npt.NDArray[Any], target: t.DataType) -> npt.NDArray[Any]:
    kind = target if isinstance(target, t.Int) else t.Int(32, signed=False)
    low, high = (-(1 << (kind.bits - 1)), 1 << (kind.bits - 1)) if kind.signed else (0, 1 << kind.bits)
    if len(seconds) and not low <= int(seconds.min()) <= int(seconds.max()) < high:
        raise error("DECIMAL_OVERFLOW", f"Convert overflow: a time is outside of what {kind} holds")
    return wrap(seconds, kind)


def _stored(source: t.DataType) -> t.Int:
    return {t.Date: t.Int(16, False), t.Date32: t.Int(32, True), t.DateTime: t.Int(32, False)}[type(source)]


def cut(data: npt.NDArray[Any], scale: int) -> npt.NDArray[Any]:
    """Integer division towards zero."""
    return np.where(data < 0, -(-data // scale), data // scale) if scale > 1 else data


def _to_days(source: t.DataType, target: t.DataType) -> Kernel:
    dtype = number_dtype(target)
    if isinstance(source, (t.Date, t.Date32)):
        return lambda data: data.astype(dtype)
    local = zone(getattr(source, "timezone", ""))
    scale = 10**source.precision if isinstance(source, t.DateTime64) else 1
    if isinstance(source, t.DateTime):
        least = 0 if isinstance(target, t.Date) else _FIRST_DATE32
        return lambda data: np.maximum(local.to_local(data) // _DAY, least).astype(dtype)
    if isinstance(target, t.Date):  # the fraction of a second is truncated towards 1970
        return lambda data: (local.to_local(cut(data, scale)) // _DAY).astype(dtype)
    return lambda data: (local.to_local(data // scale) // _DAY).astype(dtype)


def _to_seconds(source: t.DataType, target: t.DateTime) -> Kernel:
    if isinstance(source, t.DateTime):
        return _same
    if isinstance(source, t.DateTime64):
        scale = 10**source.precision
        return lambda data: (data // scale).astype(np.uint32)
    local = zone(target.timezone)
    if isinstance(source, t.Date):
        return lambda data: midnight_in_range(local.start_of_day(data)).astype(np.uint32)
    return lambda data: local.start_of_day(data).astype(np.uint32)


def midnight_in_range(seconds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Midnights in UTC seconds; one before 1970 is replaced by the next, as in ClickHouse's table of days."""
    return np.where(seconds < 0, seconds + _DAY, seconds)


def _to_ticks(source: t.DataType, target: t.DateTime64) -> Kernel:
    scale = 10**target.precision
    if isinstance(source, t.DateTime64):
        old = 10**source.precision
        if scale >= old:
            return lambda data: _finer(data, scale // old)
        return lambda data: cut(data, old // scale)
    if isinstance(source, t.DateTime):
        return lambda data: data.astype(np.int64) * scale
    local = zone(target.timezone)
    return lambda data: _clamped_ticks(local.start_of_day(data), scale)


def _finer(data: npt.NDArray[Any], factor: int) -> npt.NDArray[Any]:
    if factor > 1 and len(data) and max(-int(data.min()), int(data.max())) >= (1 << 63) // factor:
        raise error("DECIMAL_OVERFLOW", "Decimal convert overflow: a time is beyond what so fine a DateTime64 holds")
    return data * factor


def _clamped_ticks(seconds: npt.NDArray[Any], scale: int) -> npt.NDArray[Any]:
    """Seconds as ticks, clamped to the range of Int64."""
    most = ((1 << 63) - 1) // scale
    ticks = np.clip(seconds, -most, most) * scale
    return np.where(seconds > most, (1 << 63) - 1, np.where(seconds < -most, -(1 << 63), ticks))


def _number_to_date(target: t.DataType) -> Kernel | None:
    if isinstance(target, t.Date):
        return lambda data: _number_to_days(_finite(data))
    if isinstance(target, t.Date32):
        return _number_to_days32
    if isinstance(target, t.DateTime):
        return lambda data: np.clip(_whole(_finite(data)), 0, 0xFFFFFFFF).astype(np.uint32)
    if isinstance(target, t.DateTime64):
        scale = 10**target.precision
        return lambda data: _number_to_ticks(data, scale)
    return None


def _finite(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers. Raises CANNOT_CONVERT_TYPE for infinities and NaN."""
    if data.dtype.kind == "f" and not bool(np.isfinite(data).all()):
        raise error("CANNOT_CONVERT_TYPE", "Unexpected inf or nan to integer conversion")
    return data


def _number_to_ticks(data: npt.NDArray[Any], scale: int) -> npt.NDArray[np.int64]:
    """Seconds as ticks of a DateTime64, clamped to the years 0 to 9999 and to Int64.

    Raises DECIMAL_OVERFLOW for NaN.
    """
    first = max(_FIRST_DATE32 * _DAY * scale, -(1 << 63))
    last = min((_LAST_DATE32 + 1) * _DAY * scale, 1 << 63) - 1
    if data.dtype.kind == "f":
        if bool(np.isnan(data).any()):
            raise error("DECIMAL_OVERFLOW", "Decimal convert overflow. Cannot convert NaN to a time")
        with np.errstate(over="ignore"):
            ticks = data * data.dtype.type(scale)
        low, high = ticks <= float(first), ticks >= float(last)
        inside = np.where(low | high, 0, ticks).astype(np.int64)
    else:
        low, high = data < -(-first // scale), data > last // scale
        inside = np.where(low | high, 0, data).astype(np.int64) * scale
    return np.where(low, first, np.where(high, last, inside))


def _whole(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers but NaN as Int64; floats, unsigned and wide integers are clamped to 2^62 in magnitude."""
    if data.dtype.kind == "f":
        data = np.clip(data, -(2.0**62), 2.0**62)
    elif data.dtype == object:
        data = np.clip(data, -(1 << 62), 1 << 62)
    elif data.dtype.kind == "u":
        data = np.minimum(data, np.uint64(1 << 62))
    return np.asarray(data, np.int64)


def _number_to_days(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers up to 65535 count days, larger ones seconds, as in ClickHouse."""
    whole = _whole(data)
    seconds = np.clip(whole, 0, 0xFFFFFFFF).astype(np.int64) // _DAY
    return np.where(whole < 0, 0, np.where(whole <= 0xFFFF, whole, seconds)).astype(np.uint16)


def _number_to_days32(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    whole = _whole(np.where(np.isnan(data), -np.inf, data) if data.dtype.kind == "f" else data)
    seconds = np.clip(whole, 0, _LAST_DATE32 * _DAY).astype(np.int64) // _DAY
    return np.asarray(np.where(whole <= _LAST_DATE32, np.maximum(whole, _FIRST_DATE32), seconds), np.int32)
