"""What Spark may be asked for and what is refused: options, modes, schemas, odd names, workers that lack mergelake."""

from __future__ import annotations

import os
import sys

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import InvalidInputError, UnavailableError, UnsupportedError

ROWS = [(1, "a", 1), (2, "b", None)]


@pytest.fixture(scope="module")
def db(tmp_path_factory, spark):
    database = ml.connect(str(tmp_path_factory.mktemp("doors")), spark=spark)
    database.sql("CREATE TABLE t (k Int64, s String, n Nullable(Int32)) ENGINE = MergeTree ORDER BY k")
    table = database.table("t")
    for row in ROWS:
        table.append(dict(zip(("k", "s", "n"), ([value] for value in row), strict=True)))
    table.tag("first", 2)
    return database


@pytest.fixture
def path(db):
    """The table's, which must be as it was when the test is over."""
    yield db.table("t").path
    assert sorted(db.sql("SELECT k, s, n FROM t").rows()) == ROWS
    assert db.sql("SELECT count() FROM system.parts WHERE table = 't'").rows() == [(2,)]


def read(spark, path, **options):
    return spark.read.format("mergelake").options(**options).load(path)


def save(frame, path, mode="append", **options):
    frame.write.format("mergelake").mode(mode).options(**options).save(path)


def says(call, *words):
    with pytest.raises(Exception) as caught:  # Spark has many classes for them
        call()
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.fixture(scope="module")
def row(spark):
    return spark.sql("SELECT 3L AS k, 'c' AS s, CAST(NULL AS int) AS n")


def test_time_travel_by_every_spelling(spark, path):
    for options in ({"version": 2}, {"versionAsOf": "2"}, {"version": "first"}, {"tag": "first"}):
        assert read(spark, path, **options).count() == 1, options
    assert read(spark, path, timestampAsOf="2999-01-01").count() == 2


def test_options_of_reading_are_known_or_refused(spark, path):
    for options, *words in (
        ({"vresion": 2}, "UNKNOWN_SETTING", "Maybe you meant version"),
        ({"dedup_token": "x"}, "one for writing"),
        ({"final": "yes"}, "neither true nor false"),
        ({"final": "true"}, "ILLEGAL_FINAL"),
        ({"version": "no-such-tag"}, "no-such-tag"),
        ({"version": "-1"}, "-1"),
        ({"store.foo": "1"}, "UNKNOWN_SETTING", "foo"),
        ({"columns": "k,nosuch"}, "NO_SUCH_COLUMN_IN_TABLE"),
    ):
        says(lambda options=options: read(spark, path, **options).collect(), *words)
    says(lambda: spark.read.format("mergelake").load([path, path]), "Several paths")


def test_options_of_writing_are_known_or_refused_and_nothing_is_written(row, path):
    for options, *words in (
        ({"dedup_tokn": "x"}, "Maybe you meant dedupToken"),
        ({"dedupToken": ""}, "is empty"),
        ({"versionAsOf": "2"}, "one for reading"),
        ({"region": "x"}, "store.region"),
        ({"store.sync": "maybe"}, "neither true nor false"),
    ):
        says(lambda options=options: save(row, path, **options), *words)


def test_a_token_is_one_in_every_spelling(tmp_path, spark, row):
    db = ml.connect(str(tmp_path / "w"))
    db.sql("CREATE TABLE t (k Int64, s String, n Nullable(Int32)) ENGINE = MergeTree ORDER BY k")
    for name in ("dedupToken", "dedup_token", "DEDUPTOKEN"):
        save(row, db.table("t").path, **{name: "once"})
    assert db.sql("SELECT count() FROM t").rows() == [(1,)]


