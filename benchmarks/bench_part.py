"""A whole part of 5M rows, written and read back through `parts`, against ClickHouse; one thread each, page cache.

Write: `write_part` into a directory (not synced, as ClickHouse here), against INSERT SELECT of one block from a Memory
table. Read: every column by `PartReader.read`, against a SELECT that decodes every column and computes nothing.

python -m benchmarks.bench_part [rows]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.bench_format import CLASSIC
from benchmarks.common import Ratio, best_of, show
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.ids import RandomIds
from mergelake.core.model.settings import TableSettings
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.part_spec import PartTarget, SortedRows
from mergelake.parts.write.writer import write_part
from mergelake.store import open_store
from mergelake.table.definition.define import define

COLUMNS = {
    "id": "Int64",
    "value": "Float64",
    "time": "DateTime('UTC')",
    "host": "LowCardinality(String)",
    "text": "String",
}
SETTINGS = (
    "max_block_size = 100000000, max_threads = 1, min_insert_block_size_rows = 100000000, "
    "min_insert_block_size_bytes = 0, max_insert_block_size = 100000000, max_insert_threads = 1"
)


def make_data(rows: int) -> dict[str, pa.Array]:
    """Ids that go up in steps, prices, a time series, 100 host names, 20-byte strings."""
    rng = np.random.default_rng(1)
    letters = rng.integers(97, 123, rows * 20, dtype=np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * 20
    hosts = pa.array([f"host-{i:03}.example".encode() for i in range(100)], pa.binary())
    return {
        "id": pa.array(np.cumsum(rng.integers(1, 50, rows))),
        "value": pa.array(np.round(rng.normal(100, 15, rows), 2)),
        "time": pa.array((1_700_000_000 + np.arange(rows) // 40).astype(np.uint32)),
        "host": pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 100, rows, dtype=np.int32)), hosts),
        "text": pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]),
    }


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    folder = Path(tempfile.mkdtemp(prefix="bench-part-"))
    try:
        arrays = make_data(rows)
        # Ours first: once ClickHouse is loaded, its background threads share the processor with us.
        ours = _ours(folder / "ours", pa.table(arrays))
        theirs = _clickhouse(folder, arrays)
        pairs = zip(("write a part", "read a part"), ours, theirs, strict=True)
        show(f"A part of {rows:,} rows", "chdb", [Ratio(what, a * 1000, b * 1000, "ms", 1.3) for what, a, b in pairs])
    finally:
        shutil.rmtree(folder)


def _ours(folder: Path, block: pa.Table) -> tuple[float, float]:
    store = open_store(str(folder), {"sync": "false"})
    schema = define(COLUMNS, order_by=["id"])
    key = [block.column("id").combine_chunks()]
    types = [schema.types["id"]]

    target = PartTarget(store, "t", schema, TableSettings(schema.settings), types, RandomIds(), SystemClock())

    def write():
        return write_part(target, SortedRows(block, key))

    wrote = best_of(5, write)
    manifest = write()
    columns = {column.name: column for column in schema.columns}

    def read():
        return sum(batch.num_rows for batch in PartReader(store, "t", manifest, columns).read(list(COLUMNS)))

    assert read() == block.num_rows
    return wrote, best_of(5, read)


def _clickhouse(folder: Path, arrays: dict[str, pa.Array]) -> tuple[float, float]:
    import chdb.session

    session = chdb.session.Session(str(folder / "clickhouse"))
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    session.query(f"CREATE DATABASE b ENGINE = Atomic; CREATE TABLE b.m ({columns}) ENGINE = Memory")
    public = {n: a.dictionary_decode() if n == "host" else a for n, a in arrays.items()}
    pa.parquet.write_table(pa.table(public), folder / "data.parquet")
    session.query(f"INSERT INTO b.m SELECT {', '.join(COLUMNS)} FROM file('{folder}/data.parquet')")

    def write():
        session.query(f"INSERT INTO b.t SELECT * FROM b.m SETTINGS {SETTINGS}")

    def fresh():
        session.query("DROP TABLE IF EXISTS b.t SYNC")
        session.query(f"CREATE TABLE b.t ({columns}) ENGINE = MergeTree ORDER BY id SETTINGS {CLASSIC}")

    times = []
    for _ in range(5):
        fresh()
        times.append(best_of(1, write))
    names = ", ".join(COLUMNS)
    query = f"SELECT ignore({names}) FROM b.t WHERE NOT ignore({names}) FORMAT Null SETTINGS max_threads = 1"
    return min(times), best_of(5, lambda: session.query(query))


if __name__ == "__main__":
    main()
