# ruff: noqa: E501  (tables read best with one idea a line)
"""Schemas that ClickHouse refuses are refused here with its code, and those that it takes are taken."""

from __future__ import annotations

import re

import pytest

from mergelake.api.sql.parser import parse_one
from mergelake.core.base.errors import MergelakeError
from mergelake.table.definition.define import check_schema, define

COLUMNS = {"k": "UInt64", "s": "String", "t": "DateTime", "n": "Nullable(Int32)", "f": "Float64", "d": "UInt8"}
OTHERS = {"b": "Bool", "e": "Enum8('x' = 1)", "h": "Date32", "m": "DateTime64(3)", "c": "Decimal(9, 2)"}
COLUMNS |= OTHERS

CASES = [
    {"order_by": "k"},
    {"order_by": ["k", "s", "f"], "primary_key": ["k"]},
    {"order_by": "k", "partition_by": ["toYYYYMM(t)", "d"]},
    {"order_by": "toDate(t)"},
    {},
    {"order_by": "nobody"},
    {"order_by": "lenght(s)"},
    {"order_by": ["k", "k"]},
    {"order_by": "n"},
    {"order_by": "1"},
    {"order_by": ["k", "s"], "primary_key": "s"},
    {"order_by": "k", "primary_key": ["k", "s"]},
    {"order_by": "k", "partition_by": "f"},
    {"order_by": "k", "partition_by": "n"},
    {"order_by": "k", "partition_by": "nobody"},
    {"order_by": "k", "partition_by": ["d", "d"]},
    {"order_by": "k", "engine": "MergeTee"},
    {"order_by": "k", "engine": "MergeTree(k)"},
    {"order_by": "k", "engine": "ReplacingMergeTree"},
    {"order_by": "k", "engine": "ReplacingMergeTree(t)"},
    {"order_by": "k", "engine": "ReplacingMergeTree(f, d)"},
    {"order_by": "k", "engine": "ReplacingMergeTree(s)"},
    {"order_by": "k", "engine": "ReplacingMergeTree(n)"},
    {"order_by": "k", "engine": "ReplacingMergeTree(t, k)"},
    {"order_by": "k", "engine": "ReplacingMergeTree(nobody)"},
    {"order_by": "k", "engine": "ReplacingMergeTree(k, d, t)"},
    *({"order_by": "k", "engine": f"ReplacingMergeTree({name})"} for name in OTHERS),
    {"order_by": "k", "settings": {"index_granularty": 1}},
    {"order_by": "k", "settings": {"index_granularity": 0}},
    {"order_by": "k", "settings": {"default_compression_codec": "LZ5"}},
    {"order_by": "n", "settings": {"allow_nullable_key": 1}},
]


def statement(arguments):
    def key(given):
        return given if isinstance(given, str) and given else f"({', '.join(given)})" if given else "tuple()"

    clauses = [
        f"CREATE TABLE define_case ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})",
        f"ENGINE = {arguments.get('engine', 'MergeTree')}",
        f"PARTITION BY {key(arguments['partition_by'])}" if "partition_by" in arguments else "",
        f"ORDER BY {key(arguments.get('order_by', ''))}",
        f"PRIMARY KEY {key(arguments['primary_key'])}" if "primary_key" in arguments else "",
    ]
    settings = [f"{name} = {value!r}" for name, value in arguments.get("settings", {}).items()]
    return " ".join(clauses) + (f" SETTINGS {', '.join(settings)}" if settings else "")


def clickhouse_code(oracle, arguments):
    oracle.query("DROP TABLE IF EXISTS define_case SYNC")
    try:
        oracle.query(statement(arguments))
    except RuntimeError as failure:
        return int(re.search(r"Code: (\d+)", str(failure)).group(1))
    oracle.query("DROP TABLE define_case SYNC")
    return 0


def our_code(arguments):
    try:
        define(COLUMNS, **arguments)
    except MergelakeError as failure:
        return failure.code
    return 0


@pytest.mark.parametrize("arguments", CASES, ids=lambda a: " ".join(f"{k}={v}" for k, v in a.items()) or "no key")
def test_a_schema_is_judged_as_clickhouse_judges_it(oracle, arguments):
    assert our_code(arguments) == clickhouse_code(oracle, arguments)


