"""TTLs through every door: slices, tasks of others, mutations, published tables, other layouts, versions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.ttl import TtlInfo
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.merge.concatenate import plan_concatenation
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.slices import execute_split, with_split
from mergelake.jobs.merge.task_json import decode_task, encode_task
from mergelake.jobs.merge.ttl_drop import drop_expired
from mergelake.jobs.mutate.work import execute_task
from mergelake.parts.read.reader import PartReader

pytestmark = pytest.mark.chdb

ROWS = 2000
INSERT = (
    "INSERT INTO t SELECT toDateTime('{first} 00:00:00') + number * 60, cityHash64(number, {seed}) % 1000, "
    f"number % 97, concat('s', toString(number % 13)), number % 5 FROM numbers({ROWS})"
)
COLUMNS = "d DateTime, k UInt32, x Int32{x}, s LowCardinality(String) DEFAULT 'gone'{s}, v UInt8"
SPLIT = (
    "index_granularity = 256, min_compress_block_size = 100, min_bytes_to_split_merge = 1, merge_slice_bytes = 12000"
)


def filled(directory: Path, ttl: str, x: str = "", s: str = "", settings: str = "index_granularity = 256") -> ml.Table:
    db = ml.connect(str(directory))
    columns = COLUMNS.format(x=x, s=s)
    db.sql(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY (k, d) {ttl} SETTINGS {settings}")
    for seed, first in enumerate(("2001-02-03", "2090-01-01", "2010-01-01")):
        db.sql(INSERT.format(first=first, seed=seed))
    return db.table("t")


def planned(table: ml.Table) -> MergeTask:
    (task,) = plan_optimize(table.handle, final=True)
    return task


def content(table: ml.Table, part: PartManifest) -> list[tuple[Any, ...]]:
    handle = table.handle
    reader = PartReader(handle.store, handle.directory, part, {column.name: column for column in handle.schema.stored})
    names = [column.name for column in handle.schema.stored if column.id in part.columns]
    rows = [tuple(row.values()) for batch in reader.read(names) for row in batch.to_pylist()]
    return [(*names, len(rows)), *rows]


TTLS = [
    ("TTL d", "", ""),
    ("TTL d WHERE v = 1, d - INTERVAL 99 YEAR DELETE WHERE v = 2", " TTL d", ""),
    ("TTL d RECOMPRESS CODEC(ZSTD(5))", "", " TTL d - INTERVAL 99 YEAR"),
    ("TTL d GROUP BY k SET x = sum(x)", "", ""),
]


@pytest.mark.parametrize(("ttl", "x", "s"), TTLS)
@pytest.mark.parametrize("profile", ["classic", "modern"])
def test_a_merge_in_slices_is_the_merge(ttl: str, x: str, s: str, profile: str, tmp_path: Path) -> None:
    table = filled(tmp_path, ttl, x, s, f"{SPLIT}, part_profile = '{profile}'")
    handle, task = table.handle, planned(table)
    run = (handle.ids, handle.clock)
    whole = execute_merge(handle.store, task, *run)
    assert 0 < whole.rows < 3 * ROWS or "v = 1" not in ttl
    split = with_split(handle.store, task, 0)
    assert (split.split is None) == ("GROUP BY" in ttl)
    if split.split is not None:
        made = execute_split(handle.store, split, *run)
        assert content(table, made) == content(table, whole)
        assert made.ttl == whole.ttl
        later = with_split(handle.store, MergeTask(**{**_fields(task), "time_ms": task.time_ms + 60_000}), 0)
        assert (later.split == split.split) == ("WHERE" not in ttl and ttl != "TTL d" and not x and not s)
    document = encode_task("file:///x", task)
    assert decode_task(document).task.time_ms == task.time_ms
    assert content(table, execute_task(handle.store, decode_task(document).task, *run)) == content(table, whole)


def _fields(task: MergeTask) -> dict[str, Any]:
    return {name: getattr(task, name) for name in MergeTask.__dataclass_fields__}


@pytest.mark.parametrize(("ttl", "x", "s"), TTLS)
def test_compact_parts_keep_all_columns(ttl: str, x: str, s: str, tmp_path: Path) -> None:
    compact = filled(tmp_path / "c", ttl, x, s, "index_granularity = 256, min_bytes_for_wide_part = 100000000")
    wide = filled(tmp_path / "w", ttl, x, s)
    for table in (compact, wide):
        table.optimize(final=True)
    (part,) = compact.handle.refresh().parts()
    assert part.manifest.part_type == "Compact"
    assert len(part.manifest.columns) == 5
    rows = [ml.connect(str(tmp_path / name)).sql("SELECT * FROM t ORDER BY ALL FORMAT CSV").text() for name in "cw"]
    assert rows[0] == rows[1]


def test_a_merge_of_parts_that_follow_one_another_is_copied_unless_rows_expire(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (d DateTime, k UInt32) ENGINE = MergeTree ORDER BY d TTL d SETTINGS index_granularity = 256")
    for year in (2090, 2095):
        db.sql(f"INSERT INTO t SELECT toDateTime('{year}-01-01 00:00:00') + number, number FROM numbers(2560)")
    table = db.table("t")
    copied = planned(table)
    assert plan_concatenation(copied) is not None
    assert plan_concatenation(MergeTask(**{**_fields(copied), "time_ms": 3_800_000_000_000})) is None
    table.optimize(final=True)
    (part,) = table.handle.refresh().parts()
    ((low, high),) = part.manifest.ttl.values()
    assert (low, high) == (3786912000, 3944678400 + 2559)


def test_an_update_of_a_time_comes_before_the_drop(tmp_path: Path) -> None:
    table = filled(tmp_path, "TTL d")
    db = ml.connect(str(tmp_path))
    db.sql("ALTER TABLE t UPDATE x = 7 WHERE v = 1")
    table.refresh()
    assert not drop_expired(table.handle).parts  # all parts lack it
    table.apply_mutations()
    assert len(drop_expired(table.handle).parts) == 2
    assert db.sql("SELECT count(), min(d) > '2089-01-01 00:00:00' FROM t").rows() == [(ROWS, True)]
    before = table.version
    assert db.sql(f"SELECT count() FROM t AS OF VERSION {before - 1}").rows() == [(3 * ROWS,)]


def test_an_update_of_a_time_finds_the_times_anew(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (k UInt32, d DateTime, v UInt8) ENGINE = MergeTree ORDER BY k TTL d")
    db.sql("INSERT INTO t SELECT number, toDateTime('2001-01-01 00:00:00'), number % 2 FROM numbers(1000)")
    table = db.table("t")
    db.sql("ALTER TABLE t UPDATE d = '2090-01-01 00:00:00' WHERE v = 1")
    assert not drop_expired(table.handle).parts
    table.apply_mutations()
    (part,) = table.handle.refresh().parts()
    (values,) = part.manifest.ttl.values()
    assert TtlInfo.unpacked(values) == TtlInfo(978307200, 3786912000)
    assert not drop_expired(table.handle).parts
    table.optimize(final=True)
    assert db.sql("SELECT count(), min(v) FROM t").rows() == [(500, 1)]


def test_a_merge_that_was_planned_under_another_ttl_is_not_committed(tmp_path: Path) -> None:
    table = filled(tmp_path, "TTL d + INTERVAL 1 DAY")
    handle, task = table.handle, planned(table)
    made = execute_merge(handle.store, task, handle.ids, handle.clock)
    assert made.rows < 3 * ROWS
    table.modify_ttl("d + INTERVAL 60 YEAR", materialize=False)
    with pytest.raises(ml.ConflictError, match="TTL was changed"):
        commit_merge(handle, task, made)
    table.optimize(final=True)
    assert ml.connect(str(tmp_path)).sql("SELECT count() FROM t").rows() == [(3 * ROWS,)]
    # A change of other columns does no harm.
    task = planned(table)
    made = execute_merge(handle.store, task, handle.ids, handle.clock)
    table.add_column("y", "UInt8")
    assert commit_merge(handle, task, made).manifest.rows == 3 * ROWS


def test_rows_of_an_immutable_partition_expire_as_whole_parts_alone(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (p UInt8, d DateTime, k UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY k")
    for partition in (1, 2):
        db.sql(f"INSERT INTO t VALUES ({partition}, '2001-01-01 00:00:00', 1), ({partition}, '2090-01-01 00:00:00', 2)")
        db.sql(f"INSERT INTO t VALUES ({partition}, '2002-01-01 00:00:00', 3)")
    db.sql("ALTER TABLE t MODIFY SETTING immutable_partitions = 'p = 1'")
    db.sql("ALTER TABLE t MODIFY TTL d")
    query = "SELECT p, count() FROM t GROUP BY p ORDER BY p"
    assert db.sql(query).rows() == [(1, 3), (2, 1)]
    db.sql("ALTER TABLE t MATERIALIZE TTL")
    db.sql("OPTIMIZE TABLE t FINAL")
    assert db.sql(query).rows() == [(1, 3), (2, 1)]


def test_a_dropped_insert_is_still_known_by_its_token(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    table = db.warehouse.create_table("t", {"k": "UInt8", "d": "Date"}, order_by="k", ttl="d")
    rows = {"k": [1], "d": ["2001-01-01"]}
    table.append(rows, dedup_token="one")
    assert len(drop_expired(table.handle).parts) == 1
    assert table.append(rows, dedup_token="one").duplicate
    assert not table.handle.refresh().partitions.totals.parts


def test_the_python_door_has_columns_and_elements(tmp_path: Path) -> None:
    warehouse = ml.connect(str(tmp_path)).warehouse
    ttl = {"": ["d + INTERVAL 1 DAY", "d WHERE k = 1"], "x": "d"}
    table = warehouse.create_table("t", {"k": "UInt8", "d": "Date", "x": "UInt8"}, order_by="k", ttl=ttl)
    assert table.schema.ttl == ("d + toIntervalDay(1)", "d WHERE k = 1")
    assert [column.ttl for column in table.schema.columns] == ["", "", "d"]
    with pytest.raises(ml.MergelakeError, match="nope"):
        warehouse.create_table("u", {"k": "UInt8"}, order_by="k", ttl={"nope": "d"})


@pytest.mark.parametrize("with_ttl", [False, True])
def test_clickhouse_serves_what_is_left(with_ttl: bool, oracle: Any, tmp_path: Path) -> None:
    table = filled(tmp_path, "TTL d + INTERVAL 1 DAY DELETE WHERE v = 1, d - INTERVAL 1 YEAR", " TTL d", " TTL d")
    name = f"default.ttl_{int(with_ttl)}"
    statement = table.attach_statement(name)
    if with_ttl:
        statement = statement.replace(
            "\nSETTINGS", "\nTTL d + INTERVAL 1 DAY DELETE WHERE v = 1, d - INTERVAL 1 YEAR\nSETTINGS"
        )
        assert "\nTTL d" in statement
    query = "SELECT count(), sum(cityHash64(d, k, x, s, v)) FROM {} FORMAT TSV"

    def served() -> None:
        table.publish()
        ours = ml.connect(str(tmp_path)).sql(query.format("t")).text()
        deadline = time.monotonic() + 30
        while str(oracle.query(query.format(name))) != ours:
            assert time.monotonic() < deadline, (str(oracle.query(query.format(name))), ours)
            time.sleep(0.1)

    oracle.query(f"DROP TABLE IF EXISTS {name}")
    table.publish()
    oracle.query(statement)
    try:
        served()
        assert drop_expired(table.handle).parts
        served()
        table.optimize(final=True)
        served()
        ml.connect(str(tmp_path)).sql("ALTER TABLE t MODIFY TTL d - INTERVAL 20 YEAR WHERE v = 2")
        served()
        ml.connect(str(tmp_path)).sql("ALTER TABLE t MODIFY COLUMN s TTL d - INTERVAL 99 YEAR")
        table.refresh()
        table.optimize(final=True)
        (part,) = table.handle.refresh().parts()
        assert len(part.manifest.columns) == 4  # all values of s have expired
        served()
    finally:
        oracle.query(f"DROP TABLE {name}")
