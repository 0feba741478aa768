"""`system.part_log` is what the log of each table says of its parts, as far back as it is kept."""

from __future__ import annotations

from mergelake.api.python import Warehouse
from mergelake.api.sql.database import Database
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.log.model.operations import AdvanceGcHorizon
from mergelake.store.objects.memory import MemoryStore

EVENTS = "SELECT version, toString(event_type), kind, part_name, rows FROM system.part_log ORDER BY version, event_type"


def database() -> Database:
    """A table of two columns; the clock stands still."""
    db = Database(Warehouse(MemoryStore(), clock=ManualClock(), ids=SeededIds(1), threads=1, author="me"))
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    return db


def test_each_way_in_which_parts_come_and_go_is_an_event():
    db = database()
    table = db.table("t")
    table.append({"k": [1, 2]}, dedup_token="a")
    table.append({"k": [1, 2]}, dedup_token="a")
    table.append({"k": [3]})
    table.optimize(final=True)
    table.detach_part("all_1_2_1")
    table.attach_part("all_1_2_1")
    table.truncate()
    assert (
        db.sql(EVENTS).rows()
        == [
            (2, "NewPart", "insert", "all_1_1_0", 2),
            (3, "NewPart", "insert", "all_2_2_0", 1),
            (4, "MergeParts", "optimize", "all_1_2_1", 3),
            (4, "RemovePart", "", "all_1_1_0", 2),
            (4, "RemovePart", "", "all_2_2_0", 1),
            (5, "RemovePart", "", "all_1_2_1", 3),
            (6, "NewPart", "attach", "all_3_3_1", 3),
            (7, "RemovePart", "", "all_3_3_1", 3),
        ]
        or db.sql(EVENTS).rows()
    )


def test_a_part_that_is_detached_is_removed_and_its_coming_is_still_told():
    db = database()
    table = db.table("t")
    table.append({"k": [1]})
    table.detach_part("all_1_1_0")
    assert [row[1:4] for row in db.sql(EVENTS).rows()] == [
        ("NewPart", "insert", "all_1_1_0"),
        ("RemovePart", "", "all_1_1_0"),
    ]


def test_what_the_log_no_longer_keeps_is_not_told():
    db = database()
    table = db.table("t")
    for n in range(4):
        table.append({"k": [n]})
    table.optimize(final=True)
    table.handle.log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version - 1)])
    events = [row[:2] for row in db.sql(EVENTS).rows()]
    assert events == [(6, "MergeParts"), *[(6, "RemovePart")] * 4]
    table.handle.log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
    assert db.sql(EVENTS).rows() == []


def test_an_event_has_its_time_its_writer_and_where_the_part_lies():
    db = database()
    db.table("t").append({"k": [1]})
    query = (
        "SELECT toUnixTimestamp(event_time), toUnixTimestamp64Micro(event_time_microseconds), event_date, author, "
        "duration_ms, path_on_disk, size_in_bytes, bytes_uncompressed > 0 FROM system.part_log"
    )
    (part,) = db.table("t").parts().to_pylist()
    now_ms = db.warehouse.clock.now_ms()
    ((seconds, micros, date, author, duration, path, size, plain),) = db.sql(query).rows()
    assert (seconds, micros, str(date)) == (now_ms // 1000, now_ms * 1000, "2023-11-14")
    assert (author, duration, size, plain) == ("me", None, part["bytes_on_disk"], 1)
    assert path == f"{db.table('t').location}/{part['uuid']}/"
