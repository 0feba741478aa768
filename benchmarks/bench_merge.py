"""Merging ten sorted parts of a log table, against OPTIMIZE TABLE … FINAL of ClickHouse on the same parts.

    python benchmarks/bench_merge.py [rows of a part] [parts]

Twice: a table ordered by (service, timestamp), whose parts interleave, and one by timestamp, filled in order, whose
parts follow one another (here their compressed blocks are copied). The parts are written once by mergelake; ClickHouse
attaches copies of the same files, so both merge the same bytes. Each side runs in processes of its own, turn by turn,
files in the page cache; the faster of two runs counts on both sides, the larger peak memory of ours.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common import Ratio, in_process, show

COLUMNS = {
    "timestamp": "DateTime64(3, 'UTC')",
    "level": "LowCardinality(String)",
    "service": "LowCardinality(String)",
    "host": "LowCardinality(String)",
    "user_id": "UInt64",
    "trace_id": "UUID",
    "status": "UInt16",
    "latency": "Float64",
    "url": "String",
    "message": "String",
}
DIRECTORY = "t"
MEMORY_MAX = 1 << 30


def storage_block(block: pa.Table) -> pa.Table:
    """A block of the generator in storage form."""
    out = {}
    for name, column in zip(block.column_names, block.columns, strict=True):
        array = column.combine_chunks()
        if name == "timestamp":
            array = array.cast(pa.int64())
        elif name == "trace_id":
            digits = pc.replace_substring(array, "-", "").cast(pa.binary())
            text = np.frombuffer(digits.buffers()[2], np.uint8)[: 32 * len(array)].astype(np.int16)
            nibbles = np.where(text >= 97, text - 87, text - 48).reshape(-1, 2)
            raw = (nibbles[:, 0] * 16 + nibbles[:, 1]).astype(np.uint8).reshape(-1, 2, 8)[:, :, ::-1]
            array = pa.Array.from_buffers(pa.binary(16), len(array), [None, pa.py_buffer(np.ascontiguousarray(raw))])
        elif pa.types.is_dictionary(array.type):
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.binary()))
        elif pa.types.is_string(array.type):
            array = array.cast(pa.binary())
        out[name] = array
    return pa.table(out)


def write_parts(root: str, rows: int, parts: int, order: str) -> None:
    """A table of `parts` parts in `root`, ordered by the key `order`."""
    from mergelake.core.base.clock import SystemClock
    from mergelake.core.base.ids import RandomIds
    from mergelake.store import open_store
    from mergelake.table.definition.define import define
    from mergelake.table.handle.handle import TableHandle
    from mergelake.table.write.insert import commit_parts, insert_target, write_blocks
    from mergelake.testing.logtable import log_block

    store, clock, ids = open_store(root), SystemClock(), RandomIds()
    settings = {"min_bytes_for_full_part_storage": 0, "max_insert_block_size": rows, "max_insert_block_bytes": 1 << 40}
    schema = define(COLUMNS, order_by=order, settings=settings)
    handle = TableHandle.create(store, DIRECTORY, schema, clock=clock, ids=ids)
    for number in range(parts):
        block = storage_block(log_block(number, rows))
        if order == "timestamp":  # no row is later than the first of the next block
            [end] = storage_block(log_block(number + 1, rows).slice(0, 1))["timestamp"].to_pylist()
            times = pc.min_element_wise(block["timestamp"], end - 400)
            block = block.set_column(0, "timestamp", times)
        written = write_blocks(insert_target(store, DIRECTORY, schema, ids, clock), [block], threads=2)
        commit_parts(handle, written)


def merge_here(root: str, threads: int) -> dict[str, float]:
    """Merge all parts, nothing committed: seconds and peak resident bytes of this process."""
    from mergelake.core.base.clock import SystemClock
    from mergelake.core.base.ids import RandomIds
    from mergelake.jobs.merge.execute import execute_merge
    from mergelake.jobs.merge.plan import plan_merge
    from mergelake.store import open_store
    from mergelake.table.handle.handle import TableHandle
    from mergelake.table.write.insert import discard_parts

    store, clock, ids = open_store(root), SystemClock(), RandomIds()
    snapshot = TableHandle.open(store, DIRECTORY, clock=clock, ids=ids).snapshot()
    # Compiling (or loading) the kernels is not merging.
    small = plan_merge(DIRECTORY, snapshot.schema, snapshot.parts[:1])
    discard_parts(store, DIRECTORY, [execute_merge(store, small, ids, clock)])
    task = plan_merge(DIRECTORY, snapshot.schema, snapshot.parts)
    Path("/proc/self/clear_refs").write_text("5")  # start the peak anew
    started = time.perf_counter()
    manifest = execute_merge(store, task, ids, clock, threads=threads)
    seconds = time.perf_counter() - started
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    discard_parts(store, DIRECTORY, [manifest])
    return {"seconds": seconds, "peak": int(status["VmHWM"].split()[0]) * 1024, "rows": manifest.rows}


def merge_clickhouse(root: str, work: str, order: str) -> dict[str, float]:
    """The same merge by ClickHouse, of a table with the key `order`."""
    import chdb.session

    from mergelake.core.base.clock import SystemClock
    from mergelake.core.base.ids import RandomIds
    from mergelake.store import open_store
    from mergelake.table.handle.handle import TableHandle

    handle = TableHandle.open(open_store(root), DIRECTORY, clock=SystemClock(), ids=RandomIds())
    session = chdb.session.Session(work)
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    session.query(f"CREATE TABLE default.t ({columns}) ENGINE = MergeTree ORDER BY {order}")
    session.query("SYSTEM STOP MERGES default.t")
    data = str(session.query("SELECT data_paths[1] FROM system.tables WHERE name = 't'", "TSVRaw")).strip()
    for part in handle.snapshot().parts:
        shutil.copytree(f"{root}/{DIRECTORY}/{part.manifest.id}", f"{data}/detached/{part.name}")
        session.query(f"ALTER TABLE default.t ATTACH PART '{part.name}'")
    session.query("SELECT sum(cityHash64(*)) FROM default.t")  # into the page cache
    session.query("SYSTEM START MERGES default.t")
    started = time.perf_counter()
    session.query("OPTIMIZE TABLE default.t FINAL")
    seconds = time.perf_counter() - started
    rows = int(str(session.query("SELECT sum(rows) FROM system.parts WHERE table = 't' AND active", "TSV")))
    session.close()
    return {"seconds": seconds, "rows": rows}


def main() -> None:
    """Run everything and print the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    parts = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    for order, what in (("(service, timestamp)", "interleaving parts"), ("timestamp", "parts in order")):
        with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as folder:
            show(
                f"Merge of {parts} {what}, {rows:,} rows each", "ClickHouse (or limit)", run(folder, rows, parts, order)
            )


