# ruff: noqa: E501  (tables read best with one idea a line)
"""Columns of every type that has an order, and constants of every type to compare them with."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.expr import compile_expression

ROWS = 48
_NUMBERS = [0, 1, 2, 3, 10, 97, 100, 127]
_TEXTS = [
    b"",
    b"a",
    b"ab",
    b"abc",
    b"abcd",
    b"a\0",
    b"a\0\0\0",
    b"b",
    b"1",
    b"1.5",
    b"-1",
    b"2020-01-01",
    b"2020-01-01 00:00:00",
    b"1.2.3.4",
    b"\0",
    b"quick brown fox",
    b"brown",
]
_SECONDS = [0, 1, 86399, 86400, 1577836800, 1577836801, 1577880000, 1580515200, 1577804400]
_DAYS = [0, 1, 18262, 18263, 18293, 100]
_UUIDS = ["00000000-0000-0000-0000-000000000000", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"]

COLUMNS: dict[str, str] = {
    **{f"i{bits}": f"Int{bits}" for bits in (8, 16, 32, 64, 128, 256)},
    **{f"u{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64, 128, 256)},
    "f32": "Float32", "f64": "Float64", "b": "Bool", "s": "String", "fs4": "FixedString(4)", "fs1": "FixedString(1)", "lc": "LowCardinality(String)",
    "lf": "LowCardinality(FixedString(4))", "ns": "Nullable(String)", "lcn": "LowCardinality(Nullable(String))", "nf": "Nullable(FixedString(4))", "ni": "Nullable(Int32)", "d": "Date", "d32": "Date32", "nd": "Nullable(Date)",
    "ts": "DateTime('UTC')", "tt": "DateTime('Asia/Tokyo')", "t0": "DateTime64(0, 'UTC')", "t3": "DateTime64(3, 'UTC')", "t9": "DateTime64(9, 'Asia/Tokyo')",
    "de": "Decimal(9, 2)", "dw": "Decimal(18, 4)", "dx": "Decimal(38, 3)", "dy": "Decimal(76, 1)", "e8": "Enum8('a' = 1, 'b' = 2, '1' = -1)", "e16": "Enum16('a' = 1, 'abc' = 300)", "id": "UUID", "ip": "IPv4", "ip6": "IPv6", "nde": "Nullable(Decimal(9, 2))",
}  # fmt: skip
"""Name -> type."""

CONSTANTS = [
    "0", "1", "2", "-1", "97", "100", "127", "128", "255", "256", "300", "65536", "-129", "4294967296", "18446744073709551615", "-9223372036854775808", "1.0", "1.5", "-1.", "0.1", "1e20", "100.5", "nan", "inf", "true", "false", "NULL",
    "toInt8(1)", "toInt64(1)", "toInt128(1)", "toUInt256(1)", "toInt256(-1)", "toUInt8(100)", "toFloat32(0.1)", "toFloat32(1.5)", "toDecimal32('1.5', 1)", "toDecimal64(1, 4)", "toDecimal128('1.555', 3)", "toDecimal256('100.1', 1)", "toDecimal64('0.00001', 5)",
    "''", "'a'", "'ab'", "'abc'", "'abcd'", "'abcde'", "'b'", "'a\\0'", "'a\\0\\0\\0'", "'1'", "'1.5'", "'-1'", "'1.50'", "'x'", "'zz zz'", "'quick brown fox'", "toFixedString('a', 1)", "toFixedString('a', 4)", "toFixedString('ab', 4)", "toFixedString('abcd', 4)", "toFixedString('a', 6)", "toFixedString('', 4)",
    "toLowCardinality('a')", "toNullable('a')", "toNullable(1)", "CAST('a' AS Enum8('a' = 1, 'b' = 2, '1' = -1))", "CAST('a' AS Enum8('a' = 2))", "CAST('a', 'LowCardinality(String)')", "toString(1)",
    "'2020-01-01'", "'2020-01-01 00:00:00'", "'2020-01-01 12:00:00'", "'1970-01-01'", "toDate('2020-01-01')", "toDate32('2020-01-01')", "toDate32('1950-01-01')", "toDateTime('2020-01-01 00:00:00', 'UTC')", "toDateTime('2020-01-01 00:00:00', 'Asia/Tokyo')", "toDateTime64('2020-01-01 00:00:00.5', 3, 'UTC')", "toDateTime64('2020-01-01 00:00:00', 9, 'Asia/Tokyo')", "toDateTime64('1960-01-01 00:00:00', 0, 'UTC')", "1577836800", "18262", "'1577836800'",
    "'1.2.3.4'", "toIPv4('1.2.3.4')", "toIPv6('::1')", "'::1'", "toIPv6('::ffff:1.2.3.4')", "16909060", "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')", "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'",
]  # fmt: skip

INDEXES = {
    "minmax": "minmax", "set": "set(0)", "set4": "set(4)", "bloom": "bloom_filter", "bloom1": "bloom_filter(0.001)", "token": "tokenbf_v1(128, 2, 0)", "ngram": "ngrambf_v1(2, 128, 2, 0)", "ngram3": "ngrambf_v1(3, 128, 2, 0)",
}  # fmt: skip


def rows(seed: int) -> pa.Table:
    """`ROWS` rows in storage form, their order by chance."""
    rng = np.random.default_rng(seed)
    return pa.table({name: _values(rng, kind) for name, kind in COLUMNS.items()})


def _values(rng: np.random.Generator, kind: str) -> pa.Array:
    plain = kind
    for wrapper in ("LowCardinality(", "Nullable("):
        if plain.startswith(wrapper):
            plain = plain[len(wrapper) : -1]
    pool = _pool(plain)
    values = [pool[i] for i in np.sort(rng.integers(0, len(pool), ROWS)) if rng.random() < 2]
    rng.shuffle(values[: ROWS // 3])
    if "Nullable" in kind:
        values = [None if rng.random() < 0.15 else value for value in values]
    storage = storage_type(parse_type(kind))
    inner = storage.value_type if pa.types.is_dictionary(storage) else storage
    array = pa.array(values, inner)
    return array.dictionary_encode().cast(storage) if pa.types.is_dictionary(storage) else array


def _pool(plain: str) -> list[object]:
    """Storage values of a plain type."""
    width = storage_type(parse_type(plain)).bit_width // 8 if plain != "String" else 0
    if plain.startswith(("Int", "UInt")):
        bits, signed = int(plain.lstrip("UInt")), plain[0] == "I"
        numbers = [
            *_NUMBERS,
            *([-1, -100, -(1 << (bits - 1))] if signed else [(1 << bits) - 1]),
            (1 << (bits - signed)) - 1,
        ]
        return [n.to_bytes(width, "little", signed=signed) for n in numbers] if bits > 64 else list(numbers)
    if plain.startswith("Float"):
        return [0.0, -0.0, 1.0, 1.5, -1.0, float(np.float32(0.1)), 100.0, 100.5, float("inf"), float("nan"), 97.0]
    if plain == "Bool":
        return [0, 1]
    if plain == "String":
        return list(_TEXTS)
    if plain.startswith("FixedString"):
        return [text.ljust(width, b"\0") for text in _TEXTS if len(text) <= width]
    if plain.startswith("DateTime64"):
        scale = 10 ** int(plain[11])
        return [s * scale + f for s in [*_SECONDS, -315619200] for f in {0, scale // 2 if scale > 1 else 0}]
    if plain.startswith("DateTime"):
        return list(_SECONDS)
    if plain.startswith("Date"):
        return [*_DAYS, -7305] if plain == "Date32" else list(_DAYS)
    if plain.startswith("Decimal"):
        scale = int(plain[:-1].split(",")[1])
        numbers = [int(n * 10**scale) for n in (0, 1, 1.5, -1, 100, 97, 100.1)] + [1, 1555 * 10**scale // 1000]
        return [n.to_bytes(width, "little", signed=True) for n in numbers] if width > 8 else list(numbers)
    if plain.startswith("Enum8"):
        return [1, 2, -1]
    if plain.startswith("Enum16"):
        return [1, 300]
    if plain == "UUID":
        raw = [bytes.fromhex(text.replace("-", "")) for text in _UUIDS]
        return [value[7::-1] + value[:7:-1] for value in raw]
    if plain == "IPv4":
        return [0, 16909060, 1, 4294967295]
    return [bytes(16), bytes(15) + b"\1", bytes(10) + b"\xff\xff\1\2\3\4"]


_TYPES = {name: parse_type(kind) for name, kind in COLUMNS.items()}


def binds(condition: str) -> bool:
    """Whether it is taken here."""
    try:
        compile_expression(condition, _TYPES)
    except MergelakeError:
        return False
    return True


@cache
def fitting(name: str) -> list[str]:
    """The constants that the column may be compared with, by = or by IN."""
    return [c for c in CONSTANTS if binds(f"{name} = {c}") or binds(f"{name} IN ({c})")]


def random_atom(rng: random.Random, names: list[str]) -> str:
    """One comparison of a column with constants of any type."""
    name = rng.choice(names)
    known = fitting(name) if rng.random() < 0.9 else CONSTANTS
    constant = rng.choice(known)
    shape = rng.random()
    if shape < 0.45:
        operator = rng.choice(["=", "=", "!=", "<", "<=", ">", ">="])
        return f"{name} {operator} {constant}" if rng.random() < 0.8 else f"{constant} {operator} {name}"
    if shape < 0.7:
        members = ", ".join(rng.choice(known) for _ in range(rng.choice([1, 1, 1, 2, 3])))
        return f"{name} {rng.choice(['IN', 'IN', 'NOT IN'])} ({members})"
    if shape < 0.78:
        return f"{name} BETWEEN {constant} AND {rng.choice(known)}"
    if shape < 0.86:
        other = rng.choice(names)
        pairs = ", ".join(f"({rng.choice(known)}, {rng.choice(fitting(other))})" for _ in range(rng.choice([1, 1, 2])))
        return f"({name}, {other}) {rng.choice(['IN', 'IN', 'NOT IN'])} ({pairs})"
    if shape < 0.92:
        return f"{rng.choice(['startsWith', 'endsWith', 'hasToken'])}({name}, {constant})"
    if shape < 0.97:
        pattern = rng.choice(
            ["'a%'", "'%b%'", "'ab'", "toFixedString('a%', 4)", "'_b%'", "'%brown%'", "toFixedString('ab', 2)"]
        )
        return f"{name} {rng.choice(['LIKE', 'NOT LIKE'])} {pattern}"
    return f"NOT ({random_atom(rng, names)})"
