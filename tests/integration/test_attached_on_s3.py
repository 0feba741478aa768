"""ClickHouse reads the parts of a bucket itself, through our endpoint: answers, requests, credentials, no writes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import mergelake as ml
from mergelake.query import in_place, table_source
from mergelake.query.attach import attached
from mergelake.query.attach.attached import AttachedSets
from mergelake.query.embedded import engine
from mergelake.query.select import run_select

ROWS = 30_000
QUERIES = (
    "SELECT s, count(), sum(k), avg(f) FROM t GROUP BY s ORDER BY s",
    "SELECT k, s, m, f FROM t WHERE m LIKE '%77%' ORDER BY k, m LIMIT 50",
    "SELECT k, m FROM t ORDER BY k DESC, m LIMIT 10",
    "SELECT count(), max(m) FROM t FINAL WHERE f > 100",
    "SELECT uniqExact(_part), sum(doc.a.:Int64) FROM t",
)


@pytest.fixture
def db(s3_url: str, s3_options: dict[str, str], monkeypatch) -> ml.Database:
    monkeypatch.setattr(attached, "ROWS_MIN", 1000)
    monkeypatch.setattr(table_source, "FINAL_ROWS_MIN", 0)
    monkeypatch.setattr(attached, "SETS", AttachedSets())
    db = ml.connect(s3_url, s3_options)
    db.sql(
        "CREATE TABLE t (k UInt64, s LowCardinality(String), m String, f Float64, doc JSON) "
        "ENGINE = ReplacingMergeTree ORDER BY k SETTINGS min_bytes_for_full_part_storage = 300000"
    )
    for number in range(3):
        db.sql(
            f"INSERT INTO t SELECT number * 2 + {number}, toString(number % 7), hex(sipHash64(number)), number / 8, "
            f"""concat('{{"a": ', toString(number), '}}')::JSON FROM numbers({ROWS})"""
        )
    for number in range(12):  # small ones
        db.sql(f"INSERT INTO t (k, s, m) SELECT number, 'small', '{number}' FROM numbers(20)")
    return db


def _how(db: ml.Database, sql: str) -> tuple[str, list[Any]]:
    found = run_select(sql, db.resolver(), db.context())
    return found.stats.reason, found.table.to_pylist()


def _objects(db: ml.Database) -> list[tuple[str, int, str]]:
    return [(meta.key, meta.size, meta.e_tag) for meta in db.warehouse.store.list("")]


def test_a_bucket_is_read_by_clickhouse_itself_and_nothing_is_written(db: ml.Database, monkeypatch) -> None:
    store, before = db.warehouse.store, _objects(db)
    answers, requests = {}, {}
    for _ in range(3):
        for query in QUERIES:
            count = store.counters
            reason, rows = _how(db, query)
            requests[query] = store.counters - count
            answers.setdefault(query, []).append(rows)
    for query, (first, *others) in answers.items():
        assert all(rows == first for rows in others), query
        assert _how(db, query)[0] == in_place.READS_ITSELF
        assert requests[query].put == requests[query].delete == requests[query].list == 0
        # Of the log two at most; then what the statement reads, of three large parts: marks and data of its columns.
        assert requests[query].get <= 2 + 3 * 5 * 2
    assert _objects(db) == before
    monkeypatch.setattr(attached, "PARTS_MAX", 0)
    for query in QUERIES[:4]:
        reason, rows = _how(db, query)
        assert (reason, rows) == ("no Spark session", answers[query][0]), query


def test_small_parts_are_fetched_once(db: ml.Database) -> None:
    db.sql("CREATE TABLE small (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    for number in range(20):
        db.sql(f"INSERT INTO small SELECT number + {number}, toString(number) FROM numbers(100)")
    query = "SELECT sum(k), max(s) FROM small"
    reasons = [_how(db, query)[0]]
    count = db.warehouse.store.counters
    reasons += [_how(db, query)[0] for _ in range(2)]
    assert (db.warehouse.store.counters - count).get <= 2 * 2  # attaching asks for nothing that the scan has fetched
    assert reasons[2] == in_place.READS_ITSELF


def test_credentials_stay_out_of_clickhouse(db: ml.Database, s3_options: dict[str, str]) -> None:
    for _ in range(2):
        db.sql(QUERIES[0])
    secrets = [s3_options["secret_access_key"], s3_options["endpoint"]]
    names = engine.run("SELECT name FROM system.tables WHERE database = 'system'").table()["name"].to_pylist()
    seen = 0
    for name in [f"system.{name}" for name in names if name not in ("zeros", "numbers", "zeros_mt", "numbers_mt")]:
        if any(word in name for word in ("primes", "stack_trace", "zookeeper", "asynchronous")):
            continue
        try:
            text = engine.run(f"SELECT * FROM {name} LIMIT 5000", output="JSONEachRow").text()
        except ml.MergelakeError:
            continue  # of services that this ClickHouse does not have
        seen += 1
        assert not any(secret in text for secret in secrets), name
    assert seen > 50
    names = engine.run("SELECT name FROM system.tables WHERE database = '_mergelake'").table()["name"].to_pylist()
    shown = engine.run(f"SHOW CREATE TABLE _mergelake.{names[0]}", output="TSVRaw").text()
    assert "metadata_path = '[HIDDEN]'" in shown
    assert not any(secret in shown for secret in secrets)


def test_what_a_process_attached_is_gone_with_it(db: ml.Database, s3_url: str, s3_options: dict[str, str]) -> None:
    before = _objects(db)
    script = (
        "import mergelake as ml, os\n"
        "from mergelake.query.attach import attached\n"
        "attached.ROWS_MIN = attached.SCANNED_FIRST = 0\n"
        f"db = ml.connect({s3_url!r}, {s3_options!r})\n"
        f"print(db.sql({QUERIES[0]!r}).rows()[0], flush=True)\n"
        "os._exit(9)\n"  # as killed
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 9, ran.stderr
    assert ran.stdout.startswith("('0',")
    assert _objects(db) == before
