"""The hundred SELECTs on real Spark tasks, each with a ClickHouse of its own: the local answer, or a reason."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.api.sql.script import split_statements
from mergelake.core.base.errors import InvalidInputError
from mergelake.testing.webanalytics import CREATE_TABLE, generate
from tests.helpers.rounds import LONG

QUERIES = Path(__file__).parents[1] / "conformance" / "queries"
ROWS, INSERTS = 12_000, 3
EVERY = 1 if LONG else 2
SPLIT_LEAST = 120 // EVERY
"""Of all statements, so many at least are spread over tasks; others have FINAL of few rows, or windows."""


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
    texts = [path.read_text() for path in sorted(QUERIES.glob("*.sql"))]
    queries = [text[start:end] for text in texts for start, end in split_statements(text)]
    split = 0
    for query in queries[::EVERY]:
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
    window = "EXPLAIN SELECT OS, sum(1) OVER (ORDER BY WatchID) FROM hits"
    assert "Executor: local" in str(db.sql(window, settings={"executor": "spark"}).rows()[0][0])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name, count() AS c FROM hits JOIN regions USING RegionID GROUP BY name ORDER BY c, name",
        "SELECT count() FROM hits WHERE RegionID IN (SELECT RegionID FROM regions WHERE name LIKE '%7')",
        "SELECT OS, count() FROM hits WHERE UserID > (SELECT avg(UserID) FROM hits) GROUP BY ROLLUP(OS) ORDER BY ALL",
        "WITH c AS (SELECT OS, count() AS n FROM hits GROUP BY 1) SELECT * FROM c JOIN c AS b USING (OS, n) ORDER BY 1",
        "SELECT OS FROM hits WHERE OS < 5 UNION DISTINCT SELECT OS FROM hits WHERE OS > 20 ORDER BY ALL",
        "SELECT DISTINCT OS, RegionID FROM hits ORDER BY OS, RegionID DESC LIMIT 20, 5",
        "SELECT OS, WatchID FROM hits ORDER BY OS, WatchID LIMIT 2 BY OS",
        "SELECT WatchID, sum(OS) OVER (PARTITION BY UserID ORDER BY WatchID) AS s FROM hits ORDER BY ALL",
        "SELECT OS, max(n) FROM (SELECT OS, count() OVER (PARTITION BY UserID) AS n FROM hits) GROUP BY OS ORDER BY 1",
    ],
)
def test_each_form_is_spread(db, query):
    found = db.sql(query, settings={"executor": "spark"})
    assert found.stats.executor == "spark"
    rows, expected = found.rows(), db.sql(query, settings={"executor": "local"}).rows()
    if "UNION" in query:  # whose ORDER BY is that of its last SELECT
        rows, expected = sorted(rows), sorted(expected)
    assert rows == expected


VIEWS = (
    "CREATE VIEW v AS SELECT OS, UserID, WatchID, RegionID AS r FROM hits WHERE OS < 30",
    "CREATE VIEW w AS SELECT r, count() AS c, uniq(UserID) AS u FROM v GROUP BY r",
    "CREATE VIEW named AS SELECT RegionID FROM regions WHERE name LIKE {like:String}",
    "CREATE VIEW few AS SELECT * FROM hits WHERE OS > {low:UInt8}",
    "CREATE VIEW p AS SELECT * FROM few(low = {low:UInt8}) WHERE RegionID IN (SELECT * FROM named(like = {n:String}))",
    "CREATE VIEW deep AS SELECT * FROM p(low = 3, n = '%7')",
    "CREATE VIEW final AS SELECT VisitID, Pages FROM visits FINAL",
    "CREATE TABLE hits_2 AS hits",
    "INSERT INTO hits_2 SELECT * FROM hits WHERE OS > 10",
    "CREATE TABLE some ENGINE = Merge('web', '^hits')",
    "CREATE VIEW all_of AS SELECT *, _table AS t FROM merge('web', '^hits')",
    "ALTER TABLE hits_2 UPDATE OS = OS + 1 WHERE RegionID % 2 = 0",
)
OF_VIEWS = {
    "SELECT OS, count(), sum(r) FROM v WHERE WatchID % 3 = 0 GROUP BY OS ORDER BY OS": True,
    "SELECT a.OS, count() FROM v AS a JOIN regions AS g ON a.r = g.RegionID GROUP BY 1 ORDER BY 1": True,
    "SELECT sum(c), max(u) FROM w": True,
    "SELECT * FROM w WHERE r < 20 ORDER BY r": True,
    "SELECT OS, count() FROM p(low = 1 + 1, n = '%3') GROUP BY OS ORDER BY OS": True,
    "SELECT OS, max(WatchID) FROM deep GROUP BY OS ORDER BY OS": True,
    "SELECT count(), sum(Pages) FROM final": False,  # FINAL of few rows
    "SELECT OS, count() FROM some GROUP BY OS ORDER BY OS": True,
    "SELECT _table, count() FROM some WHERE OS > 12 GROUP BY _table ORDER BY _table": True,
    "SELECT t, OS, count() FROM all_of WHERE t = 'hits_2' GROUP BY ALL ORDER BY ALL": True,
    "SELECT OS, WatchID, t FROM all_of WHERE RegionID < 9 ORDER BY ALL LIMIT 50": True,
    "SELECT WatchID, sum(OS) OVER (PARTITION BY UserID ORDER BY WatchID) AS s FROM v ORDER BY ALL LIMIT 30": True,
    "SELECT OS FROM (SELECT OS FROM v EXCEPT SELECT OS FROM hits_2) ORDER BY OS": True,
}
"""SELECT -> whether it is spread."""


def test_views_and_unions_are_spread_as_what_they_stand_for(db, spark):
    for statement in VIEWS:
        db.sql(statement)
    for query, is_spread in OF_VIEWS.items():
        found = db.sql(query, settings={"executor": "spark"})
        here = db.sql(query, settings={"executor": "local"})
        assert (found.types, found.rows()) == (here.types, here.rows()), query
        assert (found.stats.executor == "spark") == is_spread, (query, found.stats.reason)
    rows = db.sql("SELECT OS, c FROM v JOIN w USING r WHERE OS = 2").spark(spark)
    assert rows.count() == db.sql("SELECT count() FROM v JOIN w USING r WHERE OS = 2").scalar()


def test_final_and_json_are_spread_where_the_tasks_attach_the_parts(db):
    db.sql("CREATE TABLE big (k UInt64, v UInt32, j JSON) ENGINE = ReplacingMergeTree(v) ORDER BY k")
    for version in range(3):
        db.sql(
            f"INSERT INTO big SELECT number * 7 % 90000, {version}, "
            "concat('{\"a\": ', toString(number % 5), '}')::JSON FROM numbers(60000)"
        )
    for query in (
        "SELECT v, count(), sum(k) FROM big FINAL GROUP BY v ORDER BY v",
        "SELECT k, v FROM big FINAL WHERE k % 1000 = 3 ORDER BY k LIMIT 10",
        "SELECT j.a.:Int64 AS a, count() FROM big GROUP BY a ORDER BY a",
    ):
        found = db.sql(query, settings={"executor": "spark"})
        assert (found.stats.executor, found.rows()) == ("spark", db.sql(query, settings={"executor": "local"}).rows())


def test_a_result_becomes_a_frame_without_being_held(db, spark, monkeypatch):
    columns = (
        "number AS n, toString(number) AS s, toDateTime64(number, 3, 'Asia/Tokyo') AS t, "
        "if(number % 7 = 0, NULL, number / 3) AS x, arrayMap(i -> i, range(number % 3)) AS a, "
        "CAST(number % 2 = 0 ? 'yes' : 'no' AS Enum8('yes' = 1, 'no' = 2)) AS e, "
        "(number % 5)::LowCardinality(UInt8) AS lc"
    )
    small = db.sql(f"SELECT {columns} FROM numbers(100)")
    rows = [row.asDict(recursive=True) for row in small.spark(spark).orderBy("n").collect()]
    assert [(row["n"], row["s"], row["x"], row["a"]) for row in rows[5:9]] == [
        (n, str(n), None if n % 7 == 0 else n / 3, list(range(n % 3))) for n in range(5, 9)
    ]
    assert len(small.arrow()) == 100
    large = db.sql(f"SELECT {columns} FROM numbers(1500000)")
    with monkeypatch.context() as patch:
        patch.setattr("mergelake.query.result.QueryResult._all", lambda self: pytest.fail("all rows are held"))
        patch.setattr("mergelake.api.spark.result.FILE_BYTES", 8 << 20)
        frame = large.spark(spark)
    assert frame.rdd.getNumPartitions() > 5
    assert frame.selectExpr("count(*)", "sum(n)", "sum(lc)", "count(x)").collect()[0][:] == (
        1_500_000,
        1_500_000 * 1_499_999 // 2,
        3_000_000,
        1_285_714,
    )
    assert [row.asDict(recursive=True) for row in frame.orderBy("n").limit(100).collect()] == rows
    with pytest.raises(InvalidInputError, match="given away"):
        large.arrow()
    assert db.sql("SELECT 1 AS a WHERE 0").spark(spark).collect() == []
    with pytest.raises(InvalidInputError, match="one name"):
        db.sql("SELECT 1, 1").spark(spark)
