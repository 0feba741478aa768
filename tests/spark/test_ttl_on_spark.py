"""TTL through Spark's doors: what tasks write knows when it expires, and tasks remove what has."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

import mergelake as ml
from mergelake.api.python.work import commit_work, plan_work, work_on_spark
from mergelake.engines.ttl.ttl import table_ttl
from mergelake.jobs.merge.ttl import merged_infos, part_infos

ROWS = 300
PAST, FUTURE = datetime(2001, 2, 3, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)
CREATE = """
    CREATE TABLE t (k UInt32, ts DateTime('UTC'), n UInt64, body String DEFAULT 'gone' TTL ts + INTERVAL 1 DAY)
    ENGINE = MergeTree ORDER BY k TTL {ttl} SETTINGS index_granularity = 64, min_bytes_for_wide_part = {wide}{more}
"""
SPLIT = ", min_compress_block_size = 100, min_bytes_to_split_merge = 1, merge_slice_bytes = 2000"


@pytest.fixture
def db(tmp_path, spark):
    return ml.connect(str(tmp_path / "w"), spark=spark)


def rows(past: int = 3) -> list[tuple[int, datetime, int, str]]:
    """Rows of which every `past`-th has expired."""
    return [(k, PAST if k % past == 0 else FUTURE, k % 7, f"row {k}") for k in range(ROWS)]


def made(db, ttl: str, *, wide: int = 0, more: str = "") -> ml.Table:
    db.sql(CREATE.format(ttl=ttl, wide=wide, more=more))
    return db.table("t")


def append(spark, table: ml.Table, data: list, parts: int = 2) -> None:
    frame = spark.createDataFrame(data, "k LONG, ts TIMESTAMP, n LONG, body STRING").repartition(parts)
    frame.write.format("mergelake").mode("append").save(table.path)
    table.refresh()


def read(spark, table: ml.Table, *names: str) -> list[tuple]:
    frame = spark.read.format("mergelake").load(table.path)
    return sorted(map(tuple, frame.select(*(names or ("k",))).collect()))


def known(table: ml.Table) -> dict:
    """When the rows of all parts expire, by element."""
    ttl = table_ttl(table.schema)
    return merged_infos(ttl, [part_infos(part.manifest, ttl) for part in table.handle.refresh().parts()])


def test_rows_that_spark_writes_expire(db, spark, tmp_path):
    table = made(db, "ts + INTERVAL 1 YEAR, ts + INTERVAL 2 YEAR WHERE n = 1")
    append(spark, table, rows())
    here = ml.connect(str(tmp_path / "here"))
    here.sql(CREATE.format(ttl="ts + INTERVAL 1 YEAR, ts + INTERVAL 2 YEAR WHERE n = 1", wide=0, more=""))
    here.table("t").append({"k": [0, 1], "ts": [PAST, FUTURE], "n": [1, 1], "body": ["", ""]})
    assert len(known(table)) == 3
    assert known(table) == known(here.table("t"))
    assert all("ttl.txt" in part.manifest.file_table() for part in table.handle.refresh().parts())
    assert read(spark, table) == [(k,) for k in range(ROWS)]  # SELECT removes nothing
    table.optimize(final=True)  # by a task
    assert read(spark, table, "k", "body") == [(k, f"row {k}") for k in range(ROWS) if k % 3]


def test_tasks_of_others_and_slices_remove_what_has_expired(db, spark):
    table = made(db, "ts + INTERVAL 100 YEAR WHERE n = 1, ts + INTERVAL 1 YEAR WHERE n > 2", more=SPLIT)
    for parts in (1, 2):
        append(spark, table, rows(), parts)
    tasks = plan_work(table, final=True)
    assert len(tasks) > 2  # slices, and the merge
    commit_work(tasks[-1], work_on_spark(spark, tasks)[-1])
    kept = [(k, "gone" if k % 3 == 0 else f"row {k}") for k, _, n, _ in rows() if k % 3 or n <= 2]
    assert read(spark, table, "k", "body") == sorted(2 * kept)


def test_groups_are_made_by_tasks(db, spark):
    table = made(db, "ts + INTERVAL 1 YEAR GROUP BY k SET n = sum(n)", wide=1 << 30)
    append(spark, table, [(k % 5, PAST, 1, "") for k in range(100)])
    table.optimize(final=True)
    assert read(spark, table, "k", "n") == [(k, 20) for k in range(5)]


def test_tasks_write_materialize_ttl_down(db, spark):
    table = made(db, "ts + INTERVAL 1 YEAR")
    append(spark, table, rows())
    table.materialize_ttl()
    assert read(spark, table) == [(k,) for k in range(ROWS) if k % 3]
    table.apply_mutations()  # by tasks
    assert read(spark, table) == [(k,) for k in range(ROWS) if k % 3]
    assert {info.min - int(FUTURE.timestamp()) for info in known(table).values()} == {86400, 365 * 86400}


def test_a_batch_of_a_stream_that_has_expired_does_not_come_back(db, spark, tmp_path):
    table = made(db, "ts + INTERVAL 1 YEAR")
    (tmp_path / "incoming").mkdir()
    lines = [json.dumps({"k": 1, "ts": "2001-01-01T00:00:00Z", "n": 1, "body": ""})]
    (tmp_path / "incoming" / "a.json").write_text("\n".join(lines))
    commits = []

    def add(frame, number):
        commits.append(table.append(frame, dedup_token=f"events {number}"))

    for attempt in range(2):
        stream = spark.readStream.schema("k LONG, ts TIMESTAMP, n LONG, body STRING").json(str(tmp_path / "incoming"))
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / f"c{attempt}"))
        writer.trigger(availableNow=True).foreachBatch(add).start().awaitTermination(60)
        table.optimize()  # drops the part, unread
        assert read(spark, table) == []
    assert [commit.duplicate for commit in commits] == [False, True]
