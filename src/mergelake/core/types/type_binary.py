"""The binary form of types, which precedes values whose type is not known beforehand (Dynamic, paths of JSON).

One byte is the type, followed by its parameters: lengths and counts as varuints, names as a varuint length and bytes,
inner types in the same form. Types with a custom name in ClickHouse (`Point`) are encoded by that name.

Source: ClickHouse, `src/DataTypes/DataTypesBinaryEncoding.cpp`, `src/Common/FieldBinaryEncoding.cpp`.
"""

from __future__ import annotations

import struct

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.base.text import quote_string
from mergelake.core.types import types as t
from mergelake.core.types.varuint import read_varuint, write_varuint

PLAIN_TYPES: dict[int, t.DataType] = {
    0x00: t.Nothing(),
    **{0x01 + i: t.Int(8 << i, signed=False) for i in range(6)},
    **{0x07 + i: t.Int(8 << i, signed=True) for i in range(6)},
    0x0D: t.Float(32),
    0x0E: t.Float(64),
    0x0F: t.Date(),
    0x10: t.Date32(),
    0x11: t.DateTime(),
    0x15: t.STRING,
    0x1D: t.UUID(),
    0x28: t.IPv4(),
    0x29: t.IPv6(),
    0x2D: t.Bool(),
    0x31: t.BFloat16(),
    0x32: t.Time(),
}
"""Types without parameters, by their byte."""
_CODES = {kind: code for code, kind in PLAIN_TYPES.items()}
_DATETIME_ZONE, _DATETIME64, _DATETIME64_ZONE, _FIXED_STRING, _ENUM8, _ENUM16 = 0x12, 0x13, 0x14, 0x16, 0x17, 0x18
_DECIMALS = {0x19: 9, 0x1A: 18, 0x1B: 38, 0x1C: 76}
_ARRAY, _TUPLE, _NAMED_TUPLE, _INTERVAL, _NULLABLE, _AGGREGATE = 0x1E, 0x1F, 0x20, 0x22, 0x23, 0x25
_LOW_CARDINALITY, _MAP, _VARIANT, _DYNAMIC, _CUSTOM, _SIMPLE, _NESTED, _JSON, _TIME64 = (
    0x26, 0x27, 0x2A, 0x2B, 0x2C, 0x2E, 0x2F, 0x30, 0x34,
)  # fmt: skip
_COUNT_MAX = 100_000
_DEPTH_MAX = 100
NOTHING = b"\0"
"""The type of NULL."""


