"""Parsing of ClickHouse text into storage values, whole columns at a time.

`read_text(texts, type)` raises ClickHouse's error for the first text that does not parse, with its row;
`try_read_text` flags such texts. Texts in the usual spelling are parsed in bulk, others one by one:

1. a bulk parser returns numbers and flags the texts that it parsed for certain;
2. each distinct other text is parsed by a scalar parser, which returns a value or raises an error.

Values out of range: integers wrap as in ClickHouse with `wrap=True` (`toUInt8('300')` is 44), else they are refused;
dates and times are clamped to the range of the type; days past the end of a month carry over into the next.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import MergelakeError, UnsupportedError, error
from mergelake.core.convert.datetime_text import read_datetime
from mergelake.core.convert.timezones import zone
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type

Flags = npt.NDArray[np.bool_]
Scalar = Callable[[bytes], Any]
Bulk = Callable[[pa.Array], tuple[npt.NDArray[Any], Flags]]


def read_text(texts: pa.Array, data_type: t.DataType, *, wrap: bool = False) -> pa.Array:
    """The storage form of `texts` (binary, NULL stays NULL). Raises ClickHouse's error for the first bad text."""
    array, bad = try_read_text(texts, data_type, wrap=wrap)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        text = texts[row].as_py()
        try:
            _scalar_parser(t.inner_type(data_type), wrap)(text)
        except MergelakeError as failure:
            failure.row = row
            raise
    return array


def try_read_text(texts: pa.Array, data_type: t.DataType, *, wrap: bool = False) -> tuple[pa.Array, Flags]:
    """The storage form, and a flag for each text that does not parse (its value is NULL)."""
    plain = t.inner_type(data_type)
    target = storage_type(plain)
    none = np.zeros(len(texts), np.bool_)
    if isinstance(plain, t.String):
        return texts, none
    if isinstance(plain, t.UUID):
        uuids = _canonical_uuids(texts)
        if uuids is not None:
            return uuids, none
    scalar = _scalar_parser(plain, wrap)
    bulk = None if pa.types.is_fixed_size_binary(target) else _BULK.get(type(plain))
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    if bulk is None or len(texts) == 0:
        return _one_by_one(texts, scalar, target)
    values, sure = bulk(plain, texts)
    odd = ~sure & valid
    with np.errstate(over="ignore"):  # a Float32 out of range is infinite
        values = values.astype(target.to_pandas_dtype(), copy=False)
    array = pa.array(values, target, mask=None if valid.all() else ~valid)
    if not odd.any():
        return array, none
    at = np.flatnonzero(odd)
    odd_values, odd_bad = _one_by_one(texts.take(pa.array(at)), scalar, target)
    array = pc.replace_with_mask(array, pa.array(odd), odd_values)
    none[at] = odd_bad
    return array, none


def _one_by_one(texts: pa.Array, scalar: Scalar, target: pa.DataType) -> tuple[pa.Array, Flags]:
    encoded = texts.dictionary_encode()
    values: list[Any] = []
    failed: list[bool] = []
    for text in encoded.dictionary.to_pylist():
        try:
            values.append(None if text is None else scalar(text))
            failed.append(False)
        except UnsupportedError:
            raise
        except MergelakeError:
            values.append(None)
            failed.append(True)
    array = pa.array(values, target).take(encoded.indices)
    indices = encoded.indices.fill_null(len(failed)).to_numpy(zero_copy_only=False)
    return array, np.array([*failed, False], np.bool_)[indices]


# --- scalar parsers


def _scalar_parser(plain: t.DataType, wrap: bool) -> Scalar:
    match plain:
        case t.Int():
            return lambda text: _int(text, plain, wrap)
        case t.Enum():
            names = {name.encode(): number for name, number in plain.items}
            return lambda text: _enum(text, names)
        case t.FixedString(length):
            return lambda text: _fixed(text, length)
    parser = _SCALAR.get(type(plain))
    if parser is None:
        raise UnsupportedError(f"Reading {plain} from text is not supported", name="NOT_IMPLEMENTED")
    return lambda text: parser(text, plain)


def _show(text: bytes) -> str:
    return text[:100].decode(errors="backslashreplace")


