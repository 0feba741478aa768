"""`system.query_log`, `processes`, `events`, `disks`: the statements of a connection, their requests and cost."""

from __future__ import annotations

import threading

import pytest

from mergelake.api.python import Warehouse
from mergelake.api.sql.database import Database, connect
from mergelake.api.sql.system_counters import disk_rows
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.store import open_store
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.far_store import FarStore

LOG = "SELECT toString(type), query_kind, query FROM system.query_log"


@pytest.fixture
def db() -> Database:
    """A table of one column; the clock stands still."""
    db = Database(Warehouse(MemoryStore(), clock=ManualClock(), ids=SeededIds(1), threads=1))
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    db.sql("SET query_log_length = 0")
    db.sql("SET query_log_length = 1000")
    return db


def test_statements_are_logged_with_their_beginning_and_their_end(db):
    db.sql("INSERT INTO t VALUES (1), (2), (3); SELECT k FROM t WHERE k > 1")
    for wrong in ("SELEC 1", "SELECT nosuch FROM t"):
        with pytest.raises(MergelakeError):
            db.sql(wrong)
    assert db.sql(LOG).rows() == [
        ("QueryStart", "Insert", "INSERT INTO t VALUES"),
        ("QueryFinish", "Insert", "INSERT INTO t VALUES"),
        ("QueryStart", "Select", "SELECT k FROM t WHERE k > 1"),
        ("QueryFinish", "Select", "SELECT k FROM t WHERE k > 1"),
        ("ExceptionBeforeStart", "", "SELEC 1"),
        ("ExceptionBeforeStart", "Select", "SELECT nosuch FROM t"),
        ("QueryStart", "Select", LOG),
    ]
    query = "SELECT exception_code, exception LIKE '%nosuch%' FROM system.query_log WHERE exception_code ORDER BY ALL"
    assert db.sql(query).rows() == [(47, 1), (62, 0)]
    query = "SELECT result_rows, read_rows FROM system.query_log WHERE type = 'QueryFinish' AND query LIKE 'SELECT k%'"
    assert db.sql(query).rows() == [(2, 2)]


def test_a_statement_has_its_own_requests_and_its_cost(db):
    db.sql("INSERT INTO t VALUES (0)")  # which opens the table
    before = db.warehouse.store.counters
    result = db.sql("INSERT INTO t VALUES (1)")
    spent = db.warehouse.store.counters - before
    assert (spent.put, spent.get) == (2, 2)
    assert result.stats.requests == spent
    assert result.stats.cost == pytest.approx((2 * 0.005 + 2 * 0.0004) / 1000)
    (row,) = db.sql(
        "SELECT ProfileEvents['StorePutRequests'], ProfileEvents['StoreBytesWritten'], cost, table_requests "
        "FROM system.query_log WHERE type = 'QueryFinish' AND query_kind = 'Insert' ORDER BY cost LIMIT 1"
    ).rows()
    assert row[:3] == (2, spent.bytes_put, pytest.approx(0.0000108))
    assert dict(row[3]) == {"_catalog": 1, "default.t": 3}