def encode_type(kind: t.DataType) -> bytes:
    """The binary form of `kind`. Raises NOT_IMPLEMENTED for a type without one."""
    code = _CODES.get(kind)
    if code is not None:
        return bytes([code])
    match kind:
        case t.DateTime(zone):
            return bytes([_DATETIME_ZONE]) + _text(zone)
        case t.DateTime64(precision, zone):
            return bytes([_DATETIME64_ZONE if zone else _DATETIME64, precision]) + (_text(zone) if zone else b"")
        case t.Time64(precision):
            return bytes([_TIME64, precision])
        case t.FixedString(length):
            return bytes([_FIXED_STRING]) + write_varuint(length)
        case t.Enum(bits, items):
            head = bytes([_ENUM8 if bits == 8 else _ENUM16]) + write_varuint(len(items))
            return head + b"".join(_text(n) + v.to_bytes(bits // 8, "little", signed=True) for n, v in items)
        case t.Decimal(precision, scale):
            return bytes([next(c for c, digits in _DECIMALS.items() if precision <= digits), precision, scale])
        case t.Interval(unit):
            return bytes([_INTERVAL, t.INTERVAL_UNITS.index(unit)])
        case t.Nullable(inner):
            return bytes([_NULLABLE]) + encode_type(inner)
        case t.LowCardinality(inner):
            return bytes([_LOW_CARDINALITY]) + encode_type(inner)
        case t.Array(inner):
            return bytes([_ARRAY]) + encode_type(inner)
        case t.Map(key, value):
            return bytes([_MAP]) + encode_type(key) + encode_type(value)
        case t.Tuple(elements, names):
            head = bytes([_NAMED_TUPLE if names else _TUPLE]) + write_varuint(len(elements))
            labels = [_text(name) for name in names] or [b""] * len(elements)
            return head + b"".join(label + encode_type(e) for label, e in zip(labels, elements, strict=True))
        case t.Variant(alternatives, names):
            parts = (_spelled(name, each) for name, each in zip(names, alternatives, strict=True))
            return bytes([_VARIANT]) + write_varuint(len(alternatives)) + b"".join(parts)
        case t.Dynamic(limit):
            return bytes([_DYNAMIC, limit])
        case t.Json(typed, paths, limit, skip, regexps):
            head = bytes([_JSON, 0]) + write_varuint(paths) + bytes([limit]) + write_varuint(len(typed))
            lists = (write_varuint(len(texts)) + b"".join(map(_text, texts)) for texts in (skip, regexps))
            return head + b"".join(_text(path) + encode_type(each) for path, each in typed) + b"".join(lists)
        case t.SimpleAggregateFunction(function, inner) if "(" not in function:
            return bytes([_SIMPLE]) + _text(function) + b"\0\1" + encode_type(inner)
    raise error("NOT_IMPLEMENTED", f"A Dynamic value of type {kind} cannot be written here")


def decode_type(data: bytes, at: int, depth: int = 0) -> tuple[t.DataType, int]:
    """The type at `at`, and the offset of its end. Raises CorruptDataError for invalid bytes."""
    if depth > _DEPTH_MAX:
        raise CorruptDataError("A type is nested too deep", offset=at)
    code, at = _byte(data, at)
    plain = PLAIN_TYPES.get(code)
    if plain is not None:
        return plain, at

    def inner(start: int) -> tuple[t.DataType, int]:
        return decode_type(data, start, depth + 1)

    if code in (_NULLABLE, _LOW_CARDINALITY, _ARRAY):
        kind, at = inner(at)
        if code == _ARRAY:
            return t.Array(kind), at
        return (t.Nullable(kind) if code == _NULLABLE else t.LowCardinality(kind)), at
    if code == _MAP:
        key, at = inner(at)
        value, at = inner(at)
        return t.Map(key, value), at
    if code in (_DATETIME64, _DATETIME64_ZONE, _TIME64):
        precision, at = _byte(data, at)
        if precision > 9:
            raise CorruptDataError(f"A time has {precision} digits behind its seconds", offset=at)
        if code == _TIME64:
            return t.Time64(precision), at
        zone, at = _read_text(data, at) if code == _DATETIME64_ZONE else ("", at)
        return t.DateTime64(precision, zone), at
    if code == _DATETIME_ZONE:
        zone, at = _read_text(data, at)
        return t.DateTime(zone), at
    if code == _FIXED_STRING:
        length, at = read_varuint(data, at)
        if not 1 <= length <= 0xFFFFFF:
            raise CorruptDataError(f"A FixedString has {length} bytes", offset=at)
        return t.FixedString(length), at
    if code in (_ENUM8, _ENUM16):
        return _read_enum(data, at, 8 if code == _ENUM8 else 16)
    if code in _DECIMALS:
        (precision, at), (scale, end) = _byte(data, at), _byte(data, at + 1)
        if not 1 <= precision <= 76 or scale > precision:
            raise CorruptDataError(f"A Decimal has {precision} digits, {scale} of them behind its point", offset=at)
        return t.Decimal(precision, scale), end
    if code == _INTERVAL:
        unit, at = _byte(data, at)
        if unit >= len(t.INTERVAL_UNITS):
            raise CorruptDataError(f"Unknown unit {unit} of an interval", offset=at)
        return t.Interval(t.INTERVAL_UNITS[unit]), at
    if code in (_TUPLE, _NAMED_TUPLE, _NESTED, _VARIANT):
        return _read_product(data, at, code, depth)
    if code == _DYNAMIC:
        limit, at = _byte(data, at)
        return t.Dynamic(limit), at
    if code == _CUSTOM:
        text, at = _read_text(data, at)
        return t.parse_type(text), at
    if code == _JSON:
        return _read_json(data, at, depth)
    if code in (_SIMPLE, _AGGREGATE):
        return _read_aggregate(data, at, depth, simple=code == _SIMPLE)
    raise CorruptDataError(f"Unknown code {code:#04x} of a type", offset=at - 1)


def _read_product(data: bytes, at: int, code: int, depth: int) -> tuple[t.DataType, int]:
    count, at = _count(data, at)
    names: list[str] = []
    kinds: list[t.DataType] = []
    for _ in range(count):
        if code in (_NAMED_TUPLE, _NESTED):
            name, at = _read_text(data, at)
            names.append(name)
        start = at
        kind, at = decode_type(data, at, depth + 1)
        kinds.append(kind)
        if code == _VARIANT:
            names.append(type_name(data[start:at], kind))
    if code == _VARIANT:
        return t.Variant(tuple(kinds), tuple(names)), at
    product = t.Tuple(tuple(kinds), tuple(names))
    return (t.Array(product) if code == _NESTED else product), at


def _read_json(data: bytes, at: int, depth: int) -> tuple[t.DataType, int]:
    version, at = _byte(data, at)
    if version:
        raise CorruptDataError(f"Unknown version {version} of a JSON type", offset=at - 1)
    paths, at = read_varuint(data, at)
    limit, at = _byte(data, at)
    count, at = _count(data, at)
    typed: list[tuple[str, t.DataType]] = []
    for _ in range(count):
        path, at = _read_text(data, at)
        kind, at = decode_type(data, at, depth + 1)
        typed.append((path, kind))
    skips: list[tuple[str, ...]] = []
    for _ in range(2):
        count, at = _count(data, at)
        texts = []
        for _ in range(count):
            text, at = _read_text(data, at)
            texts.append(text)
        skips.append(tuple(texts))
    typed.sort(key=lambda item: item[0].encode(errors="surrogateescape"))
    return t.Json(tuple(typed), paths, limit, *skips), at


def _read_enum(data: bytes, at: int, bits: int) -> tuple[t.DataType, int]:
    count, at = _count(data, at)
    items = []
    for _ in range(count):
        name, at = _read_text(data, at)
        raw = data[at : at + bits // 8]
        if len(raw) != bits // 8:
            raise CorruptDataError("A type ends too early", offset=at)
        items.append((name, int.from_bytes(raw, "little", signed=True)))
        at += bits // 8
    return t.Enum(bits, tuple(items)), at


def _read_aggregate(data: bytes, at: int, depth: int, *, simple: bool) -> tuple[t.DataType, int]:
    version = 0
    if not simple:
        version, at = read_varuint(data, at)
    function, at = _read_text(data, at)
    count, at = _count(data, at)
    parameters = []
    for _ in range(count):
        text, at = _read_parameter(data, at)
        parameters.append(text)
    if parameters:
        function += f"({', '.join(parameters)})"
    count, at = _count(data, at)
    arguments = []
    for _ in range(count):
        kind, at = decode_type(data, at, depth + 1)
        arguments.append(kind)
    if simple and not arguments:
        raise CorruptDataError("A SimpleAggregateFunction has no argument", offset=at)
    if simple:
        return t.SimpleAggregateFunction(function, arguments[0]), at
    return t.AggregateFunction(function, tuple(arguments), version or None), at


def _read_parameter(data: bytes, at: int) -> tuple[str, int]:
    code, at = _byte(data, at)
    if code == 0x01:
        number, at = read_varuint(data, at)
        return str(number), at
    if code == 0x02:
        number, at = read_varuint(data, at)
        return str(-(number >> 1) - 1 if number & 1 else number >> 1), at
    if code == 0x07 and len(data) - at >= 8:
        (value,) = struct.unpack_from("<d", data, at)
        return f"{value:.15g}", at + 8
    if code == 0x0C:
        text, at = _read_text(data, at)
        return quote_string(text), at
    raise CorruptDataError(f"Unknown code {code:#04x} of a parameter of an aggregate function", offset=at - 1)


def type_name(encoded: bytes, kind: t.DataType) -> str:
    """ClickHouse's name of `kind`, whose binary form is `encoded`."""
    return encoded[2:].decode(errors="surrogateescape") if encoded[:1] == bytes([_CUSTOM]) else str(kind)


def encode_name(name: str) -> tuple[bytes, t.DataType]:
    """Binary form and type of ClickHouse's type `name`."""
    kind = t.parse_type(name)
    return _spelled(name, kind), kind


def _spelled(name: str, kind: t.DataType) -> bytes:
    return encode_type(kind) if t.is_spelled(name, kind) else bytes([_CUSTOM]) + _text(name)


def _text(text: str) -> bytes:
    raw = text.encode(errors="surrogateescape")
    return write_varuint(len(raw)) + raw


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    length, at = read_varuint(data, at)
    if length > len(data) - at:
        raise CorruptDataError("A type ends too early", offset=at)
    return data[at : at + length].decode(errors="surrogateescape"), at + length


def _byte(data: bytes, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise CorruptDataError("A type ends too early", offset=at)
    return data[at], at + 1


def _count(data: bytes, at: int) -> tuple[int, int]:
    count, at = read_varuint(data, at)
    if count > min(_COUNT_MAX, len(data) - at):
        raise CorruptDataError("A type claims more parts than there are bytes", offset=at, found=str(count))
    return count, at
