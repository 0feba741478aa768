"""SELECTs in tasks over views and unions: they are spread as the SELECTs over their tables are."""

from __future__ import annotations

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.query.attach import attached
from mergelake.query.context import Context
from mergelake.query.explain import explain
from mergelake.query.result import QueryResult
from mergelake.query.select import run_select
from tests.helpers.tasks import TasksHere

SPREAD = [
    "SELECT s, count(), sum(x) FROM few GROUP BY s ORDER BY s",
    "SELECT k, name FROM named WHERE x > 5 ORDER BY x, k LIMIT 9",
    "SELECT k FROM above(least = 9) ORDER BY k LIMIT 5",
    "SELECT s, sum(k) FROM only GROUP BY s ORDER BY s",
]
OTHERS = [
    "SELECT s, count(), max(k) FROM everything GROUP BY s ORDER BY s",
    "SELECT _table, count() FROM merge('default', '^big') GROUP BY _table ORDER BY _table",
]


@pytest.fixture(scope="module")
def db(tmp_path_factory) -> Database:
    db = connect(str(tmp_path_factory.mktemp("spread")))
    db.sql("CREATE TABLE small (k UInt64, name String) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO small SELECT number, toString(number % 7) FROM numbers(500)")
    for name in ("big", "big_2"):
        db.sql(f"CREATE TABLE {name} (k UInt64, s LowCardinality(String), x Int32) ENGINE MergeTree ORDER BY k")
        for part in range(3):
            rows = f"SELECT number * 3 + {part}, ['a', 'b', 'c'][1 + number % 3], number % 17 - 5 FROM numbers(2000)"
            db.sql(f"INSERT INTO {name} {rows}")
    db.sql("CREATE VIEW few AS SELECT s, x FROM big WHERE k < 3000")
    db.sql("CREATE VIEW named AS SELECT big.k AS k, x, name FROM big JOIN small USING k")
    db.sql("CREATE VIEW above AS SELECT * FROM big WHERE x > {least:Int32}")
    db.sql("CREATE TABLE everything ENGINE = Merge('default', '^big')")
    db.sql("CREATE TABLE only ENGINE = Merge('default', '^big$')")
    return db


def _run(db: Database, query: str, executor: str) -> QueryResult:
    return run_select(query, db.resolver(), Context(executor=executor, run_tasks=TasksHere()))


@pytest.mark.parametrize("attach", [True, False])
@pytest.mark.parametrize("query", SPREAD + OTHERS)
def test_tasks_give_what_the_caller_gives(
    db: Database, query: str, attach: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _run(db, query, "local").table.to_pylist()
    assert expected
    monkeypatch.setattr(attached, "ROWS_MIN", 0 if attach else 1 << 60)
    found = _run(db, query, "spark")
    assert found.table.to_pylist() == expected
    if query in SPREAD:
        assert found.stats.executor == "spark", found.stats.reason
        lines = explain(query, db.resolver(), Context(executor="spark", run_tasks=TasksHere()))
        assert lines[0].startswith("Executor: spark"), lines
