"""INSERT … SELECT of an open result: rows are written as ClickHouse makes them, in one commit or not at all."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.api.sql import insert_select
from mergelake.core.base.errors import MergelakeError
from mergelake.query.embedded import streamed

pytestmark = pytest.mark.chdb
ROWS = 100_000


@pytest.fixture
def db(tmp_path, monkeypatch: pytest.MonkeyPatch) -> ml.Database:
    monkeypatch.setattr(streamed, "AHEAD_BYTES", 1 << 16)
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (k UInt32, s Nullable(String), d Dynamic, j JSON) ENGINE = MergeTree ORDER BY k")
    return db


def rows_of(number: str = "number") -> str:
    return (
        f"SELECT {number}, if(number % 3 = 0, NULL, toString(number)), multiIf(number % 4 = 0, number::Dynamic, "
        "number % 4 = 1, toString(number)::Dynamic, number % 4 = 2, [toDate('2026-01-01')]::Dynamic, NULL), "
        """concat('{"a": ', toString(number), if(number % 2 = 0, ', "b": "x"', ''), '}')::JSON """
        f"FROM numbers({ROWS})"
    )


def test_all_rows_come_in_one_commit_and_keep_their_types(db: ml.Database) -> None:
    before = db.table("t").snapshot().version
    db.sql(f"INSERT INTO t {rows_of()}")
    assert db.table("t").snapshot().version == before + 1
    asked = "SELECT count(), sum(k), count(s), sum(j.a.:Int64), countIf(j.b = 'x') FROM t"
    assert db.sql(asked).rows() == [
        (ROWS, ROWS * (ROWS - 1) // 2, ROWS - (ROWS + 2) // 3, ROWS * (ROWS - 1) // 2, ROWS // 2)
    ]
    kinds = db.sql("SELECT dynamicType(d) AS kind, count() FROM t GROUP BY kind ORDER BY kind").rows()
    assert kinds == [("Array(Date)", ROWS // 4), ("None", ROWS // 4), ("String", ROWS // 4), ("UInt64", ROWS // 4)]


def test_the_result_was_open(db: ml.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    real = insert_select.as_targets
    monkeypatch.setattr(insert_select, "as_targets", lambda found, t: pieces.append(found.num_rows) or real(found, t))
    db.sql(f"INSERT INTO t {rows_of()}")
    assert len(pieces) > 2
    assert sum(pieces) == ROWS


@pytest.mark.parametrize("late", [f"number + {2**32 - ROWS + 1}", f"throwIf(number = {ROWS - 1}) + number"])
def test_a_row_at_the_end_that_does_not_fit_leaves_nothing(db: ml.Database, late: str) -> None:
    before = [meta.key for meta in db.warehouse.store.list("")]
    with pytest.raises(MergelakeError) as failed:
        db.sql(f"INSERT INTO t {rows_of(late)}")
    assert failed.value.name in ("CANNOT_CONVERT_TYPE", "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO")
    assert [meta.key for meta in db.warehouse.store.list("")] == before
    assert db.sql("SELECT count() FROM t").scalar() == 0


def test_a_table_may_be_read_while_it_is_written(db: ml.Database) -> None:
    db.sql(f"INSERT INTO t {rows_of()}")
    db.sql("INSERT INTO t SELECT * FROM t")
    assert db.sql("SELECT count(), sum(k) FROM t").rows() == [(2 * ROWS, ROWS * (ROWS - 1))]


def test_no_rows_are_no_commit(db: ml.Database) -> None:
    before = db.table("t").snapshot().version
    db.sql(f"INSERT INTO t SELECT * FROM ({rows_of()}) WHERE 0")
    assert db.table("t").snapshot().version == before
