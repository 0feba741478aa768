from __future__ import annotations

import pytest

from mergelake.api.sql import statements as s
from mergelake.api.sql.parser import parse_one, parse_script
from mergelake.core.base.errors import MergelakeError, UnsupportedError
from mergelake.core.model.schema import SkipIndex
from mergelake.core.types.types import parse_type


def _altered(*commands: s.PartitionCommand) -> s.AlterPartitions:
    return s.AlterPartitions(s.Name("", "t"), commands)


FULL = """
CREATE TABLE IF NOT EXISTS web.`my t` -- a comment
(
    a UInt64,
    `b c` LowCardinality(String) DEFAULT 'x, y' CODEC(Delta(8), ZSTD(3)) COMMENT 'it''s',
    d DateTime64(3, 'UTC') TTL d + INTERVAL 1 DAY,
    e Nullable(Int32) MATERIALIZED if(a > 1, a, 2) + 1,
    f Int8 NULL,
    g Array(Tuple(x UInt8, y String)) ALIAS [],
    INDEX i (a, f) TYPE set(100) GRANULARITY 4,
)
ENGINE = ReplacingMergeTree(a)
PARTITION BY (toYYYYMM(d), a % 4)
ORDER BY (a, `b c` DESC)
PRIMARY KEY a
SAMPLE BY a
TTL d + INTERVAL 3 DAY
SETTINGS index_granularity = 3, storage_policy = 'default'
COMMENT 'all of it'
"""


def test_create_table_with_everything() -> None:
    found = parse_one(FULL)
    assert isinstance(found, s.CreateTable)
    assert found.name == s.Name("web", "my t")
    assert found.if_not_exists
    schema = found.schema
    assert schema is not None
    assert [c.name for c in schema.columns] == ["a", "b c", "d", "e", "f", "g"]
    b, d, e, f, g = schema.columns[1:]
    assert (b.default_kind, b.default, b.codec, b.comment) == ("DEFAULT", "'x, y'", "Delta(8), ZSTD(3)", "it's")
    assert d.ttl == "d + INTERVAL 1 DAY"
    assert (e.default_kind, e.default) == ("MATERIALIZED", "if(a > 1, a, 2) + 1")
    assert f.type == parse_type("Nullable(Int8)")
    assert (str(g.type), g.default_kind, g.default) == ("Array(Tuple(x UInt8, y String))", "ALIAS", "[]")
    assert schema.indices == (SkipIndex("i", "(a, f)", "set(100)", 4),)
    assert (schema.engine, schema.engine_args) == ("ReplacingMergeTree", ("a",))
    assert schema.partition_by == ("toYYYYMM(d)", "a % 4")
    assert (schema.order_by, schema.order_desc) == (("a", "`b c`"), (False, True))
    assert (schema.primary_key, schema.sample_by) == (("a",), "a")
    assert schema.ttl == ("d + INTERVAL 3 DAY",)
    assert schema.settings == {"index_granularity": "3", "storage_policy": "default"}
    assert schema.comment == "all of it"
    assert [c.id for c in schema.columns] == list(range(6))
    assert schema.next_column_id == 6


@pytest.mark.parametrize("key", ["tuple()", "()"])
def test_an_empty_sorting_key(key: str) -> None:
    found = parse_one(f"CREATE TABLE t (a Int8) ENGINE = MergeTree() ORDER BY {key}")
    assert isinstance(found, s.CreateTable)
    assert found.schema is not None
    assert found.schema.order_by == ()


@pytest.mark.parametrize(
    ("key", "parts"),
    [("a", ("a",)), ("(a)", ("a",)), ("(a, f(b, c))", ("a", "f(b, c)")), ("(a + b) * 2", ("(a + b) * 2",))],
)
def test_keys_are_one_expression_or_a_list(key: str, parts: tuple[str, ...]) -> None:
    found = parse_one(f"CREATE TABLE t (a Int8, b Int8, c Int8) ENGINE = MergeTree ORDER BY {key}")
    assert isinstance(found, s.CreateTable)
    assert found.schema is not None
    assert found.schema.order_by == parts


