"""Overwriting from Spark: the whole table, some partitions, the rows of a condition; each job is one commit."""

from __future__ import annotations

import pytest

import mergelake as ml


@pytest.fixture
def db(tmp_path, spark):
    database = ml.connect(str(tmp_path / "w"), spark=spark)
    database.sql("CREATE TABLE t (p Int64, k Int64) ENGINE = MergeTree PARTITION BY p ORDER BY k")
    database.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 3), (-3, 4)")
    return database


def rows(db):
    return sorted(db.sql("SELECT p, k FROM t").rows())


def frame(spark, *values):
    return spark.createDataFrame(values, "p LONG, k LONG").repartition(2)


def save(written, table, mode="overwrite", **options):
    written.write.format("mergelake").mode(mode).options(**options).save(table.path)


def refused(call, *words):
    with pytest.raises(Exception) as caught:  # Spark has many classes for them
        call()
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_a_frame_replaces_what_its_options_say(db, spark):
    table = db.table("t")
    version = table.refresh()
    save(frame(spark, (1, 10), (5, 11)), table, partitionOverwriteMode="dynamic")
    assert rows(db) == [(-3, 4), (1, 10), (2, 3), (5, 11)]
    save(frame(spark, (1, 20)), table, replaceWhere="p >= 1 AND p < 5")
    assert rows(db) == [(-3, 4), (1, 20), (5, 11)]
    save(frame(spark, (5, 30), (6, 31)), table, replaceWhere="k > 10")
    assert rows(db) == [(-3, 4), (5, 30), (6, 31)]
    assert table.refresh() == version + 3
    for _ in range(2):
        save(frame(spark, (7, 40)), table, dedupToken="load 7")
        db.sql("INSERT INTO t VALUES (8, 50)")
    assert rows(db) == [(7, 40), (8, 50), (8, 50)]
    done = table.overwrite(frame(spark, (8, 60)), "p = 8")
    assert (done.rows, rows(db)) == (1, [(7, 40), (8, 60)])
    own = spark.read.format("mergelake").load(table.path)
    save(own.selectExpr("p", "k + 1 AS k"), table)  # of the version that was the newest when it was read
    assert rows(db) == [(7, 41), (8, 61)]
    save(frame(spark), table)
    assert rows(db) == []


def test_what_does_not_fit_is_refused_and_nothing_is_written(db, spark):
    table, before = db.table("t"), rows(db)
    version, good = table.refresh(), frame(spark, (1, 10))
    for written, options, *words in (
        (frame(spark, (2, 10)), {"replaceWhere": "p = 1"}, "VIOLATED_CONSTRAINT", "replaceWhere"),
        (good, {"replaceWhere": "p ="}, "SYNTAX_ERROR"),
        (good, {"replaceWhere": "q = 1"}, "UNKNOWN_IDENTIFIER"),
        (good, {"replaceWhere": "p = 1", "partitionOverwriteMode": "dynamic"}, "BAD_ARGUMENTS"),
        (good, {"partitionOverwriteMode": "some"}, "static or dynamic"),
        (good, {"mode": "append", "replaceWhere": "p = 1"}, "BAD_ARGUMENTS", "replaceWhere"),
        (good, {"mode": "append", "partitionOverwriteMode": "dynamic"}, "BAD_ARGUMENTS"),
    ):
        refused(lambda written=written, options=options: save(written, table, **options), *words)
    assert (rows(db), table.refresh()) == (before, version)
    table.modify_settings({"immutable_partitions": "p = 2"})
    for mode in ("append", "overwrite"):
        refused(lambda mode=mode: save(frame(spark, (2, 10)), table, mode), "TABLE_IS_READ_ONLY")
    save(good, table, "append")
    assert rows(db) == sorted([*before, (1, 10)])
