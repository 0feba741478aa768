"""Projections through everything that writes parts: nodes with a disk, slices, Spark, a bucket, other versions."""

from __future__ import annotations

from typing import Any

import pytest

import mergelake as ml
from mergelake.api.python import Warehouse
from mergelake.api.sql.database import Database
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.engines.projections.projections import table_projections
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.jobs.merge.slices import execute_split, with_split
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.projected import projection_manifest
from mergelake.query.embedded.states import EMBEDDED
from mergelake.store.objects.memory import MemoryStore

PROJECTIONS = (
    "PROJECTION sums (SELECT v, sum(k), count() GROUP BY v), PROJECTION by_s (SELECT * ORDER BY s), "
    "PROJECTION uniqs (SELECT v, uniqExact(k), groupArray(s) GROUP BY v)"
)
COLUMNS = f"k UInt32, v UInt8, s String, {PROJECTIONS}"


def check(table: Any, rows: int) -> None:
    """Every part has both projections, of its own rows; the parts are whole."""
    table.refresh()
    seen = 0
    bound = {each.name: each for each in table_projections(table.schema)}
    for part in table.handle.log.state.parts():
        store, directory = table.handle.store, table.handle.directory
        assert {name: facts.digest for name, facts in part.manifest.projections.items()} == {
            name: each.digest for name, each in bound.items()
        }
        columns = {}
        for name, each in bound.items():
            manifest = projection_manifest(part.manifest, name, each.schema.stored)
            own = {column.name: column for column in each.schema.stored}
            reader = PartReader(store, directory, manifest, own)
            columns[name] = [batch.to_pylist() for batch in reader.read(list(own))]
        sums = [row for batch in columns["sums"] for row in batch]
        assert [row["v"] for row in sums] == sorted({row["v"] for row in sums})
        rows_of_s = [row for batch in columns["by_s"] for row in batch]
        assert [row["s"] for row in rows_of_s] == sorted(row["s"] for row in rows_of_s)
        assert {row["v"] for row in rows_of_s} == {row["v"] for row in sums}
        for row in sums:
            mine = [each["k"] for each in rows_of_s if each["v"] == row["v"]]
            assert int.from_bytes(row["sum(k)"], "little") == sum(mine)
        for row in (row for batch in columns["uniqs"] for row in batch):
            mine = {each["k"] for each in rows_of_s if each["v"] == row["v"]}
            raw = b"".join(value.to_bytes(4, "little") for value in mine)
            assert sorted(row["uniqExact(k)"]) == sorted(_count(len(mine)) + raw)
        seen += len(rows_of_s)
    assert seen == rows
    assert all(table.check()["is_passed"].to_pylist())