def test_a_column_may_take_its_type_from_its_default() -> None:
    found = parse_one("CREATE TABLE t (a UInt8, b DEFAULT a + 1) ENGINE = MergeTree ORDER BY a")
    assert isinstance(found, s.CreateTable)
    assert found.schema is not None
    assert str(found.schema.columns[1].type) == "UInt16"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE DATABASE IF NOT EXISTS d", s.CreateDatabase("d", True)),
        ("DROP DATABASE IF EXISTS d", s.DropDatabase("d", True)),
        ("DROP TABLE IF EXISTS a, b.c SYNC", s.DropTable((s.Name("", "a"), s.Name("b", "c")), True)),
        ("TRUNCATE t", s.TruncateTable(s.Name("", "t"))),
        (
            "RENAME TABLE a TO b, c.d TO e",
            s.RenameTable(((s.Name("", "a"), s.Name("", "b")), (s.Name("c", "d"), s.Name("", "e")))),
        ),
        ("EXCHANGE TABLES a AND b", s.ExchangeTables(s.Name("", "a"), s.Name("", "b"))),
        ("use `x y`", s.Use("x y")),
        ("SHOW TABLES FROM d NOT ILIKE '%x'", s.ShowTables("d", s.Like("%x", True, True))),
        ("SHOW DATABASES LIKE 'a_'", s.ShowDatabases(s.Like("a_"))),
        ("SHOW CREATE TABLE t", s.ShowCreateTable(s.Name("", "t"))),
        ("DESC TABLE d.t", s.Describe(s.Name("d", "t"))),
        ("SHOW COLUMNS FROM t", s.ShowColumns(s.Name("", "t"))),
        (
            "SHOW FULL FIELDS IN t IN d NOT LIKE 'a%'",
            s.ShowColumns(s.Name("d", "t"), s.Like("a%", negated=True), full=True),
        ),
        ("EXISTS t", s.Exists(s.Name("", "t"))),
        ("OPTIMIZE TABLE t PARTITION 202601 FINAL", s.Optimize(s.Name("", "t"), s.PartitionClause((202601,)), True)),
        ("OPTIMIZE TABLE t DEDUPLICATE CLEANUP", s.Optimize(s.Name("", "t"), cleanup=True, deduplicate=True)),
        (
            "OPTIMIZE TABLE t DEDUPLICATE BY a, * EXCEPT b, COLUMNS('^x') EXCEPT (y, z)",
            s.Optimize(
                s.Name("", "t"),
                deduplicate=True,
                by=("a", s.ColumnMatcher("", ("b",)), s.ColumnMatcher("^x", ("y", "z"))),
            ),
        ),
        ("OPTIMIZE TABLE t PARTITION ID 'a-1'", s.Optimize(s.Name("", "t"), s.PartitionClause(id="a-1"))),
        (
            "ALTER TABLE t DROP PARTITION ('2026-01-01', -5)",
            _altered(s.PartitionCommand("drop", s.PartitionClause(("2026-01-01", -5)))),
        ),
        ("ALTER TABLE t DROP PARTITION tuple()", _altered(s.PartitionCommand("drop", s.PartitionClause()))),
        ("ALTER TABLE t DROP PARTITION ALL", _altered(s.PartitionCommand("drop", s.PartitionClause(every=True)))),
        ("EXPLAIN indexes = 1, actions = 1 SELECT 1", s.Explain("indexes = 1, actions = 1", "SELECT 1")),
        ("EXPLAIN PIPELINE WITH 1 AS x SELECT x", s.Explain("PIPELINE", "WITH 1 AS x SELECT x")),
        ("SET a = 1, b = 'x', c = true, d = -2", s.Set({"a": "1", "b": "'x'", "c": "1", "d": "-2"})),
        ("(SELECT 1) UNION ALL (SELECT 2)", s.Select("(SELECT 1) UNION ALL (SELECT 2)")),
        ("INSERT INTO t SELECT 1", s.Insert(s.Name("", "t"), query="SELECT 1")),
        ("INSERT INTO t (* EXCEPT (a, b)) SELECT 1", s.Insert(s.Name("", "t"), excluded=("a", "b"), query="SELECT 1")),
        (
            "INSERT INTO TABLE d.t (a, n.b) SETTINGS x = 'y' VALUES (1, ';')",
            s.Insert(s.Name("d", "t"), ("a", "n.b"), (), {"x": "'y'"}, "Values", " (1, ';')", 54, infile_at=30),
        ),
    ],
)
def test_statements(sql: str, expected: s.Statement) -> None:
    assert parse_one(sql) == expected


