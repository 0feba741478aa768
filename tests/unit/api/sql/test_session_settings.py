"""Settings that we go by ourselves: what they allow, bound and refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError


@pytest.fixture
def db() -> Iterator[Database]:
    db = connect("memory://session-settings")
    db.sql("DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS r")
    db.sql(
        "CREATE TABLE t (k UInt64, p UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS index_granularity = 8"
    )
    db.sql("CREATE TABLE r (id UInt32, v UInt8) ENGINE = ReplacingMergeTree ORDER BY id")
    db.sql("INSERT INTO t SELECT number, number % 3 FROM numbers(300)")
    yield db
    db.close()


def refusal(db: Database, statement: str, **settings: object) -> str:
    with pytest.raises(MergelakeError) as refused:
        db.sql(statement, settings=settings)
    return refused.value.name


def test_a_select_reads_no_more_than_it_may(db: Database) -> None:
    assert refusal(db, "SELECT sum(k) FROM t SETTINGS max_rows_to_read = 10") == "TOO_MANY_ROWS"
    assert refusal(db, "SELECT k FROM t LIMIT 1", max_rows_to_read=10) == "TOO_MANY_ROWS"
    assert db.sql("SELECT k FROM t WHERE k = 1 SETTINGS max_rows_to_read = '1Ki'").rows() == [(1,)]
    assert refusal(db, "SELECT sum(k) FROM t", max_bytes_to_read="1k") == "TOO_MANY_BYTES"
    assert refusal(db, "SELECT sum(k) FROM t", max_partitions_to_read=2) == "TOO_MANY_PARTITIONS"
    assert db.sql("SELECT count() FROM t WHERE p = 1 AND k >= 0 SETTINGS max_partitions_to_read = 1").scalar() == 100
    db.sql("ALTER TABLE t MODIFY SETTING max_partitions_to_read = 1")
    assert refusal(db, "SELECT sum(k) FROM t") == "TOO_MANY_PARTITIONS"
    assert db.sql("SELECT sum(k) FROM t SETTINGS max_partitions_to_read = -1").scalar() == 44850


def test_a_select_is_no_longer_than_it_may(db: Database) -> None:
    """Measured is what the user wrote; ClickHouse is given something else, and told of a place in that."""
    long = "SELECT count() FROM t WHERE k IN (" + ", ".join(str(7919 * i) for i in range(40_000)) + ")"
    assert refusal(db, long) == "SYNTAX_ERROR"
    with pytest.raises(MergelakeError, match=r"Max query size exceeded .*: 22 of 20 bytes"):
        db.sql("SELECT count() FROM  t", settings={"max_query_size": 20})
    for size in (0, 10_000_000, "1Mi"):
        assert db.sql(long, settings={"max_query_size": size}).scalar() == 1
    assert db.sql(f"{long} SETTINGS max_query_size = '1Mi'").scalar() == 1
    assert refusal(db, "SELECT k FROM t SETTINGS max_query_size = 20") == "SYNTAX_ERROR"
    with pytest.raises(MergelakeError):  # a text that is none is not for `encode` to tell of
        db.sql("SELECT '\udcff'")
    assert db.sql("SELECT count() FROM t").scalar() == 300


def test_a_session_may_be_for_reading_only(db: Database) -> None:
    db.sql("SET readonly = 1")
    for statement in ("INSERT INTO t VALUES (1, 1)", "DROP TABLE t", "SET max_threads = 1", "OPTIMIZE TABLE t"):
        assert refusal(db, statement) == "READONLY", statement
    assert db.sql("SELECT count() FROM t").scalar() == 300
    other = connect("memory://session-settings", settings={"allow_ddl": "0"})
    assert refusal(other, "TRUNCATE TABLE t") == "QUERY_IS_PROHIBITED"
    other.sql("INSERT INTO t VALUES (1, 1)")
    other.sql("SET allow_ddl = DEFAULT; TRUNCATE TABLE t")


def test_an_insert_goes_by_its_settings(db: Database) -> None:
    three = "SELECT number, number % 3 FROM numbers(3)"
    assert refusal(db, f"INSERT INTO t SETTINGS max_partitions_per_insert_block = 2 {three}") == "TOO_MANY_PARTS"
    db.sql(
        f"INSERT INTO t SETTINGS throw_on_max_partitions_per_insert_block = 0 {three}",
        {"max_partitions_per_insert_block": 2},
    )
    db.sql("INSERT INTO r SETTINGS optimize_on_insert = 0 VALUES (1, 1), (1, 2)")
    db.sql("INSERT INTO r VALUES (2, 1), (2, 2)")
    assert sorted(db.sql("SELECT * FROM r").rows()) == [(1, 1), (1, 2), (2, 2)]
    for settings in (
        {"async_insert": 1},
        {"cast_string_to_date_time_mode": "basic"},
        {"session_timezone": "Asia/Tokyo"},
    ):
        assert refusal(db, "INSERT INTO t FORMAT CSV 1,1", **settings) == "NOT_IMPLEMENTED"
    db.sql("INSERT INTO t FORMAT CSV 1,1", settings={"cast_string_to_date_time_mode": "best_effort", "async_insert": 0})


def test_optimize_takes_settings(db: Database) -> None:
    db.sql("INSERT INTO r VALUES (1, 1); INSERT INTO r VALUES (1, 2)")
    name = "SELECT name FROM system.parts WHERE table = 'r' AND active"
    db.sql("OPTIMIZE TABLE r FINAL SETTINGS optimize_skip_merged_partitions = 1")
    merged = db.sql(name).scalar()
    db.sql("OPTIMIZE TABLE r FINAL SETTINGS optimize_skip_merged_partitions = 1, max_threads = 2")
    assert db.sql(name).scalar() == merged
    both = "OPTIMIZE TABLE r FINAL SETTINGS optimize_skip_merged_partitions, optimize_throw_if_noop"
    assert refusal(db, both) == "CANNOT_ASSIGN_OPTIMIZE"
    db.sql("OPTIMIZE TABLE r FINAL")
    assert db.sql(name).scalar() != merged


def test_other_statements_go_by_theirs(db: Database) -> None:
    assert db.sql("DESCRIBE r", settings={"describe_compact_output": 1}).columns == ("name", "type")
    assert db.sql("CHECK TABLE t", settings={"check_query_single_value_result": True}).rows() == [(1,)]
    db.sql("CREATE TABLE t (k UInt8) ENGINE = MergeTree ORDER BY k", settings={"create_if_not_exists": 1})
    assert db.sql("SELECT k, p FROM t ORDER BY k LIMIT 1", settings={"max_result_rows": 1}).rows() == [(0, 0)]
    assert db.sql("SELECT k FROM t ORDER BY k", settings={"limit": 2, "offset": 1}).rows() == [(1,), (2,)]
    assert len(db.sql("SELECT p, count() FROM t GROUP BY p WITH TOTALS", settings={"extremes": 1})) == 3
    create = "CREATE TABLE x (k UInt8) ENGINE = MergeTree ORDER BY k SETTINGS"
    assert refusal(db, f"{create} allow_suspicious_codecs = 1") == "NOT_IMPLEMENTED"
    assert refusal(db, f"{create} merge_selector_bas = 1") == "UNKNOWN_SETTING"
    assert refusal(db, f"{create} index_granularity = 8 SETTINGS index_granularity = 9") == "UNKNOWN_SETTING"
    db.sql(f"{create} write_final_mark = 0, max_threads = 2, enable_block_number_column, index_granularity = '1Ki'")
    assert "index_granularity = 1024" in db.sql("SHOW CREATE TABLE x").scalar()
    db.sql("DROP TABLE x")


def test_a_setting_that_changes_partial_answers_keeps_a_select_whole(db: Database) -> None:
    from mergelake.query.context import Context
    from mergelake.query.select import run_select
    from tests.helpers.tasks import TasksHere

    split = Context(executor="spark", run_tasks=TasksHere())
    query = "SELECT p, count() FROM t GROUP BY p ORDER BY p"
    assert run_select(query, db.resolver(), split).stats.executor == "spark"
    found = run_select(f"{query} SETTINGS limit = 2", db.resolver(), split)
    assert (found.stats.executor, found.table.num_rows) == ("local", 2)