def _count(value: int) -> bytes:
    """A number as ClickHouse writes it before values."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


def filled(db: Any, inserts: int, tail: str = "") -> Any:
    db.sql(f"CREATE TABLE t ({COLUMNS}) ENGINE = MergeTree ORDER BY k {tail}")
    for number in range(inserts):
        source = f"SELECT number * {inserts} + {number}, number % 7, hex(number * 37) FROM numbers(300)"
        db.sql(f"INSERT INTO t {source}")
    return db.table("t")


@pytest.mark.parametrize("full", [0, 1 << 30])
def test_nodes_merge_them_on_their_disks_and_upload_them(full: int) -> None:
    store, disk = MemoryStore(), MemoryStore()
    clock = ManualClock()
    warehouse = Warehouse(store, clock=clock, ids=SeededIds(1), threads=1)
    settings = f"merge_upload_policy = 'volatile', min_bytes_for_full_part_storage = {full}"
    table = filled(Database(warehouse), 12, f"SETTINGS {settings}, min_age_to_force_merge_seconds = 1")
    node = warehouse.node(local=disk)
    held = 0
    for _ in range(6):
        while node.step() or not node.idle():
            held = max(held, sum(1 for _ in disk.list("")))
        clock.sleep_s(3600.0)
    assert held > 0  # parts were merged on the disk first
    table.refresh()
    assert sum(1 for _ in table.handle.log.state.parts()) < 12
    check(table, 3600)
    db = Database(warehouse)
    db.sql("ALTER TABLE t CLEAR PROJECTION sums")
    db.sql("ALTER TABLE t MATERIALIZE PROJECTION sums")
    check(table, 3600)


def test_slices_of_a_merge_make_one_part_with_projections() -> None:
    db = ml.connect("memory://slices")
    table = filled(db, 4, "SETTINGS min_bytes_to_split_merge = 1000, merge_slice_bytes = 5000, index_granularity = 64")
    (task,) = plan_optimize(table.handle, final=True)
    split = with_split(table.handle.store, task, 0)
    assert split.split is not None
    assert split.split.slices > 1
    part = execute_split(table.handle.store, split, table.handle.ids, table.handle.clock, states=EMBEDDED)
    commit_merge(table.handle, split, part)
    check(table, 1200)


def test_spark_writes_and_merges_them(spark: Any, tmp_path: Any) -> None:
    db = ml.connect(str(tmp_path), spark=spark)
    table = filled(db, 2, "SETTINGS min_bytes_to_split_merge = 1000, merge_slice_bytes = 5000, index_granularity = 64")
    frame = spark.range(3000).selectExpr("cast(id as int) k", "cast(id % 5 as int) v", "hex(id * 13) s")
    table.append(frame)
    check(table, 3600)
    table.optimize(final=True)
    assert sum(1 for _ in table.handle.log.state.parts()) == 1
    check(table, 3600)


def test_a_bucket_holds_them(s3_url: str, s3_options: dict[str, str]) -> None:
    db = ml.connect(s3_url, s3_options)
    table = filled(db, 3)
    check(table, 900)
    db.sql("OPTIMIZE TABLE t FINAL")
    check(table, 900)
    db.sql("ALTER TABLE t UPDATE v = 9 WHERE k < 30")
    table.apply_mutations()
    check(table, 900)
    other = ml.connect(s3_url, s3_options).table("t")  # as another process would open it
    check(other, 900)


def test_older_versions_and_clones_have_their_own() -> None:
    db = ml.connect("memory://versions of projections")
    table = filled(db, 2)
    version = table.version
    before = db.sql("SELECT v, sum(k) FROM t GROUP BY v ORDER BY v").rows()
    db.sql("ALTER TABLE t DROP PROJECTION sums")
    db.sql("OPTIMIZE TABLE t FINAL")
    assert db.sql(f"SELECT v, sum(k) FROM t AS OF VERSION {version} GROUP BY v ORDER BY v").rows() == before
    db.sql(f"CREATE TABLE old CLONE AS t AS OF VERSION {version}")
    check(db.table("old"), 600)
    db.sql("OPTIMIZE TABLE old FINAL")
    check(db.table("old"), 600)
    table.rollback(version)
    check(db.table("t"), 600)


def test_rows_and_values_that_expire_leave_projections_too() -> None:
    clock = ManualClock()
    warehouse = Warehouse(MemoryStore(), clock=clock, ids=SeededIds(1), threads=1)
    db = Database(warehouse)
    columns = f"k UInt32, v UInt8, s String, d DateTime, w UInt32 TTL d + INTERVAL 2 HOUR, {PROJECTIONS}"
    last = ", PROJECTION of_w (SELECT w, count() GROUP BY w)"
    db.sql(f"CREATE TABLE t ({columns}{last}) ENGINE = MergeTree ORDER BY k TTL d + INTERVAL 1 DAY")
    now = clock.now_ms() // 1000
    for hours in (0, 12, 36):
        source = f"number + {hours * 100}, number % 7, hex(number), toDateTime({now + hours * 3600}), 5"
        db.sql(f"INSERT INTO t SELECT {source} FROM numbers(100)")
    table = db.table("t")
    clock.sleep_s(30 * 3600.0)  # the first rows have expired, and values of the second
    table.optimize(final=True)
    check(table, 200)
    (part,) = table.handle.log.state.parts()
    assert part.manifest.projections["of_w"].rows == 2
    assert db.sql("SELECT w, count() FROM t GROUP BY w ORDER BY w").rows() == [(0, 100), (5, 100)]
