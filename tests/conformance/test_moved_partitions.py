"""Partitions that came from another table, read in every way: with mutations that they lack, from before an ALTER, by
ClickHouse itself, merged with others, and published."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from tests.helpers.attached import attach_at_once

TABLE = "(p UInt8, k Int64, s String, d Int64) ENGINE = MergeTree PARTITION BY p ORDER BY k"
SETTINGS = ("min_bytes_for_wide_part = 0", "min_bytes_for_wide_part = 1000000", "min_bytes_for_full_part_storage = 0")


def rows(db: ml.Database, table: str) -> list[tuple[Any, ...]]:
    """By a scan, in order."""
    names = ["p", "k", "s", "d"]
    found = db.table(table).scan(names).arrow().select(names)
    return sorted(tuple(row.values()) for row in found.to_pylist())


# M-090
@pytest.mark.parametrize("seed", range(1, 3))
def test_rows_that_moved_are_read_alike_in_every_way(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, oracle: Any
) -> None:
    attach_at_once(monkeypatch)
    draw = random.Random(seed)
    db = ml.connect(str(tmp_path))
    for name in "abc":
        db.sql(f"CREATE TABLE {name} {TABLE} SETTINGS {draw.choice(SETTINGS)}")
    expected: dict[str, dict[tuple[int, int], tuple[str, int]]] = {name: {} for name in "abc"}
    keys = iter(range(10_000))
    for step in range(14):
        name, other = draw.sample("abc", 2)
        p, held = draw.randrange(3), expected[name]
        new_there = not {at for at in held if at[0] == p} & expected[other].keys()
        match draw.choice(["insert", "insert", "update", "update in", "delete", "move", "move", "attach", "merge"]):
            case "insert":
                new = [(draw.randrange(3), next(keys)) for _ in range(3)]
                db.sql(f"INSERT INTO {name} VALUES " + ", ".join(f"({q}, {k}, 'n', {step})" for q, k in new))
                held |= dict.fromkeys(new, ("n", step))
            case "update":
                db.sql(f"ALTER TABLE {name} UPDATE d = d + 1, s = concat(s, 'u') WHERE k % 2 = 0")
                held |= {at: (s + "u", d + 1) for at, (s, d) in held.items() if at[1] % 2 == 0}
            case "update in":
                db.sql(f"ALTER TABLE {name} UPDATE d = -d IN PARTITION {p} WHERE 1")
                held |= {at: (s, -d) for at, (s, d) in held.items() if at[0] == p}
            case "delete":
                db.sql(f"DELETE FROM {name} WHERE k % 5 = {step % 5}")
                for at in [at for at in held if at[1] % 5 == step % 5]:
                    del held[at]
            case "move" if new_there:
                db.sql(f"ALTER TABLE {name} MOVE PARTITION {p} TO TABLE {other}")
                expected[other] |= {at: row for at, row in held.items() if at[0] == p}
                for at in [at for at in held if at[0] == p]:
                    del held[at]
            case "attach" if new_there:
                db.sql(f"ALTER TABLE {other} ATTACH PARTITION {p} FROM {name}")
                expected[other] |= {at: row for at, row in held.items() if at[0] == p}
            case _:
                db.sql(f"OPTIMIZE TABLE {name}" + draw.choice(["", " FINAL"]))
        for each, wanted in expected.items():
            listed = sorted((*at, *row) for at, row in wanted.items())
            assert db.sql(f"SELECT p, k, s, d FROM {each} ORDER BY p, k").rows() == listed, (step, each)
            assert rows(db, each) == listed, (step, each)


def test_parts_from_before_an_alter_bring_their_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attach_at_once(monkeypatch)
    db = ml.connect(str(tmp_path))
    engine = "ENGINE = MergeTree PARTITION BY p ORDER BY k"
    db.sql(f"CREATE TABLE a (p UInt8, k UInt64, old String, x Int32, gone UInt8) {engine}")
    db.sql("INSERT INTO a VALUES (1, 1, 'one', 5, 7)")
    db.sql("ALTER TABLE a UPDATE x = x + 10 WHERE k = 1")
    db.sql("ALTER TABLE a RENAME COLUMN old TO s, DROP COLUMN gone, ADD COLUMN n UInt8 DEFAULT 3")
    db.sql("INSERT INTO a VALUES (1, 2, 'two', 6, 4)")
    # The same columns under other ids, in another order.
    db.sql(f"CREATE TABLE b (n UInt8 DEFAULT 3, gone2 UInt8, x Int32, s String, k UInt64, p UInt8) {engine}")
    db.sql("ALTER TABLE b DROP COLUMN gone2")
    db.sql("INSERT INTO b (p, k, s, x) VALUES (1, 9, 'nine', 0)")
    wanted = [(1, 1, "one", 15, 3), (1, 2, "two", 6, 4), (1, 9, "nine", 0, 3)]
    before = db.warehouse.store.counters
    db.sql("ALTER TABLE a MOVE PARTITION 1 TO TABLE b")
    spent = db.warehouse.store.counters - before
    assert spent.put == 3
    for reader in (db, ml.connect(str(tmp_path))):
        assert reader.sql("SELECT p, k, s, x, n FROM b ORDER BY k").rows() == wanted
        assert sorted(reader.table("b").scan(["p", "k", "s", "x", "n"])) == wanted
        assert reader.sql("SELECT count() FROM a").rows() == [(0,)]
    assert db.table("b").schema.names == ("n", "x", "s", "k", "p")
    db.sql("OPTIMIZE TABLE b FINAL")
    assert db.sql("SELECT p, k, s, x, n FROM b ORDER BY k").rows() == wanted
    assert all(db.table("b").check()["is_passed"].to_pylist())
    # The way back, of what was merged there; the objects lie in b's directory now.
    db.sql("ALTER TABLE b MOVE PARTITION 1 TO TABLE a")
    assert db.sql("SELECT p, k, s, x, n FROM a ORDER BY k").rows() == wanted


def test_types_and_indexes_that_were_changed_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attach_at_once(monkeypatch)
    db = ml.connect(str(tmp_path))
    engine = "ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 2"
    db.sql(f"CREATE TABLE a (k UInt64, v Int32, INDEX i v TYPE minmax GRANULARITY 1) {engine}")
    db.sql("INSERT INTO a SELECT number, number % 5 FROM numbers(8)")
    db.sql("ALTER TABLE a DROP INDEX i, ADD INDEX i k % 3 TYPE minmax GRANULARITY 1, MODIFY COLUMN v Int64")
    db.sql(f"CREATE TABLE b (k UInt64, v Int64, INDEX i k % 3 TYPE minmax GRANULARITY 1) {engine}")
    db.sql("INSERT INTO b SELECT number, 10 FROM numbers(8)")
    before = db.warehouse.store.counters
    db.sql("ALTER TABLE b ATTACH PARTITION tuple() FROM a")
    assert (db.warehouse.store.counters - before).put == 3
    for condition in ("k % 3 = 2", "v = 4", "v < 10", "k = 7", "1"):
        wanted = [(k, v) for k in range(8) for v in sorted((k % 5, 10))]
        wanted = [(k, v) for k, v in wanted if eval(condition.replace(" = ", " == "), {"k": k, "v": v})]
        for reader in (db, ml.connect(str(tmp_path))):
            assert reader.sql(f"SELECT k, v FROM b WHERE {condition} ORDER BY k, v").rows() == wanted, condition
            assert sorted(reader.table("b").scan(["k", "v"], condition)) == wanted, condition
    db.sql("ALTER TABLE a MODIFY COLUMN v UInt8")
    db.sql("ALTER TABLE a MODIFY COLUMN v Int64")
    with pytest.raises(ml.MergelakeError, match="of before") as caught:
        db.sql("ALTER TABLE b ATTACH PARTITION tuple() FROM a")
    assert caught.value.name == "NOT_IMPLEMENTED"
    db.sql("OPTIMIZE TABLE a FINAL")
    db.sql("ALTER TABLE b REPLACE PARTITION tuple() FROM a")
    assert db.sql("SELECT k, v FROM b ORDER BY k").rows() == [(k, k % 5) for k in range(8)]


def test_projections_and_times_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests name both by the ids of columns, which are others in the other table."""
    db = ml.connect(str(tmp_path))
    more = "PROJECTION pr (SELECT k, s ORDER BY s)) ENGINE = MergeTree ORDER BY k TTL t + INTERVAL 100 YEAR"
    db.sql(f"CREATE TABLE a (k UInt64, s String, t DateTime, u DateTime, {more}")
    db.sql(f"CREATE TABLE b (u DateTime, t DateTime, s String, k UInt64, {more}")
    db.sql("INSERT INTO a SELECT number, toString(number % 7), 2000000000, 1 FROM numbers(100)")
    db.sql("INSERT INTO b (k, s, t, u) SELECT number, 'x', 2000000000, 1 FROM numbers(100)")
    db.sql("ALTER TABLE a MOVE PARTITION tuple() TO TABLE b")
    own, came = (part.manifest for part in db.table("b").handle.log.state.parts())
    assert came.projections.keys() == own.projections.keys() == {"pr"}
    assert came.projections["pr"].digest == own.projections["pr"].digest
    assert came.ttl == own.ttl
    db.sql("OPTIMIZE TABLE b FINAL")
    assert db.sql("SELECT count(), sum(k), uniqExact(s) FROM b").rows() == [(200, 9900, 8)]
    assert all(db.table("b").check()["is_passed"].to_pylist())


