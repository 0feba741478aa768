"""Parts with pending mutations that ClickHouse reads itself: how, and the same rows as by a scan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column
from mergelake.core.types.types import parse_type
from mergelake.log.model.operations import AlterMetadata, KillMutation
from mergelake.query import in_place
from mergelake.query.attach import attached
from mergelake.query.select import run_select
from tests.helpers.attached import attach_at_once

PLAIN = "SETTINGS min_bytes_for_full_part_storage = 0"


@pytest.fixture(autouse=True)
def at_once(monkeypatch) -> None:
    attach_at_once(monkeypatch)


@pytest.fixture
def db(tmp_path: Path) -> Database:
    db = connect(str(tmp_path / "warehouse"))
    columns = "k UInt64, v Int64, s LowCardinality(String), n Nullable(Int32), m Int64 MATERIALIZED v * 2"
    db.sql(
        f"CREATE TABLE t ({columns}, INDEX i s TYPE set(10)) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k {PLAIN}"
    )
    for number in range(2):
        db.sql(
            f"INSERT INTO t SELECT number * 2 + {number} AS a, number, ['x', 'y', 'z'][1 + number % 3], "
            "if(number % 4, number, NULL) FROM numbers(100)"
        )
    return db


def _how(db: Database, sql: str) -> str:
    return run_select(sql, db.resolver(), db.context()).stats.reason


def _explained(db: Database, sql: str) -> str:
    return "\n".join(row[0] for row in db.sql(f"EXPLAIN {sql}").rows())


def _same(db: Database, sql: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The rows, which ClickHouse itself reads, and a scan too."""
    assert _how(db, sql) == in_place.READS_ITSELF
    found = db.sql(sql).rows()
    with monkeypatch.context() as patch:
        patch.setattr(attached, "ROWS_MIN", 1 << 60)
        assert _how(db, sql) != in_place.READS_ITSELF
        assert db.sql(sql).rows() == found
    return found


def test_the_first_statement_after_a_mutation_reads_what_was_attached_before(db: Database, monkeypatch) -> None:
    monkeypatch.setattr(attached, "SCANNED_FIRST", 1)
    hows = [_how(db, "SELECT sum(v) FROM t") for _ in range(2)]
    attached.SETS.settle()
    held = len(attached.SETS)
    db.table("t").update({"v": "v + 1000"}, "s = 'y'")
    db.table("t").delete("n IS NULL", partition_id="1")
    hows.append(_how(db, "SELECT sum(v) FROM t"))
    assert [how == in_place.READS_ITSELF for how in hows] == [False, True, True]
    assert len(attached.SETS) == held
    assert "Mutations applied on reading: 3, 4" in _explained(db, "SELECT sum(v) FROM t")
    monkeypatch.setattr(attached, "ROWS_MIN", 1 << 60)
    assert "Mutations applied on reading: 3, 4" in _explained(db, "SELECT sum(v) FROM t")


def test_rows_are_those_of_a_scan(db: Database, monkeypatch) -> None:
    table = db.table("t")
    table.update({"v": "k", "s": "concat(s, '!')"}, "n % 3 = 1")
    table.update({"n": "NULL"}, "s = 'y!'")
    table.delete("s = 'x' AND v < 50")
    db.sql("INSERT INTO t VALUES (7, 1, 'x', 1), (8, 2, 'y!', 4)")  # lacks nothing
    table.update({"n": "toInt32(m)"}, "k IN (7, 9)", partition_id="1")
    for sql in (
        "SELECT *, m FROM t ORDER BY k, v",
        "SELECT s, count(), sum(n) FROM t WHERE n > 3 GROUP BY s ORDER BY s",
        "SELECT count() FROM t",
        "SELECT count(), min(k), max(k) FROM t WHERE k < 50",
        "SELECT k FROM t WHERE s = 'y!' ORDER BY k DESC LIMIT 3",  # which the index does not know
        "SELECT k, n.null, _partition_id, _part_offset FROM t ORDER BY k, v LIMIT 5",
        "SELECT a.k, b.v FROM t AS a JOIN t AS b ON a.v = b.v WHERE b.s = 'y!' ORDER BY ALL",
        "SELECT k FROM t WHERE v IN (SELECT n FROM t WHERE s != 'y') ORDER BY k LIMIT 2 BY s",
    ):
        assert _same(db, sql, monkeypatch)