KEYS = [
    "PRIMARY KEY k", "PRIMARY KEY (k, s)", "PRIMARY KEY tuple()", "PRIMARY KEY k ORDER BY tuple()", "PRIMARY KEY s ORDER BY (k, s)", "PRIMARY KEY 1", "PRIMARY KEY n",
    "ORDER BY (tuple())", "ORDER BY tuple(tuple())", "ORDER BY (tuple(), k)", "ORDER BY 1", "ORDER BY (k, 1)", "ORDER BY NULL", "ORDER BY k * NULL", "ORDER BY ((k, s))", "ORDER BY (k)",
    "ORDER BY w", "ORDER BY (k, w)", "ORDER BY w.a", "ORDER BY w.b", "ORDER BY tuple(n)", "ORDER BY (k, tuple(n))", "ORDER BY w SETTINGS allow_nullable_key = 1", "ORDER BY k PARTITION BY w", "ORDER BY k PARTITION BY (d, tuple(n))",
    "ORDER BY k PARTITION BY (tuple())", "ORDER BY round(f, 2)", "ORDER BY floor(f)", "ORDER BY identity(k)", "ORDER BY gcd(d, 12)", "ORDER BY k PARTITION BY round(f)", "ORDER BY k PARTITION BY floor(c)", "ORDER BY moduloLegacy(k, 8)", "ORDER BY k PARTITION BY k % 8",
    "ORDER BY n.null", "ORDER BY (s.size, k)", "ORDER BY a.size0", "ORDER BY a", "ORDER BY m", "ORDER BY m.keys PARTITION BY a.size0", "ORDER BY k PARTITION BY n.null", "ORDER BY w.b.size", "ORDER BY w.zz", "ORDER BY k.null", "ORDER BY a.size1",
    "ORDER BY (k, a, m)", "ORDER BY q", "ORDER BY g", "ORDER BY k PARTITION BY g", "ORDER BY k PARTITION BY m", "ORDER BY k PARTITION BY a", "ORDER BY k + k", "ORDER BY nullIf(k, k)", "ORDER BY (k, nullIf(k, k)) SETTINGS allow_nullable_key = 1", "ORDER BY nullIf(k, k) SETTINGS allow_suspicious_indices = 1, allow_nullable_key = 1",
    "ORDER BY k * NULL SETTINGS allow_nullable_key = 1", "ORDER BY k PARTITION BY k * NULL", "ORDER BY k PARTITION BY k * NULL SETTINGS allow_nullable_key = 1", "ORDER BY k = NULL SETTINGS allow_nullable_key = 1", "ORDER BY ignore(k)", "ORDER BY (k, now())", "ORDER BY k PARTITION BY today()",
    "ORDER BY k PARTITION BY n2 SETTINGS allow_nullable_key = 1", "ORDER BY [q]", "ORDER BY (k, tuple(q))", "ORDER BY av", "ORDER BY k PARTITION BY (k, av)",
]  # fmt: skip

NESTED = {
    "w": "Tuple(a Nullable(Int32), b String)",
    "a": "Array(Int32)",
    "m": "Map(String, UInt8)",
    "q": "Variant(String, UInt8)",
    "av": "Array(Dynamic)",
    "g": "SimpleAggregateFunction(sum, UInt64)",
    "n2": "Nullable(Float64)",
}


@pytest.mark.parametrize("clauses", KEYS)
def test_keys_have_the_codes_of_clickhouse(oracle, clauses):
    columns = ", ".join(f"{name} {kind}" for name, kind in {**COLUMNS, **NESTED}.items())
    text = f"CREATE TABLE key_case ({columns}) ENGINE = MergeTree {clauses}"
    oracle.query("DROP TABLE IF EXISTS key_case SYNC")
    try:
        oracle.query(text)
        expected = 0
    except RuntimeError as failure:
        expected = int(re.search(r"Code: (\d+)", str(failure)).group(1))
    try:
        schema = check_schema(parse_one(text).schema)
        found = 0
    except MergelakeError as failure:
        found = failure.code
    assert found == expected
    if not found and "ORDER" not in clauses:
        assert schema.order_by == schema.primary_key


def test_a_primary_key_among_the_columns_sorts(oracle):
    schema = check_schema(parse_one("CREATE TABLE t (k UInt8, s String, PRIMARY KEY (s, k)) ENGINE = MergeTree").schema)
    assert schema.order_by == schema.primary_key == ("s", "k")
    assert define({"k": "UInt8"}, primary_key="k").order_by == ("k",)
