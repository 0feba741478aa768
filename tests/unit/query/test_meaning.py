"""Settings and clauses that would change what our tables give: refused, or the scans judge no condition."""

from __future__ import annotations

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.settings import keeps_conditions
from mergelake.query.statement.settings_semantics import statement_settings


@pytest.fixture(scope="module")
def db() -> Database:
    found = connect("memory://meaning", allow_external_access=True)
    found.sql("CREATE TABLE r (id UInt32, ver UInt8, s String) ENGINE = ReplacingMergeTree(ver) ORDER BY id")
    found.sql("CREATE TABLE z (ts DateTime) ENGINE = MergeTree ORDER BY ts SETTINGS index_granularity = 8")
    found.sql("INSERT INTO r VALUES (1, 1, 'a')")
    found.sql("INSERT INTO r VALUES (1, 2, 'b')")
    found.sql("INSERT INTO z SELECT toDateTime('2024-03-30 20:00:00', 'UTC') + number * 700 FROM numbers(200)")
    return found


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM r SETTINGS additional_table_filters = {'r': 'id = 2'}",
        "EXPLAIN SELECT id FROM r SETTINGS apply_deleted_mask = 0",
        "INSERT INTO r SELECT * FROM r SETTINGS apply_deleted_mask = 0",
        "CREATE TABLE r2 ENGINE = MergeTree ORDER BY id AS SELECT * FROM r SETTINGS apply_deleted_mask = 0",
    ],
)
def test_what_would_change_the_rows_of_a_table_is_refused(db: Database, query: str) -> None:
    with pytest.raises(MergelakeError) as failure:
        db.sql(query)
    assert failure.value.name == "NOT_IMPLEMENTED"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT s FROM r SETTINGS final = 1", ["b"]),
        ("SELECT s FROM r FINAL SETTINGS final = 0", ["b"]),
        ("SELECT s FROM (SELECT s FROM r SETTINGS max_threads = 1, final = true)", ["b"]),
        ("SELECT s FROM r SETTINGS max_threads = 1, final", ["b"]),
        ("(SELECT s FROM r) UNION ALL (SELECT s FROM r) SETTINGS final", ["b", "b"]),
        ("(SELECT s FROM r) UNION ALL (SELECT s FROM r) SETTINGS final = 1, max_threads = 1;", ["b", "b"]),
        ("SELECT a.s FROM r AS a JOIN r AS b USING id ORDER BY ALL SETTINGS final = 1", ["b"]),
        ("SELECT s FROM r ORDER BY s", ["a", "b"]),
        ("SELECT s FROM r ORDER BY s SETTINGS final = 0", ["a", "b"]),
    ],
)
def test_the_setting_final_means_what_it_does_in_clickhouse(db: Database, query: str, rows: list[str]) -> None:
    assert [row[0] for row in db.sql(query).rows()] == rows
    if "SETTINGS" not in query:
        assert [row[0] for row in db.sql(query, settings={"final": 1}).rows()] == ["b"]
        assert db.sql("SELECT count() > 0 FROM system.tables", settings={"final": 1}).scalar() == 1
        assert len(db.sql("SELECT ts FROM z", settings={"final": 1})) == 200


def test_a_session_time_zone_holds_for_the_conditions_of_scans(db: Database) -> None:
    query = "SELECT ts FROM z WHERE ts > toDateTime('2024-03-31 08:00:00')"
    whole = len(db.sql("SELECT ts FROM z WHERE ts > toDateTime('2024-03-31 08:00:00', 'Asia/Tokyo')"))
    assert whole > len(db.sql(query))
    assert len(db.sql(query + " SETTINGS session_timezone = 'Asia/Tokyo'")) == whole
    assert len(db.sql(query, settings={"session_timezone": "Asia/Tokyo"})) == whole


def test_settings_of_every_select_are_found() -> None:
    parsed = parse_select("SELECT 1 FROM (SELECT 2 SETTINGS transform_null_in = 1) SETTINGS max_threads = 2, final = 0")
    assert statement_settings(parsed) == {"transform_null_in": "1", "max_threads": "2", "final": "0"}
    assert statement_settings(
        parse_select("(SELECT 1) UNION ALL (SELECT 2) SETTINGS final, limit = -1 FORMAT CSV")
    ) == {
        "final": "1",
        "limit": "-1",
    }
    assert statement_settings(parse_select("SELECT settings x, a settings FROM t WHERE settings = 1")) == {}
    assert keeps_conditions(["max_threads", "final"])
    assert not keeps_conditions(statement_settings(parsed))
