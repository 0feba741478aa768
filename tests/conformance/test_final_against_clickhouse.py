"""SELECT … FINAL of ReplacingMergeTree against ClickHouse on the same inserts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mergelake.core.model.schema import TableSchema
from mergelake.scan.prune.request import ScanRequest
from tests.helpers.scans import ScanTable, create_statement, insert_statement, make_schema

pytestmark = pytest.mark.chdb

SETTINGS = {"index_granularity": "8"}
COLUMNS = {"k": "UInt8", "s": "String", "v": "UInt32", "ver": "UInt32", "gone": "UInt8"}


def replacing(*args: str, **kwargs: Any) -> TableSchema:
    return make_schema(COLUMNS, engine="ReplacingMergeTree", engine_args=args, settings=SETTINGS, **kwargs)


TABLES = {
    "last": replacing(order_by=("k",)),
    "version": replacing("ver", order_by=("k", "s")),
    "partitions": replacing("ver", order_by=("k",), partition_by=("v % 3",)),
    "deleted": replacing("ver", "gone", order_by=("s", "k"), primary_key=("s",)),
    "falling": replacing("ver", order_by=("k", "s"), order_desc=(True, False)),
    "expression": replacing("ver", order_by=("k % 16", "k")),
}
CONDITIONS = [
    "1",
    "k = 7",
    "k < 20 AND v > 500",
    "s = 'b'",
    "v % 2 = 0",
    "k IN (1, 5, 9) OR v < 100",
    "gone = 0",
    "ver > 300",
]


@pytest.mark.parametrize("name", list(TABLES))
@pytest.mark.parametrize("layer_rows", [1 << 20, 40])
def test_final_shows_the_rows_that_clickhouse_shows(
    name: str, layer_rows: int, oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mergelake.scan.read.layers.LAYER_ROWS", layer_rows)
    schema, rng = TABLES[name], random.Random(name)
    versions = list(range(1000))
    rng.shuffle(versions)
    ours = ScanTable(schema)
    oracle.query("CREATE DATABASE IF NOT EXISTS finals")
    oracle.query(f"DROP TABLE IF EXISTS finals.{name} SYNC")
    oracle.query(create_statement(f"finals.{name}", schema))
    oracle.query(f"SYSTEM STOP MERGES finals.{name}")
    for count in (60, 100, 1, 90):
        rows = [
            {
                "k": rng.randrange(40),
                "s": rng.choice([b"a", b"b", b"c"]),
                "v": rng.randrange(1000),
                "ver": versions.pop(),
                "gone": int(rng.random() < 0.2),
            }
            for _ in range(count)
        ]
        ours.insert(rows)
        oracle.query(insert_statement(f"finals.{name}", rows))
    for where in CONDITIONS:
        theirs = str(oracle.query(f"SELECT k, s, v, ver, gone FROM finals.{name} FINAL WHERE {where}", "TSV"))
        found = ours.scan(ScanRequest(where=where, final=True), threads=2)
        lines = ["\t".join(str(v.decode() if isinstance(v, bytes) else v) for v in row.values()) for row in found]
        assert sorted(lines) == sorted(theirs.splitlines()), where


@pytest.mark.parametrize("first", [9, 10, 2])
def test_of_equal_versions_in_several_partitions_final_shows_the_one_that_clickhouse_shows(
    first: int, oracle: Any
) -> None:
    schema = replacing(order_by=("k",), partition_by=("v",))
    ours = ScanTable(schema)
    oracle.query("CREATE DATABASE IF NOT EXISTS finals")
    oracle.query("DROP TABLE IF EXISTS finals.ties SYNC")
    oracle.query(create_statement("finals.ties", schema))
    for partition in (first, 1, 10, 9):
        rows = [{"k": 1, "s": b"", "v": partition, "ver": 0, "gone": 0}]
        ours.insert(rows)
        oracle.query(insert_statement("finals.ties", rows))
    theirs = str(oracle.query("SELECT v FROM finals.ties FINAL", "TSV")).split()
    assert [str(row["v"]) for row in ours.scan(ScanRequest(final=True))] == theirs == ["9"]


def test_final_reads_parts_that_do_not_overlap_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from mergelake.parts.read.cache import PartCache
    from mergelake.scan.read.layers import _Layers
    from mergelake.scan.read.run import ReadRun
    from mergelake.scan.read.stats import ScanStats

    table = ScanTable(TABLES["last"])
    for start in (0, 100, 120, 200):
        table.insert([{"k": start + i, "s": b"", "v": i, "ver": 1, "gone": 0} for i in range(50)])
    plan = table.plan(ScanRequest(final=True))
    final = _Layers(ReadRun(table.store, "t", plan, PartCache(), 1, ScanStats(), None))
    assert [len(layer.items) for layer in final.layers()] == [1, 2, 1]
    monkeypatch.setattr("mergelake.scan.read.layers.LAYER_ROWS", 20)
    layers = list(final.layers())
    assert len(layers) > 6
    assert sum(batch.num_rows for layer in layers for batch in final.read(layer)) == 50 + 70 + 50


@pytest.mark.parametrize("kind", ["LowCardinality(String)", "LowCardinality(Nullable(String))", "Nullable(String)"])
def test_final_over_keys_with_dictionaries(kind: str, oracle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = make_schema(
        {"k": kind, "v": "UInt32"},
        engine="ReplacingMergeTree",
        engine_args=("v",),
        order_by=("k",),
        settings={**SETTINGS, "allow_nullable_key": "1"},
    )
    values = [b"a", b"b", b"c", b"" if "Nullable" not in kind else None]
    ours, name, v = ScanTable(schema), f"finals.`{kind}`", 0
    oracle.query("CREATE DATABASE IF NOT EXISTS finals")
    oracle.query(f"DROP TABLE IF EXISTS {name} SYNC")
    oracle.query(create_statement(name, schema))
    for count in (3, 20, 9):
        rows = [{"k": values[i % len(values)], "v": v + i} for i in range(count)]
        v += count
        ours.insert(rows)
        oracle.query(insert_statement(name, rows))
    theirs = str(oracle.query(f"SELECT v FROM {name} FINAL ORDER BY v", "TSV")).split()
    for layer_rows in (1 << 20, 2):
        monkeypatch.setattr("mergelake.scan.read.layers.LAYER_ROWS", layer_rows)
        assert sorted(str(row["v"]) for row in ours.scan(ScanRequest(final=True))) == sorted(theirs)
