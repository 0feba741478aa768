"""A stock ClickHouse has its own views and unions over published tables, by what SHOW CREATE prints here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mergelake as ml

pytestmark = pytest.mark.chdb
QUERIES = (
    "SELECT * FROM shop.large ORDER BY k",
    "SELECT s, count() FROM shop.everything GROUP BY s ORDER BY s",
    "SELECT k, s FROM shop.everything WHERE k = 7 ORDER BY s",
    "SELECT k, _table FROM shop.everything WHERE k < 3 ORDER BY k, _table",
    "SELECT * FROM shop.above(least = 18) ORDER BY k",
)


def _publish(db: ml.Database, oracle: Any, *names: str) -> None:
    for name in names:
        table = db.table(f"shop.{name}")
        table.publish()
        statement = table.attach_statement(refresh_seconds=1).replace("CREATE TABLE", "CREATE OR REPLACE TABLE")
        oracle.query(statement)


def test_views_and_unions_over_published_tables(tmp_path: Path, oracle: Any) -> None:
    db = ml.connect(tmp_path)
    oracle.query("DROP DATABASE IF EXISTS shop SYNC")
    for run in (db.sql, oracle.query):
        run("CREATE DATABASE shop")
    for number, name in enumerate(("sales_old", "sales_new")):
        db.sql(f"CREATE TABLE shop.{name} (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
        db.sql(f"INSERT INTO shop.{name} SELECT number * {number + 1}, '{name}' FROM numbers(10)")
    db.sql("CREATE VIEW shop.large AS SELECT k, s FROM shop.sales_new WHERE k > 5")
    db.sql("CREATE VIEW shop.above AS SELECT k FROM shop.large WHERE k >= {least:UInt64}")
    db.sql("CREATE TABLE shop.everything ENGINE = Merge('shop', '^sales_')")
    _publish(db, oracle, "sales_old", "sales_new")
    for name in ("large", "above", "everything"):
        oracle.query(db.sql(f"SHOW CREATE TABLE shop.{name}").scalar())
    for query in QUERIES:
        assert str(oracle.query(query, "TSVWithNamesAndTypes")) == db.sql(query).text("TSVWithNamesAndTypes"), query

    before = str(oracle.query(QUERIES[1], "TSV"))
    db.sql(
        "CREATE OR REPLACE TABLE shop.sales_new ENGINE = MergeTree ORDER BY k "
        "AS SELECT k + 1 AS k, 'newer' AS s FROM shop.sales_new"
    )
    assert str(oracle.query(QUERIES[1], "TSV")) == before  # the old table, until the new one is attached
    _publish(db, oracle, "sales_new")
    for query in QUERIES:
        assert str(oracle.query(query, "TSVWithNamesAndTypes")) == db.sql(query).text("TSVWithNamesAndTypes"), query
    for name in ("large", "everything"):
        with pytest.raises(ml.MergelakeError, match="NOT_IMPLEMENTED"):
            db.table(f"shop.{name}")
    oracle.query("DROP DATABASE shop SYNC")
