"""A published table whose columns change: a ClickHouse that has attached it never reads a column wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.jobs.publish.publish import publish
from tests.helpers.served import refresh


class Served:
    """A table in a directory, and a ClickHouse that attaches it."""

    def __init__(self, oracle: Any, path: Path) -> None:
        self.oracle = oracle
        self.db = ml.connect(str(path))
        self.db.sql(
            "CREATE TABLE t (k UInt32, v Int32, s String, d Int32 DEFAULT v + 1) ENGINE = MergeTree ORDER BY k "
            "SETTINGS min_bytes_for_wide_part = 0"
        )
        self.insert(1)
        self.table = self.db.table("t")

    def insert(self, k: int) -> None:
        names = [c.name for c in self.db.table("t").schema.columns if not c.default]
        self.db.sql(f"INSERT INTO t ({', '.join(names)}) VALUES ({', '.join([str(k)] * len(names))})")

    def attach(self) -> None:
        self.oracle.query("DROP TABLE IF EXISTS default.served SYNC")
        self.oracle.query(self.table.attach_statement("default.served", show_secrets=True))

    def seen(self, columns: str = "*") -> str:
        return str(self.oracle.query(f"SELECT {columns} FROM default.served ORDER BY k", "TSV"))

    def ours(self, columns: str) -> str:
        return str(self.db.sql(f"SELECT {columns} FROM t ORDER BY k").encoded("TSV").decode())

    def refresh(self) -> None:
        refresh(self.oracle, "default.served")

    def wait(self, columns: str = "*") -> None:
        self.refresh()
        assert self.seen(columns) == self.ours(columns)


@pytest.fixture
def served(oracle: Any, tmp_path: Path) -> Any:
    made = Served(oracle, tmp_path)
    yield made
    oracle.query("DROP TABLE IF EXISTS default.served SYNC")


def test_a_server_goes_on_while_columns_are_added_and_dropped(served: Served) -> None:
    served.table.publish()
    served.attach()
    served.wait()
    served.db.sql("ALTER TABLE t ADD COLUMN z Int32 DEFAULT v * 10, COMMENT COLUMN s 'text'")
    served.insert(2)
    served.table.publish()
    served.wait("k, v, s, d")  # by its old definition
    served.attach()
    served.wait()
    served.db.sql("ALTER TABLE t DROP COLUMN s")
    served.insert(3)
    served.table.publish()
    served.wait("k, v, d, z")
    assert served.seen("s") == "1\n2\n\n"


# M-076
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("RENAME COLUMN s TO txt", "column s is called txt now"),
        ("MODIFY COLUMN d REMOVE DEFAULT, MODIFY COLUMN v String", "column"),
        ("MODIFY COLUMN s UInt64", "another type"),
        ("CLEAR COLUMN s", "another one"),
        ("DROP COLUMN s, ADD COLUMN s Int8 DEFAULT 5", "another one"),
        ("MODIFY COLUMN d DEFAULT v + 2", "another default"),
    ],
)
def test_a_change_of_meaning_is_shown_to_new_definitions_only(served: Served, change: str, why: str) -> None:
    served.table.publish()
    served.attach()
    before = served.seen()
    served.db.sql(f"ALTER TABLE t {change}")
    served.insert(2)
    served.table.refresh()
    for door in (served.table.publish, served.table.attach_statement):
        with pytest.raises(ml.MergelakeError, match=why) as refused:
            door()
        assert refused.value.name == "INCOMPATIBLE_COLUMNS"
    report = publish(served.table.handle)
    assert report.held_back
    assert not report.added
    served.refresh()
    assert served.seen() == before
    served.oracle.query("DROP TABLE default.served SYNC")
    served.table.publish(redefine=True)
    served.attach()
    served.wait()
    served.insert(3)
    served.db.sql("OPTIMIZE TABLE t FINAL")
    served.table.publish()
    served.wait()
    served.db.sql("ALTER TABLE t ADD COLUMN more Int8")
    served.insert(4)
    served.table.publish()
    served.attach()
    served.wait()


def test_parts_with_other_names_are_rewritten_before_they_are_shown(served: Served) -> None:
    served.db.sql("ALTER TABLE t RENAME COLUMN s TO txt, ADD COLUMN s Int8 DEFAULT 4, MODIFY COLUMN d Int64")
    served.insert(2)
    assert publish(served.table.handle).outdated == ("all_1_1_0",)
    served.table.publish()
    served.attach()
    served.wait()
    assert served.table.publish().added == ()


@pytest.mark.parametrize("redefine", [False, True])
def test_a_name_that_is_taken_again_is_not_read_from_parts_that_had_it_before(served: Served, redefine: bool) -> None:
    """By a server that attached the table in between, and knows nothing of the dropped column or index."""
    table = served.table
    served.db.sql("ALTER TABLE t ADD INDEX i v TYPE minmax")
    for k in (5, 9):
        served.insert(k)
    if redefine:
        table.publish()
    served.db.sql("ALTER TABLE t DROP INDEX i, DROP COLUMN s")
    table.publish(redefine=redefine)
    served.attach()
    served.db.sql("ALTER TABLE t ADD COLUMN s String DEFAULT 'new', ADD INDEX i d TYPE minmax")
    table.refresh()
    with pytest.raises(ml.MergelakeError, match="under a name that is another one's now") as refused:
        table.attach_statement()
    assert refused.value.name == "INCOMPATIBLE_COLUMNS"
    assert len(publish(table.handle).outdated) == 3
    table.publish()
    for again in (False, True):
        if again:
            served.attach()
        served.refresh()
        columns = "k, v, d, s" if again else "k, v, d"
        assert served.seen(columns) == served.ours(columns)
        found = str(served.oracle.query("SELECT k FROM default.served WHERE d = 6", "TSV"))
        assert found == "5\n"


def test_a_table_that_was_never_altered_costs_what_it_did(served: Served) -> None:
    served.table.publish()
    before = served.db.warehouse.store.counters
    served.table.publish()
    used = served.db.warehouse.store.counters - before
    assert (used.list, used.put) == (1, 0)
    served.table.attach_statement()
    used = served.db.warehouse.store.counters - before
    assert (used.list, used.put) == (1, 1)


def test_a_server_that_attached_an_empty_table_is_not_forgotten(served: Served) -> None:
    served.db.sql("TRUNCATE TABLE t")
    served.table.refresh()
    served.attach()
    served.db.sql("ALTER TABLE t RENAME COLUMN s TO txt, ADD COLUMN s Int8")
    served.insert(2)
    served.table.refresh()
    with pytest.raises(ml.MergelakeError, match="column s is called txt now"):
        served.table.publish()


def test_a_server_goes_on_while_indexes_and_constraints_change(served: Served) -> None:
    served.table.publish()
    served.attach()
    served.db.sql(
        "ALTER TABLE t ADD INDEX i v TYPE minmax, ADD CONSTRAINT c CHECK k > 0, ADD COLUMN e Int8 EPHEMERAL, "
        "MODIFY COMMENT 'x'"
    )
    served.insert(2)
    served.table.publish()
    served.wait("k, v, s, d")
    served.table.materialize_index("i")
    served.table.publish()  # the mutation is written down first
    served.wait("k, v, s, d")
    served.attach()
    served.wait()
    forced = "SELECT k FROM default.served WHERE v = 1 SETTINGS force_data_skipping_indices = 'i'"
    assert str(served.oracle.query(forced, "TSV")) == "1\n"
    served.db.sql("ALTER TABLE t CLEAR INDEX i")
    served.insert(3)
    served.table.publish()
    served.wait()
    assert str(served.oracle.query(forced, "TSV")) == "1\n"
    served.db.sql("ALTER TABLE t DROP INDEX i, DROP CONSTRAINT c")
    served.insert(4)
    served.table.publish()
    served.wait()
    assert str(served.oracle.query(forced, "TSV")) == "1\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("DROP INDEX i, ADD INDEX i d TYPE minmax", "index i is another one now"),
        ("ADD COLUMN x UInt8, MODIFY ORDER BY (k, x)", "its keys"),
    ],
)
def test_another_index_of_a_name_or_another_key_is_shown_to_new_definitions_only(
    served: Served, change: str, why: str
) -> None:
    served.db.sql("ALTER TABLE t ADD INDEX i v TYPE minmax")
    for k in range(2, 6):
        served.insert(k)
    served.table.publish()
    served.attach()
    served.wait()
    served.db.sql(f"ALTER TABLE t {change}")
    served.insert(9)
    served.table.refresh()
    with pytest.raises(ml.MergelakeError, match=why):
        served.table.publish()
    served.refresh()
    assert served.seen("k") == "1\n2\n3\n4\n5\n"
    served.oracle.query("DROP TABLE default.served SYNC")
    served.table.publish(redefine=True)
    served.attach()
    served.wait()
    for k in (2, 9):
        for condition in (f"d = {k if k == 9 else k + 1}", f"v = {k}"):
            own = served.db.sql(f"SELECT k FROM t WHERE {condition} ORDER BY k").encoded("TSV").decode()
            text = f"SELECT k FROM default.served WHERE {condition} ORDER BY k"
            assert str(served.oracle.query(text, "TSV")) == own
