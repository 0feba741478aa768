"""Upserts into tables whose engine collapses rows: what is read, replaced and shown is what FINAL shows."""

from __future__ import annotations

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError

SHOWN = "SELECT k, v FROM t FINAL ORDER BY k"


def database(name: str, engine: str, *rows: str) -> tuple[Database, ml.Table]:
    db = connect(f"memory://upsert-{name}")
    db.sql(f"CREATE TABLE t (k UInt32, v Int64, sign Int8, s String) ENGINE = {engine} ORDER BY k")
    for each in rows:
        db.sql(f"INSERT INTO t VALUES {each}")
    return db, db.table("t")


def shown(db: Database, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in db.sql(query).arrow().to_pylist()]


def test_a_row_takes_the_place_of_all_that_collapse_with_it() -> None:
    db, table = database(
        "collapse", "CollapsingMergeTree(sign)", "(1, 5, 1, 'a')", "(1, 5, -1, 'a'), (1, 6, 1, 'b')", "(2, 1, -1, '')"
    )
    table.merge(pa.table({"k": [1, 2], "v": [50, 60], "sign": [1, 1], "s": ["x", "y"]}), on=["k"])
    assert shown(db, SHOWN) == [(1, 50), (2, 60)]
    with pytest.raises(MergelakeError, match="Sign = 0"):
        table.merge(pa.table({"k": [1], "v": [7]}), on=["k"])
    assert shown(db, SHOWN) == [(1, 50), (2, 60)]


def test_rows_that_sum_to_nothing_do_not_take_part() -> None:
    db, table = database("sums", "SummingMergeTree((v))", "(1, 5, 1, 'old'), (2, 5, 1, 'kept')", "(1, -5, 1, 'old')")
    table.merge(pa.table({"k": [1, 2], "v": [3, 4], "sign": [1, 1], "s": ["new", "new"]}), on=["k"])
    assert shown(db, "SELECT k, v, s FROM t FINAL ORDER BY k") == [(1, 3, "new"), (2, 4, "new")]


def test_an_update_of_a_sum_is_of_the_whole() -> None:
    db, table = database("whole", "SummingMergeTree((v))", "(1, 5, 1, 'a')", "(1, 7, 1, 'b')")
    table.update({"v": "v * 10"}, "v > 5")
    assert shown(db, SHOWN) == [(1, 75)]
    db.sql("OPTIMIZE TABLE t FINAL")
    assert shown(db, "SELECT k, v, s FROM t") == [(1, 75, "a")]
    table.delete("v = 75")
    assert shown(db, "SELECT count() FROM t FINAL") == [(0,)]


def test_a_query_of_one_column_removes_what_a_merge_would() -> None:
    db, _ = database("part", "SummingMergeTree", "(1, 0, 1, 'a')", "(2, 0, 0, 'b'), (3, 4, 0, 'c')", "(3, -4, 0, 'c')")
    for _ in range(2):
        assert shown(db, "SELECT v FROM t FINAL") == [(0,)]
        assert shown(db, "SELECT count(), any(s) FROM t FINAL WHERE v = 0") == [(1, "a")]
        db.sql("OPTIMIZE TABLE t FINAL")
