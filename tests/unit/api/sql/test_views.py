"""Views: made, read, replaced, restored; by one process and by several."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.api.spark.locate import TablePath
from mergelake.core.base.errors import MergelakeError
from tests.helpers.refusals import refused


@pytest.fixture
def db(tmp_path):
    with ml.connect(tmp_path) as db:
        db.sql("CREATE TABLE t (k UInt64, s String, v UInt8) ENGINE = MergeTree ORDER BY k")
        db.sql("INSERT INTO t SELECT number, toString(number), number % 7 FROM numbers(20000)")
        yield db


def test_a_view_costs_one_entry_and_no_object(db):
    before = db.warehouse.store.counters
    db.sql("CREATE VIEW v AS SELECT k, s FROM t WHERE v = 3")
    db.sql("RENAME TABLE v TO w")
    db.sql("CREATE OR REPLACE VIEW w AS SELECT k FROM t")
    db.sql("DROP VIEW w")
    used = db.warehouse.store.counters - before
    assert used.put == 4
    assert used.delete == 0


def test_another_process_reads_the_view_and_its_replacement(db, tmp_path):
    other = ml.connect(tmp_path)
    assert other.sql("SELECT count() FROM t").scalar() == 20000
    db.sql("CREATE VIEW v AS SELECT k FROM t WHERE k < 10")
    assert other.sql("SELECT count() FROM v").scalar() == 10
    db.sql("CREATE OR REPLACE VIEW v AS SELECT k FROM t WHERE k < 20")
    assert other.sql("SELECT count() FROM v").scalar() == 20
    db.sql("DROP TABLE v")
    with pytest.raises(MergelakeError, match="UNKNOWN_TABLE"):
        other.sql("SELECT count() FROM v")
    db.sql("RENAME TABLE t TO u")
    db.sql("CREATE VIEW t AS SELECT k FROM u WHERE k < 5")
    assert other.sql("SELECT count() FROM t").scalar() == 5
    db.sql("DROP VIEW t")
    db.sql("RENAME TABLE u TO t")
    assert other.sql("SELECT count() FROM t").scalar() == 20000


def test_what_is_known_here_is_enough_for_cached_reads(db, tmp_path):
    db.sql("CREATE VIEW v AS SELECT k FROM t WHERE k < 10")
    other = ml.connect(tmp_path, read_consistency="cached")
    assert other.sql("SELECT count() FROM v").scalar() == 10
    db.sql("CREATE VIEW w AS SELECT k FROM v WHERE k < 5")
    assert other.sql("SELECT count() FROM w").scalar() == 5


def test_views_prune_by_the_condition_around_them(db):
    db.sql("CREATE VIEW v AS SELECT k AS a, concat(s, '!') AS b FROM t WHERE v < 7")
    db.sql("CREATE VIEW w AS SELECT * FROM v")
    for query in ("SELECT b FROM v WHERE a = 5", "SELECT b FROM w WHERE a = 5"):
        lines = "\n".join(row[0] for row in db.sql(f"EXPLAIN indexes = 1 {query}").rows())
        assert "Granules: 1/3" in lines, lines
        assert db.sql(query).rows() == [("5!",)]


def test_only_the_columns_that_are_needed_are_read(db):
    db.sql("CREATE VIEW v AS SELECT k AS a, concat(s, '!') AS b, v AS c, c + 1 AS d FROM t WHERE v < 7")
    db.sql("CREATE VIEW w AS SELECT * FROM v")
    for query, columns in {
        "SELECT max(a) FROM v": "k, v",
        "SELECT b FROM w WHERE a = 5": "k, s, v",
        "SELECT max(d) FROM w": "v",
        "SELECT count() FROM v": "v",
    }.items():
        lines = [row[0].strip() for row in db.sql(f"EXPLAIN {query}").rows()]
        assert f"Columns: {columns}" in lines, (query, lines)
    assert db.sql("SELECT max(d), max(a) FROM w").rows() == [(7, 19999)]


def test_names_of_a_view_are_those_of_its_creation(db):
    db.sql("CREATE DATABASE d")
    db.sql("USE d")
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    db.sql("CREATE VIEW default.v AS SELECT * FROM t")
    db.sql("CREATE VIEW p AS SELECT k FROM default.t WHERE k IN t OR k = {a:UInt64}")
    db.sql("CREATE VIEW q AS SELECT * FROM p(a = 7)")
    db.sql("USE default")
    assert db.sql("SELECT count() FROM v").scalar() == 0
    assert db.sql("SELECT * FROM d.q").rows() == [(7,)]
    assert db.sql("SELECT p.k, d.p.k FROM d.p(a = 3)").rows() == [(3, 3)]
    db.sql("INSERT INTO d.t VALUES (1)")
    assert db.sql("SELECT * FROM d.q ORDER BY k").rows() == [(1,), (7,)]
    assert db.sql("SELECT v.k, default.v.k FROM default.v").rows() == [(1, 1)]


def test_a_view_reads_an_older_version_where_it_says_so(db):
    version = db.table("t").handle.log.state.version
    db.sql(f"CREATE VIEW old AS SELECT count() AS n FROM t AS OF VERSION {version}")
    db.sql("INSERT INTO t VALUES (1, 'x', 1)")
    assert db.sql("SELECT n FROM old").scalar() == 20000
    assert db.sql("SELECT count() FROM t").scalar() == 20001
    with refused(db, "NOT_IMPLEMENTED", "no older versions", "Write AS OF after the tables"):
        db.sql("SELECT * FROM old AS OF VERSION 1")


def test_mutations_read_views(db):
    db.sql("CREATE VIEW v AS SELECT k FROM t WHERE k < 3")
    db.sql("UPDATE t SET s = 'x' WHERE k IN v")
    db.sql("DELETE FROM t WHERE k = (SELECT max(k) FROM v)")
    assert db.sql("SELECT k, s FROM t WHERE s = 'x' ORDER BY k").rows() == [(0, "x"), (1, "x")]


REFUSED = [
    ("INSERT INTO v VALUES (1)", "NOT_IMPLEMENTED"),
    ("INSERT INTO v SELECT 1", "NOT_IMPLEMENTED"),
    ("ALTER TABLE v DELETE WHERE 1", "NOT_IMPLEMENTED"),
    ("UPDATE v SET k = 1 WHERE 1", "NOT_IMPLEMENTED"),
    ("OPTIMIZE TABLE v", "NOT_IMPLEMENTED"),
    ("TRUNCATE TABLE v", "NOT_IMPLEMENTED"),
    ("CHECK TABLE v", "NOT_IMPLEMENTED"),
    ("CREATE TABLE c CLONE AS v", "INCORRECT_QUERY"),
    ("CREATE TABLE c AS v", "INCORRECT_QUERY"),
    ("CREATE TABLE v (k UInt8) ENGINE = MergeTree ORDER BY k", "TABLE_ALREADY_EXISTS"),
    ("CREATE VIEW v AS SELECT 1", "TABLE_ALREADY_EXISTS"),
    ("CREATE OR REPLACE VIEW v AS SELECT * FROM v", "INFINITE_LOOP"),
    ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", "SYNTAX_ERROR"),
    ("CREATE OR REPLACE TABLE IF NOT EXISTS v (k UInt8) ENGINE = MergeTree ORDER BY k", "SYNTAX_ERROR"),
    ("RENAME TABLE t TO v", "TABLE_ALREADY_EXISTS"),
    ("EXCHANGE TABLES v AND t", "INFINITE_LOOP"),
    ("CREATE VIEW w AS SELECT nope FROM t", "UNKNOWN_IDENTIFIER"),
    ("CREATE VIEW w AS SELECT * FROM nope", "UNKNOWN_TABLE"),
    ("CREATE VIEW nope.w AS SELECT 1", "UNKNOWN_DATABASE"),
    ("CREATE VIEW w AS SELECT 1, 1", "ILLEGAL_COLUMN"),
    ("CREATE VIEW w (a, b) AS SELECT 1", "BAD_ARGUMENTS"),
    ("CREATE VIEW w (a, b, c) AS SELECT * FROM t", "BAD_ARGUMENTS"),
    ("CREATE VIEW w AS SELECT * FROM file('/etc/passwd')", "ACCESS_DENIED"),
    ("CREATE VIEW w AS SELECT 1 FRO t WHERE", "SYNTAX_ERROR"),
    ("CREATE VIEW w AS SELECT k FROM t SETTINGS read_volatile = 'peers'", "NOT_IMPLEMENTED"),
    ("CREATE VIEW w (k UInt64 DEFAULT 1) AS SELECT k FROM t", "NOT_IMPLEMENTED"),
    ("CREATE VIEW w (k UInt64) AS SELECT k FROM t WHERE k = {a:UInt8}", "NOT_IMPLEMENTED"),
    ("DROP VIEW t", "INCORRECT_QUERY"),
    ("DROP VIEW nope", "UNKNOWN_TABLE"),
    ("SHOW CREATE VIEW t", "BAD_ARGUMENTS"),
    ("SHOW CREATE VIEW nope", "UNKNOWN_TABLE"),
    ("SELECT * FROM v PREWHERE k = 1", "ILLEGAL_PREWHERE"),
    ("SELECT * FROM v(a = 1)", "UNKNOWN_FUNCTION"),
    ("REPLACE TABLE nope (k UInt8) ENGINE = MergeTree ORDER BY k", "UNKNOWN_TABLE"),
    ("REPLACE TABLE nope.t (k UInt8) ENGINE = MergeTree ORDER BY k", "UNKNOWN_DATABASE"),
    ("CREATE OR REPLACE TABLE t (k UInt8) ENGINE = MergeTree ORDER BY nope", "UNKNOWN_IDENTIFIER"),
]


def test_what_makes_no_sense_changes_nothing(db):
    db.sql("CREATE VIEW v AS SELECT k FROM t")
    for statement, name in REFUSED:
        with refused(db, name):
            db.sql(statement)


def test_python_objects_of_tables_refuse_a_view(db):
    db.sql("CREATE VIEW v AS SELECT k FROM t")

    def spark(name):
        return TablePath.parse(f"{db.warehouse.url}/{name}").open()

    for door in (db.table, db.warehouse.table, db.warehouse.cost, spark):
        with refused(db, "NOT_IMPLEMENTED", "default.v is a View", "SELECT reads it"):
            door("v")
    assert db.tables() == ["t", "v"]
    assert db.warehouse.tables() == ["default.t"]


def test_what_was_dropped_comes_back(db):
    db.sql("CREATE VIEW v AS SELECT k FROM t WHERE k < 4")
    db.sql("DROP DATABASE default")
    assert db.tables() == []
    db.sql("UNDROP DATABASE default")
    assert db.sql("SELECT count() FROM v").scalar() == 4
    db.sql("DROP VIEW v")
    db.sql("UNDROP TABLE v")
    assert db.sql("SELECT count() FROM v").scalar() == 4
    db.sql("RENAME TABLE v TO w")
    db.sql("DROP VIEW w")
    db.sql("UNDROP TABLE w")
    assert db.sql("EXISTS VIEW w").scalar() == 1


def test_a_replaced_table_is_there_until_the_new_one_is_full(db, tmp_path):
    other = ml.connect(tmp_path)
    with pytest.raises(MergelakeError, match="THROW_IF"):
        db.sql(
            "CREATE OR REPLACE TABLE t ENGINE = MergeTree ORDER BY k AS SELECT throwIf(number = 2) AS k FROM numbers(3)"
        )
    assert other.sql("SELECT count() FROM t").scalar() == 20000
    before = db.warehouse.catalog.log.state.version
    with other.sql("SELECT s FROM t ORDER BY s DESC") as rows:
        db.sql("CREATE OR REPLACE TABLE t ENGINE = MergeTree ORDER BY k AS SELECT k FROM t WHERE k < 100")
        assert len(rows.rows()) == 20000
    assert db.warehouse.catalog.refresh().version == before + 1
    assert other.sql("SELECT count(), max(k) FROM t").rows() == [(100, 99)]
    db.sql("RENAME TABLE t TO new")
    db.sql("UNDROP TABLE t")
    assert other.sql("SELECT count() FROM t").scalar() == 20000
    assert db.warehouse.gc(dry_run=True)


def test_views_and_tables_replace_each_other(db):
    db.sql("CREATE OR REPLACE VIEW t AS SELECT 1 AS one")
    assert db.sql("SELECT * FROM t").rows() == [(1,)]
    db.sql("REPLACE TABLE t (k UInt8) ENGINE = MergeTree ORDER BY k")
    assert db.sql("SELECT count() FROM t").scalar() == 0
    db.sql("CREATE OR REPLACE TABLE u ENGINE = MergeTree ORDER BY a EMPTY AS SELECT 1 AS a")
    assert (db.sql("EXISTS TABLE u").scalar(), db.sql("SELECT count() FROM u").scalar()) == (1, 0)


def test_a_clone_takes_the_place_of_its_source(db):
    version = db.table("t").version
    db.sql("ALTER TABLE t DELETE WHERE k >= 10")
    before = db.warehouse.store.counters
    db.sql(f"CREATE OR REPLACE TABLE t CLONE AS t AS OF VERSION {version}")
    assert (db.warehouse.store.counters - before).put < 10
    assert db.sql("SELECT count() FROM t").scalar() == 20000
    with refused(db, "UNKNOWN_TABLE"):
        db.sql("REPLACE TABLE nope CLONE AS t")


def test_python_makes_views(db):
    db.create_view("v", "SELECT k, s FROM t WHERE v = {n:UInt8}", comment="by n")
    db.create_view("w", "SELECT k, concat(s, '!') FROM v(n = 3)", columns=["a", "b"])
    assert db.sql("SELECT a, b FROM w ORDER BY a LIMIT 1").rows() == [(3, "3!")]
    db.create_view("w", "SELECT 1 AS one", if_not_exists=True)
    assert db.sql("DESCRIBE w").rows()[0][0] == "a"
    db.create_view("default.w", "SELECT 1 AS one", replace=True)
    assert db.sql("SELECT * FROM w").rows() == [(1,)]
    with refused(db, "BAD_ARGUMENTS"):
        db.create_view("w", "SELECT 1", if_not_exists=True, replace=True)
    with refused(db, "TABLE_ALREADY_EXISTS"):
        db.create_view("w", "SELECT 1")