def test_modes_that_a_table_does_not_have_are_refused(row, path):
    for mode in ("ignore", "error", "errorifexists"):
        says(lambda mode=mode: save(row, path, mode), "UNSUPPORTED_DATA_SOURCE_SAVE_MODE")
    says(lambda: row.write.format("mergelake").save(path), "UNSUPPORTED_DATA_SOURCE_SAVE_MODE")
    writer = row.write.format("mergelake").mode("append")
    says(lambda: writer.partitionBy("s").save(path), "do not match the existing table's")
    writer = row.write.format("mergelake").mode("append")
    says(lambda: writer.clusterBy("s").save(path), "do not match the existing table's")


def test_there_must_be_a_table_and_none_is_made(spark, row, path, tmp_path):
    says(lambda: save(row, path + "x"), "UNKNOWN_TABLE", "Maybe you meant t")
    says(lambda: save(row, str(tmp_path / "none" / "default.t")), "UNKNOWN_TABLE")
    says(lambda: read(spark, str(tmp_path / "none" / "default.t")), "UNKNOWN_TABLE")
    assert list(tmp_path.iterdir()) == []
    says(lambda: save(row, ""), "No path given")


def test_schemas_that_do_not_fit_are_refused_before_any_task(db, spark, path):
    table = db.table("t")
    for columns, name in (
        ("array(1) AS k", "TYPE_MISMATCH"),
        ("interval 1 day AS k", "TYPE_MISMATCH"),
        ("interval 1 month AS k", "TYPE_MISMATCH"),
        ("1L AS k, parse_json('1') AS s", "TYPE_MISMATCH"),
        ("1L AS k, named_struct('a', 1) AS s", "TYPE_MISMATCH"),
        ("1L AS k, 2 AS zz", "NO_SUCH_COLUMN_IN_TABLE"),
        ("1L AS k, 2L AS k", "DUPLICATE_COLUMN"),
        ("1L AS k, 2L AS K", "NO_SUCH_COLUMN_IN_TABLE"),
    ):
        frame = spark.sql(f"SELECT {columns}")
        says(lambda frame=frame: save(frame, path), name)
        with pytest.raises(InvalidInputError) as caught:
            table.append(frame)
        assert caught.value.name == name
    for frame in (spark.sql("SELECT CAST(NULL AS bigint) AS k"), spark.sql("SELECT 1L AS k, NULL AS s")):
        says(lambda frame=frame: save(frame, path), "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN")
        with pytest.raises(InvalidInputError, match="CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"):
            table.append(frame)


def test_a_schema_of_the_user_may_only_be_more_nullable(spark, path):
    loaded = spark.read.format("mergelake")
    found = loaded.schema("n int, k bigint").load(path)
    assert {tuple(row) for row in found.collect()} == {(n, k) for k, _, n in ROWS}
    for schema in ("k string", "k int", "n int NOT NULL"):
        says(lambda schema=schema: spark.read.format("mergelake").schema(schema).load(path).collect(), "TYPE_MISMATCH")
    other = spark.read.format("mergelake").schema("k bigint").option("columns", "s").load(path)
    says(other.collect, "name other columns")


def test_streams_are_refused_with_a_way_out(db, spark, path, tmp_path):
    stream = spark.readStream.format("rate").load().selectExpr("value AS k")
    with pytest.raises(UnsupportedError, match="foreachBatch"):
        db.table("t").append(stream)
    query = stream.writeStream.format("mergelake").option("checkpointLocation", str(tmp_path / "c")).start(path)
    says(lambda: query.awaitTermination(60), "NOT_IMPLEMENTED", "foreachBatch")


