"""Names that are replaced: all or nothing, after a crash at any step, with lost replies, and by many at once."""

from __future__ import annotations

import threading

import pytest

from mergelake.api.python.warehouse import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.testing.faulty_store import Fault, FaultyStore, SimulatedCrash

SCHEMA = define({"k": "UInt64"}, order_by="k")
VIEW = TableSchema((Column(0, "k", parse_type("UInt64")),), engine="View")
HOUR = 3600


def opened(store, seed=1, clock=None):
    return Warehouse(store, clock=clock or ManualClock(), ids=SeededIds(seed), threads=1)


def made(clock=None):
    """A warehouse with a table of one row, `t`, and a view of it, `v`."""
    store = MemoryStore(clock=clock) if clock else MemoryStore()
    warehouse = opened(store, seed=9)
    warehouse.create_table("t", SCHEMA).append({"k": [1]})
    warehouse.catalog.create_virtual(("default", "v"), VIEW, "SELECT k FROM default.t", [("default", "t")])
    return store


def replace_table(warehouse):
    with warehouse.replacing_table("t", SCHEMA) as table:
        table.append({"k": [2, 3]})


def replace_view(warehouse):
    warehouse.catalog.create_virtual(("default", "v"), VIEW, "SELECT 1 AS k", replace=True)


def table_for_view(warehouse):
    with warehouse.replacing_table("v", SCHEMA) as table:
        table.append({"k": [2, 3]})


def view_for_table(warehouse):
    warehouse.catalog.create_virtual(("default", "t"), VIEW, "SELECT 1 AS k", replace=True)


def what_there_is(warehouse):
    """For each name its rows, or its query."""
    state = warehouse.catalog.refresh()
    tables = {name: warehouse.table(f"{d}.{name}").scan().arrow()["k"].to_pylist() for d, name, _ in state.tables()}
    return {**tables, **{name: table.query for name, table in state.virtual.get("default", {}).items()}}


BEFORE = {"t": [1], "v": "SELECT k FROM default.t"}
CASES = [
    (replace_table, {"t": [2, 3]}),
    (replace_view, {"v": "SELECT 1 AS k"}),
    (table_for_view, {"v": [2, 3]}),
    (view_for_table, {"t": "SELECT 1 AS k"}),
]


@pytest.mark.parametrize(("change", "after"), CASES)
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY, Fault.FAIL_BEFORE])
def test_a_crash_at_any_step_leaves_the_old_or_the_new(change, after, fault):
    probe = FaultyStore(made())
    warehouse = opened(probe)
    start = probe.operations
    change(warehouse)
    for step in range(start, probe.operations):
        store = made()
        faulty = FaultyStore(store, script={step: fault})
        done = False
        try:
            change(opened(faulty))
            done = True
        except (SimulatedCrash, UnavailableError):
            pass
        found = what_there_is(opened(store, seed=2))
        assert found in (BEFORE, {**BEFORE, **after}), (step, faulty.trace)
        assert not done or found == {**BEFORE, **after}
        change(opened(store, seed=3))  # whoever tries again succeeds
        assert what_there_is(opened(store, seed=4)) == {**BEFORE, **after}


def test_many_replace_a_table_at_once_and_one_stays():
    store, rounds, threads = made(), 4, 4
    problems: list[BaseException] = []

    def work(number):
        warehouse = opened(store, seed=100 + number)
        try:
            for at in range(rounds):
                with warehouse.replacing_table("t", SCHEMA) as table:
                    table.append({"k": [number * 10 + at] * 3})
        except BaseException as problem:
            problems.append(problem)
            raise

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert problems == []
    warehouse = opened(store, seed=5)
    rows = warehouse.table("t").scan().arrow()["k"].to_pylist()
    assert len(rows) == 3
    assert len(set(rows)) == 1
    directories = {meta.key.partition("/")[0] for meta in store.list("")} - {"_catalog"}
    states = {directory: warehouse.catalog.open_id(directory).log.state.dropped for directory in directories}
    assert len(states) == rounds * threads + 1
    assert [directory for directory, dropped in states.items() if not dropped] == [
        warehouse.catalog.find(("default", "t"))
    ]


def test_a_failed_replacement_leaves_a_dropped_table_and_no_name():
    store = made()
    warehouse = opened(store)
    made_tables = []

    def fill():
        with warehouse.replacing_table("t", SCHEMA) as table:
            made_tables.append(table)
            table.append({"k": [2, 3]})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fill()
    assert what_there_is(warehouse) == BEFORE
    assert made_tables[0].handle.refresh().dropped


def test_a_replaced_table_comes_back():
    store = made()
    warehouse = opened(store)
    replace_table(warehouse)
    warehouse.rename_table("t", "new")
    warehouse.undrop_table("t")
    assert what_there_is(warehouse) == {**BEFORE, "new": [2, 3]}


def test_collection_leaves_a_table_alone_that_is_being_filled():
    """It has no name for longer than the grace period, but is written to: it gets its name, with all its rows."""
    clock = ManualClock()
    store = made(clock)
    warehouse = opened(store, clock=clock)
    other = opened(store, seed=6, clock=clock)
    with warehouse.replacing_table("t", SCHEMA) as table:
        for number in range(4):
            table.append({"k": [number]})
            other.gc()
            clock.advance_s(13 * HOUR)
            other.gc()
    other.gc()
    assert what_there_is(other)["t"] == [0, 1, 2, 3]


def test_a_table_that_collection_took_does_not_get_the_name():
    clock = ManualClock()
    store = made(clock)
    warehouse = opened(store, clock=clock)
    other = opened(store, seed=6, clock=clock)

    def fill():
        with warehouse.replacing_table("t", SCHEMA) as table:
            for _ in range(3):
                other.gc()
                clock.advance_s(40 * HOUR)
            assert table.handle.refresh().dropped

    with pytest.raises(MergelakeError, match="UNKNOWN_TABLE"):
        fill()
    assert what_there_is(other) == BEFORE
