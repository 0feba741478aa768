"""What is counted for whom: a store, a table, an operation, in whatever thread it works."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import mergelake
from mergelake.core.base.errors import MergelakeError
from mergelake.store import open_store
from mergelake.store.interface.protocol import Counters
from mergelake.store.metering.meter import Pool, carried, counted, counting, current_tally, metered
from mergelake.store.metering.prices import GB, Prices, prices_of
from mergelake.store.objects.memory import MemoryStore


def test_operations_of_several_threads_are_told_apart():
    store, both = MemoryStore(), threading.Barrier(2)

    def work(directory, count, out):
        with metered(store) as tally:
            both.wait()
            for n in range(count):
                store.put(f"{directory}/{n}", b"12")
        out.append(tally)

    tallies = [], []
    threads = [threading.Thread(target=work, args=("a" * 32, 3, tallies[0])),
               threading.Thread(target=work, args=("b" * 32, 5, tallies[1]))]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first,), (second,) = tallies
    assert (first.counters.put, second.counters.put, store.counters.put) == (3, 5, 8)
    assert {name: each.bytes_put for name, each in store.counters.tables.items()} == {"a" * 32: 6, "b" * 32: 10}
    assert list(first.counters.tables) == ["a" * 32]


def test_what_is_given_to_other_threads_is_counted_and_nothing_else():
    store = MemoryStore()
    store.put("t/x", b"1")

    def items():
        for _ in range(3):
            yield store.get("t/x")

    with Pool(2) as pool:
        with metered(store) as tally:
            assert list(pool.map(store.get, ["t/x"] * 4)) == [b"1"] * 4
            thread = threading.Thread(target=carried(store.get), args=("t/x",))
            thread.start()
            thread.join()
            iterator = counted(current_tally(), items())
        assert tally.counters.get == 5
        pool.submit(store.get, "t/x").result()
        assert pool.submit(lambda: list(iterator)).result() == [b"1"] * 3
    store.get("t/x")
    assert (tally.counters.get, store.counters.get) == (8, 10)


def test_a_part_of_an_operation_counts_for_the_whole_and_other_stores_do_not():
    store, disk = MemoryStore(), MemoryStore()
    with metered(store) as whole:
        store.put("t/x", b"1")
        with metered(store) as part:
            store.put("t/y", b"1")
            disk.put("t/z", b"1")
        with counting(None):
            store.put("t/a", b"1")
    assert (whole.counters.put, part.counters.put, disk.counters.put) == (2, 1, 1)


def test_counters_are_copies_and_can_be_subtracted():
    store = MemoryStore()
    store.put("t/x", b"12")
    before = store.counters
    store.get("t/x")
    store.put("u/x", b"1")
    list(store.list("t"))
    spent = store.counters - before
    assert (before.put, spent.put, spent.get, spent.list) == (1, 1, 1, 1)
    assert {name: each.requests for name, each in spent.tables.items()} == {"t": 2, "u": 1}
    assert (spent - spent).tables == {}


def test_a_directory_counts_for_its_operations_too(tmp_path):
    store = open_store(str(tmp_path))
    with metered(store) as tally:
        store.put("t/x", b"123")
        store.get_ranges("t/x", [(0, 1), (2, 1)])
        store.delete(["t/x"])
    counters = tally.counters
    assert (counters.put, counters.get, counters.delete, counters.bytes_put) == (1, 1, 1, 3)
    assert counters.tables["t"].delete == 1


def test_prices_are_those_of_a_file_a_mapping_or_the_list(tmp_path, monkeypatch):
    used = Counters(put=1000, get=2000, list=3000, head=4000, delete=5000, bytes_get=GB)
    assert Prices().cost(used) == pytest.approx(0.005 + 0.0008 + 0.015 + 0.0016)
    assert Prices(egress=0.09).cost(used) == pytest.approx(0.0224 + 0.09)
    assert Prices().month(10 * GB) == pytest.approx(0.23)
    file = tmp_path / "ours.toml"
    file.write_text('put = 0.01\ncurrency = "EUR"\n')
    assert prices_of(file) == Prices(put=0.01, currency="EUR", name="ours.toml")
    monkeypatch.setenv("MERGELAKE_PRICES", str(file))
    assert prices_of(None).put == 0.01
    assert prices_of({"get": 1}) == Prices(get=1, name="given prices")
    monkeypatch.delenv("MERGELAKE_PRICES")
    assert prices_of(None) == Prices()


@pytest.mark.parametrize("given", [{"puts": 1}, {"put": -1}, {"put": "1"}, {"put": True}, {"name": 1}, "/no/such.toml"])
def test_prices_that_are_none_are_refused(given):
    with pytest.raises(MergelakeError) as refused:
        prices_of(given)
    assert refused.value.name == "BAD_ARGUMENTS"


def test_pools_of_threads_count_for_who_gives_them_work():
    """A pool that is not a `Pool` would lose the requests of its threads; those of nodes work for nobody."""
    package = Path(mergelake.__file__).parent
    others = {"store/metering/meter.py", "jobs/node/runner.py"}
    for path in package.rglob("*.py"):
        place = str(path.relative_to(package))
        if place not in others and not place.startswith("testing/"):
            text = path.read_text()
            assert "ThreadPoolExecutor(" not in text or "copy_context" in text, (
                f"use store.metering.meter.Pool in {place}"
            )
