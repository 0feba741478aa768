"""A node over a warehouse: parts become fewer, rows stay, nodes and writers do not get in each other's way."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.errors import NotFoundError, UnavailableError
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type

SCHEMA = TableSchema(
    (Column(0, "k", parse_type("UInt64")), Column(1, "s", parse_type("String"))),
    order_by=("k",),
    primary_key=("k",),
)


def rows(start: int, count: int = 50) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"k": pa.array(numbers, pa.uint64()), "s": [f"row {n}" for n in numbers]})


def keys(table) -> list[int]:
    table.refresh()
    return sorted(table.scan(["k"]).arrow()["k"].to_pylist())


def settle(node, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        node.step()
        if node.idle():
            return
        time.sleep(0.01)
    pytest.fail("the node did not come to rest")


def test_a_node_merges_what_inserts_leave_behind(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    tables = [warehouse.create_table(name, SCHEMA) for name in ("a", "b")]
    for table in tables:
        for n in range(20):
            table.append(rows(n * 50))
    node = warehouse.node(poll_s=0.05)
    settle(node)
    node.drain()
    for table in tables:
        assert keys(table) == list(range(1000))
        assert table.parts().num_rows < 10
    assert node.status.merges_done == node.status.merges_started > 0
    assert node.status.merges_failed == 0


def test_several_nodes_and_writers_at_once_lose_and_double_nothing(tmp_path):
    """M-005, M-065: no overlapping result parts, every row exactly once."""
    writer = Warehouse(str(tmp_path))
    table = writer.create_table("t", SCHEMA)
    stop = threading.Event()
    nodes = [Warehouse(str(tmp_path)).node(f"n{i}", poll_s=0.01) for i in range(3)]
    threads = [threading.Thread(target=node.run, args=(stop,)) for node in nodes]

    def write(start: int) -> None:
        mine = Warehouse(str(tmp_path)).table("t")
        for n in range(15):
            mine.append(rows(start + n * 50))

    writers = [threading.Thread(target=write, args=(w * 10_000,)) for w in range(3)]
    for thread in (*threads, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    time.sleep(0.3)
    stop.set()
    for thread in threads:
        thread.join()
    assert keys(table) == sorted(w * 10_000 + n for w in range(3) for n in range(750))
    assert all(node.status.merges_failed == 0 for node in nodes)
    assert sum(node.status.merges_done for node in nodes) > 0
    infos = [part.info for part in table.snapshot().parts]
    assert not any(a.intersects(b) for a in infos for b in infos if a != b)


def test_a_merge_that_fails_is_left_alone_for_a_while_and_the_node_goes_on(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    table = warehouse.create_table("t", SCHEMA)
    for n in range(20):
        table.append(rows(n * 50))
    node = warehouse.node(poll_s=0.01)
    real = node._run_merge
    broken = [True]

    def run_merge(handle, task):
        if broken[0]:
            raise UnavailableError("the store is away")
        return real(handle, task)

    node._run_merge = run_merge
    node.step()
    node._pool.submit(lambda: None).result()
    while node.status.merges_failed == 0:
        time.sleep(0.01)
    assert "store is away" in node.status.last_error
    assert node.step() == 0  # backs off
    broken[0] = False
    time.sleep(1.1)
    settle(node)
    node.drain()
    assert node.status.merges_done > 0
    assert keys(table) == list(range(1000))


def test_a_table_that_is_dropped_under_a_node_does_not_disturb_it(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    table = warehouse.create_table("t", SCHEMA)
    for n in range(12):
        table.append(rows(n * 50))
    node = Warehouse(str(tmp_path)).node(poll_s=0.01)
    node.step()
    warehouse.drop_table("t")
    settle(node)
    node.drain()
    assert node.status.merges_failed == 0


def test_a_node_that_must_leave_abandons_a_long_merge_and_leaves_nothing_of_it(tmp_path):
    # M-096
    warehouse = Warehouse(str(tmp_path))
    table = warehouse.create_table("t", SCHEMA)
    for n in range(12):
        table.append(rows(n * 50))
    node = warehouse.node(poll_s=0.01)
    real, started, objects = node._run_merge, threading.Event(), sorted(tmp_path.rglob("*"))

    def slow(handle, task):
        started.set()
        node.abandon.wait(300)  # a merge that would take longer than anybody waits for
        return real(handle, task)

    node._run_merge = slow
    stop = threading.Event()
    thread = threading.Thread(target=node.run, args=(stop, 0.1))
    thread.start()
    assert started.wait(60)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert (node.status.merges_done, node.status.merges_failed) == (0, 0)
    assert node.status.merges_abandoned == node.status.merges_started > 0
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == [
        path for path in objects if path.is_file()
    ]
    assert keys(table) == list(range(600))
    assert table.optimize(final=True) == 1  # another node does it


def test_a_node_may_look_after_some_tables_only(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    tables = [warehouse.create_table(name, SCHEMA) for name in ("a", "b")]
    for table in tables:
        for n in range(20):
            table.append(rows(n * 50))
    node = warehouse.node(only=["a"], poll_s=0.05)
    settle(node)
    node.drain()
    for table in tables:
        table.refresh()
    assert tables[0].parts().num_rows < 10
    assert tables[1].parts().num_rows == 20
    with pytest.raises(NotFoundError):
        warehouse.node(only=["nobody"])
