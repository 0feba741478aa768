"""What a read sees of other processes' commits, and what it asks for that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import mergelake as ml
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import InvalidInputError
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.far_store import FarStore

CREATE = "CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k"


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    ml.Database(ml.Warehouse(store)).sql(f"{CREATE}; INSERT INTO t VALUES (1), (2)")
    return store


def opened(store: MemoryStore, **options: str) -> ml.Database:
    return ml.Database(ml.Warehouse(store, threads=1, **options))  # type: ignore[arg-type]


def test_a_strong_read_sees_what_another_process_was_told_is_stored(store: MemoryStore) -> None:  # M-097
    reader, writer = opened(store), opened(store)
    table = reader.table("t")
    for count in range(3, 6):
        writer.sql(f"INSERT INTO t VALUES ({count})")
        assert reader.sql("SELECT count() FROM t").scalar() == count
        assert table.scan().arrow().num_rows == count


def test_a_cached_read_asks_nothing_of_the_log(store: MemoryStore) -> None:
    reader, writer = opened(store, read_consistency="cached"), opened(store)
    table = reader.table("t")
    writer.sql("INSERT INTO t VALUES (3)")
    before = store.counters
    assert reader.sql("SELECT count() FROM t").scalar() == 2
    assert table.scan().arrow().num_rows == 2
    assert "get _log" not in (store.counters - before).details
    assert "get _catalog" not in (store.counters - before).details
    assert table.scan(read_consistency="strong").arrow().num_rows == 3
    assert reader.sql("SELECT count() FROM t").scalar() == 3
    reader.sql("INSERT INTO t VALUES (4)")
    assert reader.sql("SELECT count() FROM t").scalar() == 4


def test_what_was_asked_a_moment_ago_is_not_asked_again(store: MemoryStore) -> None:
    clock, writer = ManualClock(), opened(store)
    reader = ml.Database(ml.Warehouse(store, clock=clock, threads=1), settings={"max_staleness_ms": 500})
    count = "SELECT count() FROM t"
    assert reader.sql(count).scalar() == 2
    writer.sql("INSERT INTO t VALUES (3)")
    clock.sleep_s(0.4)
    before = store.counters
    assert reader.sql(count).scalar() == 2
    assert (store.counters - before).requests == 0
    assert reader.sql(count, settings={"max_staleness_ms": 0}).scalar() == 3
    writer.sql("INSERT INTO t VALUES (4)")
    reader.sql("INSERT INTO t VALUES (5)")  # its own rows are seen at once, and those before them
    assert reader.sql(count).scalar() == 5
    reader.sql("CREATE TABLE u AS t")
    assert reader.sql("SELECT count() FROM u").scalar() == 0
    writer.sql("INSERT INTO t VALUES (6)")
    clock.sleep_s(0.6)
    assert reader.sql(count).scalar() == 6


def test_a_scan_may_be_as_stale_as_it_says(store: MemoryStore) -> None:
    clock, writer = ManualClock(), opened(store)
    table = ml.Warehouse(store, clock=clock, threads=1).table("t")
    writer.sql("INSERT INTO t VALUES (3)")
    assert table.scan(max_staleness_ms=500).arrow().num_rows == 2
    clock.sleep_s(0.6)
    assert table.scan(max_staleness_ms=500).arrow().num_rows == 3
    with pytest.raises(InvalidInputError, match="max_staleness_ms"):
        table.scan(max_staleness_ms=-1)


@pytest.mark.parametrize("value", [-1, "soon", 1.5])
def test_a_staleness_is_a_whole_number(store: MemoryStore, value: object) -> None:
    with pytest.raises(InvalidInputError, match="max_staleness_ms"):
        opened(store).sql("SELECT 1", settings={"max_staleness_ms": value})


def test_the_catalog_and_all_tables_of_a_statement_are_asked_in_one_round() -> None:
    store = FarStore()
    db = ml.Database(ml.Warehouse(store, threads=1))
    for name in "tuv":
        db.sql(f"CREATE TABLE {name} (k UInt64) ENGINE = MergeTree ORDER BY k")
    join = "SELECT count() FROM t JOIN u USING k WHERE k IN (SELECT k FROM v)"
    db.sql(join)
    store.start()
    store.gated = True
    assert db.sql(join).scalar() == 0
    assert (store.rounds, len(store.asked)) == (1, 4)
    assert db.sql("SELECT count() FROM t").scalar() == 0
    assert (store.rounds, len(store.asked)) == (2, 6)


def test_a_table_that_took_the_name_of_another_is_the_one_that_is_read(store: MemoryStore) -> None:
    reader, writer = opened(store), opened(store)
    assert reader.sql("SELECT count() FROM t").scalar() == 2
    writer.sql("CREATE TABLE u AS t; INSERT INTO u VALUES (7); EXCHANGE TABLES t AND u")
    assert reader.sql("SELECT count() FROM t").scalar() == 1
    writer.sql("INSERT INTO t VALUES (8); DROP TABLE u SYNC")
    assert reader.sql("SELECT count() FROM t").scalar() == 2


def test_it_is_set_for_a_session_a_statement_or_a_scan(store: MemoryStore) -> None:
    reader, writer = opened(store), opened(store)
    table = reader.table("t")
    writer.sql("INSERT INTO t VALUES (3)")
    assert table.scan(read_consistency="cached").arrow().num_rows == 2
    assert reader.sql("SELECT count() FROM t", settings={"read_consistency": "cached"}).scalar() == 2
    reader.sql("SET read_consistency = 'cached'")
    assert reader.sql("SELECT count() FROM t").scalar() == 2
    reader.sql("SET read_consistency = 'strong'")
    assert reader.sql("SELECT count() FROM t").scalar() == 3


def test_a_read_of_an_old_version_needs_no_news(store: MemoryStore) -> None:
    table = opened(store).table("t")
    before = store.counters
    table.scan(version=table.version)
    assert (store.counters - before).requests == 0


@pytest.mark.parametrize("ask", [
    lambda db: db.sql("SET read_consistency = 'eventual'"),
    lambda db: db.table("t").scan(read_consistency="eventual"),
    lambda db: ml.Warehouse(db.warehouse.store, read_consistency="eventual"),
])  # fmt: skip
def test_there_is_no_third_one(store: MemoryStore, ask: Callable[[ml.Database], object]) -> None:
    with pytest.raises(InvalidInputError, match="'strong' or 'cached'"):
        ask(opened(store))
