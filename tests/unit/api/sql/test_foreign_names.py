"""What is ClickHouse's own: system tables, functions that read tables, the current database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.api.sql.foreign import REFUSED, SAME_ANYWHERE
from mergelake.api.sql.system_tables import system_table_names
from mergelake.core.base.errors import MergelakeError
from mergelake.query.embedded import engine

OURS_ALONE = {"freshness", "nodes", "part_log", "query_log"}
"""Tables of `system` that the embedded ClickHouse does not have, the last two unless it is configured."""


@pytest.fixture
def db() -> Iterator[Database]:
    db = connect("memory://foreign-names", allow_external_access=True)
    db.sql("DROP DATABASE IF EXISTS d1; CREATE DATABASE d1; USE d1")
    db.sql(
        "CREATE TABLE t (k UInt8, s String, n Nested(a UInt8, b String), INDEX i s TYPE bloom_filter GRANULARITY 1) "
        "ENGINE = MergeTree PARTITION BY k % 2 ORDER BY (k, s)"
    )
    db.sql("INSERT INTO t VALUES (1, 'a', [1, 2], ['x', 'y']), (2, 'b', [], [])")
    yield db
    db.close()


def test_every_system_table_is_ours_passed_on_or_refused(db: Database) -> None:
    names = engine.run("SELECT name FROM system.tables WHERE database = 'system'").table()["name"].to_pylist()
    assert len(names) > 100
    ours = set(system_table_names()) - OURS_ALONE
    assert {name for name in names if name not in ours | SAME_ANYWHERE | set(REFUSED)} == set()
    assert not (ours & SAME_ANYWHERE) | (ours & set(REFUSED)) | (SAME_ANYWHERE & set(REFUSED))
    assert {*ours, *SAME_ANYWHERE, *REFUSED} <= set(names)
    for name in names:
        statement = f"SELECT * FROM system.{name} LIMIT 1"
        if name in REFUSED:
            with pytest.raises(MergelakeError, match=f"system.{name} ") as refused:
                db.sql(statement)
            assert refused.value.name == "NOT_IMPLEMENTED"
            assert refused.value.hint
        else:
            db.sql(statement)
            described = [row[0] for row in db.sql(f"DESCRIBE system.{name}").rows()]
            assert list(db.sql(statement).columns) == described or name not in ours
    with pytest.raises(MergelakeError) as unknown:
        db.sql("SELECT 1 FROM system.nosuch")
    assert unknown.value.name == "UNKNOWN_TABLE"


def test_our_system_tables_have_columns_and_types_of_clickhouse(db: Database) -> None:
    """Only what it lacks, or cannot have, is other: mutable ids, times that are finer here, and NULL for unknown."""
    lacking = {"handling", "shared_object_bytes", "shared_object_dead_bytes", "retained_bytes"}
    lacking |= {"total_rows", "is_volatile", "state", "node", "lease_until", "cost", "cache_max_bytes"}
    ours_alone = lacking | {"part_storage_type"}
    for name in set(system_table_names()) - OURS_ALONE:
        theirs = engine.run(f"DESCRIBE TABLE system.{name}").table()
        kinds = (" ".join(kind.split()).replace("( ", "(") for kind in theirs["type"].to_pylist())  # some on many lines
        types = dict(zip(theirs["name"].to_pylist(), kinds, strict=True))
        for column, kind, *_ in db.sql(f"DESCRIBE system.{name}").rows():
            assert column in lacking | types.keys(), (name, column)
            finer = "Time" in kind or (column == "uuid" and kind == "String")
            unknown = kind == f"Nullable({types.get(column)})"
            assert kind == types.get(column) or unknown or finer or column in ours_alone, (name, column, kind)


@pytest.mark.parametrize("database", ["information_schema", "INFORMATION_SCHEMA"])
def test_the_information_schema_tells_of_our_tables(db: Database, database: str) -> None:
    for name in [row[0] for row in db.sql(f"SHOW TABLES FROM {database}").rows()]:
        db.sql(f"SELECT * FROM {database}.{name}").rows()
    query = f"SELECT table_name, table_rows FROM {database}.tables WHERE table_schema = 'd1'"
    assert db.sql(query).rows() == [("t", 2)]
    query = f"SELECT column_name, numeric_precision FROM {database}.columns WHERE table_name = 't'"
    assert db.sql(f"{query} ORDER BY ordinal_position").rows()[:2] == [("k", 8), ("s", None)]
    with pytest.raises(MergelakeError, match="nosuch"):
        db.sql(f"SELECT 1 FROM {database}.nosuch")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM mergeTreeIndex('d1', 't')",
        "SELECT count() FROM (SELECT * FROM mergeTreeIndex(d1, t))",
        "SELECT * FROM loop(d1.t)",
        "SELECT * FROM cluster('default', d1.t)",
        "SELECT getMergeTreeSetting('min_bytes_for_wide_part')",
        "SELECT hasColumnInTable('d1', 't', 'k')",
        "WITH x AS (SELECT 1 FROM dictionary('d')) SELECT * FROM x",
    ],
)
def test_functions_that_would_read_clickhouses_own_tables_are_refused(db: Database, query: str) -> None:
    with pytest.raises(MergelakeError) as refused:
        db.sql(query)
    assert refused.value.name == "NOT_IMPLEMENTED"
    assert refused.value.hint


def test_the_current_database_is_the_one_that_use_named(db: Database) -> None:
    assert db.sql("SELECT currentDatabase(), database(), upper(currentDatabase())").rows() == [("d1", "d1", "D1")]
    assert db.sql("SELECT currentDatabase()").columns == ("currentDatabase()",)
    assert db.sql("SELECT name FROM system.tables WHERE database = currentDatabase()").rows() == [("t",)]
    assert db.sql("SELECT x FROM (SELECT currentDatabase() AS x)").rows() == [("d1",)]
    db.sql("CREATE TABLE c ENGINE = MergeTree ORDER BY x AS SELECT currentDatabase() AS x")
    assert db.sql("SELECT x FROM c").rows() == [("d1",)]
    db.sql("USE system")
    assert db.sql("SELECT currentDatabase(), count() FROM one").rows() == [("system", 1)]
    assert db.sql("SELECT name FROM tables WHERE database = 'd1' ORDER BY name").rows() == [("c",), ("t",)]
    db.sql("USE default")
    assert db.sql("SELECT currentDatabase()").scalar() == "default"


def test_an_explain_may_stand_where_a_table_may(db: Database) -> None:
    lines = [row[0] for row in db.sql("SELECT explain FROM (EXPLAIN indexes = 1 SELECT * FROM t WHERE k = 1)").rows()]
    assert lines == [row[0] for row in db.sql("EXPLAIN indexes = 1 SELECT * FROM t WHERE k = 1").rows()]
    query = "SELECT count() FROM (EXPLAIN SELECT k FROM t) AS e JOIN t ON t.k = 1 WHERE e.explain LIKE '%Scan of t%'"
    assert db.sql(query).scalar() == 1


def test_a_nested_group_is_an_array_of_tuples(db: Database) -> None:
    assert db.sql("SELECT k, v.a, v.b FROM t ARRAY JOIN n AS v").rows() == [(1, 1, "x"), (1, 2, "y")]
    assert db.sql("SELECT k, n.a, n.b FROM t ARRAY JOIN n").rows() == [(1, 1, "x"), (1, 2, "y")]
    assert db.sql("SELECT k, v.a FROM t LEFT ARRAY JOIN n AS v ORDER BY k, v.a").rows() == [(1, 1), (1, 2), (2, 0)]
    assert db.sql("SELECT length(n), n.a FROM t WHERE k = 1").rows() == [(2, [1, 2])]
    assert db.sql("SELECT * FROM t WHERE k = 2").columns == ("k", "s", "n.a", "n.b")
    assert "Columns: n.a\n" in "\n".join(row[0] for row in db.sql("EXPLAIN SELECT n.a FROM t").rows())


def test_parts_and_indexes_tell_their_bytes(db: Database) -> None:
    rows = db.sql(
        "SELECT column, sum(column_data_compressed_bytes) > 0, sum(column_marks_bytes) > 0 FROM system.parts_columns "
        "WHERE table = 't' GROUP BY column ORDER BY column"
    ).rows()
    assert rows == [(name, 1, 1) for name in ("k", "n.a", "n.b", "s")]
    query = "SELECT name, type, expr, data_compressed_bytes > 0 FROM system.data_skipping_indices"
    assert db.sql(query).rows() == [("i", "bloom_filter", "s", 1)]
    totals = (
        "SELECT sum(data_compressed_bytes), sum(marks_bytes) FROM system.parts WHERE table = 't' AND active",
        "SELECT sum(column_data_compressed_bytes), sum(column_marks_bytes) FROM system.parts_columns WHERE table = 't'",
        "SELECT sum(data_compressed_bytes), sum(marks_bytes) FROM system.columns WHERE table = 't'",
    )
    assert len({db.sql(query).rows()[0] for query in totals}) == 1
    db.sql("DROP TABLE t")
    assert db.sql("SELECT count() FROM system.parts_columns WHERE table = 't'").scalar() == 0


def test_a_select_computes_with_json(db: Database) -> None:
    db.sql("CREATE TABLE j (k UInt8, doc JSON) ENGINE = MergeTree ORDER BY k")
    assert db.sql("SELECT doc.a, sum(k) FROM j GROUP BY ALL").rows() == []
    db.sql("""INSERT INTO j VALUES (1, '{"a": {"b": 5}}'), (2, '{"a": {"b": 7}, "c": [1]}')""")
    assert db.sql("SELECT sum(doc.a.b.:Int64 * k), max(length(JSONAllPaths(doc))) FROM j").rows() == [(19, 2)]
    assert db.sql("SELECT count() FROM j").scalar() == 2


def test_a_select_or_a_function_can_be_described(db: Database) -> None:
    for statement in ("DESCRIBE (SELECT k, s FROM t)", "DESC SELECT k, s FROM t"):
        assert [row[:2] for row in db.sql(statement).rows()] == [("k", "UInt8"), ("s", "String")]
    assert [row[:2] for row in db.sql("DESCRIBE TABLE numbers(3)").rows()] == [("number", "UInt64")]


def test_only_the_tables_that_a_condition_leaves_are_opened(db: Database) -> None:
    db.sql("CREATE DATABASE d2; CREATE TABLE d2.u (k UInt8) ENGINE = MergeTree ORDER BY k; INSERT INTO d2.u VALUES (1)")
    ids = {name: db.table(name).handle.directory for name in ("d1.t", "d2.u")}
    conditions = {
        "table = 'u'": [("d2", "u")],
        "table LIKE 't%' AND active": [("d1", "t")],
        "database IN ('d1', 'd3') AND rows < 100": [("d1", "t")],
        "table = 'u' OR rows > 0": [("d1", "t"), ("d2", "u")],
        "upper(table) = 'NOSUCH'": [],
        "1": [("d1", "t"), ("d2", "u")],
    }
    for condition, expected in conditions.items():
        asked = db.sql(f"SELECT DISTINCT database, table FROM system.parts WHERE {condition} ORDER BY ALL")
        assert asked.rows() == expected, condition
        opened = {name for name, directory in ids.items() if directory in asked.stats.requests.tables}
        assert opened == {".".join(pair) for pair in expected}, condition
    asked = db.sql("SELECT total_rows FROM system.tables WHERE name = 'u' AND database = 'd2'")
    assert (asked.rows(), ids["d1.t"] in asked.stats.requests.tables) == ([(1,)], False)
    once = db.sql("SELECT table, part_name FROM system.part_log WHERE rows > 0 AND table = 't'").stats.requests
    all_of_it = db.sql("SELECT count(part_name) FROM system.part_log WHERE table = 't'").stats.requests
    assert once.get == all_of_it.get, "rows are built once"
