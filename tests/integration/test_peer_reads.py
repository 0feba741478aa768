"""Two node processes with disks, one reader of a bucket: volatile parts are read from the nodes, where they answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.api.python import Warehouse
from mergelake.table.definition.define import define

ROWS, BATCHES = 5000, 12
SETTINGS = {
    "merge_upload_policy": "volatile",
    "write_amplification_target": 1.0001,  # nothing is uploaded while the test runs
    "index_granularity": 256,
    "min_bytes_for_full_part_storage": 300_000,
    "merge_selector_base": 2,
}
AGGREGATES = "SELECT count(), sum(n), uniqExact(s), max(l), sum(k * n) FROM t"


def batch(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "p": pa.array([n % 2 for n in ids], pa.uint8()),
            "k": pa.array([(n * 7919) % 5000 for n in ids], pa.uint64()),
            "n": pa.array(ids, pa.uint64()),
            "s": [f"text of row {n * 104_729 % 999_983}" for n in ids],
            "l": [f"label {n % 13}" for n in ids],
        }
    )


def schema(engine: str = "MergeTree"):
    columns = {"p": "UInt8", "k": "UInt64", "n": "UInt64", "s": "String", "l": "LowCardinality(String)"}
    order = "k" if engine == "MergeTree" else "n"
    return define(columns, order_by=order, partition_by="p", engine=engine, settings=SETTINGS)


@contextmanager
def node(url: str, options: dict[str, str], name: str, disk) -> subprocess.Popen:
    command = [sys.executable, "-m", "mergelake.api.cli", "node", url, "--name", name, "--poll", "0.05"]
    command += ["--local", str(disk), "--listen", "127.0.0.1:0"]
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": options.get("access_key_id", ""),
        "AWS_SECRET_ACCESS_KEY": options.get("secret_access_key", ""),
        "S3_ENDPOINT": options.get("endpoint", ""),
    }
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def reads_of(table, **options) -> list[str]:
    return [str(read) for read in table.scan(**options).plan.volatile]


def wait_until_ready(table) -> None:
    """Until each partition is one volatile part, from a node that answers."""
    end_s = time.monotonic() + 60
    while True:
        plan = table.scan().plan
        if len(plan.items) == 2 and all(item.merged is not None for item in plan.items):
            return
        assert time.monotonic() < end_s, list(map(str, plan.volatile))
        time.sleep(0.1)


@contextmanager
def world(url: str, options: dict[str, str], tmp_path, engine: str = "MergeTree"):
    """A table in a bucket, two node processes whose disks have it merged, and the warehouse of a reader."""
    writer = Warehouse(url, options).create_table("t", schema(engine))
    with ExitStack() as stack:
        nodes = [stack.enter_context(node(url, options, f"n{i}", tmp_path / "disk")) for i in (1, 2)]
        for number in range(BATCHES):
            writer.append(batch(number))
        reader = Warehouse(url, options, read_volatile="peers")
        wait_until_ready(reader.table("t"))
        yield nodes, reader


def numbers(batches) -> list[int]:
    return sorted(n for each in batches for n in each.column("n").to_pylist())


EVERY = list(range(ROWS * BATCHES))


def test_nothing_of_the_sources_is_read_from_the_bucket_and_a_killed_owner_costs_no_row(s3_url, s3_options, tmp_path):
    # M-010
    with world(s3_url, s3_options, tmp_path) as (nodes, reader):
        table = reader.table("t")
        before = reader.store.counters
        assert numbers(table.scan().batches()) == EVERY
        assert len(list(table.scan(["n"], where="k < 100 AND l = 'label 3'"))) > 0
        assert (reader.store.counters - before).details.get("get data", 0) == 0
        assert "in place of" in table.scan().explain()

        stored = table.scan(read_volatile="off")
        before = reader.store.counters
        assert numbers(stored.batches()) == EVERY
        assert (reader.store.counters - before).details["get data"] >= BATCHES

        held = ml.connect(s3_url, s3_options, read_volatile="peers")
        before = held.warehouse.store.counters
        in_peers = held.sql(AGGREGATES).rows()
        assert (held.warehouse.store.counters - before).details.get("get data", 0) == 0
        shown = "\n".join(row[0] for row in held.sql("EXPLAIN SELECT sum(n) FROM t").rows())
        assert "Volatile part" in shown
        assert "from node n" in shown
        held.sql("SET read_volatile = 'off'")
        assert held.sql(AGGREGATES).rows() == in_peers
        assert "read_volatile is off" in "\n".join(row[0] for row in held.sql("EXPLAIN SELECT sum(n) FROM t").rows())
        held.sql("SET read_volatile = 'peers'")

        # An older version, as of before any merge, has no volatile parts; they are not used for it.
        assert reads_of(table, version=2) == []
        assert numbers(table.scan(version=2).batches()) == list(range(ROWS))

        begun = table.scan(["n"])
        batches = begun.batches()
        first = next(batches)
        planned = table.scan(["n"])
        for process in nodes:
            process.kill()
            process.wait()
        assert numbers([first, *batches]) == EVERY  # dead in the middle of a read
        assert numbers(planned.batches()) == EVERY  # dead between the plan and the read
        assert numbers(table.scan(["n", "s", "l", "k"]).batches()) == EVERY
        other = Warehouse(s3_url, s3_options, read_volatile="peers").table("t")
        assert all("it does not answer" in read for read in reads_of(other))
        assert numbers(other.scan().batches()) == EVERY
        assert held.sql(AGGREGATES).rows() == in_peers


def test_on_a_machine_with_a_disk_of_a_node_its_directory_can_be_named(tmp_path):
    with world(str(tmp_path / "w"), {}, tmp_path, "ReplacingMergeTree") as (_, reader):
        disk = str(tmp_path / "disk")
        table = reader.table("t")
        for mode in (disk, "peers", "off"):
            assert numbers(table.scan(final=True, read_volatile=mode).batches()) == EVERY
        near = Warehouse(str(tmp_path / "w"), read_volatile=disk)
        before = near.store.counters
        assert numbers(near.table("t").scan().batches()) == EVERY
        assert (near.store.counters - before).details.get("get data", 0) == 0
        database = ml.connect(str(tmp_path / "w"), read_volatile=disk)
        assert database.sql("SELECT count(), sum(n) FROM t FINAL").rows() == [(len(EVERY), sum(EVERY))]
        assert database.sql("SELECT count() FROM t").rows() == [(len(EVERY),)]
        nowhere = table.scan(read_volatile=str(tmp_path))
        assert numbers(nowhere.batches()) == EVERY
        assert "has no directory of this node" in nowhere.explain()


def test_a_cache_directory_keeps_bytes_of_volatile_parts(s3_url, s3_options, tmp_path):
    with world(s3_url, s3_options, tmp_path) as (nodes, _):
        options = {**s3_options, "cache_dir": str(tmp_path / "cache")}
        for _ in range(2):
            reader = Warehouse(s3_url, options, read_volatile="peers")
            scan = reader.table("t").scan(["n", "s"])
            before = reader.store.counters
            assert len(scan.plan.items) == 2
            assert numbers(scan.batches()) == EVERY
            assert (reader.store.counters - before).details.get("get data", 0) == 0
        reader = Warehouse(s3_url, options, read_volatile="peers")
        scan = reader.table("t").scan(["n", "s"])
        for process in nodes:
            process.kill()
        before = reader.store.counters
        assert numbers(scan.batches()) == EVERY  # all of it is in the cache
        assert (reader.store.counters - before).details.get("get data", 0) == 0


@pytest.mark.parametrize("answer", ["yes", "1"])
def test_every_door_refuses_what_it_does_not_know(tmp_path, answer):
    database = ml.connect(str(tmp_path))
    database.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    for attempt in (
        lambda: ml.connect(str(tmp_path), read_volatile=answer),
        lambda: database.sql(f"SET read_volatile = '{answer}'"),
        lambda: database.sql(f"SELECT * FROM t SETTINGS read_volatile = '{answer}'"),
        lambda: database.table("t").scan(read_volatile=answer),
    ):
        with pytest.raises(ml.InvalidInputError, match="read_volatile"):
            attempt()
    assert json.dumps(database.sql("SELECT count() FROM t SETTINGS read_volatile = 'peers'").rows()) == "[[0]]"


def test_clickhouse_attaches_the_stored_parts_and_volatile_ones_are_scanned_beside_them(tmp_path):
    url, disk = str(tmp_path / "w"), str(tmp_path / "disk")
    writer = ml.connect(url)
    settings = "merge_upload_policy = 'volatile', write_amplification_target = 1.0001, max_bytes_to_merge_volatile = "
    writer.sql(f"CREATE TABLE t (k UInt64, n UInt64) ENGINE = MergeTree ORDER BY k SETTINGS {settings} '1Mi'")
    for first, rows in ((0, 200_000), *((200_000 + 500 * n, 500) for n in range(20))):
        writer.sql(f"INSERT INTO t SELECT number * 7919 % 5000, number FROM numbers({first}, {rows})")
    node = Warehouse(url).node("n1", local=disk, listen="127.0.0.1:0")
    database = ml.connect(url, read_volatile="peers")
    end_s = time.monotonic() + 60
    while len(database.table("t").scan().plan.items) != 2:
        node.step()
        assert time.monotonic() < end_s
        time.sleep(0.02)
    statement = "SELECT count(), sum(n), uniqExact(k) FROM t WHERE n % 3 = 1"
    stored = database.sql(f"{statement} SETTINGS read_volatile = 'off'").rows()
    for _ in range(3):
        assert database.sql(statement).rows() == stored
    shown = "\n".join(row[0] for row in database.sql(f"EXPLAIN {statement}").rows())
    assert "ClickHouse reads the parts itself" in shown
    assert "Volatile part all_2_21_1 from node n1, in place of 20 stored parts" in shown
    assert database.sql("SELECT _part, count() FROM t GROUP BY 1 ORDER BY 1").rows() == [
        ("all_1_1_0", 200_000),
        ("all_2_21_1", 10_000),
    ]
    # ClickHouse reads all of it itself where a setting asks for that: the stored parts, then.
    itself = f"{statement} SETTINGS max_rows_to_read_leaf = 1000000000"
    assert database.sql(itself).rows() == stored
    node._listening.close()
    node.abandon.set()
    assert database.sql(statement).rows() == stored
    assert ml.connect(url, read_volatile="peers").sql(statement).rows() == stored
