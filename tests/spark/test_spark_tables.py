"""Tables through a real Spark session: what goes in comes out, one commit a job, nothing needless read."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.api.spark.scan import read_for_spark, split_plan
from mergelake.api.spark.tasks import run_tasks
from mergelake.core.base.errors import InvalidInputError, NotFoundError
from mergelake.testing.logtable import CREATE, spark_log_frame

ROWS, BLOCKS = 5_000, 4


@pytest.fixture
def db(tmp_path, spark):
    database = ml.connect(str(tmp_path / "warehouse"), spark=spark)
    database.sql(CREATE.format(name="logs", partition="toYYYYMM(timestamp)"))
    return database


@pytest.fixture
def frame(spark):
    return spark_log_frame(spark, 0, BLOCKS, ROWS)


def test_a_frame_is_written_in_one_commit_and_read_back(db, spark, frame):
    table = db.table("logs")
    before = table.version
    frame.write.format("mergelake").mode("append").save(db.table("logs").path)
    table.refresh()
    assert table.version == before + 1
    back = spark.read.format("mergelake").load(db.table("logs").path)
    columns = ["timestamp", "level", "service", "host", "trace_id", "status", "latency", "url", "message"]
    assert back.count() == ROWS * BLOCKS
    assert back.select(*columns).exceptAll(frame.select(*columns)).count() == 0
    assert frame.select(*columns).exceptAll(back.select(*columns)).count() == 0


def test_append_takes_a_spark_frame_and_a_token_makes_it_exactly_once(db, frame):
    table = db.table("logs")
    first = table.append(frame, dedup_token="load-1")
    again = table.append(frame, dedup_token="load-1")
    assert first.rows == ROWS * BLOCKS
    assert again.duplicate
    assert again.rows == 0
    assert db.sql("SELECT count() FROM logs").rows() == [(ROWS * BLOCKS,)]


def test_the_limit_of_a_scan_is_that_of_all_tasks(db, frame):
    table = db.table("logs")
    table.append(frame)
    whole = table.scan(["trace_id"]).spark()
    for limit in (0, 7, ROWS * BLOCKS + 1):
        found = table.scan(["trace_id"], limit=limit).spark(tasks=4)
        assert found.count() == min(limit, ROWS * BLOCKS)
        assert found.exceptAll(whole).count() == 0


def test_the_data_source_takes_a_token_too(db, frame):
    for _ in range(2):
        frame.write.format("mergelake").option("dedupToken", "t").mode("append").save(db.table("logs").path)
    assert db.sql("SELECT count() FROM logs").rows() == [(ROWS * BLOCKS,)]


def test_filters_are_pushed_down_and_only_needed_columns_are_read(db, spark, frame):
    table = db.table("logs")
    table.append(frame)
    url = db.table("logs").path
    when = datetime.datetime(2026, 1, 1, 0, 0, 20, tzinfo=datetime.UTC)
    for condition in (
        "service = 'auth'",
        "service IN ('auth', 'cart') AND status >= 500",
        "timestamp >= '2026-01-01 00:00:10' AND timestamp < '2026-01-01 00:00:20'",
        "message LIKE '%pool%' AND level = 'INFO'",
        "url LIKE '/v1/cart%' OR latency > 100",
        "NOT (status = 200) AND host IS NOT NULL",
    ):
        expected = frame.where(condition).selectExpr("count(*)", "sum(status)").collect()
        for pushdown in ("true", "false"):
            loaded = spark.read.format("mergelake").option("pushdown", pushdown).load(url)
            found = loaded.where(condition).selectExpr("count(*)", "sum(status)").collect()
            assert found == expected, (condition, pushdown)
    narrow = spark.read.format("mergelake").option("columns", "service,latency").load(url)
    assert narrow.columns == ["service", "latency"]
    scan = table.scan(
        columns=["latency"], where="service = 'auth' AND timestamp < toDateTime64('2026-01-01 00:00:20', 3, 'UTC')"
    )
    assert scan.spark(spark).count() == frame.where("service = 'auth'").where(frame.timestamp < when).count()


def test_a_frame_may_be_filtered_more_than_once(db, spark, frame):
    """Spark 4.3 would give what one filter left to every other use of the frame, if filters were pushed down."""
    db.table("logs").append(frame)
    loaded = spark.read.format("mergelake").load(db.table("logs").path)
    one, other = (loaded.where(f"service = '{service}'") for service in ("auth", "cart"))
    counts = [frame.where(f"service = '{service}'").count() for service in ("auth", "cart")]
    assert one.count() == counts[0]
    assert loaded.count() == ROWS * BLOCKS
    assert one.union(other).count() == sum(counts)
    pruned = spark.read.format("mergelake").option("where", "service = 'auth'").load(db.table("logs").path)
    assert pruned.count() == counts[0] == pruned.where("service = 'auth'").count()


def test_a_scan_reads_its_pinned_version(db, spark, frame):
    table = db.table("logs")
    table.append(frame)
    version = table.version
    pinned = spark.read.format("mergelake").option("version", version).load(db.table("logs").path)
    table.append(frame)
    assert pinned.count() == ROWS * BLOCKS
    assert table.scan(version=version).spark(spark).count() == ROWS * BLOCKS
    assert table.scan().spark(spark).count() == 2 * ROWS * BLOCKS


def test_an_empty_scan_is_an_empty_frame(db, spark):
    assert db.table("logs").scan().spark(spark).count() == 0
    assert spark.read.format("mergelake").load(db.table("logs").path).count() == 0


def test_merges_run_as_spark_tasks(db, frame):
    table = db.table("logs")
    for _ in range(3):
        table.append(frame)
    before = db.sql("SELECT count(), sum(latency), uniqExact(trace_id) FROM logs").rows()
    table.optimize(final=True)
    assert table.parts().num_rows == 1
    assert db.sql("SELECT count(), sum(latency), uniqExact(trace_id) FROM logs").rows()[0][0] == before[0][0]


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ("'x' AS nosuch", "NO_SUCH_COLUMN_IN_TABLE"),
        ("CAST(NULL AS string) AS url", "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
        ("70000 AS status", None),
    ],
)
def test_bad_frames_are_refused_and_nothing_is_written(db, spark, columns, name):
    table = db.table("logs")
    version = table.version
    with pytest.raises(InvalidInputError) as caught:
        table.append(spark.range(3).selectExpr(columns))
    if name:
        assert caught.value.name == name
    table.refresh()
    assert table.version == version


def test_a_frame_that_one_task_refuses_leaves_no_objects_of_the_others(tmp_path, spark):
    db = ml.connect(str(tmp_path / "w"), spark=spark)
    db.sql("CREATE TABLE t (k UInt8) ENGINE = MergeTree ORDER BY k")
    table = db.table("t")
    frame = spark.range(0, 400, 1, 4).selectExpr("id AS k")  # the third task meets 256
    with pytest.raises(InvalidInputError, match="Value 299 is out of range"):
        table.append(frame)
    assert [o.key for o in table.handle.store.list(table.handle.directory) if "/_log/" not in o.key] == []


def test_errors_of_tasks_come_back_as_themselves(spark):
    def fail(_):
        raise NotFoundError("no such thing", name="UNKNOWN_TABLE")

    with pytest.raises(NotFoundError, match="no such thing"):
        run_tasks(spark, fail, [1, 2])


def test_tasks_return_their_results_in_order(spark):
    assert run_tasks(spark, lambda n: n * n, list(range(20))) == [n * n for n in range(20)]


def test_nullable_nested_and_unsigned_columns_survive_the_way_through_spark(tmp_path, spark):
    db = ml.connect(str(tmp_path / "w"), spark=spark)
    db.sql(
        "CREATE TABLE t (k UInt64, a UInt8, b UInt16, c UInt32, n Nullable(String), l Array(UInt16), d Date, "
        "dt DateTime, e Enum8('x' = 1, 'y' = 2), p Decimal(18, 3), f FixedString(2), o Bool) "
        "ENGINE = MergeTree ORDER BY k"
    )
    db.table("t").append(
        pa.table(
            {
                "k": pa.array([1, 2**63 + 5], pa.uint64()),
                "a": [1, 255],
                "b": [1, 65535],
                "c": [1, 2**32 - 1],
                "n": [None, "x"],
                "l": [[1, 2], []],
                "d": [datetime.date(2026, 1, 2)] * 2,
                "dt": [datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)] * 2,
                "e": ["x", "y"],
                "p": ["1.250", "-3.000"],
                "f": [b"ab", b"cd"],
                "o": [True, False],
            }
        )
    )
    rows = db.table("t").scan().spark(spark).orderBy("a").collect()
    assert [int(r.k) for r in rows] == [1, 2**63 + 5]
    assert (rows[1].a, rows[1].b, rows[1].c, rows[1].n, rows[1].l, rows[1].e) == (255, 65535, 2**32 - 1, "x", [], "y")
    assert (rows[0].n, rows[0].l, str(rows[0].p), bytes(rows[0].f), rows[0].o) == (None, [1, 2], "1.250", b"ab", True)


def test_a_filtered_scan_reads_only_its_columns_and_granules(db, spark, frame):
    """M-054, M-084: bytes fetched by the tasks against the sizes of the files that the scan needs."""
    table = db.table("logs")
    table.append(frame)
    table.optimize(final=True)
    scan = table.scan(columns=["latency"], where="service = 'auth'")
    assert scan.plan.marks > 0
    plan, store, directory = scan.plan, table.handle.store.spec, table.handle.directory

    def fetched(piece):
        opened = store.open()
        before = opened.counters
        rows = sum(batch.num_rows for batch in read_for_spark(store, directory, piece))
        return rows, opened.counters.bytes_get - before.bytes_get

    found = run_tasks(spark, fetched, split_plan(plan, 2))
    (part,) = table.snapshot().parts
    sizes = {file.name: file.size for file in part.manifest.file_table().values()}
    needed = sum(size for name, size in sizes.items() if name.split(".")[0] in ("service", "latency", "primary"))
    small = sum(size for name, size in sizes.items() if name.endswith((".mrk2", ".txt", ".dat", ".idx")))
    assert sum(rows for rows, _ in found) == frame.where("service = 'auth'").count()
    assert sum(size for _, size in found) <= len(found) * (needed + small)
    assert len(found) * (needed + small) < sizes["message.bin"]


def test_aggregate_states_are_merged_in_tasks(db, spark):
    db.sql(
        "CREATE TABLE visits (k UInt8, users AggregateFunction(uniq, UInt64)) ENGINE = AggregatingMergeTree ORDER BY k"
    )
    table = db.table("visits")
    states = [db.sql(f"SELECT uniqState(number) FROM numbers({first}, 10)").arrow()[0][0].as_py() for first in (0, 5)]
    frame = spark.createDataFrame([(1, states[0]), (1, states[1]), (2, states[0])], "k int, users binary").coalesce(1)
    frame.write.format("mergelake").mode("append").save(table.path)
    assert db.sql("SELECT count() FROM visits").rows() == [(2,)]
    table.append(frame)
    table.merge(spark.createDataFrame([(3, states[0])], "k int, users binary"), ["k"])
    shown = "SELECT k, uniqMerge(users) FROM visits{} GROUP BY k ORDER BY k"
    expected = [(1, 15), (2, 10), (3, 10)]
    assert db.sql(shown.format(" FINAL")).rows() == expected
    source = spark.read.format("mergelake").option("final", True).load(table.path)
    for final in (source, table.scan(final=True).spark()):
        assert sorted(row.k for row in final.collect()) == [1, 2, 3]
    db.sql("OPTIMIZE TABLE visits FINAL")
    assert db.sql("SELECT count() FROM visits").rows() == [(3,)]
    assert db.sql(shown.format("")).rows() == expected
