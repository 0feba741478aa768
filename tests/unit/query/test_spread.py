"""What of a SELECT runs in tasks, what does not, and why."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import error
from mergelake.query.attach import attached
from mergelake.query.attach.attaching import NotAttachedError
from mergelake.query.context import Context
from mergelake.query.explain import explain
from mergelake.query.prepare import look_up_tables, plan_scans
from mergelake.query.result import QueryResult
from mergelake.query.select import prepare, run_select
from mergelake.query.spread import executor, task
from mergelake.query.spread.broadcast import Broadcast, path_mark
from mergelake.query.spread.chosen import choose_executor
from mergelake.query.spread.final_shares import cuts
from mergelake.query.spread.materialising import edited, shared_cte, subqueries, with_ctes_in_place
from mergelake.query.statement.select_parser import parse_select
from tests.helpers.tasks import TasksHere


@pytest.fixture(scope="module")
def db(tmp_path_factory) -> Database:
    """A large table in three parts, a small one, and one that replaces rows."""
    database = connect(str(tmp_path_factory.mktemp("spread")))
    database.sql(
        "CREATE TABLE big (k UInt64, s LowCardinality(String), x Int32, a Array(UInt8)) ENGINE MergeTree ORDER BY k"
    )
    database.sql("CREATE TABLE small (k UInt64, name String) ENGINE = MergeTree ORDER BY k")
    database.sql("CREATE TABLE last (k UInt64, v UInt32) ENGINE = ReplacingMergeTree(v) ORDER BY k")
    for part in range(3):
        database.sql(
            f"INSERT INTO big SELECT number * 3 + {part}, ['a', 'b', 'c'][1 + number % 3], number % 17 - 5, "
            "[number % 3] FROM numbers(2000)"
        )
        database.sql(f"INSERT INTO last SELECT number + {part * 100}, {part} FROM numbers(1000)")
    database.sql("CREATE TABLE ks (k UInt64) ENGINE = MergeTree ORDER BY k")
    database.sql("INSERT INTO ks SELECT number * 5 FROM numbers(100)")
    database.sql("INSERT INTO small SELECT number, toString(number % 7) FROM numbers(500)")
    return database


def _run(db: Database, query: str, executor: str = "spark") -> QueryResult:
    return run_select(query, db.resolver(), Context(executor=executor, run_tasks=TasksHere(), now_ms=1_767_225_600_000))


SPREAD = [
    "SELECT s, count(), sum(x) FROM big GROUP BY s ORDER BY s",
    "SELECT s, x, count() FROM big GROUP BY ROLLUP(s, x) ORDER BY ALL",
    "SELECT s, count() FROM big GROUP BY s WITH TOTALS ORDER BY s",
    "SELECT s, grouping(s) AS g, count() FROM big GROUP BY GROUPING SETS ((s), ()) ORDER BY ALL",
    "SELECT s, sum(x) FILTER (WHERE x > 0), row_number() OVER (ORDER BY count(), s) FROM big GROUP BY s ORDER BY 1",
    "SELECT x + 1 AS y, y * 2 AS z, count() FROM big WHERE y > 3 GROUP BY y ORDER BY y",
    "WITH x % 3 AS m SELECT m, count() FROM big WHERE m > 0 GROUP BY m ORDER BY m",
    "SELECT DISTINCT s, x FROM big ORDER BY s DESC, x LIMIT 3, 7",
    "SELECT k, s FROM big ORDER BY x, k LIMIT 2 OFFSET 1 BY s LIMIT 5",
    "SELECT k FROM big ORDER BY x DESC, k LIMIT 5 WITH TIES",
    "SELECT k, y FROM big ARRAY JOIN a AS y WHERE k < 30 ORDER BY ALL",
    "SELECT name, count() FROM big JOIN small USING k GROUP BY name ORDER BY name",
    "SELECT big.k, small.name FROM small RIGHT JOIN big ON big.k = small.k WHERE big.k % 100 = 1 ORDER BY ALL",
    "SELECT count() FROM big LEFT ANTI JOIN small ON big.k = small.k",
    "SELECT l.k, r.k FROM big AS l ASOF LEFT JOIN small AS r ON l.x = r.k AND l.k >= r.k ORDER BY ALL",
    "SELECT big.k, small.k FROM big LEFT JOIN small ON big.k = small.k WHERE big.k > 490 ORDER BY ALL LIMIT 20",
    "SELECT count() FROM big WHERE k IN (SELECT k FROM small WHERE name = '3') AND k NOT IN (SELECT k FROM last)",
    "SELECT count() FROM big WHERE k IN ks",
    "SELECT count(), (SELECT max(k) FROM small WHERE k > 1000000) AS none, sum(x) FROM big",
    "SELECT m, count() FROM (SELECT k % 4 AS m FROM (SELECT * FROM big WHERE x > 0)) WHERE m > 0 GROUP BY m ORDER BY 1",
    "WITH c AS (SELECT s, count() AS n FROM big GROUP BY s) SELECT a.s, b.n FROM c AS a, c AS b ORDER BY ALL",
    "SELECT s FROM big WHERE x = 1 INTERSECT SELECT s FROM big WHERE x = 2 ORDER BY s",
    "SELECT k, sum(x) OVER (PARTITION BY s ORDER BY k) AS t FROM big WHERE x > 9 ORDER BY k LIMIT 9",
    "SELECT max(n) FROM (SELECT row_number() OVER w AS n FROM big WINDOW w AS (PARTITION BY x, s ORDER BY k))",
    "SELECT *, row_number() OVER (PARTITION BY s ORDER BY k) AS n FROM big WHERE x = 3 ORDER BY k",
    "SELECT k % 7 AS m FROM big QUALIFY rank() OVER (PARTITION BY m ORDER BY k) < 9 ORDER BY m",
    "SELECT count() FROM big WHERE toDateTime(k) < now()",
    "SELECT exists(SELECT 1 FROM small WHERE k > 1000) AS e, sum(x) FROM big GROUP BY e",
]


@pytest.mark.parametrize("query", SPREAD)
def test_it_is_spread_and_has_the_local_answer(db: Database, query: str) -> None:
    there, here = _run(db, query), _run(db, query, "local")
    assert there.stats.executor == "spark", there.stats.reason
    assert (there.table.to_pylist(), there.types) == (here.table.to_pylist(), here.types)
    assert (there.totals is None) == (here.totals is None)
    if there.totals is not None and here.totals is not None:
        assert there.totals.to_pylist() == here.totals.to_pylist()
    text, same = (
        _run(db, f"{query} FORMAT TSVWithNamesAndTypes", executor).formatted for executor in ("spark", "local")
    )
    assert text == same


HERE = {
    "SELECT count() FROM big": "nothing to read",
    "SELECT s, sum(x) OVER (ORDER BY k) FROM big": "a window has another PARTITION BY than the others, or none",
    "SELECT count() OVER (PARTITION BY s), count() OVER (PARTITION BY x) FROM big": "a window has another PARTITION BY",
    "SELECT count() OVER (PARTITION BY x / 2) FROM big": "a window is partitioned by Float64",
    "SELECT count() OVER (PARTITION BY name) FROM big JOIN small USING k": "or is over a join",
    "SELECT * FROM big FULL JOIN small USING k": "FULL JOIN looks at all rows of the larger table, on its left",
    "SELECT small.k, big.k FROM small LEFT JOIN big USING k": "LEFT JOIN looks at all rows of the larger table",
    "SELECT big.k FROM big ANY JOIN small USING k": "ANY JOIN looks at all rows of the larger table",
    "SELECT count() FROM last FINAL": "FINAL of parts that tasks do not attach",
    "SELECT count() FROM last FINAL WHERE k > 5000": "nothing to read",
    "SELECT rowNumberInAllBlocks(), k FROM big": "rownumberinallblocks depends on which rows come together",
    "SELECT TOP 5 k FROM big": "a limit that is no LIMIT",
    "SELECT DISTINCT ON (s) s, x FROM big": "a limit that is no LIMIT",
    "SELECT k, x FROM big ORDER BY k FETCH FIRST 3 ROWS ONLY": "a limit that is no LIMIT",
    "SELECT now(), k FROM big": "now would be another one in each task",
    "SELECT max(k) FROM big GROUP BY today()": "today would be another one in each task",
    "SELECT nothing, k FROM big": "ClickHouse refuses it",
    "SELECT k, k FROM big": "two columns have one name",
    "SELECT x + 1 AS x, count() FROM big WHERE x > 1 GROUP BY x": "x is an alias inside a key",
    "SELECT sumState(x) FROM big": "sumState is not split",
    "SELECT s, any(x) IGNORE NULLS FROM big GROUP BY s": "IGNORE is not split",
    "SELECT k FROM big LIMIT 1 + 1": "LIMIT is not of plain numbers",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT k FROM big WHERE k IN "
    "(SELECT n FROM r)": "WITH RECURSIVE is not split",
    "SELECT k FROM big AS o WHERE x = (SELECT max(v) FROM last WHERE last.k = o.k)": "a subquery does not stand alone",
    "WITH c AS (SELECT rand() AS r FROM small) SELECT count() FROM big, c AS a, c AS b": "another one each time",
    "SELECT k FROM big SETTINGS limit = 3": "a setting changes what partial answers mean",
    "SELECT k FROM big JOIN numbers(10) AS n ON k = n.number": "a table function or brackets stand in FROM",
}


@pytest.mark.parametrize("query", HERE)
def test_it_runs_here_and_says_why(db: Database, query: str) -> None:
    context = Context(executor="spark", run_tasks=TasksHere())
    resolver = db.resolver()
    prepared = prepare(query, resolver, context)
    tables = look_up_tables(prepared.parsed, resolver, context, explain)
    chosen = choose_executor(prepared, tables, plan_scans(prepared, {}), context)
    assert (chosen.executor, chosen.steps) == ("local", None)
    assert HERE[query] in chosen.why


def test_explain_tells_each_step(db: Database) -> None:
    query = "SELECT s, count() FROM big WHERE k IN (SELECT max(k) FROM big GROUP BY s) GROUP BY s"
    lines = explain(query, db.resolver(), Context(executor="spark", run_tasks=TasksHere()))
    assert lines[:3] == [
        "Executor: spark (partial aggregates in each task, merged here)",
        "  Subquery _ml_result_0: spark (partial aggregates in each task, merged here)",
        "  Then: spark (partial aggregates in each task, merged here)",
    ]


def test_tables_that_are_too_large_to_travel_are_joined_here(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "BYTES_MAX", 1000)
    query = "SELECT name, count() FROM big JOIN small USING k GROUP BY name ORDER BY name"
    found = _run(db, query)
    assert (found.stats.executor, "gives more than 1000 bytes" in found.stats.reason) == ("local", True)
    assert found.table.to_pylist() == _run(db, query, "local").table.to_pylist()


@pytest.mark.parametrize("attaches", [True, False])
def test_final_goes_by_ranges_of_the_key_where_tasks_attach(
    db: Database, monkeypatch: pytest.MonkeyPatch, attaches: bool
) -> None:
    monkeypatch.setattr(attached, "ROWS_MIN", 0)
    if not attaches:

        def refuse(*_: object, **__: object) -> None:
            raise NotAttachedError("no room")

        monkeypatch.setattr(task.attached.SETS, "using", refuse)
    query = "SELECT v, count(), sum(k) FROM last FINAL GROUP BY v ORDER BY v"
    found = _run(db, query)
    assert found.stats.executor == ("spark" if attaches else "local")
    assert found.table.to_pylist() == [
        {"v": 0, "count()": 100, "sum(k)": 4950},
        {"v": 1, "count()": 100, "sum(k)": 14950},
        {"v": 2, "count()": 1000, "sum(k)": 699500},
    ]


def test_a_task_that_fails_while_it_fills_buckets_leaves_none_of_these_rows(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "ROWS_MIN", 0)
    run = task.engine.run

    def damaged(sql: str, *given: object, **named: object) -> object:
        answer = run(sql, *given, **named)  # type: ignore[arg-type]
        if "INSERT INTO FUNCTION" in sql and "_mergelake." in sql:
            raise error("CHECKSUM_DOESNT_MATCH", "damaged behind its rows")
        return answer

    monkeypatch.setattr(task.engine, "run", damaged)
    query = "SELECT s, max(n) FROM (SELECT s, count() OVER (PARTITION BY s) AS n FROM big) GROUP BY s ORDER BY s"
    found = _run(db, query)
    assert found.stats.executor == "spark"
    assert [row["max(n)"] for row in found.table.to_pylist()] == [2001, 2001, 1998]


def test_cuts_are_even_and_never_the_least_key() -> None:
    assert cuts(pa.array([5, 1, 1, 1, 9, 12, 12, 3], pa.uint64()), 4) == [5, 12]
    assert cuts(pa.array([2, 2, 2], pa.int8()), 4) == []
    assert cuts(pa.array([b"a", b"c", b"b", b"d"], pa.large_binary()), 2) == [b"c"]


def test_a_cte_that_is_named_once_stands_where_it_is_named() -> None:
    assert (
        with_ctes_in_place(parse_select("WITH 1 AS x, c AS (SELECT k FROM t) SELECT * FROM c WHERE k = x"))
        == "WITH 1 AS x SELECT * FROM (SELECT k FROM t) AS `c` WHERE k = x"
    )


def test_a_cte_that_is_named_twice_becomes_a_table() -> None:
    plan = parse_select("WITH c AS (SELECT k FROM t) SELECT * FROM c JOIN c AS d USING k WHERE k IN c")
    piece = shared_cte(plan)
    assert piece is not None
    assert piece.text == "SELECT k FROM t"
    assert (
        edited(plan.text, piece.edits, "r0")
        == " SELECT * FROM r0 AS `c` JOIN r0 AS d USING k WHERE k IN (SELECT * FROM r0)"
    )


def test_a_subquery_with_a_set_operation_is_one_piece() -> None:
    plan = parse_select("SELECT f((SELECT 1 FROM t)) FROM ((SELECT a FROM t) UNION ALL (SELECT a FROM u)) AS q")
    texts = [piece.text for piece in subqueries(plan, plan.scopes[:1])]
    assert texts == ["SELECT 1 FROM t", "(SELECT a FROM t) UNION ALL (SELECT a FROM u)"]


def test_a_worker_writes_the_tables_of_a_statement_once() -> None:
    given = Broadcast.of({"t": b"rows"})
    first, second = (given.placed(f"file('{path_mark('t')}')") for _ in range(2))
    assert first == second
    with open(first[6:-2], "rb") as file:
        assert file.read() == b"rows"
