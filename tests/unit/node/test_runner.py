"""A node lives through what goes wrong around it."""

from __future__ import annotations

import threading

from mergelake.core.clock import ManualClock
from mergelake.core.errors import UnavailableError
from mergelake.core.ids import SeededIds
from mergelake.lake import Warehouse
from mergelake.store.memory import MemoryStore
from mergelake.table.define import define

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
    node = crowded(store, "a").node(poll_s=0.0)
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