def test_columns_of_any_name_go_in_and_come_out_by_every_door(db, spark):
    db.sql(
        "CREATE TABLE odd (`n.a` Array(Int64), `n.b` Array(String), `x y` Int32, `Ü` Int8, `ü` Int8, `c,d` Int8, "
        "`$1` Int8, m Map(String, Int32)) ENGINE = MergeTree ORDER BY tuple()"
    )
    table = db.table("odd")
    arrow = pa.table(
        {
            "n.a": [[1, 2]],
            "n.b": [["x", "y"]],
            "x y": pa.array([1], pa.int32()),
            "Ü": pa.array([1], pa.int8()),
            "ü": pa.array([2], pa.int8()),
            "c,d": pa.array([3], pa.int8()),
            "$1": pa.array([4], pa.int8()),
            "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
        }
    )
    frame = spark.createDataFrame(arrow)
    table.append(frame)
    save(frame, table.path)
    table.append(arrow)
    table.append(arrow.to_pandas())
    table.append({**arrow.drop_columns("m").to_pydict(), "m": [{"a": 1}]})
    table.append([{**arrow.drop_columns("m").to_pylist()[0], "m": {"a": 1}}])
    rows = db.sql("SELECT * FROM odd").rows()
    assert len(rows) == 6
    assert all(row == rows[0] for row in rows)
    assert rows[0][-1] == [("a", 1)]
    wanted = {str(row) for row in frame.collect()}
    assert {str(row) for row in read(spark, table.path).collect()} == wanted
    assert {str(row) for row in table.scan().spark(spark).collect()} == wanted
    some = read(spark, table.path, columns="n.a, `c,d`, ü")
    assert some.columns == ["n.a", "c,d", "ü"]
    assert some.count() == 6


def test_an_ordered_scan_is_no_frame(db, spark):
    with pytest.raises(UnsupportedError, match="orderBy"):
        db.table("t").scan(ordered=True).spark(spark)


def test_workers_that_lack_mergelake_say_so_and_the_way_out(db, spark, row, path, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] == 'mergelake':\n"
        "            raise ModuleNotFoundError(\"No module named 'mergelake'\", name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
    )
    bare = tmp_path / "python-without"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    os.chmod(bare, 0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(UnavailableError, match="No module named 'mergelake'") as caught:
        db.table("t").append(row)
    assert "PYSPARK_PYTHON" in str(caught.value.hint)
    says(lambda: db.table("t").scan().spark(spark).count(), "No module named 'mergelake'", "spark.pyspark.python")


def test_alias_columns_are_read_by_name_and_never_written(spark, db):
    db.sql(
        "CREATE TABLE aliased (k Int64, y Int64 ALIAS k * 2, s String ALIAS toString(y)) ENGINE = MergeTree ORDER BY k"
    )
    db.sql("INSERT INTO aliased SELECT number FROM numbers(100)")
    path = db.table("aliased").path
    assert read(spark, path).columns == ["k"]
    frame = read(spark, path, columns="k,y,s")
    assert [tuple(each) for each in frame.where("y = 20").collect()] == [(10, 20, "20")]
    assert frame.where("s LIKE '1%' AND y < 100").count() == len([k for k in range(50) if str(2 * k).startswith("1")])
    assert read(spark, path, where="y > 190").count() == 4
    assert db.table("aliased").scan(["y"], where="k < 3").spark(spark).groupBy().sum("y").collect()[0][0] == 6
    given = spark.sql("SELECT 1L AS k, 2L AS y")
    says(lambda: save(given, path), "NO_SUCH_COLUMN_IN_TABLE", "ALIAS")
    save(spark.sql("SELECT 500L AS k"), path)
    assert db.sql("SELECT y, s FROM aliased WHERE k = 500").rows() == [(1000, "1000")]
    query = "SELECT y % 3 AS rest, count(), max(s) FROM aliased WHERE y > 10 AND s != '12' GROUP BY rest ORDER BY rest"
    spread = db.sql(query, settings={"executor": "spark"})
    assert spread.rows() == db.sql(query, settings={"executor": "local"}).rows()
    assert spread.stats.executor == "spark"


def test_rows_written_by_spark_get_random_defaults_of_their_own(spark, db):
    db.sql("CREATE TABLE drawn (k Int64, id UUID DEFAULT generateUUIDv4()) ENGINE = MergeTree ORDER BY k")
    save(spark.range(0, 4000, 1, 4).selectExpr("id AS k"), db.table("drawn").path)
    assert db.sql("SELECT count(), uniqExact(id) FROM drawn").rows() == [(4000, 4000)]
