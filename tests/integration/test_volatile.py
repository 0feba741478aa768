"""Nodes with disks of their own over one warehouse: fewer bytes to the store, and not a row less."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.api.cli.main import app
from mergelake.api.python import Warehouse
from mergelake.core.base.errors import MergelakeError
from mergelake.table.definition.define import define

ROWS = 1000


def schema(policy: str = "volatile", engine: str = "MergeTree", **settings: object):
    columns = {"k": "UInt64", "n": "UInt64", "s": "String", "l": "LowCardinality(String)"}
    given = {"merge_upload_policy": policy, "index_granularity": 256, "min_bytes_for_full_part_storage": 40_000}
    return define(columns, order_by="k", engine=engine, settings={**given, **settings})


def batch(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "k": pa.array([(n * 7919) % 5000 for n in ids], pa.uint64()),
            "n": pa.array(ids, pa.uint64()),
            "s": [f"text of row {n * 104_729 % 999_983}" for n in ids],
            "l": [f"label {n % 13}" for n in ids],
        }
    )


@contextmanager
def running(*nodes, grace_s: float = 30.0):
    """The nodes, each in a thread; they leave in good order."""
    stop = threading.Event()
    threads = [threading.Thread(target=node.run, args=(stop, grace_s)) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def written(warehouses) -> int:
    return sum(warehouse.store.counters.bytes_put for warehouse in warehouses)


def numbers(table) -> list[int]:
    table.refresh()
    return sorted(table.scan(["n"]).arrow()["n"].to_pylist())


def wait_for(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def ingest(open_warehouse, disk: Path | None, batches: int, wipe: bool = False) -> tuple[float, object]:
    """Insert under two nodes; bytes that they wrote to the store for each byte that was inserted, and the table."""
    writer = open_warehouse()
    table = writer.create_table("t", schema("volatile" if disk else "direct", volatile_upload_age_seconds=3600))
    warehouses = [open_warehouse(), open_warehouse()]
    nodes = [
        warehouse.node(f"n{i}", poll_s=0.02, local=str(disk) if disk else None)
        for i, warehouse in enumerate(warehouses)
    ]
    bytes_inserted = 0
    with running(*nodes):
        for number in range(batches):
            bytes_inserted += table.append(batch(number)).bytes
            if wipe and disk is not None and number in (batches // 2, batches * 3 // 4):
                shutil.rmtree(disk / "n0", ignore_errors=True)
            time.sleep(0.01)
    table.refresh()
    assert table.handle.log.state.volatile == {}
    assert all(node.status.results_different == 0 for node in nodes)
    return written(warehouses) / bytes_inserted, table


def test_two_nodes_with_disks_write_each_row_about_once(tmp_path):
    # M-001, M-005
    share, table = ingest(lambda: Warehouse(str(tmp_path / "v")), tmp_path / "disk", 60)
    assert numbers(table) == list(range(60 * ROWS))
    assert table.parts().num_rows < 20
    direct, other = ingest(lambda: Warehouse(str(tmp_path / "d")), None, 60)
    assert numbers(other) == list(range(60 * ROWS))
    assert share < 1.5  # each row goes to the store once more, with the log
    assert share * 2 < direct


def test_a_disk_that_is_wiped_under_a_running_node_loses_no_row(tmp_path):
    # M-007, M-008
    _, table = ingest(lambda: Warehouse(str(tmp_path / "v")), tmp_path / "disk", 60, wipe=True)
    assert numbers(table) == list(range(60 * ROWS))
    assert table.check().num_rows == table.parts().num_rows
    assert all(row.get("is_passed", True) for row in table.check().to_pylist())


def test_nodes_with_disks_on_a_real_s3_server(s3_url, s3_options, tmp_path):
    share, table = ingest(lambda: Warehouse(s3_url, s3_options), tmp_path / "disk", 40)
    assert numbers(table) == list(range(40 * ROWS))
    assert share < 1.5


def test_replacing_gives_under_final_what_direct_merges_give(tmp_path):
    warehouse = Warehouse(str(tmp_path / "v"))
    tables = {
        policy: warehouse.create_table(policy, schema(policy, "ReplacingMergeTree(n)"))
        for policy in ("volatile", "direct")
    }
    node = Warehouse(str(tmp_path / "v")).node("a", poll_s=0.02, local=str(tmp_path / "disk"))
    with running(node):
        for number in range(40):
            for table in tables.values():
                table.append(batch(number))
    found = {}
    for policy, table in tables.items():
        table.refresh()
        found[policy] = table.scan(final=True).arrow().sort_by("k").to_pylist()
        table.optimize(final=True)
        table.refresh()
        assert table.scan().arrow().sort_by("k").to_pylist() == found[policy]
    assert found["volatile"] == found["direct"]
    assert node.status.volatile_published > 0


def test_a_node_that_is_killed_leaves_work_that_another_takes_over(tmp_path):
    # M-016, M-096
    warehouse = Warehouse(str(tmp_path / "v"))
    table = warehouse.create_table("t", schema(volatile_lease_seconds=1))
    command = [sys.executable, "-m", "mergelake.api.cli", "node", str(tmp_path / "v"), "--name", "a", "--poll", "0.05"]
    process = subprocess.Popen([*command, "--local", str(tmp_path / "disk")], stderr=subprocess.DEVNULL)
    try:
        inserted = 0

        def volatile() -> bool:
            nonlocal inserted
            if inserted < 300:
                table.append(batch(inserted))
                inserted += 1
            table.refresh()
            return len(table.handle.log.state.volatile.get("all", ())) > 1

        wait_for(volatile)
    finally:
        process.kill()
        process.wait()
    heir = Warehouse(str(tmp_path / "v")).node("b", poll_s=0.02, local=str(tmp_path / "other"))

    def taken_over() -> bool:
        table.refresh()
        live = table.handle.log.state.volatile.get("all", ())
        return heir.status.volatile_adopted > 0 and all(part.owner == "b" for part in live)

    with running(heir):
        wait_for(taken_over)
    table.refresh()
    assert table.handle.log.state.volatile == {}
    assert numbers(table) == list(range(inserted * ROWS))


def test_a_node_that_is_asked_to_stop_leaves_within_seconds_and_nothing_waits_for_it(tmp_path):
    # M-096
    warehouse = Warehouse(str(tmp_path / "v"))
    table = warehouse.create_table("t", schema())
    command = [sys.executable, "-m", "mergelake.api.cli", "node", str(tmp_path / "v"), "--poll", "0.05"]
    process = subprocess.Popen([*command, "--local", str(tmp_path / "disk")], stdout=subprocess.PIPE, text=True)
    inserted = 0

    def volatile() -> bool:
        nonlocal inserted
        table.append(batch(inserted))
        inserted += 1
        table.refresh()
        return len(table.handle.log.state.volatile.get("all", ())) > 1

    wait_for(volatile)
    process.terminate()
    shown, _ = process.communicate(timeout=60)  # 2 s of grace, on a machine that others use too
    assert process.returncode == 0
    assert "bytes uploaded" in shown
    table.refresh()
    state = table.handle.log.state
    assert (state.volatile, state.leases) == ({}, {})
    assert numbers(table) == list(range(inserted * ROWS))


def test_the_command_line_runs_a_node_with_a_disk(tmp_path, capsys):
    db = ml.connect(str(tmp_path / "v"))
    db.sql(
        "CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k "
        "SETTINGS merge_upload_policy = 'volatile', merge_selector_base = 4"
    )
    for n in range(5):
        db.sql(f"INSERT INTO t VALUES ({n})")
    for command in (["node", "--local", str(tmp_path / "disk"), "--once"], ["merges"]):
        name, *options = command
        table = ["t"] if name == "merges" else []
        with pytest.raises(SystemExit) as ended:
            app([name, str(tmp_path / "v"), *table, *options, "--format", "json"])
        assert not ended.value.code
    node, merges = capsys.readouterr().out.split("}", 1)
    assert '"bytes uploaded"' in node
    assert json.loads(merges) == []
    assert db.sql("SELECT count() FROM t").rows() == [(5,)]
    assert db.table("t").parts().num_rows == 1
    assert list((tmp_path / "disk" / "node").rglob("files.packed")) != []  # the published part, as a cache


def test_a_node_needs_a_real_directory_and_known_roles(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    for wrong in (
        {"local": "s3://bucket"},
        {"local": str(tmp_path), "name": "../up"},
        {"roles": ["cook"]},
        {"roles": []},
    ):
        with pytest.raises(MergelakeError) as refused:
            warehouse.node(**wrong)
        assert refused.value.name == "BAD_ARGUMENTS"


def test_a_node_with_a_disk_keeps_to_the_target_and_the_table_says_what_was_written(tmp_path):
    warehouse = Warehouse(str(tmp_path / "store"))
    table = warehouse.create_table("t", define({"k": "UInt64"}, order_by="k"))  # all settings have their defaults
    node = warehouse.node("n", local=str(tmp_path / "disk"))
    for first in range(0, 60_000, 1000):
        table.append(pa.table({"k": pa.array(range(first, first + 1000), pa.uint64())}))
        while node.step() or not node.idle():
            time.sleep(0.005)
    table.refresh()
    assert node.status.volatile_published > 0
    assert 1 < table.write_amplification <= 2.1 * 1.03
    parts = len(list(table.handle.log.state.parts()))
    table.optimize(final=True)
    assert 1 < table.write_amplification <= 2.1 * 1.03  # users asked for that
    assert parts < 30


def test_optimize_may_remove_rows_that_a_node_has_merged_on_its_disk(tmp_path):
    warehouse = Warehouse(str(tmp_path / "store"))
    table = warehouse.create_table("t", define({"k": "UInt64"}, order_by="k", settings={"merge_selector_base": 2}))
    node = warehouse.node("n", local=str(tmp_path / "disk"))
    for _ in range(4):
        table.append(pa.table({"k": pa.array([1, 2, 3], pa.uint64())}))
    while node.step() or not node.idle():
        time.sleep(0.005)
    (live,) = table.handle.refresh().volatile["all"]
    table.optimize(final=True, deduplicate=True)
    assert table.handle.refresh().find(live.name).manifest.rows == 3  # the name of what the node has
    while node.step() or not node.idle():
        time.sleep(0.005)
    assert node.status.merges_done == 1
    assert node.status.results_different == 0
    assert table.scan().arrow().num_rows == 3
