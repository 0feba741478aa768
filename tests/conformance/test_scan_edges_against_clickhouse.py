"""Predicates at the edges of types, where an index easily loses a row: the same rows as ClickHouse finds."""

from __future__ import annotations

from typing import Any

import pytest

import mergelake as ml

pytestmark = pytest.mark.chdb

BIG = "(9223372036854775808), (5), (18446744073709551615), (0)"
FLOATS = "(0, 0), (-0.0, -0.0), (nan, nan), (1, NULL), (0.5, 0.1)"
DAYS = "('2025-01-01'), ('2106-02-07'), ('2106-02-08'), ('1970-01-01')"
WIDE_DAYS = f"{DAYS}, ('1900-01-01'), ('2299-01-01')"


def assert_same(oracle: Any, where: str, columns: str, order: str, values: str, extra: str = "") -> None:
    body = f"({columns}) ENGINE = MergeTree {extra} ORDER BY {order} SETTINGS allow_nullable_key = 1"
    insert = f"INSERT INTO edges VALUES {values}"
    shown = columns.split()[0]
    oracle.query("DROP TABLE IF EXISTS edges SYNC")
    oracle.query(f"CREATE TABLE edges {body}")
    oracle.query(insert)
    # Asked of a set without any index: ClickHouse's own may lose rows here.
    plain = f"SELECT toString({shown}) AS x FROM (SELECT * FROM edges LIMIT 1000) WHERE {where} ORDER BY x"
    theirs = bytes(oracle.query(plain, "RawBLOB").bytes())
    with ml.connect("memory://edges") as db:
        db.sql("DROP TABLE IF EXISTS edges")
        db.sql(f"CREATE TABLE edges {body}")
        db.sql(insert)
        count = db.table("edges").scan([shown], where).arrow().num_rows
        every = oracle.query(f"SELECT count() FROM (SELECT * FROM edges LIMIT 1000) WHERE {where}", "TSV")
        assert count == int(str(every)), (where, theirs)


@pytest.mark.parametrize("kind", ["Date", "Date32", "DateTime64(3, 'UTC')"])
@pytest.mark.parametrize(
    "where",
    [
        "toDateTime(d) >= '2024-11-03 01:30:00'",
        "toDateTime(d) < '2024-11-03 01:30:00'",
        "toDate(d) >= '2024-01-01'",
        "toDate(d) < '2024-01-01'",
        "toStartOfDay(d) >= '2024-11-03'",
    ],
)
def test_a_conversion_of_days_that_wraps_after_its_last_day_loses_no_row(oracle: Any, where: str, kind: str) -> None:
    values = DAYS if kind == "Date" else WIDE_DAYS
    assert_same(oracle, where, f"d {kind}", "d", values)


@pytest.mark.parametrize("where", ["toUnixTimestamp(d) >= 1730608200", "toUnixTimestamp(d) < 1730608200"])
def test_unix_timestamps_of_days_after_2106_are_found(oracle: Any, where: str) -> None:
    assert_same(oracle, where, "d Date", "d", DAYS)


@pytest.mark.parametrize("where", ["intDiv(c, -3) >= 1", "intDiv(c, -3) < 0", "intDiv(c, -3) = -1"])
def test_an_unsigned_key_divided_by_a_negative_number_loses_no_row(oracle: Any, where: str) -> None:
    assert_same(oracle, where, "c UInt64", "c", BIG)


@pytest.mark.parametrize("order", ["f", "n", "(n DESC)", "tuple()"])
@pytest.mark.parametrize(
    "where",
    [
        "f IN (0)",
        "f NOT IN (0)",
        "f IN (-0.0, 5)",
        "f NOT IN (-0.0)",
        "f IN (nan, 1)",
        "f NOT IN (nan)",
        "n IN (toFloat32(nan))",
        "n NOT IN (0)",
        "n IN (0.1, 0, 3, 4, 5, 6)",
        "(f, n) IN ((-0.0, -0.0), (nan, nan))",
    ],
)
def test_in_compares_floats_by_their_bits(oracle: Any, where: str, order: str) -> None:
    assert_same(oracle, where, "f Float32, n Nullable(Float64)", order, FLOATS)


@pytest.mark.parametrize("where", ["endsWith(toString(s), 'b')", "length(s) = 3"])
def test_any_function_of_a_low_cardinality_fixed_string_may_be_asked_of_partitions(oracle: Any, where: str) -> None:
    columns = "s LowCardinality(FixedString(3))"
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    assert_same(oracle, where, columns, "tuple()", "('a'), ('b'), ('abb')", "PARTITION BY s")


@pytest.mark.parametrize(
    "where",
    [r"s = '\xff'", "length(s) = 1", "length(s) = 2", "length(s) = 4", "s = 'é'", r"s = '\e'", "s = 'it''s'"],
)
def test_escapes_in_inserted_values_are_bytes_and_unknown_ones_keep_their_backslash(oracle: Any, where: str) -> None:
    values = r"('\xff'), ('\%'), ('a\_c'), ('\e'), ('\xc3\xa9'), ('\/'), ('it''s'), ('\xff\xfe')"
    assert_same(oracle, where, "s String", "s", values)


@pytest.mark.parametrize("where", ["NOT empty(s)", "NOT notEmpty(s)", "NOT startsWith('ab', s)", "empty(s)"])
def test_a_negated_function_of_a_partition_key_is_negated_for_its_pruning_too(oracle: Any, where: str) -> None:
    if "startsWith" not in where:
        assert_same(oracle, where, "s FixedString(3)", "tuple()", "('a'), ('abb'), ('')", "PARTITION BY s")
    assert_same(oracle, where, "s String", "tuple()", "('ab'), ('abb'), ('')", "PARTITION BY s")


@pytest.mark.parametrize("where", ["f = -0.0", "f = 0", "f != 0", "f IN (-0.0)", "f NOT IN (0)", "f IN (nan)"])
def test_a_bloom_filter_knows_that_both_zeros_are_equal(oracle: Any, where: str) -> None:
    columns = "f Float32, INDEX i f TYPE bloom_filter(0.0001) GRANULARITY 1"
    for value in ("(0)", "(-0.0)", "(nan)"):
        assert_same(oracle, where, columns, "tuple()", value)


def test_an_escaped_byte_in_place_of_a_number_is_refused() -> None:
    with ml.connect("memory://edges") as db:
        db.sql("CREATE TABLE IF NOT EXISTS numbers (a Int32) ENGINE = MergeTree ORDER BY a")
        with pytest.raises(ml.InvalidInputError):
            db.sql(r"INSERT INTO numbers VALUES ('\xff')")


@pytest.mark.parametrize(("kind", "most"), [("UInt64", 2**64 - 1), ("Int64", 2**63 - 1)])
@pytest.mark.parametrize("where", ["c + 1 < 3", "1 + c < 3", "c - 1 > 5", "3 - c < 0", "c + 1 IS NULL"])
def test_sums_that_wrap_are_found_beside_null(oracle: Any, kind: str, most: int, where: str) -> None:
    values = f"(5), ({most}), (NULL)"
    assert_same(oracle, where, f"c Nullable({kind})", "c", values)
    assert_same(oracle, where, f"c Nullable({kind}), INDEX i c TYPE minmax", "tuple()", values)
