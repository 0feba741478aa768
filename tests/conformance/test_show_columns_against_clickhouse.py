"""SHOW COLUMNS gives what ClickHouse gives."""

from __future__ import annotations

from typing import Any

import pytest

import mergelake as ml

TABLE = """CREATE TABLE shown.t (zone LowCardinality(Nullable(String)), k UInt32,
b Nullable(String) DEFAULT 'x' COMMENT 'it''s', d Date MATERIALIZED toDate(k), `K 2` UInt8 DEFAULT k + 1,
n Nested(a UInt8), a Array(Nullable(UInt8)))
ENGINE = MergeTree PARTITION BY d PRIMARY KEY k ORDER BY (k, lower(assumeNotNull(b)))"""


WORDS = [
    "COLUMNS FROM shown.t",
    "FULL COLUMNS IN t FROM shown",
    "FIELDS FROM shown.t NOT ILIKE 'k%'",
    "COLUMNS FROM shown.t LIKE 'none'",
]


@pytest.mark.parametrize("words", WORDS)
def test_columns_of_a_table(oracle: Any, words: str) -> None:
    oracle.query("CREATE DATABASE IF NOT EXISTS shown")
    oracle.query("DROP TABLE IF EXISTS shown.t SYNC")
    db = ml.connect("memory://")
    db.sql("CREATE DATABASE shown")
    for run in (oracle.query, db.sql):
        run(TABLE)
    theirs = str(oracle.query(f"SHOW {words}", "TSVWithNamesAndTypes"))
    assert db.sql(f"SHOW {words}").text("TSVWithNamesAndTypes") == theirs