def test_two_statements_at_once_do_not_count_for_each_other(db):
    db.sql("CREATE TABLE u (k UInt64) ENGINE = MergeTree ORDER BY k")
    stats = {}

    def insert(name, count):
        for _ in range(count):
            requests = db.sql(f"INSERT INTO {name} SELECT number FROM numbers(10)").stats.requests
            stats.setdefault(name, []).append(requests)

    threads = [threading.Thread(target=insert, args=pair) for pair in (("t", 5), ("u", 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {name: db.table(name).handle.directory for name in ("t", "u")}
    for name, other in (("t", "u"), ("u", "t")):
        assert all(each.tables[ids[name]].put == 2 and ids[other] not in each.tables for each in stats[name])


def test_a_large_result_is_logged_when_its_last_row_is_read(db):
    numbers = "SELECT number, toString(number) FROM numbers(3000000)"
    result = db.sql(numbers)
    query = "SELECT count() FROM system.{} WHERE query LIKE 'SELECT number%'"
    assert db.sql(query.format("query_log")).scalar() == 1
    assert db.sql(query.format("processes")).scalar() == 1
    assert sum(batch.num_rows for batch in result.batches()) == 3_000_000
    assert db.sql(query.format("processes")).scalar() == 0
    assert db.sql(f"SELECT max(result_rows) FROM system.query_log WHERE query = '{numbers}'").scalar() == 3_000_000
    db.sql(numbers).close()
    query = "SELECT exception_code FROM system.query_log WHERE type = 'ExceptionWhileProcessing'"
    assert db.sql(query).rows() == [(394,)]
    late = db.sql("SELECT throwIf(number = 2900000), toString(number) FROM numbers(3000000) SETTINGS max_threads = 1")
    with pytest.raises(MergelakeError):
        list(late.batches())
    assert db.sql(query).rows() == [(394,), (395,)]


def test_the_log_keeps_as_many_statements_as_its_setting_says(db):
    db.sql("SET query_log_length = 3")
    for n in range(9):
        db.sql(f"SELECT {n}")
    query = "SELECT query FROM system.query_log WHERE type = 'QueryStart'"
    assert [row[0] for row in db.sql(query).rows()] == ["SELECT 7", "SELECT 8", query]
    db.sql("SET query_log_length = 100")
    db.sql("SELECT 10 SETTINGS log_queries = 0; SELECT 11 SETTINGS query_log_length = 0")
    db.sql("SHOW TABLES SETTINGS log_queries = 0")
    db.sql("SELECT 12", settings={"log_queries": 0})
    db.sql("SELECT 'log_queries', 13")
    assert [row[0] for row in db.sql(query).rows()][-2:] == ["SELECT 'log_queries', 13", query]
    assert not any("SELECT 1" in row[0] for row in db.sql(query).rows())
    with pytest.raises(MergelakeError) as refused:
        db.sql("SET query_log_length = 'many'")
    assert refused.value.name == "CANNOT_PARSE_NUMBER"


def test_events_are_the_requests_of_the_connection(db):
    counters = db.warehouse.store.counters
    events = dict(db.sql("SELECT event, value FROM system.events").rows())
    assert events["StorePutRequests"] == counters.put
    assert events["StoreBytesWritten"] == counters.bytes_put
    assert not any(name.startswith("S3") for name in events), "a store in memory has no S3 requests"


def test_disks_are_the_store_and_its_cache(tmp_path):
    db = connect(str(tmp_path / "lake"))
    db.sql("CREATE DATABASE d")
    columns = "name, path, type, is_remote, total_space > free_space, cache_path"
    assert db.sql(f"SELECT {columns} FROM system.disks").rows() == [
        ("default", str(tmp_path / "lake"), "Local", 0, 1, "")
    ]
    options = {"access_key_id": "x", "secret_access_key": "y", "endpoint": "http://127.0.0.1:1"}
    options |= {"cache_dir": str(tmp_path / "cache"), "cache_bytes": str(1 << 21)}
    store, cache = disk_rows(open_store("s3://bucket/lake", options))
    assert (store[0], store[1], store[2], store[6], store[7]) == (
        "default", "s3://bucket/lake", None, "ObjectStorage", "S3",
    )  # fmt: skip
    assert (cache[0], cache[1], cache[-1]) == ("cache", str(tmp_path / "cache"), 1 << 21)


def test_reads_of_a_far_store_beside_the_question_for_news_count_once():
    """The statement reads the versions that it knows while it asks whether they are the newest."""
    db = Database(Warehouse(FarStore(), threads=2))
    db.sql("CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k SETTINGS min_bytes_for_wide_part = 0")
    for first in (0, 50_000):
        db.sql(f"INSERT INTO t SELECT number + {first}, toString(number) FROM numbers(50000)")
    for _ in range(3):
        before = db.warehouse.store.counters
        stats = db.sql("SELECT sum(k), max(s) FROM t").stats
        assert stats.requests == db.warehouse.store.counters - before
    assert stats.requests.get >= 2
