"""RENAME of databases and of several tables: one entry each, and nothing of a table moves."""

from __future__ import annotations

import uuid

import pytest

import mergelake as ml


@pytest.fixture
def db():
    database = ml.connect(f"memory://{uuid.uuid4().hex}")
    database.sql(
        "CREATE DATABASE d; CREATE TABLE d.a (k Int32) ENGINE = MergeTree ORDER BY k; INSERT INTO d.a VALUES (1)"
    )
    database.sql("CREATE TABLE d.b (k Int32) ENGINE = MergeTree ORDER BY k; INSERT INTO d.b VALUES (2)")
    return database


def test_a_database_takes_its_tables_along(db):
    location = db.table("d.a").location
    db.sql("USE d; RENAME DATABASE d TO e")
    assert db.current_database == "e"
    assert db.databases() == ["default", "e"]
    assert db.sql("SELECT k FROM a").rows() == [(1,)]
    assert db.table("e.a").location == location


def test_tables_swap_by_way_of_a_third_name_at_one_instant(db):
    version = db.warehouse.catalog.state.version
    db.sql("RENAME TABLE d.a TO d.x, d.b TO d.a, d.x TO d.b")
    assert db.warehouse.catalog.state.version == version + 1
    assert db.sql("SELECT k FROM d.a").rows() == [(2,)]
    assert db.sql("SELECT k FROM d.b").rows() == [(1,)]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("RENAME DATABASE nobody TO e", "UNKNOWN_DATABASE"),
        ("RENAME DATABASE d TO default", "DATABASE_ALREADY_EXISTS"),
        ("RENAME TABLE d.a TO d.x, d.nobody TO d.y", "UNKNOWN_TABLE"),
    ],
)
def test_a_rename_that_cannot_be_changes_nothing(db, statement, name):
    version = db.warehouse.catalog.state.version
    with pytest.raises(ml.MergelakeError) as caught:
        db.sql(statement)
    assert caught.value.name == name
    assert db.warehouse.catalog.state.version == version
