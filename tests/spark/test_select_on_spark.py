"""The hundred SELECTs on real Spark tasks, each with a ClickHouse of its own: the local answer, or a reason."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.query.tokens import split_statements
from mergelake.testing.webanalytics import CREATE_TABLE, generate

QUERIES = Path(__file__).parents[1] / "conformance" / "queries"
ROWS, INSERTS = 12_000, 3
SPLIT_LEAST = 60
"""Of all statements, so many at least are spread over tasks; the others have joins, subqueries, FINAL, totals."""


@pytest.fixture(scope="module")
def db(tmp_path_factory, spark):
    """The web-analytics tables in a directory, three parts each."""
    database = ml.connect(str(tmp_path_factory.mktemp("web")), spark=spark)
    database.sql("CREATE DATABASE web; USE web")
    database.sql(CREATE_TABLE.format(name="hits") + "SETTINGS index_granularity = 512")
    database.sql("CREATE TABLE regions (RegionID UInt32, name String) ENGINE = MergeTree ORDER BY RegionID")
    database.sql(
        "CREATE TABLE visits (VisitID UInt64, Version UInt32, Pages UInt16, Note LowCardinality(String)) "
        "ENGINE = ReplacingMergeTree(Version) ORDER BY VisitID"
    )
    rows = generate(ROWS, seed=7)
    for number in range(INSERTS):
        database.table("web.hits").append(rows.slice(number * ROWS // INSERTS, ROWS // INSERTS))
        ids = pa.array(range(number * 100, number * 100 + 600), pa.uint64())
        database.table("web.visits").append(
            {"VisitID": ids, "Version": [number] * 600, "Pages": [number] * 600, "Note": ["paid"] * 600}
        )
    database.table("web.regions").append({"RegionID": list(range(1, 301)), "name": [f"Region {i}" for i in range(300)]})
    return database


def test_the_spark_executor_answers_as_the_local_one_or_says_why_it_ran_locally(db):
    split = 0
    for path in sorted(QUERIES.glob("*.sql")):
        text = path.read_text()
        for start, end in split_statements(text):
            query = text[start:end]
            found = db.sql(query, settings={"executor": "spark"})
            here = db.sql(query, settings={"executor": "local"})
            assert found.types == here.types, query
            assert found.arrow().to_pylist() == here.arrow().to_pylist(), query
            assert found.stats.reason, query
            split += found.stats.executor == "spark"
    assert split >= SPLIT_LEAST


def test_explain_says_which_executor_and_why(db):
    spread = "\n".join(
        str(row[0])
        for row in db.sql("EXPLAIN SELECT OS, count() FROM hits GROUP BY OS", settings={"executor": "spark"}).rows()
    )
    assert "Executor: spark" in spread
    joined = "EXPLAIN SELECT name, count() FROM hits JOIN regions USING RegionID GROUP BY name"
    assert "Executor: local" in str(db.sql(joined, settings={"executor": "spark"}).rows()[0][0])