@pytest.mark.parametrize(
    ("sql", "column", "expected"),
    [
        ("SELCT 1", 1, "SELECT?"),
        ("CREATE TABLE t (a UInt64 b) ENGINE = MergeTree", 19, "Unexpected 'b'"),
        ("INSERT INTO t (a VALUES (1)", 18, "expected )"),
        ("DROP", 5, "expected one of TABLE, VIEW, DATABASE"),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY", 52, "expected an expression"),
        ("SHOW TABLES LIKE 5", 18, "a string in single quotes"),
        ("CREATE TABLE t (a) ENGINE = MergeTree", 18, "the type of column a"),
        ("RENAME TABLE a b", 16, "expected TO"),
        ("SELECT 'abc", 8, "never closed"),
    ],
)
def test_a_syntax_error_shows_the_place_and_what_was_expected(sql: str, column: int, expected: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        parse_one(sql)
    assert caught.value.code == 62
    assert f"column {column} " in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("CREATE TABLE t (a UInt6) ENGINE = MergeTree ORDER BY a", "UNKNOWN_TYPE"),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a SETTINGS index_granularty = 1", "UNKNOWN_SETTING"),
        ("CREATE TABLE t (a Int8, a Int8) ENGINE = MergeTree ORDER BY a", "DUPLICATE_COLUMN"),
        (
            "CREATE TABLE t (a Int8 DEFAULT nosuch(1), b DEFAULT nosuch(2)) ENGINE = MergeTree ORDER BY a",
            "UNKNOWN_FUNCTION",
        ),
    ],
)
def test_bad_definitions_are_refused_by_clickhouse_name(sql: str, name: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        parse_one(sql)
    assert caught.value.name == name
    assert caught.value.code


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t MODIFY QUERY SELECT 1",
        "SYSTEM FLUSH LOGS",
        "CREATE MATERIALIZED VIEW v AS SELECT 1",
        "CREATE TABLE t ON CLUSTER c (a Int8) ENGINE = MergeTree ORDER BY a",
        "KILL QUERY WHERE 1",
        "ALTER TABLE t ON CLUSTER c DELETE WHERE a",
        "UPDATE t ON CLUSTER c SET a = 1 WHERE b",
        "DELETE FROM t ON CLUSTER c WHERE b",
        "KILL MUTATION ON CLUSTER c WHERE 1",
        "INSERT INTO FUNCTION file('x') SELECT 1",
        "GRANT SELECT ON t TO x",
        "CREATE TABLE t (a Int8, PROJECTION p INDEX a TYPE basic) ENGINE = MergeTree ORDER BY a",
    ],
)
def test_what_is_not_there_yet_is_refused_by_name(sql: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_one(sql)
    assert caught.value.code == 48


def test_a_script_is_parsed_one_statement_at_a_time() -> None:
    script = parse_script("SELECT 1; SELCT 2")
    assert next(script) == s.Select("SELECT 1")
    with pytest.raises(MergelakeError, match="line 1, column 11"):
        next(script)
