"""`write_part` and `read_part`: what people see of parts without a table of ours."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

import mergelake as ml

DDL = """CREATE TABLE hits (day Date, user UInt64, url String DEFAULT 'none', n Nullable(Int32))
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/hits', '{replica}', user)
PARTITION BY toYYYYMM(day) ORDER BY (user, day)"""
DAYS = [dt.date(2026, 2, 1), dt.date(2026, 1, 5), dt.date(2026, 1, 1)]
ROWS = {"day": DAYS, "user": [3, 2, 1], "n": [1, None, 3]}


def test_rows_become_a_sorted_part_for_each_partition(tmp_path: Path) -> None:
    parts = ml.write_part(ROWS, str(tmp_path), DDL)
    assert [(part.name, part.rows, part.partition_id) for part in parts] == [
        ("202602_1_1_0", 1, "202602"), ("202601_1_1_0", 2, "202601"),
    ]  # fmt: skip
    assert sum(file.stat().st_size for file in (tmp_path / "202601_1_1_0").iterdir()) == parts[1].bytes
    part = ml.read_part(parts[1].path)
    assert repr(part) == "<PartData 202601_1_1_0: 2 rows, 4 columns, Wide>"
    assert part.schema.names == ["day", "user", "url", "n"]
    assert part.schema.field("url").type == pa.string()
    assert part.arrow().to_pylist() == [
        {"day": DAYS[2], "user": 1, "url": "none", "n": 3},
        {"day": DAYS[1], "user": 2, "url": "none", "n": None},
    ]
    assert part.reader(batch_rows=1).read_all() == part.arrow()
    assert [batch.schema for batch in part.batches()] == [part.schema]
    assert ml.read_part(parts[1].path, ["n"]).arrow().column("n").to_pylist() == [3, None]


def test_rows_that_an_engine_would_collapse_are_kept_for_its_merges(tmp_path: Path) -> None:
    (part,) = ml.write_part({"day": DAYS[1:] * 2, "user": [1] * 4}, str(tmp_path), DDL)
    assert part.rows == 4


def test_numbers_go_on_after_those_in_the_directory(tmp_path: Path) -> None:
    rows = {"day": DAYS[1:], "user": [1, 2]}
    assert [p.name for p in ml.write_part(rows, str(tmp_path), DDL, block_rows=1)] == ["202601_1_1_0", "202601_2_2_0"]
    assert [p.name for p in ml.write_part(rows, str(tmp_path), DDL)] == ["202601_3_3_0"]
    assert [p.name for p in ml.write_part(rows, str(tmp_path), DDL, block=70)] == ["202601_70_70_0"]
    assert [p.name for p in ml.write_part(rows, str(tmp_path), DDL, part_name="202601_9_9_0")] == ["202601_9_9_0"]


def test_a_part_that_is_there_is_only_replaced_on_demand(tmp_path: Path) -> None:
    rows = {"day": DAYS[1:], "user": [1, 2]}
    (part,) = ml.write_part(rows, str(tmp_path), DDL, block=7)
    before = {file.name: file.read_bytes() for file in Path(part.path).iterdir()}
    with pytest.raises(ml.InvalidInputError, match="replace_existing=True") as refused:
        ml.write_part({"day": DAYS[1:2], "user": [9]}, str(tmp_path), DDL, block=7)
    assert (refused.value.name, refused.value.code) == ("DIRECTORY_ALREADY_EXISTS", 84)
    assert {file.name: file.read_bytes() for file in Path(part.path).iterdir()} == before
    ml.write_part({"day": DAYS[1:2], "user": [9]}, str(tmp_path), DDL, block=7, replace_existing=True)
    assert ml.read_part(part.path).arrow().column("user").to_pylist() == [9]


@pytest.mark.parametrize(
    ("rows", "ddl", "more", "name"),
    [
        (ROWS, DDL, {"part_name": "202601_1_1_0"}, "BAD_ARGUMENTS"),
        (ROWS, DDL, {"part_name": "detached"}, "BAD_DATA_PART_NAME"),
        (ROWS, "SELECT 1", {}, "BAD_ARGUMENTS"),
        (ROWS, "CREATE TABLE t (day Date) ENGINE = Memory", {}, "NOT_IMPLEMENTED"),
        ({**ROWS, "x": [1, 2, 3]}, DDL, {}, "NO_SUCH_COLUMN_IN_TABLE"),
        ({**ROWS, "user": [1, -2, 3]}, DDL, {"block_rows": 1}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
        ({**ROWS, "user": [1, None, 3]}, DDL, {}, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path: Path, rows: dict, ddl: str, more: dict, name: str) -> None:
    with pytest.raises(ml.MergelakeError) as refused:
        ml.write_part(rows, str(tmp_path), ddl, **more)
    assert refused.value.name == name
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_stream_of_batches_makes_parts_of_bounded_size(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.uint64())])
    batches = (pa.record_batch([pa.array(range(i, i + 10), pa.uint64())], schema=schema) for i in range(0, 100, 10))
    parts = ml.write_part(
        pa.RecordBatchReader.from_batches(schema, batches),
        f"memory://{tmp_path.name}",
        "CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k",
        block_rows=40,
    )
    assert [(part.name, part.rows) for part in parts] == [("all_1_1_0", 40), ("all_2_2_0", 40), ("all_3_3_0", 20)]
    assert ml.read_part(parts[2].path).arrow().column("k").to_pylist() == list(range(80, 100))
