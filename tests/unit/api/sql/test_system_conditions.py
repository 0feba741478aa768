"""What conditions on system tables spare: tables that need not be opened, log entries that need not be read."""

from __future__ import annotations

import pytest

from mergelake.api.python import Warehouse
from mergelake.api.sql.database import Database
from mergelake.api.sql.system_conditions import conditions_of, is_understood
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.store.objects.memory import MemoryStore

PART_LOG = ("database", "table", "event_date", "event_time", "event_time_microseconds", "version", "rows")
NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "since_ms", "since_version"),
    [
        ("event_time >= '2023-11-14 22:13:20'", NOW_MS, 0),
        ("'2023-11-14 22:13:20' < event_time", NOW_MS, 0),
        ("event_time_microseconds = '2023-11-14 22:13:20.000999'", NOW_MS, 0),
        ("event_date = '2023-11-14'", NOW_MS - NOW_MS % 86_400_000, 0),
        ("event_time > now() - INTERVAL 1 HOUR", NOW_MS - 3_660_000, 0),
        ("event_date >= today() - 1", NOW_MS - NOW_MS % 86_400_000 - 86_400_000, 0),
        ("version > 7", 0, 7),
        ("version >= 7 AND event_time > toDateTime(1000) AND version > 3", 1_000_000, 7),
    ],
)
def test_a_lower_bound_is_found(text, since_ms, since_version):
    found = conditions_of([text], PART_LOG, NOW_MS)
    assert (found.since_ms, found.since_version) == (since_ms, since_version)
    assert is_understood(text, PART_LOG)
    assert not is_understood(text, ("database", "table", "rows")), "there it is another column"


@pytest.mark.parametrize(
    "text",
    [
        "event_time < now()",
        "version != 7",
        "version > 7 OR rows > 1",
        "version > 7 OR table = 't'",
        "version > 7.5",
        "-version > 7",
        "rows > 7",
        "toUInt8(table) = 1",
        "1",
        "nosuch(table)",
        "(",
    ],
)
def test_what_says_nothing_for_certain_is_left_to_clickhouse(text):
    found = conditions_of([text], PART_LOG, NOW_MS)
    assert (found.since_ms, found.since_version) == (0, 0)
    assert found.tables(["d.t", "d.u"]) == ["d.t", "d.u"]


def test_the_part_log_reads_the_entries_that_conditions_leave():
    db = Database(Warehouse(MemoryStore(), clock=ManualClock(NOW_MS), ids=SeededIds(1), threads=1))
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS checkpoint_interval = 1000")
    for n in range(200):
        db.table("t").append({"k": [n]})
        db.warehouse.clock.advance_s(60)

    def asked(where: str) -> tuple[list[tuple[int, ...]], int]:
        result = db.sql(f"SELECT count(), min(version), max(version) FROM system.part_log WHERE {where}")
        return result.rows(), result.stats.requests.tables[db.table("t").handle.directory].get

    all_rows, all_gets = asked("1")
    assert (all_rows, all_gets > 200) == ([(200, 2, 201)], True)
    assert asked("rows > 0 OR version > 190")[1] == all_gets
    rows, gets = asked("version > 190 AND table = 't'")
    assert (rows, gets < 20) == ([(11, 191, 201)], True)
    rows, gets = asked("event_time >= now() - INTERVAL 30 MINUTE")
    assert (rows, gets < 70) == ([(30, 172, 201)], True)
    rows, gets = asked("event_time >= '2023-11-15 00:00:00' AND event_time < '2023-11-15 00:10:00'")
    assert (rows[0][0], gets < 170) == (10, True)