def _garbage(text: bytes, parsed: int, kind: t.DataType) -> MergelakeError:
    if not text:
        return error("ATTEMPT_TO_READ_AFTER_EOF", f"Cannot parse {kind} from String, because value is too short")
    where = f"at position {parsed} (parsed just '{_show(text[:parsed])}')" if parsed else "at begin of string"
    return error("CANNOT_PARSE_TEXT", f"Cannot parse string '{_show(text)}' as {kind}: syntax error {where}")


_INTEGER = re.compile(rb"([+-]?)(\d*)")


def _int(text: bytes, kind: t.Int, wrap: bool) -> Any:
    match = _INTEGER.match(text)
    sign, digits = (match.group(1), match.group(2)) if match else (b"", b"")
    if not text or (not sign and not digits):
        raise _garbage(text, 0, kind)
    if sign == b"-" and not kind.signed:
        raise error(
            "CANNOT_PARSE_NUMBER",
            f"Unsigned type must not contain '-' symbol: cannot parse {kind} from '{_show(text)}'",
        )
    if not digits:
        raise error(
            "CANNOT_PARSE_NUMBER", f"Cannot parse number without any digits: cannot parse {kind} from '{_show(text)}'"
        )
    if match is not None and match.end() != len(text):
        raise _garbage(text, match.end(), kind)
    value = int(digits) * (-1 if sign == b"-" else 1)
    low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.signed else (0, (1 << kind.bits) - 1)
    if not low <= value <= high:
        if not wrap:
            raise error(
                "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", f"Value {_show(text)} is out of range of {kind} ({low} to {high})"
            )
        value = (value - low) % (1 << kind.bits) + low
    return value if kind.bits <= 64 else value.to_bytes(kind.bits // 8, "little", signed=kind.signed)


_FLOAT = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf(?:inity)?|nan)", re.IGNORECASE)


def _float(text: bytes, kind: t.Float) -> float:
    match = _FLOAT.match(text)
    if match is None:
        raise error(
            "CANNOT_PARSE_NUMBER", f"Cannot read floating point value: cannot parse {kind} from '{_show(text)}'"
        )
    if match.end() != len(text):
        raise _garbage(text, match.end(), kind)
    return float(text)


def _bfloat16(text: bytes, kind: t.BFloat16) -> int:
    """The upper half of the nearest Float32, truncated as in ClickHouse."""
    return int(np.float32(_float(text, t.Float(32))).view(np.uint32)) >> 16


_TRUE = {b"1", b"true", b"t", b"yes", b"y", b"on", b"enable", b"enabled"}
_FALSE = {b"0", b"false", b"f", b"no", b"n", b"off", b"disable", b"disabled"}


def _bool(text: bytes, kind: t.Bool) -> int:
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise error("CANNOT_PARSE_BOOL", f"Cannot parse boolean value here: '{_show(text)}'", "Give true or false")
    return int(word in _TRUE)


_DATE = re.compile(rb"(\d{4})(\d\d)(\d\d)|(\d{4})[^\d](\d\d?)[^\d](\d\d?)")
_WITH_TIME = re.compile(rb".{19}(?:\.\d+)?", re.DOTALL)
"""A text of the length of a date with a time: a Date ignores the time. ClickHouse's casts check only the length too."""


def _days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970; days past the month's end carry over; None for an invalid month or day."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return int(np.datetime64(f"{year:04d}-{month:02d}-01", "D").astype(np.int64)) + day - 1


def _date(text: bytes, kind: t.Date | t.Date32) -> int:
    match = _DATE.match(text)
    if match is None:
        raise error("CANNOT_PARSE_DATE", f"Cannot parse date '{_show(text)}'", "Write it as YYYY-MM-DD")
    rest = text[match.end() :]
    if rest and (rest[:1] not in (b" ", b"T") or _WITH_TIME.fullmatch(text) is None):
        raise _garbage(text, match.end(), kind)
    parts = [int(group) for group in match.groups() if group]
    days = _days_of(*parts)
    if isinstance(kind, t.Date32):
        return -25567 if days is None else days  # 1900-01-01, the default of the type
    return 0 if days is None else min(max(days, 0), 0xFFFF)


