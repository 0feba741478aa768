# ruff: noqa: E501  (tables read best with one idea a line)
"""Column types and partition keys over them: every expression that somebody may partition by, on values at the edges.

`CASES` are (type of `x`, key) pairs; every table has beside `x` a small `n UInt8` and a signed `i Int32`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from tests.helpers.random_arrays import random_array

_DIVISORS = [
    "2",
    "7",
    "8",
    "100",
    "128",
    "200",
    "256",
    "1000",
    "100000",
    "-7",
    "-200",
    "toInt64(9)",
    "toUInt16(300)",
    "toInt128(11)",
]
_NUMBERS = [
    "x", "-x", "abs(x)", "x + 1", "x - 1", "x * 2", "x > 5", "x = n", "x != 0", "toString(x)", "toInt8(x)", "toUInt8(x)", "toInt64(x)", "toUInt64(x)",
    "CAST(x AS String)", "x::Int16", "if(x > 5, n, 0)", "if(x % 3 = 0, 'a', 'b')", "(x % 3, x % 200)", "tuple(x)", "round(x, -1)", "round(x)", "floor(x)", "ceil(x)", "trunc(x)", "floor(x, -2)",
    "identity(x)", "sign(x)", "toBool(x)", "toFloat64(x) > 1", "toDecimal64(n, 2)", "multiIf(x < 0, -1, x = 0, 0, 1)", "cityHash64(x) % 8", "sipHash64(x) % 8", "xxHash64(x) % 8", "least(x, 5)", "greatest(x, n)",
]  # fmt: skip
_INTEGERS = [
    *(f"x % {divisor}" for divisor in _DIVISORS), "modulo(x, 9)", "mod(x, 9)", "x MOD 9", "x % (n + 1)", "(x % 9) % 4", "x % 2.5", "moduloLegacy(x, 200)", "moduloOrZero(x, n)",
    "positiveModulo(x, 8)", "positiveModulo(x, 200)", "positive_modulo(x, 7)", "pmod(x, 7)", "intDiv(x, 3)", "intDiv(x, -3)", "intDiv(x, 1000)", "x DIV 50", "intDivOrZero(x, n)", "gcd(x, 12)", "lcm(x, 2)",
    "bitAnd(x, 3)", "bitOr(x, 240)", "bitXor(x, n)", "bitShiftRight(x, 3)", "bitShiftLeft(n, 2)", "bitNot(x)", "intHash32(x) % 4", "intHash64(x) % 4", "toDate(x % 9)", "toYYYYMM(toDate(n))", "x IN (1, 2, 3)", "x BETWEEN 0 AND 100", "(n % 3, x % 8)", "(toYYYYMM(toDate(n)), x % 8)", "if(x > 0, x % 8, -1)", "bitTest(n, 1)",
]  # fmt: skip
_UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
DATE_KEYS = [
    "x", "toYYYYMM(x)", "toYYYYMMDD(x)", "toYYYYMMDDhhmmss(x)", "toYear(x)", "toMonth(x)", "toQuarter(x)", "toDayOfMonth(x)", "toDayOfWeek(x)", "toDayOfYear(x)", "toISOYear(x)", "toISOWeek(x)", "toWeek(x)", "toYearWeek(x)", "toWeek(x, 3)", "toYearWeek(x, 5)", "toYearWeek(x, 8)", "monthName(x)", "toMonthNumSinceEpoch(x)", "formatDateTime(x, '%G-W%V')", "formatDateTime(x, '%M %y')", "toMonday(x)",
    "toStartOfMonth(x)", "toStartOfQuarter(x)", "toStartOfYear(x)", "toStartOfWeek(x)", "toStartOfWeek(x, 1)", "toStartOfISOYear(x)", "toLastDayOfMonth(x)", "toLastDayOfWeek(x)", "toStartOfDay(x)",
    *(f"dateTrunc('{unit}', x)" for unit in _UNITS), *(f"date_trunc('{unit}', x)" for unit in ("month",)),
    *(f"toStartOfInterval(x, INTERVAL {count} {unit})" for unit in _UNITS for count in (1, 5)),
    "toDate(x)", "toDate32(x)", "toDateTime(x)", "toDateTime64(x, 3)", "toUnixTimestamp(x)", "formatDateTime(x, '%Y-%m')", "x + 1", "x + INTERVAL 1 MONTH", "x - INTERVAL 2 WEEK", "addDays(x, 3)", "addMonths(x, -1)", "date_diff('month', toDate('2000-01-01'), x)",
    "toYYYYMM(x) % 12", "toYear(x) % 100", "toDayOfMonth(x) % 7", "(toYYYYMM(x), n % 4)", "(toYYYYMM(x), i % 8)", "toRelativeMonthNum(x)", "toRelativeDayNum(x)", "toRelativeWeekNum(x)", "toRelativeYearNum(x)", "toRelativeQuarterNum(x)", "cityHash64(x) % 8", "sipHash64(x) % 8", "toString(x)", "toYYYYMM(toStartOfMonth(x))", "toUInt16(toYear(x))", "x > '2000-01-01'", "if(toYear(x) < 2000, toDate(0), toStartOfMonth(toDate(x)))",
]  # fmt: skip
TIME_KEYS = [
    "toHour(x)", "toMinute(x)", "toSecond(x)", "toStartOfHour(x)", "toStartOfMinute(x)", "toStartOfFiveMinutes(x)", "toStartOfTenMinutes(x)", "toStartOfFifteenMinutes(x)", "toStartOfSecond(x)",
    "toYYYYMM(x, 'Asia/Tokyo')", "toDate(x, 'Asia/Tokyo')", "toTimeZone(x, 'Asia/Tokyo')", "toStartOfMonth(x, 'America/New_York')", "x + INTERVAL 1 HOUR", "toRelativeHourNum(x)", "toRelativeMinuteNum(x)", "toRelativeSecondNum(x)", "formatDateTime(x, '%F %H', 'Asia/Tokyo')", "toStartOfMillisecond(x)", "toMillisecond(x)", "dateTrunc('day', x, 'Asia/Tokyo')", "toStartOfDay(x, 'Asia/Tokyo')", "timeSlot(x)",
]  # fmt: skip
_TEXTS = [
    "x", "lower(x)", "upper(x)", "substring(x, 1, 1)", "left(x, 1)", "length(x)", "length(x) % 3", "empty(x)", "notEmpty(x)", "reverse(x)", "concat(x, '-a')", "x || 'b'", "x = 'a'", "x LIKE 'a%'", "startsWith(x, 'a')", "cityHash64(x) % 8", "sipHash64(x) % 8", "position(x, 'a')",
    "toString(x)", "trimBoth(x)", "(x, n)", "(lower(x), i % 5)", "if(empty(x), 'none', x)", "x IN ('a', 'b')", "CAST(x AS LowCardinality(String))", "toUInt32OrZero(x)", "ascii(x)", "identity(x)", "tuple(x, n)", "coalesce(x, 'z')", "ifNull(x, 'z')", "isNull(x)", "assumeNotNull(x)", "toNullable(x)", "xxHash32(x) % 4", "murmurHash3_32(x) % 4", "farmHash64(x) % 4", "halfMD5(x) % 4", "crc32(x) % 4", "substringIndex(x, '-', 1)", "splitByChar('-', x)", "replaceAll(x, 'a', 'b')", "MD5(x)",
]  # fmt: skip
_OTHERS = [
    "x",
    "toString(x)",
    "cityHash64(x) % 8",
    "sipHash64(x) % 8",
    "(x, n)",
    "identity(x)",
    "tuple(x)",
    "x = x",
    "isNull(x)",
]
_DECIMALS = ["toInt64(x)", "toInt32(x) % 7", "intDiv(x, 2)", "x % 3", "round(x)", "round(x, 1)", "floor(x)", "floor(x, 1)", "x > 0", "x + 1", "x * 2", "toFloat64(x) > 0", "abs(x)", "-x", "toDecimal64(n, 3)", "sign(x)", "identity(x)"]  # fmt: skip
_ENUMS = [
    "toString(x)",
    "CAST(x AS Int8)",
    "CAST(x AS Int16)",
    "toInt8(x)",
    "x = 'a'",
    "x IN ('a', 'b')",
    "CAST(x AS String)",
    "toInt16(x) % 3",
    "(x, i % 3)",
]
_TUPLES = ["x", "x.1", "x.2", "tupleElement(x, 1) % 3", "(x, n)", "cityHash64(x) % 8", "x.1 % 200"]
_ARRAYS = ["x", "length(x)", "x[1]", "x[1] % 8", "empty(x)", "has(x, 1)", "(x, n)", "cityHash64(x) % 8"]

INTEGER_TYPES = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)]
DATE_TYPES = ["Date", "Date32"]
TIME_TYPES = [
    "DateTime", "DateTime('UTC')", "DateTime('Europe/Berlin')", "DateTime('Asia/Kolkata')", "DateTime64(0, 'UTC')", "DateTime64(3, 'UTC')",
    "DateTime64(6, 'America/New_York')", "DateTime64(9, 'UTC')",
]  # fmt: skip
_FAMILIES: list[tuple[list[str], list[str]]] = [
    ([*INTEGER_TYPES, "Bool", "Nullable(Int32)", "Nullable(UInt64)", "LowCardinality(UInt32)", "LowCardinality(Int16)", "LowCardinality(Nullable(Int64))"], _NUMBERS + _INTEGERS),
    (["Float32", "Float64", "Nullable(Float64)"], [*_NUMBERS, "x % 3", "x % -7", "intDiv(x, 2)", "positiveModulo(x, 3)"]),
    ([*DATE_TYPES, "Nullable(Date)", "LowCardinality(Date)", "Nullable(Date32)"], DATE_KEYS),
    ([*TIME_TYPES, "Nullable(DateTime('UTC'))", "Nullable(DateTime64(3, 'UTC'))", "LowCardinality(DateTime('UTC'))"], DATE_KEYS + TIME_KEYS),
    (["String", "FixedString(5)", "LowCardinality(String)", "LowCardinality(Nullable(String))", "Nullable(String)", "LowCardinality(FixedString(3))"], _TEXTS),
    (["Decimal(9, 2)", "Decimal(18, 4)", "Decimal(38, 10)", "Decimal(76, 20)", "Nullable(Decimal(9, 2))"], _OTHERS + _DECIMALS),
    (["UUID", "IPv4", "IPv6", "Time", "Time64(3)", "Nullable(UUID)", "Nullable(IPv6)", "Nullable(IPv4)", "LowCardinality(IPv4)"], _OTHERS),
    (["Enum8('a' = -3, 'b' = 4)", "Enum16('a' = -300, 'b' = 0, 'c' = 300)", "Nullable(Enum8('a' = -3, 'b' = 4))"], _OTHERS + _ENUMS),
    (["Tuple(Int32, String)", "Tuple(a Int16, b UInt8)", "Tuple(Date, Nullable(Int8))"], _TUPLES),
    (["Array(Int32)", "Array(String)", "Array(Nullable(UInt8))"], _ARRAYS),
]  # fmt: skip

CASES = [(kind, key) for kinds, keys in _FAMILIES for kind in kinds for key in dict.fromkeys(keys)]
"""(type of x, key), all that ClickHouse may or may not take."""


def key_rows(data_type: str, rows: int, seed: int) -> pa.Table:
    """Few distinct values of `x`, those at the edges of its type among them, beside `n` and `i`."""
    rng = np.random.default_rng(seed)
    kind = parse_type(data_type)
    few = _few(rng, kind, 5)
    x = few.take(pa.array(np.concatenate([np.arange(len(few)), rng.integers(0, len(few), rows - len(few))])))
    n = pa.array(rng.integers(0, 7, rows).astype(np.uint8))
    i = pa.array(rng.integers(-60, 60, rows).astype(np.int32))
    return pa.table({"x": x, "n": n, "i": i})


def _few(rng: np.random.Generator, kind: t.DataType, count: int) -> pa.Array:
    """`count` values: small ones around zero, ones across the type, and the type's edges."""
    inner = t.inner_type(kind)
    edges = random_array(rng, kind, count, 0.4)
    if isinstance(inner, t.Date32):
        near, edges = [-25567, -1, 0, 1, -7305, 11016, 47481], random_array(rng, kind, count)
    elif isinstance(inner, t.DateTime64):
        scale = 10**inner.precision
        near = [
            second * scale + fraction
            for second in (-2208988800, -86401, -1, 0, 1, 951782400, 1711846800)
            for fraction in (0, scale // 2)
        ]
    elif isinstance(inner, (t.Int, t.Date, t.DateTime)) and inner_bits(inner) <= 64:
        signed = isinstance(inner, t.Int) and inner.signed
        near = [-150, -101, -9, -8, -1, 0, 1, 7] if signed else [0, 1, 7, 8, 9, 101, 150, 200]
        near = [value for value in near if -(1 << 7) <= value < 1 << (7 + (not signed)) or inner_bits(inner) > 8]
    elif isinstance(inner, t.Decimal) and inner.bits <= 64:
        near = [-1050, -150, -100, -1, 0, 1, 50, 1049]
    elif isinstance(inner, t.String):
        near = [b"", b"a", b"A-b", "é".encode(), b"12", b"a%", b" a ", b"2020-01-01"]
        edges = random_array(rng, kind, 6)
    else:
        return edges
    storage = storage_type(kind)
    if pa.types.is_dictionary(storage):
        values = pa.concat_arrays([pa.array(near, storage.value_type), edges.dictionary_decode()])
        return values.dictionary_encode().cast(storage)
    return pa.concat_arrays([pa.array(near, storage), edges])


def inner_bits(kind: t.DataType) -> int:
    """Bits of a stored number."""
    return storage_type(kind).bit_width
