"""Schemas that ClickHouse refuses are refused here with its code, and those that it takes are taken."""

from __future__ import annotations

import re

import pytest

from mergelake.core.errors import MergelakeError
from mergelake.table.define import define

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