def test_versions_stay_apart(db: Database, monkeypatch) -> None:
    before = db.table("t").update({"v": "1"}, "k < 10")
    after = db.table("t").delete("v = 1")
    sql = f"SELECT count(), (SELECT count() FROM t AS OF VERSION {before} WHERE v = 1), (SELECT sum(v) FROM t AS OF "
    found = _same(db, f"{sql} VERSION {before - 1} WHERE k < 10) FROM t AS OF VERSION {after}", monkeypatch)
    assert found == [(190, 10, 20)]
    table = db.table("t")
    (_, last) = table.snapshot().mutations
    table.handle.log.commit(lambda _: [KillMutation(last.id)])
    assert _same(db, "SELECT count() FROM t WHERE k >= 0", monkeypatch) == [(200,)]


def test_what_was_written_down_is_read_as_it_is(db: Database, monkeypatch) -> None:
    table = db.table("t")
    db.sql("SELECT sum(v) FROM t")
    table.delete("k < 20")
    table.apply_mutations()  # into a mask
    table.update({"v": "-1"}, "k = 1")  # no row any more
    table.update({"v": "5"}, "k = 44")
    assert _same(db, "SELECT count(), min(v) FROM t WHERE k != 22", monkeypatch) == [(179, 5)]
    table.apply_mutations()
    assert _same(db, "SELECT count(), sum(v = 5) FROM t WHERE k != 22", monkeypatch) == [(179, 1)]
    names = sorted(str(part.info) for part in table.snapshot().parts)
    assert _same(db, "SELECT DISTINCT _part FROM t ORDER BY _part", monkeypatch) == [(name,) for name in names]


def test_final_chooses_among_the_rows_that_are_left(tmp_path: Path, monkeypatch) -> None:
    db = connect(str(tmp_path / "warehouse"))
    db.sql(
        f"CREATE TABLE r (k UInt32, ver UInt32, v Int32, j JSON) ENGINE = ReplacingMergeTree(ver) ORDER BY k {PLAIN}"
    )
    for ver in (1, 2):
        db.sql(f"INSERT INTO r SELECT number, {ver}, number * 10 + {ver}, '{{}}' FROM numbers(20)")
    db.table("r").update({"v": "v + 1000"}, "v % 10 = 2 AND k < 5")
    db.table("r").delete("v > 1020 OR k = 7")
    sql = "SELECT k, ver, v FROM r FINAL WHERE k < 9 ORDER BY k"
    expected = [(0, 2, 1002), (1, 2, 1012), (2, 1, 21), (3, 1, 31), (4, 1, 41), (5, 2, 52), (6, 2, 62), (8, 2, 82)]
    assert _same(db, sql, monkeypatch) == expected
    early = "SELECT k, v FROM r FINAL PREWHERE v < 1005 WHERE k < 3 ORDER BY k"  # only ClickHouse can
    assert db.sql(early).rows() == [(0, 1002), (1, 11), (2, 21)]
    assert db.sql("SELECT k, j FROM r FINAL WHERE k IN (3, 7)").rows() == [(3, "{}")]
    with pytest.raises(MergelakeError, match="a setting may change the meaning"):
        db.sql(f"{early} SETTINGS apply_prewhere_after_final = 1")


