"""A published table with projections: a stock ClickHouse sees them, and uses them."""

from __future__ import annotations

import time
from typing import Any

import mergelake as ml
from mergelake.jobs.gc.fsck import fsck
from mergelake.jobs.publish.definition import create_statement

_WAIT_S = 60.0
_SUMS = "SELECT v, sum(k), count() FROM default.shown GROUP BY v ORDER BY v"


def _rows(oracle: Any, sql: str) -> str:
    return str(oracle.query(sql, "TSV"))


def _wait(oracle: Any, rows: int) -> None:
    until = time.monotonic() + _WAIT_S
    while _rows(oracle, "SELECT count() FROM default.shown SETTINGS optimize_use_projections = 0") != f"{rows}\n":
        assert time.monotonic() < until
        time.sleep(0.1)


def _used(oracle: Any) -> None:
    projected = _rows(oracle, f"{_SUMS} SETTINGS force_optimize_projection_name = 'sums'")
    assert projected == _rows(oracle, f"{_SUMS} SETTINGS optimize_use_projections = 0")
    assert _rows(oracle, "CHECK TABLE default.shown SETTINGS check_query_single_value_result = 1") == "1\n"


def test_clickhouse_uses_projections_of_a_published_table(oracle: Any, tmp_path: Any) -> None:
    db = ml.connect(str(tmp_path))
    projections = "PROJECTION sums (SELECT v, sum(k), count() GROUP BY v), PROJECTION by_s (SELECT * ORDER BY s)"
    for full in (0, 1 << 30):
        settings = f"SETTINGS min_bytes_for_full_part_storage = {full}"
        db.sql("DROP TABLE IF EXISTS t")
        db.sql(f"CREATE TABLE t (k UInt32, v UInt8, s String, {projections}) ENGINE = MergeTree ORDER BY k {settings}")
        table = db.table("t")
        oracle.query("DROP TABLE IF EXISTS default.shown SYNC")
        db.sql("INSERT INTO t SELECT number, number % 10, toString(number % 3) FROM numbers(1000)")
        table.publish()
        oracle.query(create_statement(table.handle, "default", "shown", show_secrets=True))
        _wait(oracle, 1000)
        _used(oracle)
        db.sql("INSERT INTO t SELECT number + 1000, number % 10, toString(number % 3) FROM numbers(1000)")
        table.publish()
        _wait(oracle, 2000)
        _used(oracle)
        db.sql("OPTIMIZE TABLE t FINAL")
        db.sql("ALTER TABLE t DELETE WHERE v = 3")
        table.apply_mutations()
        table.publish()
        _wait(oracle, 1800)
        _used(oracle)
        # Its projection is dropped: parts that are written now lack it, and the server, which still has it, goes on.
        db.sql("ALTER TABLE t DROP PROJECTION sums")
        db.sql("INSERT INTO t SELECT number + 2000, number % 10, toString(number % 3) FROM numbers(1000)")
        table.publish(grace_seconds=0)
        _wait(oracle, 2800)
        assert _rows(oracle, _SUMS) == _rows(oracle, f"{_SUMS} SETTINGS optimize_use_projections = 0")
        report = fsck(table.handle)
        assert [finding for finding in report.findings if not finding.harmless] == []
        names = {meta.key.split("/")[-2] for meta in table.handle.store.list(f"{table.handle.directory}/__meta/")}
        parts = table.handle.refresh().parts()
        kept = {f"proj-{name}-{part.manifest.id}" for part in parts for name in part.manifest.projections}
        assert {name for name in names if name.startswith("proj-")} == kept
