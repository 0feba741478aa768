"""Snapshots that ClickHouse reads itself: which are, that nothing is ever written, and that versions stay apart."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column
from mergelake.core.types.types import parse_type
from mergelake.query import in_place, part_set, table_source
from mergelake.query.attach import attached, attaching
from mergelake.query.attach.attached import AttachedSets
from mergelake.query.attach.attaching import DATABASE
from mergelake.query.attach.reused_names import differs
from mergelake.query.embedded import engine, progress
from mergelake.query.part_set import PartSet
from mergelake.query.select import run_select
from tests.helpers.attached import attach_at_once

PLAIN = "SETTINGS min_bytes_for_full_part_storage = 0"


@pytest.fixture(autouse=True)
def at_once(monkeypatch) -> None:
    attach_at_once(monkeypatch)


@pytest.fixture
def db(tmp_path: Path) -> Database:
    db = connect(str(tmp_path / "warehouse"))
    columns = "k UInt64, s String DEFAULT 'x', v UInt8 MATERIALIZED k % 7"
    db.sql(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY k {PLAIN}")
    for number in range(3):
        db.sql(f"INSERT INTO t (k, s) SELECT number * 3 + {number}, toString(number) FROM numbers(100)")
    return db


def _parts(db: Database, name: str = "t", version: int | None = None) -> PartSet:
    table = db.table(name)
    snapshot = table.snapshot(version)
    return PartSet(table.handle.store, table.handle.directory, snapshot.schema, snapshot.parts, table.env.caches)


def _reason(db: Database, name: str = "t") -> str:
    """Why it is scanned; empty if it is not."""
    told = [row[0] for row in db.sql(f"EXPLAIN SELECT sum(k) FROM {name}").rows()]
    scanned = [line for line in told if line.startswith(f"Scan of {name}")]
    return scanned[0] if scanned else ""


def _how(db: Database, sql: str) -> str:
    return run_select(sql, db.resolver(), db.context()).stats.reason


def _objects(db: Database) -> dict[str, str]:
    root = Path(db.warehouse.url)
    return {str(p.relative_to(root)): hashlib.md5(p.read_bytes()).hexdigest() for p in root.rglob("*") if p.is_file()}


def test_a_table_in_plain_files_is_read_by_clickhouse_itself(db: Database) -> None:
    assert _reason(db) == ""
    assert _how(db, "SELECT sum(k) FROM t") == in_place.READS_ITSELF
    assert (
        db.sql("SELECT sum(k), max(v), uniq(_part) FROM t WHERE s < '5'").rows()
        == db.sql("SELECT sum(k), max(v), uniq(_part) FROM (SELECT *, v, _part FROM t) WHERE s < '5'").rows()
    )
    told = "\n".join(row[0] for row in db.sql("EXPLAIN indexes = 1 SELECT sum(k) FROM t WHERE k = 5").rows())
    assert "ReadFromMergeTree (t)" in told
    assert "PrimaryKey" in told
    assert DATABASE not in told


def test_of_packed_parts_the_files_are_copied_once(db: Database, monkeypatch) -> None:
    db.sql("CREATE TABLE p (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    for number in range(3):
        db.sql(f"INSERT INTO p SELECT number + {number}, 'a' FROM numbers(10)")
    sets = AttachedSets(sets_max=1)
    for version, rows in ((3, 20), (4, 30), (3, 20)):
        parts = _parts(db, "p", version)
        with sets.using(parts, exact=True) as reading:
            ((name, _),) = reading.tables
            assert engine.run(f"SELECT count() FROM {name} WHERE s = 'a'").table()[0].to_pylist() == [rows]
        copies = [path.name for path in attaching._root().glob("copies/*")]
        assert parts.ids <= set(copies)
    assert _parts(db, "p", 4).parts[2].manifest.id not in copies
    monkeypatch.setattr(attaching, "COPIED_MAX", 10)
    db.sql("INSERT INTO p SELECT number, 'b' FROM numbers(5)")
    before = attaching.endpoint().requests
    assert db.sql("SELECT sum(k), max(s) FROM p AS OF VERSION 4").rows() == [(45 * 3 + 30, "a")]
    with sets.using(_parts(db, "p"), exact=True) as reading:
        ((name, _),) = reading.tables
        assert engine.run(f"SELECT count() FROM {name} WHERE s = 'b'").table()[0].to_pylist() == [5]
    assert attaching.endpoint().requests > before


@pytest.mark.parametrize("name", ["with space", "q'uote", "ünï", "per%20cent"])
def test_a_warehouse_may_lie_anywhere(tmp_path: Path, name: str) -> None:
    db = connect(str(tmp_path / name))
    db.sql(f"CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k {PLAIN}")
    db.sql("INSERT INTO t VALUES (1), (2)")
    assert (_how(db, "SELECT sum(k) FROM t"), db.sql("SELECT sum(k) FROM t").scalar()) == (in_place.READS_ITSELF, 3)


@pytest.mark.parametrize("url", ["back\\slash", "memory://attached"])
def test_what_clickhouse_cannot_name_is_served(tmp_path: Path, url: str, monkeypatch) -> None:
    monkeypatch.setattr(attaching, "COPIED_MAX", -1)
    db = connect(url if "://" in url else str(tmp_path / url))
    db.sql("CREATE TABLE t (k UInt64, s LowCardinality(String)) ENGINE = MergeTree ORDER BY k PARTITION BY k % 2")
    for _ in range(3):
        db.sql("INSERT INTO t SELECT number, toString(number % 3) FROM numbers(20000)")
    assert _how(db, "SELECT s, count() FROM t WHERE k > 10 GROUP BY s") == in_place.READS_ITSELF
    served, got = attaching.endpoint().requests, db.warehouse.store.counters.get
    assert db.sql("SELECT sum(k), uniqExact(s) FROM t").rows() == [(3 * 19999 * 10000, 3)]
    # The parts are small: all of their bytes were fetched once, and are kept.
    assert attaching.endpoint().requests > served
    assert db.warehouse.store.counters.get - got <= 3  # of the log


def test_a_version_is_attached_for_the_second_statement_on_it(db: Database, monkeypatch) -> None:
    monkeypatch.setattr(attached, "SCANNED_FIRST", 1)
    for _ in range(2):
        told = "\n".join(row[0] for row in db.sql("EXPLAIN SELECT sum(k) FROM t").rows())
        assert "Scan of t (the first statement on this version)" in told
    hows = [_how(db, "SELECT sum(k) FROM t") == in_place.READS_ITSELF for _ in range(3)]
    db.sql("INSERT INTO t (k) VALUES (1)")
    hows += [_how(db, "SELECT sum(k) FROM t") == in_place.READS_ITSELF for _ in range(2)]
    assert hows == [False, True, True, True, True]  # the newest part is scanned beside the others
    monkeypatch.setattr(attached, "PARTS_MAX", 3)
    assert "it has 4 parts" in _reason(db)
    monkeypatch.setattr(attached, "ROWS_MIN", 302)
    assert "fewer than 302 rows" in _reason(db)


def test_nothing_is_written_whatever_is_asked_of_an_attached_table(db: Database) -> None:
    before = _objects(db)
    sets = AttachedSets()
    with sets.using(_parts(db)) as reading:
        ((name, _),) = reading.tables
        rows = engine.run(f"SELECT * FROM {name} ORDER BY ALL").table()
        for statement in (
            f"INSERT INTO {name} (k) VALUES (1)",
            f"OPTIMIZE TABLE {name} FINAL",
            f"ALTER TABLE {name} DELETE WHERE 1 SETTINGS mutations_sync = 2",
            f"ALTER TABLE {name} UPDATE s = 'y' WHERE 1 SETTINGS mutations_sync = 2",
            f"DELETE FROM {name} WHERE 1",
            f"ALTER TABLE {name} DROP PARTITION tuple()",
            f"ALTER TABLE {name} DETACH PARTITION tuple()",
            f"ALTER TABLE {name} FREEZE",
            f"ALTER TABLE {name} DROP COLUMN s",
            f"TRUNCATE TABLE {name}",
        ):
            with pytest.raises(MergelakeError):
                engine.run(statement)
            assert _objects(db) == before, statement
        assert engine.run(f"SELECT * FROM {name} ORDER BY ALL").table() == rows
        engine.run(f"RENAME TABLE {name} TO {name}_moved")
        engine.run(f"DROP TABLE {name}_moved SYNC")
        assert _objects(db) == before


def test_sets_go_when_others_were_asked_for_and_those_in_use_stay(db: Database) -> None:
    sets = AttachedSets(sets_max=2)
    versions = [_parts(db, version=version) for version in (2, 3, 4)]
    used = []
    with sets.using(versions[0], exact=True) as reading:
        ((first, _),) = reading.tables
        for parts in versions:
            with sets.using(parts, exact=True) as reading:
                ((name, _),) = reading.tables
                used.append(name)
                assert engine.run(f"SELECT count() FROM {name}").table().column(0).to_pylist() == [parts.rows]
        assert len(sets) == 2
        assert engine.run(f"SELECT count() FROM {first}").table().column(0).to_pylist() == [100]
    folder = engine.folder()
    assert folder is not None
    there = engine.run(f"SELECT name FROM system.tables WHERE database = '{DATABASE}'").table().column(0).to_pylist()
    laid_out = {path.name.replace("-", "") for path in (folder / "mergelake-attached" / "files" / "store").glob("*/*")}
    for each, stays in zip(used, (True, False, True), strict=True):
        name = each.removeprefix(f"{DATABASE}.")
        assert (name in there, name[1:] in laid_out) == (stays, stays)


def test_each_statement_sees_its_own_version(db: Database) -> None:
    def counted(version: int) -> int:
        return int(db.sql(f"SELECT uniqExact(k) FROM t AS OF VERSION {version}").rows()[0][0])

    expected = [counted(version) for version in (2, 3, 4)]
    assert expected == sorted(set(expected))
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(counted, [2, 3, 4] * 6))
    assert found == expected * 6


def _renamed(column: Column) -> Column:
    return replace(column, name="r")


def _again(column: Column) -> Column:
    return replace(column, id=99)


def _retyped(column: Column) -> Column:
    return replace(column, type=parse_type("LowCardinality(String)"))


@pytest.mark.parametrize("change", [_renamed, _again, _retyped, None])
def test_a_name_that_means_another_column_than_in_the_parts_is_scanned(db: Database, change) -> None:
    table = db.table("t")
    snapshot = table.snapshot()
    k, s, *others = snapshot.schema.columns
    newest = replace(snapshot.schema, version=2, columns=(k, *([change(s)] if change else ()), *others))
    told = differs(newest, {**snapshot.schemas, 2: newest}, frozenset({1}))
    assert told == ("column s was another one when parts were written" if change else "")


def test_what_clickhouse_does_not_take_is_scanned_and_not_tried_again(db: Database, monkeypatch, caplog) -> None:
    monkeypatch.setattr(attaching, "definition", lambda *_: "ATTACH TABLE nonsense")
    expected = (sum(row[0] for row in ROWS),)
    assert db.sql("SELECT sum(k) FROM t").rows() == [expected]
    assert db.sql("SELECT sum(k) FROM t").rows() == [expected]
    assert len(caplog.records) == 1
    told = "\n".join(row[0] for row in db.sql("EXPLAIN SELECT sum(k) FROM t").rows())
    assert "Scan of t (ClickHouse does not attach it" in told


def test_without_room_for_the_texts_a_table_is_scanned(db: Database, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    monkeypatch.setattr(Path, "write_text", full)
    assert db.sql("SELECT sum(k) FROM t").scalar() == sum(row[0] for row in ROWS)
    assert "No space left" in attached.SETS.why_not(_parts(db))


def test_errors_name_the_table_as_the_statement_does(db: Database) -> None:
    with pytest.raises(MergelakeError, match="FINAL") as told:
        db.sql("SELECT k FROM t FINAL WHERE s = 'a'").rows()
    assert DATABASE not in str(told.value)
    with pytest.raises(MergelakeError, match="nope") as told:
        db.sql("SELECT nope FROM t")
    assert told.value.name == "UNKNOWN_IDENTIFIER"


ROWS = sorted((number * 3 + insert, str(number)) for number in range(100) for insert in range(3))


def _answer(url: str, table: str) -> list[tuple[int, str]] | None:
    """What a new connection says; None for an error."""
    try:
        return [tuple(row) for row in connect(url).sql(f"SELECT k, s FROM {table} WHERE k >= 7 ORDER BY k").rows()]
    except MergelakeError:
        return None


@pytest.mark.parametrize("file", ["columns.txt", "count.txt", "primary.idx", "k.mrk2", "k.bin", "checksums.txt"])
@pytest.mark.parametrize("how", ["cut", "gone", "flipped"])
def test_a_damaged_part_is_never_left_out(db: Database, file: str, how: str) -> None:
    path = next(Path(db.warehouse.url).rglob(f"{db.table('t').snapshot().parts[1].manifest.id}/{file}"))
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 64
        path.write_bytes(data)
    assert _answer(db.warehouse.url, "t") in (None, [row for row in ROWS if row[0] >= 7])


@pytest.mark.parametrize("eighth", range(9))
def test_a_damaged_packed_part_is_never_left_out(db: Database, eighth: int) -> None:
    db.sql("CREATE TABLE p (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    for insert in range(3):
        db.sql(f"INSERT INTO p SELECT number * 3 + {insert}, toString(number) FROM numbers(100)")
    path = next(Path(db.warehouse.url).rglob(f"{db.table('p').snapshot().parts[1].manifest.id}/files.packed"))
    data = bytearray(path.read_bytes())
    data[min(len(data) * eighth // 8, len(data) - 1)] ^= 64
    path.write_bytes(data)
    assert _answer(db.warehouse.url, "p") in (None, [row for row in ROWS if row[0] >= 7])


def test_what_clickhouse_read_is_counted_and_told_while_it_reads(db: Database, monkeypatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    found = run_select("SELECT max(s) FROM t", db.resolver(), db.context())
    assert found.stats.rows_read == 300
    assert found.stats.bytes_read > 300
    seen: list[tuple[int, int]] = []
    db.on_progress = lambda news: seen.append((news.rows, news.total_rows or news.rows))
    db.sql("SELECT sum(sleepEachRow(0.001)), sum(k) FROM t SETTINGS max_threads = 1, max_block_size = 50")
    assert seen[-1] == (300, 300)
    assert len(seen) > 2
    assert all(rows <= total for rows, total in seen)


def test_of_many_parts_those_of_the_partitions_are_attached_that_a_statement_reads(db: Database, monkeypatch) -> None:
    for module in (part_set, attached, table_source):
        monkeypatch.setattr(module, "PARTS_AT_ONCE", 5)
    monkeypatch.setattr(part_set, "is_joinable", lambda manifest: False)
    monkeypatch.setattr(attached, "SETS", sets := AttachedSets())
    db.sql(f"CREATE TABLE m (p Int8, k UInt64) ENGINE = ReplacingMergeTree PARTITION BY p % 5 ORDER BY (p, k) {PLAIN}")
    for _ in range(3):
        db.sql("INSERT INTO m SELECT number % 9 - 4, number FROM numbers(90)")
    assert db.sql("SELECT count() FROM system.parts WHERE table = 'm'").scalar() == 27
    for where, parts in (("p = -3", 3), ("p IN (2, -3)", 6), ("p = 4 AND k > 3", 3)):
        for final in ("", "FINAL"):
            query = f"SELECT count(), sum(k) FROM m {final} WHERE {where}"
            expected = _scanned(db, query)
            _how(db, query)
            sets.settle()
            assert _how(db, query) == in_place.READS_ITSELF
            assert db.sql(query).rows() == expected
        assert max(len(held.parts.parts) for held in list(sets._held.values())[-1:]) == parts
    assert "27 parts are being attached" in _reason(db, "m")
    assert db.sql("SELECT count(), max(k) FROM m WHERE k < 1000").rows() == [(270, 89)]
    sets.settle()
    assert _how(db, "SELECT count(), max(k) FROM m WHERE k < 1000") == in_place.READS_ITSELF


def test_of_many_parts_the_large_ones_are_attached_and_the_small_ones_scanned(db: Database, monkeypatch) -> None:
    monkeypatch.setattr(part_set, "PARTS_AT_ONCE", 5)
    monkeypatch.setattr(attached, "SETS", sets := AttachedSets())
    db.sql("CREATE TABLE m (p Int8, k UInt64) ENGINE = ReplacingMergeTree ORDER BY (p, k)")
    for number in range(9):
        db.sql(f"INSERT INTO m SELECT 1, number FROM numbers({100 + 10 * number})")
    query = "SELECT count(), sum(k), uniq(_part) FROM m"
    expected = _scanned(db, query)
    _how(db, query)
    assert "many small parts are scanned together" in _reason(db, "m")
    large = frozenset(part.manifest.id for part in db.table("m").snapshot().parts if part.manifest.rows >= 160)
    monkeypatch.setattr(part_set, "is_joinable", lambda manifest: manifest.id not in large)
    db.sql("INSERT INTO m VALUES (3, 3)")
    expected = _scanned(db, query)
    for _ in range(3):
        assert db.sql(query).rows() == expected
        sets.settle()
    assert _how(db, query) == in_place.READS_ITSELF
    assert [len(held.parts.parts) for held in sets._held.values()] == [3]
    db.sql("INSERT INTO m SELECT 2, number FROM numbers(50)")
    assert db.sql(query).rows() == _scanned(db, query) != expected
    final = "SELECT count(), sum(k) FROM m FINAL"
    assert [db.sql(final).rows() for _ in range(3)] == [_scanned(db, final)] * 3
    sets.settle()
    assert 11 in [len(held.parts.parts) for held in sets._held.values()]  # FINAL means all of them


def _scanned(db: Database, query: str) -> list[tuple[object, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AttachedSets, "why_not", lambda *_, **__: "asked for")
        return [tuple(row) for row in db.sql(query).rows()]


def test_what_is_attached_has_no_name_for_a_statement(db: Database) -> None:
    _how(db, "SELECT sum(k) FROM t")
    names = engine.run(f"SELECT name FROM system.tables WHERE database = '{DATABASE}'").table()["name"].to_pylist()
    for name in (f"{DATABASE}.{names[0]}", f"`{DATABASE}`.`{names[0]}`"):
        for query in (
            f"SELECT * FROM {name}",
            f"SELECT k FROM t WHERE k IN {name}",
            f"SELECT 1 IN (SELECT 1 FROM {name})",
        ):
            with pytest.raises(MergelakeError, match=f"Database {DATABASE} does not exist"):
                db.sql(query)
    assert DATABASE not in str(db.sql("SHOW DATABASES").rows())
