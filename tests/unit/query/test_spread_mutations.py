"""SELECTs in tasks over parts with pending mutations."""

from __future__ import annotations

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.query.attach import attached
from mergelake.query.context import Context
from mergelake.query.result import QueryResult
from mergelake.query.select import run_select
from tests.helpers.tasks import TasksHere

QUERIES = [
    "SELECT s, count(), sum(x) FROM big GROUP BY s ORDER BY s",
    "SELECT k, s FROM big WHERE x > 5 ORDER BY x, k LIMIT 9",
    "SELECT name, count() FROM big JOIN small USING k GROUP BY name ORDER BY name",
    "SELECT count() FROM big WHERE k IN (SELECT k FROM small WHERE name = 'seven') AND s != 'new'",
    "SELECT k, sum(x) OVER (PARTITION BY s ORDER BY k) AS t FROM big WHERE x > 9 ORDER BY k LIMIT 9",
    "SELECT v, count(), sum(k) FROM last FINAL GROUP BY v ORDER BY v",
]


@pytest.fixture(scope="module")
def db(tmp_path_factory) -> Database:
    db = connect(str(tmp_path_factory.mktemp("spread")))
    db.sql("CREATE TABLE big (k UInt64, s LowCardinality(String), x Int32) ENGINE MergeTree ORDER BY k")
    db.sql("CREATE TABLE small (k UInt64, name String) ENGINE = MergeTree ORDER BY k")
    db.sql("CREATE TABLE last (k UInt64, v UInt32, w Int32) ENGINE = ReplacingMergeTree(v) ORDER BY k")
    db.sql("INSERT INTO small SELECT number, toString(number % 7) FROM numbers(500)")
    for part in range(3):
        db.sql(
            f"INSERT INTO big SELECT number * 3 + {part}, ['a', 'b', 'c'][1 + number % 3], number % 17 - 5 "
            "FROM numbers(2000)"
        )
        db.sql(f"INSERT INTO last SELECT number + {part * 100}, {part}, number % 10 FROM numbers(1000)")
        if part == 1:
            db.table("big").update({"s": "'new'", "x": "x + toInt32(k % 5)"}, "s = 'b' AND x > 3")
    db.table("big").delete("s = 'new' AND x % 4 = 1")
    db.table("big").update({"x": "1000"}, "k % 100 = 3")
    db.table("big").delete("x = 1000")
    db.table("small").update({"name": "'seven'"}, "k % 7 = 0")
    db.table("last").update({"w": "w + 1"}, "v = 2")
    db.table("last").delete("w > 9 OR k = 250")
    return db


def _run(db: Database, query: str, executor: str) -> QueryResult:
    return run_select(query, db.resolver(), Context(executor=executor, run_tasks=TasksHere()))


@pytest.mark.parametrize("attach", [True, False])
@pytest.mark.parametrize("query", QUERIES)
def test_tasks_apply_mutations(db: Database, query: str, attach: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _run(db, query, "local").table.to_pylist()
    assert expected
    monkeypatch.setattr(attached, "ROWS_MIN", 0 if attach else 1 << 60)
    found = _run(db, query, "spark")
    if attach or "FINAL" not in query:
        assert found.stats.executor == "spark", found.stats.reason
    assert found.table.to_pylist() == expected
    assert _run(db, query, "local").table.to_pylist() == expected


def test_a_row_that_fails_in_clickhouse_alone_is_scanned(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "ROWS_MIN", 0)
    query = "SELECT count() FROM big WHERE intDiv(100, x - 1000) < 100"  # ClickHouse may look at x before the deletion
    found = _run(db, query, "spark")
    assert found.stats.executor == "spark"
    assert found.table.to_pylist() == _run(db, query, "local").table.to_pylist()
