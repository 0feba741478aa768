"""A node lives through what goes wrong around it."""

from __future__ import annotations

import threading

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.gc import collect as collect_module
from mergelake.jobs.node import runner as runner_module
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

SCHEMA = define({"k": "UInt64"}, order_by="k", settings={"min_age_to_force_merge_seconds": 1})


def crowded(store, *names):
    warehouse = Warehouse(store, clock=ManualClock(), ids=SeededIds(1), threads=1)
    for name in names:
        table = warehouse.create_table(name, SCHEMA)
        for n in range(12):
            table.append({"k": [n]})
    return warehouse


def test_a_node_outlives_a_catalog_that_does_not_answer():
    class Flaky(MemoryStore):
        silent = False

        def get(self, key):
            if self.silent and key.startswith("_catalog"):
                raise UnavailableError("the store does not answer")
            return super().get(key)

    store = Flaky()
    node = crowded(store, "a").node(poll_s=0.01)
    store.silent = True
    assert node.step() == 0
    assert "does not answer" in node.status.last_error
    stop = threading.Event()
    loop = threading.Thread(target=node.run, args=(stop,))
    loop.start()
    store.silent = False
    for _ in range(500):
        if node.status.merges_done:
            break
        stop.wait(0.01)
    assert loop.is_alive()
    stop.set()
    loop.join()
    assert node.status.merges_done > 0


def test_what_the_disk_holds_of_a_table_goes_with_the_table():
    store, disk = MemoryStore(), MemoryStore()
    volatile = define({"k": "UInt64"}, order_by="k", settings={"merge_upload_policy": "volatile"})
    warehouse = Warehouse(store, clock=ManualClock(), ids=SeededIds(1), threads=1)
    for name in ("a", "b"):
        for n in range(12):
            warehouse.create_table(name, volatile, if_not_exists=True).append({"k": [n]})
    node = warehouse.node(local=disk)
    while node.step() or not node.idle():
        pass
    held = {item.key.split("/")[0] for item in disk.list("")}
    assert held == {warehouse.table(name).handle.directory for name in ("a", "b")}
    warehouse.drop_table("a")
    node.step()
    kept = warehouse.table("b").handle.directory
    assert {item.key.split("/")[0] for item in disk.list("")} == {kept}
    node.abandon.set()
    warehouse.drop_table("b")
    warehouse.node(local=disk).step()  # dropped while the node was away
    assert list(disk.list("")) == []


def test_a_node_that_has_nothing_to_do_does_not_look_at_every_part_each_time(monkeypatch):
    warehouse = crowded(MemoryStore(), "a")
    node = warehouse.node()
    plans = []
    real = runner_module.tick
    monkeypatch.setattr(runner_module, "tick", lambda *arguments: plans.append(1) or real(*arguments))
    while node.step() or not node.idle():
        pass
    assert node.status.merges_done > 0
    plans.clear()
    for _ in range(20):
        node.step()
    assert plans == []
    warehouse.clock.advance_s(6)
    node.step()
    assert len(plans) == 1
    warehouse.table("a").append({"k": [1]})
    node.step()
    assert len(plans) == 2
    node.drain()


def test_a_node_with_the_role_gc_runs_a_round_of_collection_every_hour(monkeypatch):
    warehouse = crowded(MemoryStore(), "a")
    rounds = []

    def collect(handle, **options):
        rounds.append(handle.directory)
        return real(handle, **options)

    real = collect_module.collect_round
    monkeypatch.setattr(collect_module, "collect_round", collect)
    nodes = [warehouse.node("gc", only=["a"], roles=["gc"]), warehouse.node("merge", only=["a"], roles=["merge"])]
    for hours in (0.9, 0.2, 0.2):
        warehouse.clock.advance_s(hours * 3600)
        for node in nodes:
            node.step()
    for node in nodes:
        node.drain()
    assert rounds == [warehouse.table("a").handle.directory]
    assert nodes[0].status.last_error == ""
    assert nodes[0].status.merges_done == 0


def test_a_table_that_cannot_be_opened_does_not_stop_the_others(caplog):
    store = MemoryStore()
    warehouse = crowded(store, "a", "b")
    broken = warehouse.table("a").handle.directory
    store.put(f"{broken}/_log/{2:020d}.json", b"{}")
    fresh = Warehouse(store, clock=ManualClock(), ids=SeededIds(2), threads=1)
    node = fresh.node()
    assert node.step() > 0
    node.step()
    node.drain()
    assert node.status.merges_done > 0
    assert list(fresh.handles()) == ["default.b"]
    assert sum("default.a" in line for line in caplog.messages) == 1
