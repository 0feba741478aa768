"""Types of columns with a few literals of each: values repeat, so that conditions match some rows and not others."""

from __future__ import annotations

_SMALL = ("0", "1", "2", "3", "5", "7")
_SIGNED = (*_SMALL, "-1", "-3")
_INTEGERS = {
    "UInt8": (*_SMALL, "255"),
    "UInt16": (*_SMALL, "65535"),
    "UInt32": (*_SMALL, "4294967295"),
    "UInt64": (*_SMALL, "18446744073709551615"),
    "Int8": (*_SIGNED, "127", "-128"),
    "Int16": (*_SIGNED, "32767", "-32768"),
    "Int32": (*_SIGNED, "2147483647", "-2147483648"),
    "Int64": (*_SIGNED, "9223372036854775807", "-9223372036854775807"),
    "Int128": ("'0'", "'1'", "'7'", "'-3'", "'170141183460469231731687303715884105727'"),
    "UInt256": ("'0'", "'1'", "'2'", "'340282366920938463463374607431768211456'"),
}
_FLOATS = ("0", "0.5", "-1.25", "3", "1000000.5", "-7")
_TEXTS = ("''", "'a'", "'b'", "'abc'", "'it''s'", "'é'", "'12'", "'x y'")
_DATES = ("'1970-01-01'", "'2024-01-05'", "'2024-02-29'", "'2024-03-01'", "'2149-06-06'")
_TIMES = ("'2024-01-05 10:00:00'", "'2024-01-05 10:59:59'", "'2024-03-01 00:00:00'", "'1970-01-01 00:00:00'")
_UUIDS = ("'61f0c404-5cb3-11e7-907b-a6006ad3dba0'", "'00000000-0000-0000-0000-000000000000'")
_LEAVES = {
    **_INTEGERS,
    "Float32": ("0", "0.5", "-1.25", "3", "1000.5"),
    "Float64": (*_FLOATS, "inf"),
    "Decimal(9, 2)": ("'0'", "'1.5'", "'-2.25'", "'100'", "'7'"),
    "Decimal(18, 4)": ("'0'", "'1.5'", "'-2.2501'", "'100'"),
    "Decimal(38, 6)": ("'0'", "'1.5'", "'-2.250001'", "'100000'"),
    "String": _TEXTS,
    "FixedString(3)": ("''", "'a'", "'b'", "'abc'", "'12'"),
    "Date": _DATES,
    "Date32": ("'1930-05-05'", *_DATES[:4]),
    "DateTime('UTC')": _TIMES,
    "DateTime64(3, 'UTC')": (*_TIMES, "'2024-01-05 10:00:00.123'"),
    "UUID": _UUIDS,
    "IPv4": ("'0.0.0.0'", "'10.0.0.1'", "'255.255.255.255'"),
    "Enum8('a' = -1, 'b' = 0, 'c' = 7)": ("'a'", "'b'", "'c'"),
    "Bool": ("true", "false"),
}
_NULLABLE = ("Int32", "UInt64", "Int8", "String", "Float64", "Date", "DateTime64(3, 'UTC')", "Decimal(9, 2)", "UUID")
_DICTIONARIES = ("String", "FixedString(3)", "UInt64", "Date")
_NESTED = {
    "Array(Int32)": ("[]", "[1]", "[1, -2, 3]", "[7, 7]"),
    "Array(String)": ("[]", "['a']", "['a', 'b', '']"),
    "Array(Nullable(String))": ("[]", "['a', NULL]", "[NULL]"),
    "Array(LowCardinality(String))": ("[]", "['a', 'b']", "['b']"),
    "Array(Array(UInt8))": ("[]", "[[1], []]", "[[1, 2], [3]]"),
    "Tuple(UInt8, String)": ("(1, 'a')", "(2, '')", "(1, 'b')"),
    "Tuple(x Int32, y Nullable(String))": ("(1, 'a')", "(-2, NULL)", "(1, NULL)"),
    "Array(Tuple(UInt8, String))": ("[]", "[(1, 'a')]", "[(1, 'a'), (2, 'b')]"),
    "Map(String, UInt8)": ("map()", "map('a', 1)", "map('a', 2, 'b', 3)"),
    "Map(String, Array(String))": ("map()", "map('a', ['x'])", "map('a', [], 'b', ['y', 'z'])"),
}

LITERALS: dict[str, tuple[str, ...]] = {
    **_LEAVES,
    **{f"Nullable({kind})": ("NULL", *_LEAVES[kind]) for kind in _NULLABLE},
    **{f"LowCardinality({kind})": _LEAVES[kind] for kind in _DICTIONARIES},
    "LowCardinality(Nullable(String))": ("NULL", *_TEXTS),
    **_NESTED,
}
"""Type -> literals."""
KINDS = tuple(LITERALS)
UNCHANGED = ("LowCardinality(UInt64)", "LowCardinality(Date)")
"""Types whose columns ClickHouse fails to update: its background has no `allow_suspicious_low_cardinality_types`."""
NUMBERS = tuple(kind for kind in _INTEGERS if kind not in ("Int128", "UInt256"))
"""Integers with which any arithmetic is supported."""
INTEGERS = tuple(_INTEGERS)
KEYS = (
    *("UInt8", "Int8", "Int32", "UInt64", "Int64", "String", "LowCardinality(String)", "FixedString(3)", "Date"),
    *("DateTime('UTC')", "Enum8('a' = -1, 'b' = 0, 'c' = 7)", "UUID", "Decimal(9, 2)", "Nullable(Int32)", "Int16"),
    *("Nullable(String)", "DateTime64(3, 'UTC')", "Tuple(UInt8, String)", "Bool", "Float64", "IPv4", "Int128"),
)
"""Types of columns of sorting keys."""


def without_wrappers(kind: str) -> str:
    """The type without LowCardinality and Nullable."""
    for wrapper in ("LowCardinality(", "Nullable("):
        if kind.startswith(wrapper):
            kind = kind[len(wrapper) : -1]
    return kind


def is_nullable(kind: str) -> bool:
    """Whether NULL is a value of the type."""
    return kind.startswith(("Nullable(", "LowCardinality(Nullable("))