def _datetime(text: bytes, kind: t.DateTime) -> int:
    seconds, _, end = read_datetime(text, kind.timezone, fractional=False)
    if end != len(text):
        raise _garbage(text, end, kind)
    return min(max(seconds, 0), 0xFFFFFFFF)


def _datetime64(text: bytes, kind: t.DateTime64) -> int:
    seconds, fraction, end = read_datetime(text, kind.timezone)
    if end != len(text):
        raise _garbage(text, end, kind)
    digits = fraction[: kind.precision].ljust(kind.precision, b"0")
    ticks = seconds * 10**kind.precision + int(digits or b"0")
    if not -(1 << 63) <= ticks < 1 << 63:
        raise error("DECIMAL_OVERFLOW", f"'{_show(text)}' is out of range of {kind}")
    return int(ticks)


def _enum(text: bytes, names: dict[bytes, int]) -> int:
    if text in names:
        return names[text]
    if text.lstrip(b"-").isdigit() and int(text) in names.values():
        return int(text)
    known = ", ".join(f"'{_show(name)}'" for name in list(names)[:10])
    raise error("UNKNOWN_ELEMENT_OF_ENUM", f"Unknown element '{_show(text)}' for enum", f"It has {known}")


def _fixed(text: bytes, length: int) -> bytes:
    if len(text) > length:
        raise error("TOO_LARGE_STRING_SIZE", f"String '{_show(text)}' is too long for type FixedString({length})")
    return text.ljust(length, b"\0")


def _uuid(text: bytes, kind: t.UUID) -> bytes:
    digits = text.replace(b"-", b"")
    shaped = len(text) == 32 or (len(text) == 36 and all(text[i : i + 1] == b"-" for i in (8, 13, 18, 23)))
    if len(digits) != 32 or not shaped or re.fullmatch(rb"[0-9a-fA-F]{32}", digits) is None:
        raise error("CANNOT_PARSE_UUID", f"Cannot parse uuid '{_show(text)}'")
    raw = bytes.fromhex(digits.decode())
    return raw[7::-1] + raw[:7:-1]


def _ipv4(text: bytes, kind: t.IPv4) -> int:
    try:
        return int(ipaddress.IPv4Address(text.decode()))
    except ValueError as failure:
        raise error("CANNOT_PARSE_IPV4", f"Cannot parse IPv4 '{_show(text)}'") from failure


def _ipv6(text: bytes, kind: t.IPv6) -> bytes:
    try:
        address = ipaddress.ip_address(text.decode())
    except ValueError as failure:
        raise error("CANNOT_PARSE_IPV6", f"Cannot parse IPv6 '{_show(text)}'") from failure
    return address.packed if isinstance(address, ipaddress.IPv6Address) else b"\0" * 10 + b"\xff\xff" + address.packed


_DECIMAL = re.compile(rb"([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,4}))?")


