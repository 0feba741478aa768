"""A ClickHouse attached to a published table never misses a file, whatever collection takes away meanwhile."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.gc.collect import collect_round
from mergelake.jobs.publish.definition import create_statement
from mergelake.jobs.publish.publish import publish
from mergelake.log.model.operations import DropRange
from mergelake.store import open_store
from mergelake.table.definition.define import define
from tests.helpers.merging import SmallTable

SETTINGS = {
    "history_retention_seconds": 0,
    "gc_grace_seconds": 1,
    "min_bytes_for_full_part_storage": 400,
    "checkpoint_interval": 8,
}
SCHEMA = define(
    {"k": "UInt32", "p": "UInt8", "s": "String"}, order_by=["k"], partition_by=["p"],
    settings={name: str(value) for name, value in SETTINGS.items()},
)  # fmt: skip
SECONDS, SECONDS_MAX = 8.0, 600.0


def _block(number: int, rows: int) -> pa.Table:
    """Rows whose `s` can be told from `k`; some inserts make one object of a part, some many."""
    keys = np.arange(number * 1000, number * 1000 + rows, dtype=np.uint32)
    return pa.table(
        {
            "k": keys,
            "p": (keys % 2).astype(np.uint8),
            "s": pa.array([f"value {k}".encode() for k in keys.tolist()], pa.binary()),
        }
    )


def test_clickhouse_misses_no_file_while_collection_runs(oracle: Any, tmp_path: Any) -> None:
    table = SmallTable(SCHEMA, open_store(str(tmp_path)), SystemClock())
    handle = table.handle
    table.insert(_block(0, 100))
    publish(handle)
    oracle.query("DROP TABLE IF EXISTS default.collected")
    oracle.query(create_statement(handle, "default", "collected"))
    start = time.monotonic()
    deleted, number, states = 0, 0, {100}
    while (past := time.monotonic() - start) < SECONDS or (deleted <= 20 and past < SECONDS_MAX):
        number += 1
        table.insert(_block(number, 20 if number % 2 else 200))
        states.add(sum(part.manifest.rows for part in table.parts))
        publish(handle, grace_seconds=3)
        if number % 3 == 0:
            table.optimize()
            publish(handle, grace_seconds=3)
        if number % 25 == 0:
            handle.log.commit(lambda _: [DropRange(kind="truncate")])
            states.add(0)
            publish(handle, grace_seconds=3)
        deleted += len(collect_round(handle).deleted)
        # Every column of every row is read: a missing file is an error, a missing row another count. Names appear one
        # after the other, so the two partitions, which get half of each insert, may be of different versions.
        query = "SELECT count(), countIf(s != concat('value ', toString(k))) FROM default.collected GROUP BY p"
        for line in str(oracle.query(query, "TSV")).splitlines():
            rows, wrong = map(int, line.split())
            assert (wrong, 2 * rows in states) == (0, True)
    oracle.query("DROP TABLE default.collected")
    assert deleted > 20
    left = {meta.key.split("/")[1] for meta in table.store.list("t")}
    assert len(left) < 4 * number  # every insert and merge made one or two directories


def test_a_clone_is_published_by_laying_out_what_it_borrows(oracle: Any, tmp_path: Any) -> None:
    warehouse = Warehouse(str(tmp_path), ids=SeededIds(3), threads=1)
    source = warehouse.create_table("t", SCHEMA)
    source.append({"k": [1, 2, 3], "p": [0, 1, 0], "s": ["value 1", "value 2", "value 3"]})
    clone = warehouse.clone_table("t", "c")
    source.truncate()
    clone.publish()
    oracle.query("DROP TABLE IF EXISTS default.cloned")
    oracle.query(clone.attach_statement("default.cloned"))
    assert str(oracle.query("SELECT k, p, s FROM default.cloned ORDER BY k", "CSV")).split() == [
        '1,0,"value', '1"', '2,1,"value', '2"', '3,0,"value', '3"',
    ]  # fmt: skip
    for _ in range(3):
        warehouse.gc()
        time.sleep(1.1)
    assert str(oracle.query("SELECT sum(k), min(s) FROM default.cloned", "TSV")).split("\t")[0] == "6"
    oracle.query("DROP TABLE default.cloned")
