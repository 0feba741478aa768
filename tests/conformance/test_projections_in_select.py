"""SELECT over tables with projections: scanned, or by ClickHouse, which uses the projections that parts have."""

from __future__ import annotations

import random

import pytest

import mergelake as ml
from mergelake.query.attach import attached
from mergelake.query.embedded import engine
from tests.helpers.attached import Reading
from tests.helpers.projections import body, draw_projection, draw_rows, question
from tests.helpers.rounds import LONG

_CHANGES = ("ALTER TABLE {} UPDATE v = 100 WHERE k % 3 = 0", "ALTER TABLE {} DELETE WHERE k % 5 = 2")


@pytest.mark.parametrize("seed", range(2 if LONG else 1))
def test_answers_are_those_without_projections(read: Reading, seed: int) -> None:
    draw = random.Random(seed)
    projections = [draw_projection(draw) for _ in range(3)]
    db = ml.connect(f"{read.url}/{seed}")
    full = "min_bytes_for_full_part_storage=0" if read.plain else "min_bytes_for_wide_part=0"
    db.sql(f"CREATE TABLE t ({body(projections)}) ENGINE = MergeTree ORDER BY k SETTINGS {full}")
    db.sql(f"CREATE TABLE bare ({body([])}) ENGINE = MergeTree ORDER BY k SETTINGS {full}")

    def both(statement: str) -> None:
        for name in ("t", "bare"):
            db.sql(statement.format(name))

    def compare() -> None:
        for text in projections:
            asked = question(text, "{}")
            want = db.sql(asked.format("bare")).rows()
            for _ in range(2):
                assert db.sql(asked.format("t")).rows() == want, text

    for number in range(3):
        both(f"INSERT INTO {{}} {draw_rows(draw, 300, number * 200)}")
    compare()
    for change in _CHANGES:
        both(change)
    compare()
    both("OPTIMIZE TABLE {} FINAL")
    both(f"INSERT INTO {{}} {draw_rows(draw, 50)}")
    compare()
    db.sql("ALTER TABLE t DROP PROJECTION p1")
    projections[1] = draw_projection(draw)
    db.sql(f"ALTER TABLE t ADD PROJECTION other ({projections[1]})")
    compare()
    both(f"INSERT INTO {{}} {draw_rows(draw, 50)}")
    compare()


def test_clickhouse_uses_a_projection_of_a_snapshot(read: Reading) -> None:
    if attached.SCANNED_FIRST:
        pytest.skip("these parts are scanned")
    db = ml.connect(f"{read.url}/used")
    projection = "PROJECTION by_v (SELECT v, count(), sum(k), uniq(k) GROUP BY v)"
    db.sql(f"CREATE TABLE t (k UInt32, v UInt8, {projection}) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t SELECT number, number % 7 FROM numbers(100000)")
    before = engine.run("SELECT sum(rows) FROM system.projection_parts WHERE active AND name = 'by_v'").table()
    rows = db.sql("SELECT v, sum(k), uniq(k) FROM t GROUP BY v ORDER BY v").rows()
    assert rows[3][0] == 3
    del before
    held = engine.run(
        "SELECT database, table, rows FROM system.projection_parts WHERE active AND name = 'by_v'"
    ).table()
    assert 7 in held.column("rows").to_pylist()
    database, table = held.column("database")[0].as_py(), held.column("table")[0].as_py()
    plan = engine.run(f"EXPLAIN SELECT v, sum(k), uniq(k) FROM {database}.{table} GROUP BY v").table()
    assert "by_v" in "\n".join(plan.column(0).to_pylist())


def test_a_session_in_another_time_zone_does_not_get_what_was_computed_in_utc(read: Reading) -> None:
    db = ml.connect(f"{read.url}/zones")
    days = "toStartOfDay(t)"
    projection = f"PROJECTION p (SELECT {days}, count() GROUP BY {days})"
    db.sql(f"CREATE TABLE t (k UInt32, t DateTime, {projection}) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t SELECT number, toDateTime('2026-01-01 00:00:00') + number * 3600 FROM numbers(100)")
    asked = f"SELECT count() FROM t GROUP BY {days} ORDER BY {days} LIMIT 1"
    for _ in range(2):
        assert db.sql(asked).scalar() == 24
        assert db.sql(f"{asked} SETTINGS session_timezone = 'Asia/Tokyo'").scalar() == 15
    db.sql("SET session_timezone = 'Asia/Tokyo'")
    assert db.sql(asked).scalar() == 15
