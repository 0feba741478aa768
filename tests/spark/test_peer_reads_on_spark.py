"""Spark's doors to volatile parts: tasks read them from their nodes, and their sources where a node is gone."""

from __future__ import annotations

import time

import pytest

import mergelake as ml
from mergelake.api.python import Warehouse
from mergelake.core.base.errors import MergelakeError

PARTS, ROWS = 8, 5000
CREATE = (
    "CREATE TABLE t (k Int64, s String) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k SETTINGS index_granularity = "
    "256, merge_upload_policy = 'volatile', write_amplification_target = 1.0001, merge_selector_base = 2"
)
WANTED = sorted((k, f"s{k % 700}") for k in range(PARTS * ROWS))


@pytest.fixture
def world(tmp_path, spark):
    """A table merged on the disk of a node of this process, which listens; what serves it."""
    url = str(tmp_path / "w")
    ml.connect(url).sql(CREATE)
    table = Warehouse(url).table("t")
    for part in range(PARTS):
        rows = range(part * ROWS, (part + 1) * ROWS)
        table.append({"k": list(rows), "s": [f"s{k % 700}" for k in rows]})
    node = Warehouse(url).node("n1", local=str(tmp_path / "disk"), listen="127.0.0.1:0")
    reader = Warehouse(url, read_volatile="peers", spark=spark).table("t")
    end_s = time.monotonic() + 60
    while any(item.merged is None for item in reader.scan().plan.items) or len(reader.scan().plan.items) > 2:
        node.step()
        time.sleep(0.02)
        assert time.monotonic() < end_s
    yield reader, node._listening
    node._listening.close()
    node.abandon.set()


def content(frame) -> list[tuple]:
    return sorted(tuple(row) for row in frame.collect())


def test_tasks_read_from_nodes_and_from_the_store_where_these_are_gone(world, spark):
    table, listening = world
    source = spark.read.format("mergelake").option("readVolatile", "peers")
    scan = table.scan()
    assert content(scan.spark()) == WANTED
    served = listening.volatile.bytes_served
    assert served > 0
    assert content(source.load(table.path)) == WANTED
    assert listening.volatile.bytes_served > served
    served = listening.volatile.bytes_served
    assert content(spark.read.format("mergelake").load(table.path)) == WANTED
    assert listening.volatile.bytes_served == served  # off by default

    database = ml.connect(table.path.rsplit("/", 1)[0], spark=spark, read_volatile="peers")
    statement = "SELECT k % 4 AS r, count(), sum(k), uniqExact(s) FROM t GROUP BY r ORDER BY r"
    in_peers = database.sql(f"{statement} SETTINGS executor = 'spark'").rows()

    planned = table.scan(columns=["s", "k"])
    listening.close()
    assert sorted((k, s) for s, k in content(planned.spark())) == WANTED
    assert content(source.load(table.path)) == WANTED
    assert database.sql(f"{statement} SETTINGS read_volatile = 'off'").rows() == in_peers
    assert database.sql(f"{statement} SETTINGS executor = 'spark'").rows() == in_peers


def test_the_option_is_refused_for_other_values(world, spark):
    table, _ = world
    with pytest.raises(Exception, match="read_volatile") as refused:
        spark.read.format("mergelake").option("readVolatile", "yes").load(table.path).collect()
    assert not isinstance(refused.value, AssertionError | MergelakeError)
