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
