"""Forms of CODEC(…) on columns of many types: ClickHouse's spelling of what is taken, its codes for what is not."""

from __future__ import annotations

import re

import pytest

from mergelake.api.sql.parser import parse_one
from mergelake.core.base.errors import MergelakeError
from mergelake.table.definition.define import check_schema
from tests.helpers.oracle import oracle

_FORMS = (
    "NONE", "NONE()", "NONE(1)", "NONE(NULL)", "LZ4()", "LZ4(1)", "LZ4(NULL)", "LZ4HC()", "LZ4HC(12)", "LZ4HC(NULL)",
    "LZ4HC('a')", "LZ4HC(1, 2)", "LZ4HC(1.5)", "ZSTD()", "ZSTD(0)", "ZSTD(22)", "ZSTD(23)", "ZSTD(NULL)", "ZSTD('a')",
    "ZSTD(1, 99)", "ZSTD(1, 24, 3)", "Default", "Default()", "Default(1)", "Default(NULL)", "DEFAULT", "Delta()",
    "Delta(1), LZ4", "Delta(3)", "Delta(0)", "Delta(-1)", "Delta(NULL)", "Delta('a')", "Delta(1, 2)",
    "Delta(NULL), LZ4", "DoubleDelta()", "DoubleDelta(4)", "Gorilla()", "Gorilla(4)", "Gorilla(3)", "Gorilla(NULL)",
    "Gorilla('a')", "T64()", "T64('bit')", "T64('x')", "T64(1)", "T64(NULL)", "T64('bit', 1)", "GCD()", "GCD(8)",
    "GCD(NULL)", "GCD, LZ4", "FPC()", "FPC(12)", "FPC(12, 4)", "FPC(12, 8)", "FPC(28)", "Nope", "Nope(1)", "lz4",
    "Delta, Default", "LZ4, ZSTD", "NONE, LZ4", "Delta, Delta, LZ4", "Gorilla, ZSTD", "T64, LZ4", "", "LZ4(",
    "LZ4 LZ4", "1", "NULL", "Delta(4), ",
)  # fmt: skip
_TYPES = (
    "UInt8", "UInt32", "Int64", "UInt128", "Float32", "Float64", "String", "FixedString(5)", "DateTime",
    "Nullable(UInt32)", "Array(UInt32)", "LowCardinality(String)", "Tuple(UInt32, String)", "Decimal(9, 2)", "UUID",
    "BFloat16", "Date", "Enum8('a' = 1)", "Map(String, UInt8)",
)  # fmt: skip
_LEFT = re.compile(r"DoubleDelta\(.+\)")
"""Refused by both; which of two reasons comes first differs."""


def _theirs(columns: str) -> str | int:
    try:
        oracle().query("DROP TABLE IF EXISTS coded")
        oracle().query(f"CREATE TABLE coded {columns}")
        text = "SELECT compression_codec FROM system.columns WHERE table = 'coded' AND name = 'x'"
        return str(oracle().query(text, "TSVRaw")).strip()
    except RuntimeError as failure:
        return int(re.findall(r"Code: (\d+)", str(failure))[-1])


def _ours(columns: str) -> str | int:
    try:
        schema = check_schema(parse_one(f"CREATE TABLE coded {columns}").schema)  # type: ignore[union-attr, arg-type]
        return f"CODEC({schema.columns[1].codec})"
    except MergelakeError as failure:
        return int(failure.code or 0)


@pytest.mark.parametrize("form", _FORMS)
def test_a_codec_is_taken_as_clickhouse_takes_it(form: str) -> None:
    for kind in _TYPES:
        columns = f"(k UInt8, x {kind} CODEC({form})) ENGINE = MergeTree ORDER BY k"
        theirs, ours = _theirs(columns), _ours(columns)
        if _LEFT.fullmatch(form) and isinstance(theirs, int):
            assert isinstance(ours, int), columns
        else:
            assert ours == theirs, columns


@pytest.mark.parametrize("form", ["ZSTD(-1)", "LZ4HC(-1)"])
def test_a_negative_level_is_refused(form: str) -> None:
    """ClickHouse keeps it as a level of 18446744073709551615."""
    assert _ours(f"(k UInt8, x UInt8 CODEC({form})) ENGINE = MergeTree ORDER BY k") == 433
