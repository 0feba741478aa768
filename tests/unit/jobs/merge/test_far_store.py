"""Merges of parts in a far store: their sources are read side by side."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import mergelake as ml
from tests.helpers.far_store import FarStore

CREATE = """CREATE TABLE t (k UInt64, v UInt64, word LowCardinality(String), text String) ENGINE = {} ORDER BY k
    SETTINGS index_granularity = 1000, min_bytes_for_full_part_storage = {}, merge_max_chunk_bytes = {}"""


def rows(first: int, step: int, count: int = 10_000) -> pa.Table:
    keys = range(first, first + step * count, step)
    words = [f"word {key % 30}" for key in keys]
    return pa.table({"k": keys, "v": [first] * count, "word": words, "text": [f"text of {key}" * 5 for key in keys]})


@pytest.mark.parametrize("engine", ["MergeTree", "ReplacingMergeTree(v)"])
@pytest.mark.parametrize("full_bytes", [0, 10 << 20], ids=["full", "packed"])
def test_all_sources_are_opened_in_one_round_and_read_in_one_for_each_column(engine: str, full_bytes: int) -> None:
    store = FarStore()
    db = ml.Database(ml.Warehouse(store, threads=1))
    db.sql(CREATE.format(engine, full_bytes, 64 << 20))
    for first in range(6):
        db.table("t").append(rows(first, 6))
    table = ml.Warehouse(store, threads=1).table("t")
    sources = table.snapshot().parts
    store.start()
    store.gated = True
    table.optimize(final=True)
    if full_bytes == 0:  # else all files of a part are one object
        assert {key.rpartition("/")[2] for key, _, _ in store.repeated()} <= {"k.bin", "v.bin"}  # they give the order
    else:
        assert sorted(key for key, _, _ in store.asked if "/_log/" not in key and "_catalog" not in key) == sorted(
            f"{table.handle.directory}/{part.manifest.id}/files.packed" for part in sources
        )
    assert store.rounds <= 1 + 1 + 1 + 1 + 3  # news, what is known of all sources, order, key, the other columns
    store.gated = False
    assert table.scan(["k"], ordered=True).arrow()["k"].to_pylist() == list(range(60_000))
    assert db.sql("SELECT count(), uniqExact(text), uniqExact(word) FROM t").rows() == [(60_000, 60_000, 30)]


def test_packed_sources_are_held_as_far_as_memory_allows() -> None:
    store = FarStore()
    db = ml.Database(ml.Warehouse(store, threads=1))
    db.sql(CREATE.format("MergeTree", 10 << 20, 200_000))
    for first in range(4):
        db.table("t").append(rows(first, 4, 500 if first else 10_000))
    db.table("t").update({"v": "v + 100"}, "k % 3 = 0")
    store.start()
    db.table("t").optimize(final=True)
    asked = Counter(key for key, _, _ in store.asked if key.endswith(".packed"))
    assert sorted(asked.values())[:3] == [1, 1, 1]  # the small ones; the other is read by windows
    assert store.bytes_at_once <= 250_000
    values = db.table("t").scan(["k", "v"], ordered=True).arrow().to_pydict()
    assert values["v"] == [key % 4 + (0 if key % 3 else 100) for key in values["k"]]
    assert len(values["k"]) == 11_500


def test_windows_of_a_small_budget_are_fetched_one_ahead() -> None:
    store = FarStore()
    db = ml.Database(ml.Warehouse(store, threads=1))
    db.sql(CREATE.format("MergeTree", 0, 200_000))
    for first in range(3):
        db.table("t").append(rows(first, 3))
    store.start()
    db.table("t").optimize(final=True)
    assert store.bytes_at_once <= 200_000
    assert len([key for key, _, _ in store.asked if key.endswith("text.bin")]) > 3
    assert db.table("t").scan(["k"], ordered=True).arrow()["k"].to_pylist() == list(range(30_000))