def test_a_default_that_differs_is_refused_where_parts_lack_the_column(tmp_path: Path) -> None:
    db = ml.connect("memory://")
    for name, default in (("a", 1), ("b", 2)):
        db.sql(f"CREATE TABLE {name} (k UInt64) ENGINE = MergeTree ORDER BY k")
        db.sql(f"INSERT INTO {name} VALUES (1)")
        db.sql(f"ALTER TABLE {name} ADD COLUMN n UInt8 DEFAULT {default}")
    versions = [db.table(name).version for name in "ab"]
    with pytest.raises(ml.MergelakeError, match="lack column n") as caught:
        db.sql("ALTER TABLE a MOVE PARTITION tuple() TO TABLE b")
    assert caught.value.name == "INCOMPATIBLE_COLUMNS"
    assert [db.table(name).version for name in "ab"] == versions


def test_published_tables_follow_on_both_sides(tmp_path: Path, oracle: Any) -> None:
    db = ml.connect(str(tmp_path))
    for name in "ab":
        db.sql(f"CREATE TABLE {name} {TABLE}")
        db.sql(f"INSERT INTO {name} VALUES (1, {ord(name)}, 'x', 1), (2, {ord(name)}, 'y', 2)")
        db.table(name).publish()
        oracle.query(f"DROP TABLE IF EXISTS default.moved_{name} SYNC")
        oracle.query(db.table(name).attach_statement(f"default.moved_{name}", show_secrets=True))
    db.sql("ALTER TABLE a UPDATE d = 10 WHERE 1")

    def follows() -> None:
        for name in "ba":
            db.table(name).apply_mutations()
            db.table(name).publish()
        for name in "ab":
            wanted = rows(db, name)
            deadline = time.monotonic() + 30
            query = f"SELECT p, k, s, d FROM default.moved_{name} ORDER BY p, k"
            while (found := str(oracle.query(query, "TSV"))) != "".join(
                f"{p}\t{k}\t{s}\t{d}\n" for p, k, s, d in wanted
            ):
                assert time.monotonic() < deadline, (name, found, wanted)
                time.sleep(0.1)

    for statement in (
        "ALTER TABLE a MOVE PARTITION 1 TO TABLE b",
        "ALTER TABLE a REPLACE PARTITION 2 FROM b",
        "ALTER TABLE a ATTACH PARTITION 1 FROM b",
        "ALTER TABLE b MOVE PARTITION 2 TO TABLE a",
    ):
        db.sql(statement)
        follows()
        db.sql("OPTIMIZE TABLE a FINAL")
    follows()
    for name in "ab":
        oracle.query(f"DROP TABLE IF EXISTS default.moved_{name} SYNC")
