"""What a table costs, as its log tells it, against what the store counted."""

from __future__ import annotations

import pytest

from mergelake.api.python import Warehouse
from mergelake.api.python.cost import LOG, TableCost, put_requests, table_cost
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.log.model.operations import AddParts, Publish
from mergelake.store.metering.prices import Prices
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest

DAY_S = 86_400


class Lake:
    """A warehouse in memory, whose clock stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.warehouse = Warehouse(MemoryStore(), clock=self.clock, ids=SeededIds(1), threads=1)

    def table(self, name: str = "t", **options: object):
        columns = {"k": "UInt64", "p": "UInt8", "s": "String"}
        return self.warehouse.create_table(name, columns, order_by="k", **options)

    def cost(self, table, days: float = 30) -> TableCost:
        return table_cost(table.name, table.handle.log, self.clock.now_ms(), days)

    def counted(self, table):
        return self.warehouse.store.counters.tables[table.handle.directory]

    def stored(self, table) -> int:
        """Bytes of the objects of its parts."""
        objects = self.warehouse.store.list(table.handle.directory)
        return sum(item.size for item in objects if "/_log/" not in item.key)


def rows(first: int, count: int = 2000) -> dict[str, list]:
    keys = range(first, first + count)
    return {"k": list(keys), "p": [key % 3 for key in keys], "s": [f"{key * 7919 % 10007:x}" for key in keys]}


def test_the_log_knows_every_put_and_the_bytes_of_all_objects():
    lake = Lake()
    table = lake.table(partition_by="p", settings={"min_bytes_for_wide_part": 0})
    for n in range(4):
        table.append(rows(n * 2000))  # parts of three partitions share an object
    table.optimize(final=True)
    table.delete("k < 10")
    table.apply_mutations()
    cost, counted = lake.cost(table), lake.counted(table)
    assert cost.total.puts == counted.put
    assert {kind: (each.parts, each.puts) for kind, each in cost.written.items()} == {
        LOG: (0, table.version),
        "insert": (12, 4),
        "optimize": (3, 3),
        "mutation": (3, 3),
    }
    assert cost.total.bytes == lake.stored(table)
    assert 0.95 * lake.stored(table) < cost.stored_bytes <= lake.stored(table)
    assert cost.inserted_bytes == sum(
        part["bytes_on_disk"] for part in table.parts(active_only=False).to_pylist()[3:15]
    )


def test_each_file_of_a_large_part_is_an_object():
    lake = Lake()
    table = lake.table(settings={"min_bytes_for_full_part_storage": 0, "min_bytes_for_wide_part": 0})
    table.append(rows(0))
    cost = lake.cost(table)
    assert (cost.total.puts, cost.total.bytes) == (lake.counted(table).put, lake.stored(table))


def test_large_objects_are_uploaded_in_pieces_and_packed_ones_later():
    mib = 1 << 20
    add, copied = AddParts(()), Publish(manifest("a" * 32), (), "volatile", "v")
    for size, puts in ((0, 1), (8 * mib, 1), (9 * mib, 4), (16 * mib, 4), (17 * mib, 5)):
        assert put_requests(add, {"a/k.bin": size}) == puts
        packed = 1 if size <= 16 * mib else puts
        assert put_requests(add, {"a/files.packed": size}) == put_requests(add, {"b/123.packed": size}) == packed
        assert put_requests(copied, {"a/k.bin": size}) == packed
    assert put_requests(add, {"a/k.bin": 12 * mib, "a/s.bin": 1}, chunk=5 * mib) == 6


def test_files_that_a_mutation_left_alone_are_stored_once():
    lake = Lake()
    table = lake.table(settings={"min_bytes_for_wide_part": 0})
    table.append(rows(0, 100_000))
    table.delete("k < 10")
    table.apply_mutations()
    cost = lake.cost(table)
    assert cost.borrowed_bytes > cost.active_bytes * 0.9
    assert cost.total.bytes == lake.stored(table)
    assert 0.95 * lake.stored(table) < cost.stored_bytes <= lake.stored(table)


def test_only_what_was_written_in_that_time_is_counted_and_says_since_when():
    lake = Lake()
    table = lake.table()
    for _ in range(70):  # more than one window of entries
        table.append(rows(0, 2))
        lake.clock.advance_s(DAY_S / 10)
    assert lake.cost(table, days=1).written["insert"].parts == 10
    assert lake.cost(table, days=6.95).written["insert"].parts == 69
    week, all_of_it = lake.cost(table, days=1), lake.cost(table, days=300)
    assert week.until_ms - week.since_ms == DAY_S * 1000
    assert all_of_it.until_ms - all_of_it.since_ms == 7 * DAY_S * 1000, "the table is not older"
    prices = Prices()
    assert week.total.cost(prices) == pytest.approx(20 * 0.005 / 1000)
    assert week.month(prices) == pytest.approx(30 * 20 * 0.005 / 1000)
    assert Lake().cost(lake.table("u")).month(prices) is None


def test_a_clone_stores_nothing_of_its_own():
    lake = Lake()
    table = lake.table()
    table.append(rows(0))
    clone = lake.warehouse.clone_table("t", "c")
    cost = lake.cost(clone)
    assert cost.active_bytes == lake.cost(table).active_bytes > 0
    assert (cost.stored_bytes, cost.total.bytes) == (0, 0)
    assert cost.total.puts == clone.version


def test_volatile_merges_are_told_with_what_they_cover():
    from mergelake.log.model.operations import AddVolatile, MergeRecipe

    lake = Lake()
    table = lake.table()
    for n in range(3):
        table.append(rows(n * 10, 10))
    ids = tuple(part.manifest.id for part in table.handle.log.state.parts())
    table.handle.log.commit(lambda state: [AddVolatile("a" * 32, "all", ids, MergeRecipe(1, 0), "n1")])
    cost = lake.cost(table)
    assert (cost.volatile_parts, cost.volatile_source_bytes) == (1, cost.active_bytes)
