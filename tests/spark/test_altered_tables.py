"""Columns change while Spark reads and writes: tasks read old parts through, a job is judged when it is committed."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.api.spark.write import write_frame
from mergelake.core.base.errors import ConflictError
from mergelake.table.write.insert import commit_parts


@pytest.fixture
def db(tmp_path, spark):
    database = ml.connect(str(tmp_path / "w"), spark=spark)
    database.sql(
        "CREATE TABLE t (k Int64, v Int64, s String, m Int64 MATERIALIZED v * 2) ENGINE = MergeTree ORDER BY k"
    )
    database.sql("INSERT INTO t VALUES (1, 300, '1'), (2, 2, '2')")
    return database


def written(db, frame):
    """The parts of a job that is not committed yet."""
    handle = db.table("t").handle
    return write_frame(frame, handle.store.spec, handle.directory, handle.schema, handle.base_version())


def test_tasks_read_columns_by_what_they_are_called_now(db, spark):
    db.sql("ALTER TABLE t MODIFY COLUMN v UInt8, DROP COLUMN m")
    db.sql("ALTER TABLE t RENAME COLUMN s TO txt, ADD COLUMN s Int32 DEFAULT k + 1, MODIFY COLUMN v String")
    table = db.table("t")
    frame = spark.read.format("mergelake").load(table.path)
    wanted = [(1, "44", "1", 2), (2, "2", "2", 3)]
    assert sorted(map(tuple, frame.select("k", "v", "txt", "s").collect())) == wanted
    db.sql("SET executor = 'spark'")
    assert db.sql("SELECT k, v, txt, s FROM t ORDER BY k").rows() == wanted
    assert db.sql("SELECT txt, count() FROM t WHERE v = '44' GROUP BY txt").rows() == [("1", 1)]
    frame.select("k", "v", "txt").write.format("mergelake").mode("append").save(table.path)
    assert db.sql("SELECT count(), sum(s) FROM t").rows() == [(4, 10)]


def test_a_job_that_began_before_is_judged_when_it_is_committed(db, spark):
    # M-076
    frame = spark.createDataFrame([(5, 500, "5")], "k LONG, v LONG, s STRING")
    bad = spark.createDataFrame([(6, 1, "no number")], "k LONG, v LONG, s STRING")
    fits, fails, late = written(db, frame), written(db, bad), written(db, frame)
    other = ml.connect(db.warehouse.store.url)
    other.sql("ALTER TABLE t MODIFY COLUMN s UInt16, ADD COLUMN z Int8 DEFAULT 9")
    handle = db.table("t").handle
    assert commit_parts(handle, fits).rows == 1
    with pytest.raises(ml.MergelakeError, match="CANNOT_PARSE_TEXT"):
        commit_parts(handle, fails)
    other.sql("ALTER TABLE t MODIFY COLUMN m MATERIALIZED v * 3")
    with pytest.raises(ConflictError, match="column m is computed in another way"):
        commit_parts(handle, late)
    assert db.sql("SELECT k, s, z, m FROM t ORDER BY k").rows() == [(1, 1, 9, 600), (2, 2, 9, 4), (5, 5, 9, 1000)]
