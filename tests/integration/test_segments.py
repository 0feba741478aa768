"""The whole product on tables whose checkpoints have segments: on a directory and on a real S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import mergelake as ml
from mergelake.log.storage import layout

CREATE = """CREATE TABLE t (k Int64, s String) ENGINE = MergeTree PARTITION BY k % 7 ORDER BY k SETTINGS
    checkpoint_interval = 8, gc_grace_seconds = 0, history_retention_seconds = 0"""
Connect = Callable[[], ml.Database]


@pytest.fixture(params=["directory", "s3"])
def connect(request: pytest.FixtureRequest, tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    monkeypatch.setattr(layout, "INLINE_MAX", 4_000)
    monkeypatch.setattr(layout, "SEGMENT_MAX", 100_000)
    monkeypatch.setattr(layout, "FANOUT", 3)
    if request.param == "directory":
        yield lambda: ml.connect(str(tmp_path))
    else:
        url, options = request.getfixturevalue("s3_url"), request.getfixturevalue("s3_options")
        yield lambda: ml.connect(url, options)


def segments(db: ml.Database) -> int:
    return sum(meta.key.endswith(".segment") for meta in db.warehouse.store.list(""))


def rows(db: ml.Database, name: str = "t") -> tuple[object, ...]:
    (row,) = db.sql(f"SELECT count(), sum(k), uniqExact(s) FROM {name}").rows()
    return row


def test_everything_works_on_what_a_new_process_reads_from_segments(connect: Connect) -> None:
    db = connect()
    db.sql(CREATE)
    for number in range(24):
        db.sql(f"INSERT INTO t SELECT number + {number * 7}, toString(number + {number * 7}) FROM numbers(7)")
    whole = (168, sum(range(168)), 168)
    assert segments(db) > 0
    assert rows(connect()) == whole
    assert connect().sql("SELECT s FROM t WHERE k = 77").rows() == [("77",)]
    other = connect()
    assert len(other.sql("SELECT name FROM system.parts WHERE table = 't' AND active").rows()) == 168
    assert all(passed for _, passed, _ in other.sql("CHECK TABLE t").rows())
    assert [report.clean for _, report in connect().warehouse.fsck("t")] == [True]
    table = connect().table("t")
    table.tag("before")
    connect().sql("CREATE TABLE u CLONE AS t")
    part = connect().table("t").snapshot().parts[20].name
    connect().sql(f"ALTER TABLE t DETACH PART '{part}'")
    connect().sql("OPTIMIZE TABLE t FINAL")
    assert rows(connect())[0] == 167
    connect().sql(f"ALTER TABLE t ATTACH PART '{part}'")
    assert rows(connect()) == rows(connect(), "u") == whole
    for number in range(24, 44):
        db.sql(f"INSERT INTO t SELECT number + {number * 7}, toString(number + {number * 7}) FROM numbers(7)")
    db.sql("OPTIMIZE TABLE t FINAL")
    late = connect()
    assert rows(late)[0] == 308
    for _ in range(3):
        list(connect().warehouse.gc())
    assert rows(late) == rows(connect()) == (308, sum(range(308)), 308)
    assert connect().sql("SELECT count() FROM t AS OF TAG 'before'").rows() == [(168,)]
    assert rows(connect(), "u") == whole
    assert [report.clean for _, report in connect().warehouse.fsck("t")] == [True]
