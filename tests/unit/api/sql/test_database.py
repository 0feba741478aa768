from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mergelake.api.sql.database import Database, connect, fill_parameters
from mergelake.api.sql.show import create_table_text
from mergelake.core.base.errors import MergelakeError, NotFoundError


@pytest.fixture
def db() -> Iterator[Database]:
    db = connect("memory://statements")
    db.sql("DROP DATABASE IF EXISTS web; CREATE DATABASE web; USE web")
    db.sql("CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    yield db
    db.close()


def test_show_create_table_gives_back_what_makes_the_same_table(db: Database) -> None:
    text = db.sql("SHOW CREATE TABLE t").scalar()
    schema = db.table("t").schema
    db.sql(text.replace("web.t", "web.copy"))
    assert create_table_text("x.y", db.table("copy").schema) == create_table_text("x.y", schema)


def test_create_as_borrows_columns_and_rows(db: Database) -> None:
    db.sql("CREATE TABLE like_t AS t")
    assert db.table("like_t").schema.types == db.table("t").schema.types
    db.sql(
        "CREATE TABLE grouped ENGINE = MergeTree ORDER BY odd AS SELECT k % 2 AS odd, count() AS c FROM t GROUP BY odd"
    )
    assert db.sql("SELECT * FROM grouped ORDER BY odd").rows() == [(0, 1), (1, 2)]
    db.sql("CREATE TABLE IF NOT EXISTS grouped ENGINE = MergeTree ORDER BY odd AS SELECT 1 AS odd, 1 AS c")
    assert db.sql("SELECT count() FROM grouped").scalar() == 2


def test_tables_and_databases_are_shown_renamed_exchanged_and_dropped(db: Database) -> None:
    db.sql("CREATE TABLE u (k UInt64) ENGINE = MergeTree ORDER BY k")
    assert db.sql("SHOW TABLES").rows() == [("t",), ("u",)]
    assert db.sql("SHOW TABLES LIKE 'u%'").rows() == [("u",)]
    db.sql("EXCHANGE TABLES t AND u; RENAME TABLE u TO v")
    assert db.sql("SELECT count() FROM v").scalar() == 3
    assert db.sql("EXISTS TABLE u").scalar() == 0
    db.sql("DROP TABLE t; DROP TABLE IF EXISTS t")
    assert db.tables() == ["v"]
    assert ("web",) in db.sql("SHOW DATABASES").rows()
    assert [row[0] for row in db.sql("DESCRIBE v").rows()] == ["k", "s"]


def test_partitions_are_dropped_and_tables_truncated_and_optimized(db: Database) -> None:
    db.sql("INSERT INTO t VALUES (5, 'e')")
    db.sql("OPTIMIZE TABLE t PARTITION 1 FINAL")
    assert db.sql("SELECT count() FROM system.parts WHERE table = 't' AND active AND database = 'web'").scalar() == 2
    db.sql("ALTER TABLE t DROP PARTITION 1")
    assert db.sql("SELECT k FROM t").rows() == [(2,)]
    db.sql("TRUNCATE TABLE t")
    assert db.sql("SELECT count() FROM t").scalar() == 0


def test_system_tables_have_clickhouse_columns(db: Database) -> None:
    sql = "SELECT engine, total_rows, partition_key, sorting_key FROM system.tables WHERE database = 'web'"
    assert db.sql(sql).rows() == [("MergeTree", 3, "k % 2", "k")]
    sql = "SELECT name, type, is_in_sorting_key FROM system.columns WHERE database = 'web' ORDER BY position"
    assert db.sql(sql).rows() == [("k", "UInt64", 1), ("s", "String", 0)]
    sql = "SELECT partition_id, rows, level FROM system.parts WHERE database = 'web' ORDER BY partition_id"
    assert db.sql(sql).rows() == [("0", 1, 0), ("1", 2, 0)]
    assert db.sql("SELECT value FROM system.merge_tree_settings WHERE name = 'index_granularity'").scalar() == "8192"
    assert db.sql("SELECT count() FROM system.mutations").scalar() == 0
    assert db.sql("SELECT count() FROM system.functions WHERE name = 'plus'").scalar() == 1  # ClickHouse's own


def test_explain_says_which_executor_and_what_pruning_dropped(db: Database) -> None:
    text = "\n".join(row[0] for row in db.sql("EXPLAIN indexes = 1 SELECT s FROM t WHERE k = 2").rows())
    assert text.startswith("Executor: local")
    assert "PrimaryKey" in text
    assert "Parts: 1/" in text


def test_settings_hold_for_the_session_or_for_one_call(db: Database) -> None:
    sql = "SELECT getSetting('max_block_size')"
    db.sql("SET max_block_size = 123")
    assert db.sql(sql).scalar() == 123
    assert db.sql(sql, settings={"max_block_size": 77}).scalar() == 77
    assert db.sql(sql).scalar() == 123
    with pytest.raises(MergelakeError, match="UNKNOWN_SETTING"):
        db.sql("SET nosuch = 1")
    with pytest.raises(MergelakeError, match="no executor"):
        db.sql("SET executor = 'both'")


def test_parameters_are_values_never_sql(db: Database) -> None:
    evil = "a' OR 1 --"
    assert db.sql("SELECT count() FROM t WHERE s = {s:String}", params={"s": evil}).scalar() == 0
    assert db.sql("SELECT s FROM {t:Identifier} WHERE k = {k:UInt64}", params={"t": "t", "k": 2}).scalar() == "b"
    assert fill_parameters("SELECT '{k:UInt64}', {k:UInt64}", {"k": 1}) == "SELECT '{k:UInt64}', CAST('1', 'UInt64')"
    with pytest.raises(MergelakeError, match="no value for the parameter z"):
        db.sql("SELECT {z:UInt8}", params={})


@pytest.mark.parametrize(
    ("sql", "name", "hint"),
    [
        ("SELECT kk FROM t", "UNKNOWN_IDENTIFIER", "Maybe you meant k"),
        ("SELECT 1 FROM tt", "UNKNOWN_TABLE", "Maybe you meant"),
        ("SELECT 1 FROM nosuch.t", "UNKNOWN_DATABASE", ""),
        ("SELECT nosuch(k) FROM t", "UNKNOWN_FUNCTION", ""),
        ("SELECT k FROM t FINAL", "ILLEGAL_FINAL", ""),
        ("SELECT k + 'x' FROM t", "ILLEGAL_TYPE_OF_ARGUMENT", ""),
        ("SELECT 1 +", "SYNTAX_ERROR", ""),
        ("CREATE TABLE t (k Int8) ENGINE = MergeTree ORDER BY k", "TABLE_ALREADY_EXISTS", ""),
        ("CREATE TABLE x (k Int8) ENGINE = MergeTee ORDER BY k", "UNKNOWN_STORAGE", ""),
        ("CREATE TABLE x (k Int8) ENGINE = MergeTree ORDER BY z", "", ""),
        ("DROP TABLE nosuch", "UNKNOWN_TABLE", ""),
        ("USE nosuch", "UNKNOWN_DATABASE", ""),
        ("", "SYNTAX_ERROR", ""),
    ],
)
def test_errors_have_clickhouse_code_and_a_way_out(db: Database, sql: str, name: str, hint: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        db.sql(sql)
    assert not name or caught.value.name == name
    assert caught.value.code
    assert hint in str(caught.value)
    assert "Python(" not in str(caught.value)


def test_a_name_after_in_may_be_an_array(db: Database) -> None:
    assert db.sql("WITH [1, 2] AS list SELECT count() FROM t WHERE k IN list").scalar() == 2
    db.sql("CREATE TABLE keys (k UInt64) ENGINE = MergeTree ORDER BY k; INSERT INTO keys VALUES (1), (9)")
    assert db.sql("SELECT count() FROM t WHERE k IN keys").scalar() == 1


def test_two_sessions_see_each_others_commits_at_once() -> None:
    one, other = connect("memory://both"), connect("memory://both")
    one.sql("DROP TABLE IF EXISTS shared; CREATE TABLE shared (k Int8) ENGINE = MergeTree ORDER BY k")
    for count in (1, 2, 3):
        one.sql("INSERT INTO shared VALUES (1)")
        assert other.sql("SELECT count() FROM shared").scalar() == count
    one.sql("DROP TABLE shared")
    with pytest.raises(NotFoundError):
        other.sql("SELECT 1 FROM shared")


def test_a_select_can_be_cancelled_from_another_thread(db: Database) -> None:
    db.on_progress = lambda news: db.cancel()
    for _ in range(4):
        db.sql("INSERT INTO t SELECT number, '' FROM numbers(10)")
    failures: list[MergelakeError] = []

    def work() -> None:
        try:
            db.sql("SELECT sum(k) FROM t")
        except MergelakeError as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert [failure.name for failure in failures] == ["QUERY_WAS_CANCELLED"]
    db.on_progress = None
    assert db.sql("SELECT count() FROM t").scalar() == 43


def test_a_result_comes_in_many_forms(db: Database) -> None:
    result = db.sql("SELECT k, s, toDate('2026-01-0' || toString(k)) AS d, [k] AS a FROM t ORDER BY k")
    assert result.columns == ("k", "s", "d", "a")
    assert result.types == ("UInt64", "String", "Date", "Array(UInt64)")
    assert result.arrow().num_rows == len(result) == 3
    assert list(result.pandas()["k"]) == [1, 2, 3]
    assert result.polars()["s"].to_list() == ["a", "b", "c"]
    assert result.text("CSV").split("\n")[0] == '1,"a","2026-01-01","[1]"'
    assert '"type": "Date"' in result.text("JSON")
    assert "│ 1 │ a │ 2026-01-01 │ [1] │" in result.drawn()
    assert "<td>2026-01-01</td>" in result._repr_html_()
    assert result.stats.rows_read == 3


def test_settings_of_one_call_are_neither_seen_nor_kept_by_another_thread(db: Database) -> None:
    inside, outside = threading.Event(), threading.Event()
    seen: list[object] = []

    def progress(_: object) -> None:
        inside.set()
        outside.wait(10)

    db.on_progress = progress
    thread = threading.Thread(target=lambda: seen.append(db.sql("SELECT sum(k) FROM t", settings={"max_threads": 1})))
    thread.start()
    assert inside.wait(10)
    db.on_progress = None
    db.sql("SELECT 1", settings={"max_block_size": 77})
    assert db.settings == {}
    db.sql("SET max_block_size = 78")
    outside.set()
    thread.join()
    assert len(seen) == 1
    assert db.settings == {"max_block_size": "78"}


def test_comments_may_stand_between_the_rows_of_values(db: Database) -> None:
    db.sql("INSERT INTO t VALUES /* first */ (7, 'x'), -- (8, 'no')\n(9, '--y') -- tail")
    assert db.sql("SELECT k, s FROM t WHERE k > 6 ORDER BY k FORMAT TSV").text() == "7\tx\n9\t--y\n"