def _decimal(text: bytes, kind: t.Decimal) -> int | bytes:
    match = _DECIMAL.match(text)
    if match is None or not (match.group(2) or match.group(3)):
        raise _garbage(text, 0, kind)
    if match.end() != len(text):
        raise _garbage(text, match.end(), kind)
    sign, whole, fraction, exponent = match.groups()
    shift = kind.scale - len(fraction) + int(exponent or 0)
    digits = int(whole + fraction)
    value = digits * 10**shift if shift >= 0 else digits // 10 ** min(-shift, 400)
    if value >= 10**kind.precision:
        raise error("ARGUMENT_OUT_OF_BOUND", f"Too many digits in decimal value '{_show(text)}' for {kind}")
    value = int(-value if sign == b"-" else value)
    return value if kind.bits <= 64 else value.to_bytes(kind.bits // 8, "little", signed=True)


_TIME = re.compile(rb"(-?)(?:(?:(\d{1,3}):)?(\d{1,2}):(\d\d)|(\d{1,2}))(?:\.(\d*))?")


def _time(text: bytes, kind: t.Time | t.Time64) -> int:
    match = _TIME.match(text)
    if match is None or (match[2] and len(match[3]) < 2):
        raise error("CANNOT_PARSE_DATETIME", f"Cannot read {kind} from '{_show(text)}'", "Write it as hhh:mm:ss")
    end = match.end() if isinstance(kind, t.Time64) else max(match.end(4), match.end(5))
    if end != len(text):
        raise _garbage(text, end, kind)
    hours, minutes, seconds = (int(group or 0) for group in (match[2], match[3], match[4] or match[5]))
    ticks = hours * 3600 + minutes * 60 + seconds
    if isinstance(kind, t.Time64):
        digits = (match[6] or b"")[: kind.precision].ljust(kind.precision, b"0")
        ticks = ticks * 10**kind.precision + int(digits or b"0")
    return -ticks if match[1] else ticks


_SCALAR: dict[type, Callable[[bytes, Any], Any]] = {
    t.Float: _float,
    t.BFloat16: _bfloat16,
    t.Interval: lambda text, kind: _int(text, t.Int(64, signed=True), wrap=False),
    t.Bool: _bool,
    t.Date: _date,
    t.Date32: _date,
    t.DateTime: _datetime,
    t.DateTime64: _datetime64,
    t.UUID: _uuid,
    t.IPv4: _ipv4,
    t.IPv6: _ipv6,
    t.Decimal: _decimal,
    t.Time: _time,
    t.Time64: _time,
}


# --- bulk parsers: values, and flags of the texts that were parsed for certain


def _windows(texts: pa.Array, width: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], Flags]:
    """(first `width` bytes of the texts that have as many, as a matrix; rows of these texts; lengths of all texts)."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32, count=len(texts) + 1, offset=texts.offset * 4)
    raw = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    rows = np.flatnonzero(lengths >= width)
    if len(rows) == 0:
        return np.zeros((0, width), np.uint8), rows, lengths
    if len(rows) == len(texts) and int(lengths.max()) == width:
        return raw[offsets[0] : offsets[-1]].reshape(-1, width), rows, lengths
    return np.lib.stride_tricks.sliding_window_view(raw, width)[offsets[:-1][rows]], rows, lengths


def _digits(matrix: npt.NDArray[np.uint8], at: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], Flags]:
    """For each row the number of the digits at these positions, and whether all are digits."""
    value = np.zeros(len(matrix), np.int64)
    good = np.ones(len(matrix), np.bool_)
    for position in at:
        digit = matrix[:, position] - np.uint8(48)  # characters below '0' wrap around, so one comparison is enough
        good &= digit < 10
        value = value * 10 + digit
    return value, good


def _bulk_days(matrix: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], Flags]:
    """Days since 1970 of `YYYY-MM-DD`, and flags of valid dates from 1900 to 2299."""
    year, good_year = _digits(matrix, (0, 1, 2, 3))
    month, good_month = _digits(matrix, (5, 6))
    day, good_day = _digits(matrix, (8, 9))
    good = good_year & good_month & good_day & (matrix[:, 4] == 45) & (matrix[:, 7] == 45)
    good &= (year >= 1900) & (year <= 2299) & (month >= 1) & (month <= 12) & (day >= 1)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    first, following = (each.astype("datetime64[D]").astype(np.int64) for each in (months, months + 1))
    return first + day - 1, good & (first + day <= following)


def _bulk_date(kind: t.DataType, texts: pa.Array) -> tuple[npt.NDArray[Any], Flags]:
    matrix, rows, lengths = _windows(texts, 10)
    days, good = _bulk_days(matrix)
    if isinstance(kind, t.Date):
        good &= (days >= 0) & (days <= 0xFFFF)
    return _spread(len(texts), rows, days, good & (lengths[rows] == 10))


def _bulk_datetime(kind: t.DataType, texts: pa.Array) -> tuple[npt.NDArray[Any], Flags]:
    matrix, rows, lengths = _windows(texts, 19)
    days, good = _bulk_days(matrix)
    hour, good_hour = _digits(matrix, (11, 12))
    minute, good_minute = _digits(matrix, (14, 15))
    second, good_second = _digits(matrix, (17, 18))
    good &= good_hour & good_minute & good_second & (hour < 24) & (minute < 60) & (second < 60)
    good &= ((matrix[:, 10] == 32) | (matrix[:, 10] == 84)) & (matrix[:, 13] == 58) & (matrix[:, 16] == 58)
    local = np.where(good, days * 86400 + hour * 3600 + minute * 60 + second, 0)
    precision = kind.precision if isinstance(kind, t.DateTime64) else 0
    seconds = zone(getattr(kind, "timezone", "")).to_utc(local)
    exact = lengths[rows] == 19
    if isinstance(kind, t.DateTime):
        return _spread(len(texts), rows, seconds, good & exact & (seconds >= 0) & (seconds <= 0xFFFFFFFF))
    ticks = seconds * 10**precision
    if precision:
        full, full_rows, _ = _windows(texts, 20 + precision)
        fraction, good_fraction = _digits(full, tuple(range(20, 20 + precision)))
        good_fraction &= (full[:, 19] == 46) & (lengths[full_rows] == 20 + precision)
        at = np.searchsorted(rows, full_rows)
        ticks[at] += np.where(good_fraction, fraction, 0)
        exact[at] |= good_fraction
    if precision > 8:
        exact &= np.abs(seconds) < (1 << 63) // 10**precision
    return _spread(len(texts), rows, ticks, good & exact)


def _spread(
    count: int, rows: npt.NDArray[np.int64], values: npt.NDArray[Any], good: Flags
) -> tuple[npt.NDArray[Any], Flags]:
    if len(rows) == count:
        return np.where(good, values, 0), good
    out, sure = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    out[rows], sure[rows] = np.where(good, values, 0), good
    return out, sure


def _bulk_int(kind: t.DataType, texts: pa.Array) -> tuple[npt.NDArray[Any], Flags]:
    assert isinstance(kind, t.Int)
    plain = pc.match_substring_regex(texts, r"^-?[0-9]{1,18}$" if kind.signed else r"^[0-9]{1,18}$").fill_null(False)
    values = pc.if_else(plain, texts, pa.scalar(b"0", pa.binary())).cast(pa.string()).cast(pa.int64()).to_numpy()
    sure = plain.to_numpy(zero_copy_only=False)
    info = np.iinfo(f"{'i' if kind.signed else 'u'}{kind.bits // 8}")
    fits = (values >= info.min) & (values <= min(int(info.max), (1 << 63) - 1))
    return np.where(fits, values, 0), sure & fits


def _bulk_float(kind: t.DataType, texts: pa.Array) -> tuple[npt.NDArray[Any], Flags]:
    plain = pc.match_substring_regex(texts, r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$").fill_null(False)
    values = pc.if_else(plain, texts, pa.scalar(b"0", pa.binary())).cast(pa.string()).cast(pa.float64()).to_numpy()
    return values, plain.to_numpy(zero_copy_only=False)


_HEX = np.full(256, 16, np.uint8)
_HEX[np.frombuffer(b"0123456789", np.uint8)] = np.arange(10)
_HEX[np.frombuffer(b"abcdef", np.uint8)] = _HEX[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
_UUID_DIGITS = np.array([i for i in range(36) if i not in (8, 13, 18, 23)]).reshape(16, 2)
_UUID_STORED = np.array([*range(7, -1, -1), *range(15, 7, -1)])
"""For each byte of a stored UUID its position in the order of the text: each half is reversed."""


def _canonical_uuids(texts: pa.Array) -> pa.Array | None:
    """The texts as stored UUIDs if all have the form 8-4-4-4-12; None if one has not or is NULL."""
    matrix, rows, lengths = _windows(texts, 36)
    if texts.null_count or len(rows) != len(texts) or len(texts) == 0 or int(lengths.max()) != 36:
        return None
    digits = _HEX[matrix[:, _UUID_DIGITS[_UUID_STORED]]]
    if (matrix[:, [8, 13, 18, 23]] != 45).any() or (digits > 15).any():
        return None
    raw = np.ascontiguousarray(digits[:, :, 0] << 4 | digits[:, :, 1])
    return pa.Array.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(raw)])


_BULK: dict[type, Callable[[Any, pa.Array], tuple[npt.NDArray[Any], Flags]]] = {
    t.Int: _bulk_int,
    t.Float: _bulk_float,
    t.Date: _bulk_date,
    t.Date32: _bulk_date,
    t.DateTime: _bulk_datetime,
    t.DateTime64: _bulk_datetime,
}
