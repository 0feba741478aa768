"""A week of commits by a simulated clock, with statements between them: what is attached stays few, and follows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import mergelake as ml
from mergelake.api.python.warehouse import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.query.attach import attached, attaching
from mergelake.query.attach.attached import AttachedSets
from mergelake.query.embedded import engine

HOURS, STEP = 7 * 24, 4
START_MS = 1_772_323_200_000
KEPT_DAYS = 2
"""Days of data that stay in the table."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directory", "memory", "served"])
def test_a_week_of_commits_leaves_nothing_stale_attached(tmp_path: Path, monkeypatch, kind: str) -> None:
    monkeypatch.setattr(attached, "ROWS_MIN", 0)
    if kind == "served":
        monkeypatch.setattr(attaching, "COPIED_MAX", -1)
    clock, draw = ManualClock(START_MS), random.Random(7)
    attached.SETS.settle()  # of the tests before
    monkeypatch.setattr(attached, "SETS", AttachedSets(clock=clock))
    url = f"memory://week-{kind}" if kind == "memory" else str(tmp_path / "warehouse")
    db = ml.Database(Warehouse(url, clock=clock))
    plain = ", min_bytes_for_full_part_storage = 0" if kind == "directory" else ""
    db.sql(
        "CREATE TABLE t (h UInt32, k UInt64, v String) ENGINE = MergeTree PARTITION BY intDiv(h, 24) ORDER BY k "
        f"SETTINGS history_retention_seconds = 3600{plain}"
    )
    named = engine.run(f"SELECT name FROM system.tables WHERE database = '{attaching.DATABASE}'").table()
    before, copies = set(named["name"].to_pylist()), set(attaching._copies("x").parent.glob("*"))
    rows: dict[int, int] = {}
    table = db.table("t")
    for hour in range(0, HOURS, STEP):
        clock.sleep_s(STEP * 3600)
        for _ in range(draw.randrange(1, 4)):
            count = draw.randrange(1, 500)
            db.sql(f"INSERT INTO t SELECT {hour}, number, toString(number) FROM numbers({count})")
            rows[hour] = rows.get(hour, 0) + count
            asked = draw.choice(["", "", f"WHERE h >= {max(0, hour - 5)}", "WHERE k % 2 = 0"])
            even = "count() * 0" if asked.startswith("WHERE k") else "count()"
            wanted = sum(n for h, n in rows.items() if not asked.startswith("WHERE h") or h >= hour - 5)
            found = db.sql(f"SELECT {even}, uniqExact(v) > 0 FROM t {asked}").rows()
            assert found == [(0 if even != "count()" else wanted, 1)], hour
        if hour % 8 == 4:
            db.sql("OPTIMIZE TABLE t")
        if hour % 24 == 20:
            day = hour // 24
            db.sql(f"OPTIMIZE TABLE t PARTITION {day} FINAL")
            if day >= KEPT_DAYS:
                dropped = day - KEPT_DAYS
                db.sql(f"ALTER TABLE t DROP PARTITION {dropped}")
                rows = {h: n for h, n in rows.items() if h // 24 != dropped}
            table.gc()
    attached.SETS.settle()
    assert db.sql("SELECT count() FROM t").scalar() == sum(rows.values())
    clock.sleep_s(3600)
    assert db.sql("SELECT max(v) > '' FROM t").scalar() == 1
    attached.SETS.settle()
    (held,) = attached.SETS._held.values()  # of everything before the last hour nothing is left
    named = engine.run(f"SELECT name FROM system.tables WHERE database = '{attaching.DATABASE}'").table()
    assert set(named["name"].to_pylist()) - before == {held.name.partition(".")[2]}
    assert {path for path in attaching._copies("x").parent.glob("*") if path not in copies} == {
        attaching._copies(part_id) for part_id in attaching.copied(held.parts)
    }
