"""How ClickHouse prints a partition: the `partition` column of `system.parts`.

A key of one expression prints its value bare (`202601`, `eu`), a key of several a tuple with quotes (`('eu',42)`),
no key `tuple()`. One partition has one value, so this works on single values.

Source: ClickHouse, `MergeTreePartition::serializeText`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from socket import AF_INET6, inet_ntop
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from mergelake.core.base.text import quote_string
from mergelake.core.types import types as t
from mergelake.format.serializations.values import decode_values, plain_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def partition_text(data: bytes, types: Sequence[t.DataType]) -> str:
    """The text of the partition whose `partition.dat` is `data`.

    >>> partition_text(bytes.fromhex("0265752a000000"), [t.String(), t.Int(32, signed=False)])
    "('eu',42)"
    """
    return partition_texts([data], types)[0]


def partition_texts(data: Sequence[bytes], types: Sequence[t.DataType]) -> list[str]:
    """`partition_text` of many partitions, whose values are decoded at once."""
    if not types:
        return ["tuple()"] * len(data)
    kinds = [plain_type(kind) for kind in types]
    columns = [column.to_pylist() for column in decode_values(b"".join(data), types, len(data))] if data else []
    rows = ([_value(each, kind) for each, kind in zip(row, kinds, strict=True)] for row in zip(*columns, strict=True))
    if len(kinds) == 1:
        return [_bare(row[0], kinds[0]) for row in rows]
    return [f"({','.join(_quoted(each, kind) for each, kind in zip(row, kinds, strict=True))})" for row in rows]


def _bare(value: Any, data_type: t.DataType) -> str:
    """A value (a result of `_value`) as the only one of a key."""
    if value is None:
        return "ᴺᵁᴸᴸ"
    kind = data_type.inner if isinstance(data_type, t.Nullable) else data_type
    return str(value) if not isinstance(kind, (t.Array, t.Tuple)) else _quoted(value, kind)


def _quoted(value: Any, data_type: t.DataType) -> str:
    """A value (a result of `_value`) inside of a tuple or an array."""
    if value is None:
        return "NULL"
    match data_type:
        case t.Nullable(inner):
            return _quoted(value, inner)
        case t.Array(inner):
            return f"[{','.join(_quoted(item, inner) for item in value)}]"
        case t.Tuple(elements):
            return f"({','.join(_quoted(item, kind) for item, kind in zip(value, elements, strict=True))})"
        case t.Int() | t.Float() | t.BFloat16() | t.Bool() | t.Decimal() | t.Interval():
            return str(value)
        case _:
            return quote_string(str(value))


def _value(stored: Any, data_type: t.DataType) -> Any:
    """The text of a stored scalar; lists of texts for arrays and tuples, None for NULL."""
    if stored is None:
        return None
    match data_type:
        case t.Nullable(inner):
            return _value(stored, inner)
        case t.Array(inner):
            return [_value(item, inner) for item in stored]
        case t.Tuple(elements):
            return [_value(item, kind) for item, kind in zip(stored.values(), elements, strict=True)]
        case t.Int(bits, signed) if bits > 64:
            return str(int.from_bytes(stored, "little", signed=signed))
        case t.Float(bits):
            return float_text(np.float32(stored) if bits == 32 else np.float64(stored))
        case t.BFloat16():
            return float_text(np.array([stored << 16], np.uint32).view(np.float32)[0])
        case t.Bool():
            return "true" if stored else "false"
        case t.String() | t.FixedString():
            return stored.decode(errors="replace")
        case t.Date() | t.Date32():
            return (_EPOCH + timedelta(days=stored)).strftime("%Y-%m-%d")
        case t.DateTime(zone):
            return _time_text(stored, 0, zone)
        case t.DateTime64(precision, zone):
            return _time_text(stored, precision, zone)
        case t.Time():
            return _span_text(stored, 0)
        case t.Time64(precision):
            return _span_text(stored, precision)
        case t.Enum(_, items):
            return next((name for name, number in items if number == stored), str(stored))
        case t.UUID():
            return str(UUID(bytes=stored[7::-1] + stored[:7:-1]))
        case t.IPv4():
            return str(IPv4Address(stored))
        case t.IPv6():
            return inet_ntop(AF_INET6, stored)
        case t.Decimal(_, scale):
            number = int.from_bytes(stored, "little", signed=True) if isinstance(stored, bytes) else stored
            return _decimal_text(number, scale)
        case _:
            return str(stored)


def float_text(value: np.floating[Any]) -> str:
    """A float as ClickHouse prints it: shortest digits, exponents from 1e21 and below 1e-6."""
    if not np.isfinite(value):
        return {"nan": "nan", "inf": "inf"}.get(str(value), "-inf")
    mantissa, _, exponent = np.format_float_scientific(value, unique=True, trim="-").partition("e")
    if -7 < int(exponent) < 21:
        return np.format_float_positional(value, unique=True, trim="-")
    return f"{mantissa}e{int(exponent)}"


def _time_text(ticks: int, precision: int, zone: str) -> str:
    seconds, fraction = divmod(ticks, 10**precision)
    local = (_EPOCH + timedelta(seconds=seconds)).astimezone(ZoneInfo(zone or "UTC"))
    tail = f".{fraction:0{precision}d}" if precision else ""
    return f"{local:%Y-%m-%d %H:%M:%S}{tail}"


def _span_text(ticks: int, precision: int) -> str:
    seconds, fraction = divmod(abs(ticks), 10**precision)
    tail = f".{fraction:0{precision}d}" if precision else ""
    return f"{'-' * (ticks < 0)}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}"


def _decimal_text(number: int, scale: int) -> str:
    digits = f"{abs(number):0{scale + 1}d}"
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
    return f"{'-' * (number < 0)}{whole}{'.' * bool(fraction)}{fraction}"
