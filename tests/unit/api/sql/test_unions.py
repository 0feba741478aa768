"""merge() and ENGINE = Merge: pruned, refreshed together, one version of the names; errors change nothing."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from tests.helpers.refusals import refused


@pytest.fixture
def db(tmp_path):
    with ml.connect(tmp_path) as db:
        for number, kind in enumerate(("UInt64", "UInt64", "UInt32")):
            db.sql(f"CREATE TABLE part_{number} (k {kind}, s String, v UInt8) ENGINE = MergeTree ORDER BY k")
            db.sql(f"INSERT INTO part_{number} SELECT number, toString(number), {number} FROM numbers(20000)")
        db.sql("CREATE TABLE all_parts ENGINE = Merge('default', '^part_')")
        yield db


def explained(db, query):
    return "\n".join(row[0] for row in db.sql(f"EXPLAIN indexes = 1 {query}").rows())


@pytest.mark.parametrize("table", ["all_parts", "merge('^part_')"])
def test_conditions_prune_every_table(db, table):
    query = f"SELECT s, _table FROM {table} WHERE k = 5 AND v > 0"
    text = explained(db, query)
    assert text.count("Granules: 1/3") == 2, text  # of a cast column no condition goes in
    assert sorted(db.sql(query).rows()) == [("5", "part_1"), ("5", "part_2")]


def test_tables_that_a_condition_on_their_names_rejects_are_not_read(db):
    text = explained(db, "SELECT sum(k) FROM all_parts WHERE _table IN ('part_1', 'none') AND v = 1")
    assert ("part_1" in text, "part_0" in text, "part_2" in text) == (True, False, False)
    db.sql("RENAME TABLE part_0 TO gone")
    other = ml.connect(db.warehouse.url)
    other.sql("SELECT 1 FROM all_parts WHERE _table = 'part_1' LIMIT 1")
    opened = {name for _, name, table_id in other.warehouse.catalog.state.tables() if other.open_tables.known(table_id)}
    assert opened == {"part_1"}


def test_only_the_columns_that_are_needed_are_read(db):
    assert "Columns: v" in explained(db, "SELECT max(v) FROM all_parts")
    assert explained(db, "SELECT count() FROM all_parts").count("nothing is read") == 3


def test_tables_come_and_go_by_name(db, tmp_path):
    other = ml.connect(tmp_path)
    assert other.sql("SELECT count() FROM all_parts").scalar() == 60000
    db.sql("RENAME TABLE part_2 TO old_2")
    db.sql("CREATE TABLE part_3 (k UInt64) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO part_3 VALUES (1), (2)")
    assert other.sql("SELECT count() FROM all_parts").scalar() == 40002
    assert other.sql("SELECT k, s, v FROM all_parts WHERE _table = 'part_3' ORDER BY k").rows() == [
        (1, "", 0),
        (2, "", 0),
    ]
    db.sql("INSERT INTO part_3 VALUES (3)")
    assert other.sql("SELECT count() FROM merge('^part_')").scalar() == 40003


def test_a_union_costs_one_entry_and_no_object(db):
    before = db.warehouse.store.counters
    db.sql("CREATE TABLE m ENGINE = Merge('default', '^part_')")
    db.sql("CREATE OR REPLACE TABLE m ENGINE = Merge('default', '^part_1')")
    db.create_union("n", "^part_[01]$", columns={"k": "UInt64", "more": "String"})
    db.sql("DROP TABLE m")
    used = db.warehouse.store.counters - before
    assert (used.put, used.delete) == (4, 0)
    assert db.sql("SELECT count(), any(more) FROM n").rows() == [(40000, "")]
    assert db.sql("SHOW CREATE n").scalar().endswith("ENGINE = Merge('default', '^part_[01]$')")


# M-090
def test_hot_and_cold_are_one_table(db):
    """What is old goes to another table by one commit each; who reads the union sees every row once."""
    db.sql("CREATE DATABASE archive")
    db.sql("CREATE TABLE archive.part_cold (k UInt64, s String, v UInt8) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO archive.part_cold SELECT k + 100000, s, 9 FROM part_0 WHERE k < 10")
    db.sql("CREATE VIEW everything AS SELECT *, _database AS place FROM merge(REGEXP('^(default|archive)$'), '^part_')")
    assert db.sql("SELECT place, count() FROM everything GROUP BY place ORDER BY place").rows() == [
        ("archive", 10),
        ("default", 60000),
    ]
    assert db.sql("SELECT s FROM everything WHERE k = 100003").rows() == [("3",)]


def test_a_union_that_reaches_itself_through_a_view_ends(db):
    db.sql("CREATE TABLE loop (k UInt64) ENGINE = Merge('default', '^(part|view)_')")
    db.sql("CREATE VIEW view_of_loop AS SELECT k FROM loop WHERE k < 3")
    with pytest.raises(MergelakeError, match="TOO_DEEP_RECURSION"):
        db.sql("SELECT count() FROM loop")


REFUSED = [
    ("INSERT INTO all_parts VALUES (1, 'a', 1)", "NOT_IMPLEMENTED"),
    ("ALTER TABLE all_parts ADD COLUMN x UInt8", "NOT_IMPLEMENTED"),
    ("CREATE TABLE m ENGINE = Merge('default', '^none')", "CANNOT_EXTRACT_TABLE_STRUCTURE"),
    ("CREATE TABLE m ENGINE = Merge('default', '(')", "CANNOT_COMPILE_REGEXP"),
    ("CREATE TABLE m ENGINE = Merge('nowhere', '^part')", "UNKNOWN_DATABASE"),
    ("CREATE TABLE nowhere.m ENGINE = Merge('default', '^part')", "UNKNOWN_DATABASE"),
    ("CREATE TABLE m ENGINE = Merge('^part_')", "NUMBER_OF_ARGUMENTS_DOESNT_MATCH"),
    ("CREATE TABLE m ENGINE = Merge(1, '^part_')", "BAD_ARGUMENTS"),
    ("CREATE TABLE m ENGINE = Merge('default', '^part_') ORDER BY k", "BAD_ARGUMENTS"),
    ("CREATE TABLE m ENGINE = Merge('default', '^part_') TTL d", "BAD_ARGUMENTS"),
    ("CREATE TABLE m ENGINE = Merge('default', '^part_') AS SELECT 1", "NOT_IMPLEMENTED"),
    ("CREATE TABLE m (k UInt64 ALIAS 1) ENGINE = Merge('default', '^part_')", "NOT_IMPLEMENTED"),
    ("CREATE TABLE m (k UInt64, INDEX i k TYPE minmax) ENGINE = Merge('default', '^part_')", "BAD_ARGUMENTS"),
    ("REPLACE TABLE m ENGINE = Merge('default', '^part_')", "UNKNOWN_TABLE"),
    ("SELECT * FROM all_parts AS OF VERSION 1", "NOT_IMPLEMENTED"),
    ("SELECT * FROM all_parts PREWHERE k = 1", "ILLEGAL_PREWHERE"),
    ("SELECT * FROM merge('^none')", "CANNOT_EXTRACT_TABLE_STRUCTURE"),
    ("SELECT * FROM merge(file('/etc/passwd'), '^none')", "BAD_ARGUMENTS"),
]


def test_what_makes_no_sense_changes_nothing(db):
    for statement, name in REFUSED:
        with refused(db, name):
            db.sql(statement)