def run(folder: str, rows: int, parts: int, order: str) -> list[Ratio]:
    """Both sides on a table with the key `order`."""
    write_parts(f"{folder}/lake", rows, parts, order)
    runs: dict[str, list[dict[str, Any]]] = {"clickhouse": [], "1": [], "2": []}
    for number in range(2):
        runs["clickhouse"].append(
            in_process("benchmarks.bench_merge", "clickhouse", f"{folder}/lake", f"{folder}/clickhouse{number}", order)
        )
        shutil.rmtree(f"{folder}/clickhouse{number}", ignore_errors=True)
        for threads in ("1", "2"):
            runs[threads].append(in_process("benchmarks.bench_merge", "here", f"{folder}/lake", threads))
    speed = {who: max(run["rows"] / run["seconds"] for run in found) for who, found in runs.items()}
    lines = []
    for threads in ("1", "2"):
        what = f"merge, {threads} thread(s)"
        lines.append(Ratio(what, speed[threads], speed["clickhouse"], "rows/s", 1.5, higher_is_better=True))
        peak = max(run["peak"] for run in runs[threads]) / 2**20
        lines.append(Ratio(f"peak memory, {threads} thread(s)", peak, MEMORY_MAX / 2**20, "MiB", 1.0))
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["here"]:
        print(json.dumps(merge_here(sys.argv[2], int(sys.argv[3]))))
    elif sys.argv[1:2] == ["clickhouse"]:
        print(json.dumps(merge_clickhouse(*sys.argv[2:5])))
    else:
        main()