def test_a_column_that_parts_lack_is_computed_from_values_before(db: Database, monkeypatch) -> None:
    table = db.table("t")
    extra = (
        Column(20, "d", parse_type("Int64"), "DEFAULT", "v + 5"),
        Column(21, "e", parse_type("Array(LowCardinality(String))")),
    )

    def wider(state):
        return [AlterMetadata(replace(state.schema, columns=(*state.schema.columns, *extra), version=2))]

    table.handle.log.commit(wider)
    table.update({"v": "100000", "e": "[toString(d)]"}, "k = 6")
    table.update({"d": "d * 2"}, "has(e, '8')")
    db.sql("INSERT INTO t (k, v, s, d) VALUES (1000, 1, 'x', 77)")
    found = _same(db, "SELECT k, v, d, e FROM t WHERE k IN (4, 6, 1000) ORDER BY k", monkeypatch)
    assert found == [(4, 2, 7, []), (6, 100000, 16, ["8"]), (1000, 1, 77, [])]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("cast_keep_nullable = 1", "a setting may change the meaning of its pending mutations"),
        ("max_threads = 1", ""),
    ],
)
def test_commands_mean_the_same_whatever_is_set(db: Database, setting: str, reason: str) -> None:
    db.table("t").update({"v": "n"}, "n > 5")
    for sql in (f"SELECT sum(v) FROM t SETTINGS {setting}", f"SELECT * FROM (SELECT sum(v) FROM t) SETTINGS {setting}"):
        assert (_how(db, sql) != in_place.READS_ITSELF) == bool(reason)
        assert reason in _explained(db, sql)


@pytest.mark.parametrize("value", ["0", "DEFAULT"])
def test_mutations_are_always_applied(db: Database, value: str) -> None:
    with pytest.raises(MergelakeError, match="apply_mutations_on_fly"):
        db.sql(f"SELECT sum(v) FROM t SETTINGS apply_mutations_on_fly = {value}")
    assert db.sql("SELECT sum(v) FROM t SETTINGS apply_mutations_on_fly = 1").scalar() == 9900


def test_errors_of_rows_that_a_scan_does_not_meet(db: Database) -> None:
    db.table("t").delete("v = 0")
    query = "SELECT sum(intDiv(10, v)) FROM t WHERE intDiv(100, v) >= 1"
    expected = db.sql("SELECT sum(intDiv(10, v)) FROM t AS OF VERSION 3 WHERE v BETWEEN 1 AND 100").scalar()
    assert db.sql(query).scalar() == expected
    db.table("t").update({"v": "toInt64(s)"}, "k = 4")  # 'z' is no number
    with pytest.raises(MergelakeError, match="Cannot parse") as raised:
        db.sql("SELECT sum(v) FROM t")
    assert raised.value.name == "CANNOT_PARSE_TEXT"
    assert db.sql("SELECT sum(k) FROM t").scalar() == sum(range(2, 200))


def test_commands_that_depend_on_each_other_too_often_are_scanned(db: Database) -> None:
    for number in range(12):
        db.table("t").update({"v": f"v + {number}"}, "v % 3 = 1")
    assert "its pending mutations are applied by a scan" in _explained(db, "SELECT sum(v) FROM t")
    assert _how(db, "SELECT sum(k) FROM t") == in_place.READS_ITSELF


def test_odd_names(tmp_path: Path, monkeypatch) -> None:
    db = connect(str(tmp_path / "warehouse"))
    columns = "k UInt8, `we ird` Int8, `x.y` Int32, _view Tuple(k Int8), `from` String, al Int32 ALIAS `x.y` * 2"
    db.sql(f"CREATE TABLE o ({columns}) ENGINE = MergeTree ORDER BY k {PLAIN}")
    db.sql("INSERT INTO o SELECT number, number, number, tuple(9), 'it''s' FROM numbers(9)")
    db.table("o").update({"we ird": "`x.y` + _view.k", "x.y": "-al"}, "al > 4 AND `from` != 'x'")
    db.table("o").update({"from": "concat(`from`, '\\'\\\\', toString(`we ird`))"}, "`x.y` < 0")
    found = _same(db, "SELECT k, `we ird`, `x.y`, `from`, _view.k, al FROM o WHERE k < 4 ORDER BY k", monkeypatch)
    assert found[3] == (3, 12, -6, "it's'\\12", 9, -12)
