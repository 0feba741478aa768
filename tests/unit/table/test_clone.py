"""Clones, rollbacks and tags: rows without copies, and what collection must leave alone for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.log.commit.contention import Way
from mergelake.log.commit.group import Committed, Request, propose
from mergelake.log.model.operations import AlterMetadata, DropRange, Entry
from mergelake.log.storage.machine import TableMachine
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.partitions.clone import check_holds, plan_clone, take_holds
from tests.unit.log.test_head_freshness import SleepyStore

DAY = 86400


@pytest.fixture
def warehouse():
    clock = ManualClock()
    return warehouse_in(MemoryStore(clock=clock), 1, clock)


def warehouse_in(store, seed, clock=None):
    return Warehouse(store, clock=clock or ManualClock(), ids=SeededIds(seed), author=f"me {seed}", threads=1)


@pytest.fixture
def table(warehouse):
    made = warehouse.create_table("t", define({"k": "UInt64"}, order_by="k", settings={"checkpoint_interval": "8"}))
    for number in range(4):
        made.append({"k": [number]}, dedup_token=f"t{number}")
    return made


def numbers(table, **at):
    return sorted(table.scan(**at).arrow()["k"].to_pylist())


def size(warehouse):
    return sum(meta.size for meta in warehouse.store.list("") if "_log" not in meta.key and "_catalog" not in meta.key)


def collect(warehouse, days=40):
    """Let every period pass, several times."""
    for _ in range(0, days, 2):
        warehouse.gc()
        warehouse.clock.advance_s(2 * DAY)


def directories(warehouse):
    return {meta.key.partition("/")[0] for meta in warehouse.store.list("")} - {"_catalog"}


def test_a_clone_copies_no_byte_and_both_go_their_own_way(warehouse, table):
    before = size(warehouse)
    clone = warehouse.clone_table("t", "c")
    assert size(warehouse) == before
    assert numbers(clone) == numbers(table) == [0, 1, 2, 3]
    clone.append({"k": [10]})
    table.append({"k": [20]})
    clone.optimize(final=True)
    table.truncate()
    assert (numbers(clone), numbers(table)) == ([0, 1, 2, 3, 10], [])
    assert [row["name"] for row in clone.parts().to_pylist()] == ["all_1_5_1"]
    assert clone.check()["is_passed"].to_pylist() == [1]


def test_what_a_clone_needs_outlives_its_source(warehouse, table):
    clone = warehouse.clone_table("t", "c")
    source = table.handle.directory
    warehouse.drop_table("t")
    collect(warehouse)
    assert numbers(clone) == [0, 1, 2, 3]
    assert source in directories(warehouse)
    clone.optimize(final=True)
    collect(warehouse)
    assert numbers(clone) == [0, 1, 2, 3]
    assert directories(warehouse) == {clone.handle.directory}


def test_a_clone_of_a_clone_holds_where_the_objects_are(warehouse, table):
    second = warehouse.clone_table("t", "c")
    second.append({"k": [9]})
    third = warehouse.clone_table("c", "d")
    warehouse.drop_table("c")
    warehouse.drop_table("t")
    collect(warehouse)
    assert numbers(third) == [0, 1, 2, 3, 9]
    fourth = warehouse.clone_table("d", "e")  # of what dropped tables keep for it
    warehouse.drop_table("d")
    collect(warehouse)
    assert numbers(fourth) == [0, 1, 2, 3, 9]
    assert len(directories(warehouse)) == 3
    warehouse.drop_table("e")
    collect(warehouse)
    assert directories(warehouse) == set()


def test_a_clone_of_an_older_version(warehouse, table):
    assert numbers(warehouse.clone_table("t", "c", version=3)) == [0, 1]
    table.tag("two", 3)
    table.truncate()
    collect(warehouse)
    clone = warehouse.clone_table("t", "d", version="two")
    assert numbers(clone) == [0, 1]
    table.untag("two")
    collect(warehouse)
    assert numbers(clone) == [0, 1]


def test_a_clone_that_never_begins_keeps_nothing_for_ever(warehouse, table):
    plan = plan_clone(table.handle.log.state, table.handle.directory, warehouse.ids)
    holder = warehouse.ids.new_id()
    owners = take_holds(holder, plan, warehouse.catalog.open_id)
    table.truncate()
    collect(warehouse)
    assert len(directories(warehouse)) == 1
    # It wakes up: its first entry may find a free place again, but the holds are gone.
    with pytest.raises(MergelakeError, match="Clone it again"):
        check_holds(holder, owners)


def test_a_clone_that_was_buried_cannot_begin(warehouse, table):
    plan = plan_clone(table.handle.log.state, table.handle.directory, warehouse.ids)
    holder = warehouse.ids.new_id()
    take_holds(holder, plan, warehouse.catalog.open_id)
    table.gc()
    warehouse.clock.advance_s(DAY)
    assert table.gc().released == [holder]
    with pytest.raises(MergelakeError, match="exists already"):
        warehouse.catalog._begin_table(holder, plan.schema, plan.more)


def test_a_name_that_is_taken_is_refused_before_anything_is_held(warehouse, table):
    warehouse.create_table("c", table.schema)
    with pytest.raises(MergelakeError, match="already exists"):
        warehouse.clone_table("t", "c")
    assert numbers(warehouse.clone_table("t", "c", if_not_exists=True)) == []
    assert table.handle.refresh().holds == {}


def test_a_rollback_that_shares_an_entry_undoes_what_stands_before_it_there(table, monkeypatch):
    log, said = table.handle.log, []

    def shared(build, **options):
        requests = [Request(lambda _: [DropRange(kind="truncate")]), Request(build)]
        said.append(propose(TableMachine(), log.state, requests, Entry(log.state.version + 1, "", 0, "", ())))
        return Committed(said[0].state, None)

    monkeypatch.setattr(log, "commit", shared)
    table.rollback(table.version)
    assert [state.row_count for _, state, _ in said[0].heard] == [0, 4]


def test_a_neighbours_log_is_reached_the_way_the_tables_is(warehouse, table):
    clone = warehouse.clone_table("t", "c")
    assert table.handle.neighbour(clone.handle.directory).log.backends is table.handle.log.backends


def test_a_table_that_has_a_name_is_not_swept_though_its_log_has_lost_its_beginning(warehouse, table):
    store = warehouse.store
    store.delete([f"{table.handle.directory}/_log/{1:020d}.json"])
    before = [meta.key for meta in store.list("")]
    collect(warehouse)
    assert [meta.key for meta in store.list("")] == before


def test_a_rollback_brings_rows_back_and_moves_no_byte(warehouse, table):
    table.optimize(final=True)
    table.truncate()
    table.append({"k": [7]}, dedup_token="later")
    before = size(warehouse)
    version = table.rollback(5)
    assert (size(warehouse), version, numbers(table)) == (before, 9, [0, 1, 2, 3])
    assert numbers(table, version=8) == [7]
    assert table.rollback(8) == 10
    assert numbers(table) == [7]
    collect(warehouse)
    assert numbers(table) == [7]
    assert table.check()["is_passed"].to_pylist() == [1]


def test_a_rollback_remembers_the_inserts_whose_rows_it_brings_back(table):
    table.append({"k": [7]}, dedup_token="later")
    table.rollback(5)
    assert table.append({"k": [3]}, dedup_token="t3").duplicate
    assert not table.append({"k": [7]}, dedup_token="later").duplicate
    assert numbers(table) == [0, 1, 2, 3, 7]


def test_a_rollback_knows_the_inserts_again_that_a_drop_had_forgotten(table):
    old = table.version
    tokens = [*table.handle.refresh().tokens.items()]
    table.truncate()
    empty = table.version
    assert not table.append({"k": [2]}, dedup_token="t2").duplicate
    table.rollback(old)
    assert [*table.handle.refresh().tokens.items()] == tokens
    assert table.append({"k": [0]}, dedup_token="t0").duplicate
    assert table.append({"k": [2]}, dedup_token="t2").duplicate
    assert numbers(table) == [0, 1, 2, 3]
    table.rollback(empty)  # though the tokens are of versions before it
    assert not table.append({"k": [0]}, dedup_token="t0").duplicate
    assert numbers(table) == [0]


def test_a_rollback_brings_a_window_of_hashes_back_with_the_schema_that_has_it(warehouse):
    settings = {"non_replicated_deduplication_window": "3"}
    table = warehouse.create_table("w", define({"k": "UInt64"}, order_by="k", settings=settings))
    for number in (1, 2):
        table.append({"k": [number]})
    old = table.handle.refresh()
    narrow = replace(old.schema, version=2, settings={})
    table.handle.log.commit(lambda _: [AlterMetadata(narrow)])
    assert not table.handle.refresh().hashes
    table.rollback(old.version)
    assert [*table.handle.refresh().hashes.items()] == [*old.hashes.items()]
    assert table.append({"k": [1]}).duplicate


def test_a_rollback_beside_an_insert_of_another_process_remembers_what_it_brings_back():
    store = MemoryStore()
    first = warehouse_in(store, 1)
    settings = {"non_replicated_deduplication_window": "2"}
    table = first.create_table("t", define({"k": "UInt64"}, order_by="k", settings=settings))
    for number in (1, 2):
        table.append({"k": [number]})
    old = table.version
    table.append({"k": [4]}, dedup_token="another window")
    table.handle.log._contention.way = lambda: Way.GATHER
    intake = f"{table.handle.directory}/_log/intake"
    # What the other process left in the intake would stand behind this insert, for which k = 1 is forgotten.
    asked = SleepyStore(store, lambda *_: any(store.list(intake)), lambda: table.append({"k": [3]}))
    other = warehouse_in(asked, 2).table("t")
    other.handle.log._contention.way = lambda: Way.LEAVE
    other.rollback(old)
    assert table.append({"k": [1]}).duplicate
    assert numbers(table) == [1, 2]


def test_a_rollback_lists_no_insert_that_the_table_still_knows(table):
    table.append({"k": [7]}, dedup_token="later")
    (entry,) = table.handle.log.entries(table.rollback(5))
    assert entry.ops[0] == DropRange(kind="truncate", remember=5)


def test_a_rolled_back_part_outlives_the_one_it_came_from(warehouse, table):
    table.truncate()
    table.rollback(5)
    collect(warehouse)
    assert numbers(table) == [0, 1, 2, 3]
    table.optimize(final=True)
    merged = table.version
    warehouse.clock.advance_s(DAY)
    warehouse.gc()
    assert numbers(table, version=merged - 1) == [0, 1, 2, 3]  # through parts that lie in others' directories


def test_a_version_that_was_collected_is_refused_by_name(warehouse, table):
    table.truncate()
    collect(warehouse)
    for refused in (lambda: table.rollback(3), lambda: table.scan(version=3), lambda: table.tag("old", 3)):
        with pytest.raises(MergelakeError) as failure:
            refused()
        assert failure.value.name == "BAD_ARGUMENTS"
    with pytest.raises(MergelakeError, match=r"There is no tag 'x'\. There are none"):
        table.scan(version="x")
    with pytest.raises(MergelakeError, match="Versions of that time have been collected"):
        table.scan(timestamp=warehouse.clock.now_ms() - 41 * DAY * 1000)


def test_a_tag_keeps_a_version_while_the_log_before_and_after_it_goes(warehouse, table):
    assert table.tag("first", 3) == 3
    assert table.tag("now") == 6
    assert table.tags() == {"first": 3, "now": 6}
    for number in range(30):
        table.append({"k": [100 + number]})
    table.optimize(final=True)
    collect(warehouse)
    entries = [m.key for m in warehouse.store.list(f"{table.handle.directory}/_log") if m.key.endswith(".json")]
    assert len(entries) < 15
    fresh = Warehouse(warehouse.store, clock=warehouse.clock, ids=SeededIds(5)).table("t")
    assert numbers(fresh, version="first") == [0, 1]
    assert numbers(fresh, version="now") == [0, 1, 2, 3]
    assert len(numbers(fresh)) == 34
    fresh.untag("first")
    fresh.untag("now")
    collect(warehouse)
    left = [m.key for m in warehouse.store.list(table.handle.directory) if not {"_log", "_gc"} & set(m.key.split("/"))]
    assert len(left) == 1


def test_a_dropped_table_goes_after_its_retention(warehouse, table):
    warehouse.drop_table("t")
    collect(warehouse, days=6)
    assert directories(warehouse) == {table.handle.directory}
    collect(warehouse, days=8)
    assert directories(warehouse) == set()


def test_who_slept_while_a_table_was_dropped_and_removed_is_told_so(warehouse, table):
    other = Warehouse(warehouse.store, clock=warehouse.clock, ids=SeededIds(3), threads=1).table("t")
    warehouse.drop_table("t")
    collect(warehouse, days=16)
    assert directories(warehouse) == set()
    with pytest.raises(MergelakeError) as refused:
        other.append({"k": [1]})
    assert refused.value.name == "UNKNOWN_TABLE"
    assert directories(warehouse) == set()


def test_a_table_that_never_got_its_name_goes_unless_the_catalog_is_lost(warehouse):
    handle = warehouse.catalog._begin_table(warehouse.ids.new_id(), define({"k": "UInt64"}, order_by="k"))
    warehouse.gc()
    assert not handle.refresh().dropped
    collect(warehouse)
    assert not handle.refresh().dropped
    warehouse.create_database("d")
    collect(warehouse)
    assert directories(warehouse) == set()


def test_what_late_writers_leave_behind_a_removed_table_goes_and_nothing_else_does(warehouse):
    warehouse.store.put("0" * 32 + "/" + "1" * 32 + "/files.packed", b"late")
    warehouse.store.put("2" * 32 + "/notes.txt", b"not ours")
    warehouse.store.put("elsewhere/file", b"not ours")
    collect(warehouse, days=4)
    assert directories(warehouse) == {"2" * 32, "elsewhere"}
