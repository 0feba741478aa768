"""Reading and writing hold little more than what is read or written: Arrow's pool and Python's heap together."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.parts.read import reader

ROWS = 600_000
SLACK = 6 << 20
"""Windows, a batch in the making, and what a first call loads."""
_pools: list[pa.MemoryPool] = []  # a pool must outlive what came from it


def _column(kind: str) -> pa.Array:
    rng = np.random.default_rng(5)
    words = pa.array(rng.integers(0, 1 << 62, ROWS)).cast(pa.string())
    match kind:
        case "UInt64":
            return pa.array(rng.integers(0, 1 << 62, ROWS, dtype=np.uint64))
        case "Nullable(Int64)":
            return pa.array(rng.integers(0, 1 << 62, ROWS), mask=rng.random(ROWS) < 0.2)
        case "String":
            return words
        case "Array(UInt64)":
            offsets = pa.array(np.arange(ROWS // 3 + 1, dtype=np.int32) * 3)
            return pa.ListArray.from_arrays(offsets, pa.array(rng.integers(0, 1 << 62, ROWS, dtype=np.uint64)))
        case _:
            offsets = pa.array(np.arange(ROWS // 2 + 1, dtype=np.int32) * 2)
            return pa.MapArray.from_arrays(offsets, words, words)


def _peak(work: Callable[[], Any]) -> tuple[Any, int]:
    """What `work` returns, and the most bytes that it held: Arrow's and, with numpy's, Python's."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        result = work()
        return result, pool.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


@pytest.mark.parametrize("kind", ["UInt64", "Nullable(Int64)", "String", "Array(UInt64)", "Map(String, String)"])
def test_reading_takes_at_most_twice_what_is_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", 1 << 20)
    table = pa.table({"c": _column(kind)})
    ddl = f"CREATE TABLE t (c {kind}) ENGINE = MergeTree ORDER BY tuple()"
    ml.write_part(table.slice(0, 1000), str(tmp_path / "warm"), ddl)
    (part,), wrote = _peak(lambda: ml.write_part(table, str(tmp_path), ddl))
    # The table itself is held by the caller; nothing is copied as a whole but the part, until it is stored.
    assert wrote <= 2 * table.nbytes + SLACK

    read, whole = _peak(lambda: ml.read_part(part.path).storage())
    assert read.num_rows == table.num_rows
    assert whole <= 2 * read.nbytes + SLACK

    rows, flowing = _peak(lambda: sum(b.num_rows for b in ml.read_part(part.path).part.read(["c"])))
    assert rows == table.num_rows
    # Two windows, of a batch at least, the batch's plain bytes, and the batch.
    batch = read.nbytes * reader.BATCH_ROWS // read.num_rows
    assert flowing <= 5 * batch + SLACK
