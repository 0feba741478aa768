"""Parts with columns of older types in another table: their values are what they were, or they stay where they are."""

from __future__ import annotations

import pytest

import mergelake as ml
from tests.helpers.refusals import refused


@pytest.fixture
def db(tmp_path):
    found = ml.connect(str(tmp_path))
    for name in ("a", "b"):
        found.sql(f"CREATE TABLE {name} (k Int64, v Int32) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k")
    found.sql("INSERT INTO a VALUES (1, 300)")
    return found


def moved(db):
    db.sql("ALTER TABLE a MOVE PARTITION 1 TO TABLE b")
    return db.sql("SELECT * FROM b").rows()


def test_a_conversion_that_the_other_table_would_make_otherwise_is_refused(db):
    db.sql("ALTER TABLE a MODIFY COLUMN v UInt8")
    db.sql("ALTER TABLE a MODIFY COLUMN v Int64")
    db.sql("ALTER TABLE b MODIFY COLUMN v Int64")
    with refused(db, "NOT_IMPLEMENTED", "in the type Int32 of before"):
        moved(db)
    db.sql("OPTIMIZE TABLE a FINAL")
    assert moved(db) == [(1, 44)]


def test_conversions_without_loss_are_carried(db):
    for kind in ("Int64", "Nullable(Int64)"):
        db.sql(f"ALTER TABLE a MODIFY COLUMN v {kind}")
    db.sql("ALTER TABLE b MODIFY COLUMN v Nullable(Int64)")
    assert moved(db) == [(1, 300)]


def test_one_conversion_is_the_same_there(db):
    for name in ("a", "b"):
        db.sql(f"ALTER TABLE {name} MODIFY COLUMN v UInt8")
    assert moved(db) == [(1, 44)]


def test_a_mutation_that_the_other_table_would_take_otherwise_has_to_be_finished(db):
    db.sql("ALTER TABLE a ADD COLUMN m Int32 MATERIALIZED v * 2")
    db.sql("ALTER TABLE b ADD COLUMN m Int32 MATERIALIZED v * 3")
    db.sql("ALTER TABLE a MATERIALIZE COLUMN m")
    db.table("a").apply_mutations()
    db.sql("UPDATE a SET v = v + 1 WHERE 1")
    with refused(db, "INCOMPATIBLE_COLUMNS", "is not finished"):
        moved(db)
    db.table("a").apply_mutations()
    moved(db)
    assert db.sql("SELECT v, m FROM b").rows() == [(301, 602)]


def test_a_type_of_before_that_the_other_table_would_convert_in_more_steps(db):
    """Its schema of the time is the same, and has been altered there by way of a smaller type since."""
    db.sql("ALTER TABLE b MODIFY COLUMN v UInt8, ADD COLUMN w UInt8")
    db.sql("ALTER TABLE b MODIFY COLUMN v Int32")
    db.sql("ALTER TABLE a ADD COLUMN w UInt8")
    assert moved(db) == [(1, 300, 0)]


def test_a_default_by_way_of_an_alias_that_is_another_one_there(db):
    db.sql("ALTER TABLE a ADD COLUMN al Int64 ALIAS v, ADD COLUMN w Int64 DEFAULT al + 1")
    db.sql("ALTER TABLE b ADD COLUMN al Int64 ALIAS k, ADD COLUMN w Int64 DEFAULT al + 1")
    with refused(db, "INCOMPATIBLE_COLUMNS", "lack column w"):
        moved(db)
    db.sql("ALTER TABLE b MODIFY COLUMN al ALIAS v")
    moved(db)
    assert db.sql("SELECT w FROM b").rows() == [(301,)]


def test_a_schema_is_carried_once(db):
    """Also where it has columns that were dropped in the one table and never were in the other."""
    db.sql("ALTER TABLE a ADD COLUMN x UInt8, ADD COLUMN y UInt8 ALIAS x")
    db.sql("INSERT INTO a (k, v, x) VALUES (3, 3, 3), (2, 2, 2), (4, 4, 4)")
    db.sql("ALTER TABLE a DROP COLUMN y, DROP COLUMN x")
    seen = []
    for partition in (1, 0):
        db.sql(f"ALTER TABLE a MOVE PARTITION {partition} TO TABLE b")
        seen.append((db.table("b").schema.version, db.table("b").schema.next_column_id))
    assert seen[0] == seen[1]
    db.sql("ALTER TABLE b ADD COLUMN x UInt8 DEFAULT 9")
    assert db.sql("SELECT * FROM b ORDER BY k").rows() == [(1, 300, 9), (2, 2, 9), (3, 3, 9), (4, 4, 9)]
    db.sql("OPTIMIZE TABLE b FINAL")
    assert db.sql("SELECT * FROM b ORDER BY k").rows() == [(1, 300, 9), (2, 2, 9), (3, 3, 9), (4, 4, 9)]


def test_a_schema_that_is_carried_changes_no_setting(db):
    db.sql("ALTER TABLE b MODIFY SETTING non_replicated_deduplication_window = 10")
    db.sql("INSERT INTO b VALUES (2, 20)")
    db.sql("ALTER TABLE a ADD COLUMN x UInt8")
    db.sql("INSERT INTO a (k, v) VALUES (3, 30)")
    db.sql("ALTER TABLE a DROP COLUMN x")
    before = db.table("b").schema
    moved(db)
    after = db.table("b").schema
    assert (after.settings, after.columns) == (before.settings, before.columns)
    assert after.version > before.version, "with the schema of a part that has x"
    db.sql("INSERT INTO b VALUES (2, 20)")
    assert db.sql("SELECT k FROM b ORDER BY k").rows() == [(1,), (2,), (3,)], "what was inserted before is known"


def test_what_was_carried_into_another_engine_is_detached_and_attached_there(db):
    db.sql("CREATE TABLE c (k Int64, v Int32) ENGINE = ReplacingMergeTree(v) PARTITION BY k % 2 ORDER BY k")
    db.sql("ALTER TABLE a ADD COLUMN x UInt8")
    db.sql("INSERT INTO a (k, v) VALUES (1, 301)")
    db.sql("ALTER TABLE a DROP COLUMN x")
    db.sql("ALTER TABLE a MOVE PARTITION 1 TO TABLE c")
    db.sql("ALTER TABLE c DETACH PARTITION 1")
    db.sql("ALTER TABLE c ATTACH PARTITION 1")
    db.sql("OPTIMIZE TABLE c FINAL")
    assert db.sql("SELECT * FROM c").rows() == [(1, 301)]


def test_rows_that_a_mask_hides_stay_hidden(db, monkeypatch):
    monkeypatch.setattr("mergelake.parts.write.rewrite.REWRITTEN_WHOLE_BYTES", 0)
    db.sql("INSERT INTO a VALUES (3, 3), (5, 5)")
    db.sql("ALTER TABLE a MODIFY SETTING min_bytes_for_wide_part = 0, min_rows_for_wide_part = 0")
    db.sql("OPTIMIZE TABLE a FINAL")
    db.sql("DELETE FROM a WHERE k = 3")
    db.table("a").apply_mutations()
    assert [part.manifest.masked for part in db.table("a").handle.log.state.parts()] == [True]
    assert sorted(moved(db)) == [(1, 300), (5, 5)]
