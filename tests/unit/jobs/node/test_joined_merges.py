"""A node executes merges of small parts in many partitions together."""

import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.node.runner import TOGETHER_MAX
from mergelake.log.model.operations import DropRange
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

SETTINGS = {"merge_upload_policy": "direct", "max_partitions_per_insert_block": 0, "merge_selector_base": 2}


def lake(partitions=150, store=None, engine="MergeTree", columns=None, inserts=3, **settings):
    warehouse = Warehouse(store or MemoryStore(), clock=ManualClock(), ids=SeededIds(1), threads=1)
    columns = columns or {"p": "UInt32", "k": "UInt64"}
    schema = define(columns, order_by="k", partition_by="p", engine=engine, settings={**SETTINGS, **settings})
    table = warehouse.create_table("t", schema)
    for number in range(inserts):
        rows = {"p": list(range(partitions)), "k": [number] * partitions}
        table.append({name: rows.get(name, [1] * partitions) for name in columns})
    warehouse.clock.advance_s(5)
    return warehouse, table


def settled(node):
    while node.step() or not node.idle():
        pass


def rows(table):
    table.refresh()
    return sorted(zip(*(column.to_pylist() for column in table.scan().arrow().columns), strict=True))


def test_hundreds_of_merges_take_a_few_entries_and_gets(caplog):
    caplog.set_level("INFO", "mergelake.node")
    warehouse, table = lake()
    before = rows(table)
    version, counters = table.version, table.handle.store.counters
    node = warehouse.node()
    settled(node)
    assert node.status.merges_done == 150
    assert (node.status.merges_failed, node.status.merges_lost) == (0, 0)
    assert rows(table) == before
    assert table.handle.log.state.part_count == 150
    used = table.handle.store.counters - counters
    assert table.version - version <= 150 // TOGETHER_MAX + 1 + 3
    assert used.details["put data"] == 150
    assert used.details["get data"] <= 3 * (150 // TOGETHER_MAX + 2) + 450  # and the scan after it
    assert node.report().running == []
    merges = [record.facts for record in caplog.records if getattr(record, "event", "") == "merge"]
    assert len(merges) == 150
    assert {each["partition"] for each in merges} == {str(n) for n in range(150)}
    assert max(each["together"] for each in merges) > TOGETHER_MAX
    node.drain()


def test_other_engines_and_large_parts_are_merged_one_by_one():
    columns = {"p": "UInt32", "k": "UInt64", "sign": "Int8"}
    for options in ({"engine": "CollapsingMergeTree(sign)", "columns": columns}, {"index_granularity": 2}):
        warehouse, table = lake(10, **options)
        node = warehouse.node()
        settled(node)
        assert node.status.merges_done == 10
        table.refresh()
        assert table.handle.log.state.part_count == 10
        node.drain()


def test_a_merge_that_is_lost_does_not_keep_out_the_others(monkeypatch):
    warehouse, table = lake(20)
    node = warehouse.node()
    real = node._run_joined

    def drop_meanwhile(handle, tasks):
        made = real(handle, tasks)
        if handle.log.state.partitions.get("7"):
            table.handle.log.commit(lambda state: [DropRange("7", None)])
        return made

    node._run_joined = drop_meanwhile
    settled(node)
    assert (node.status.merges_done, node.status.merges_lost, node.status.merges_failed) == (19, 1, 0)
    table.refresh()
    assert sorted(part.info.partition_id for part in table.snapshot().parts) == sorted(
        {str(n) for n in range(20)} - {"7"}
    )
    node.drain()


def test_a_damaged_part_is_found_and_left_alone():
    warehouse, table = lake(20, max_bytes_to_share_object=0)
    part = next(part for part in table.handle.log.state.parts() if part.info.partition_id == "3")
    (key,) = part.manifest.object_keys()
    store, key = table.handle.store, f"{table.handle.directory}/{key}"
    data = bytearray(store.get(key))
    data[part.manifest.file_table()["k.bin"].extents[0].offset + 26] ^= 1
    store.put(key, bytes(data))
    node = warehouse.node()
    settled(node)
    assert node.status.merges_done == 19
    assert node.status.merges_failed == 1
    assert {each.partition_id for each in node.report().back_offs} == {"3"}
    node.drain()


def test_a_silent_store_costs_one_failure_and_a_pause():
    class Flaky(MemoryStore):
        silent = False

        def get_ranges(self, key, ranges):
            if self.silent and "/_log/" not in key:
                raise UnavailableError("the store does not answer")
            return super().get_ranges(key, ranges)

    store = Flaky()
    warehouse, _ = lake(20, store=store)
    node = warehouse.node()
    store.silent = True
    settled(node)
    assert (node.status.merges_failed, node.status.merges_done) == (1, 0)
    assert [each.partition_id for each in node.report().back_offs] == [""]  # the whole table
    store.silent = False
    warehouse.clock.advance_s(10)
    settled(node)
    assert node.status.merges_done == 20
    node.drain()


@pytest.mark.parametrize("slots", [1, 2])
def test_pending_mutations_are_applied_all_the_same(slots):
    warehouse, table = lake(30)
    table.delete(where="k = 0")
    node = warehouse.node(slots=slots)
    settled(node)
    warehouse.clock.advance_s(3600)
    settled(node)
    node.drain()
    assert rows(table) == sorted((p, k) for p in range(30) for k in (1, 2))
    assert all(mutation.finished_ms for mutation in table.handle.log.state.mutations)
    assert node.status.merges_failed == 0


def test_two_nodes_take_other_merges_and_lose_few():
    warehouse, table = lake(400)
    other = {"clock": warehouse.clock, "threads": 1}
    nodes = [Warehouse(warehouse.store, ids=SeededIds(n), **other).node(f"n{n}") for n in (2, 3)]
    chosen = []
    for node in nodes:
        real = node._run_joined
        node._run_joined = lambda handle, tasks, real=real: chosen.append(tasks) or real(handle, tasks)
    while sum(node.step() for node in nodes) or not all(node.idle() for node in nodes):
        pass
    first, second = ({task.result.partition_id for task in tasks} for tasks in chosen[:2])
    assert min(len(first), len(second)) >= TOGETHER_MAX
    assert len(first & second) < TOGETHER_MAX // 2
    assert sum(node.status.merges_done for node in nodes) == 400
    assert min(node.status.merges_done for node in nodes) > 100
    for node in nodes:
        node.drain()
    table.refresh()
    assert table.handle.log.state.part_count == 400


def test_a_failure_of_the_group_is_one_of_no_merge():
    warehouse, table = lake(20)
    node = warehouse.node()
    node._run_joined = lambda handle, tasks: 1 // 0
    settled(node)
    assert (node.status.merges_done, node.status.merges_failed) == (20, 0)
    table.refresh()
    assert table.handle.log.state.part_count == 20
    node.drain()
