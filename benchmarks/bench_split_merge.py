"""A large merge whole and in slices: seconds, the most memory of a process, and bytes at the store.

    python -m benchmarks.bench_split_merge [--rows 2000000] [--slices 4] [--together 2] [--url s3://bucket/prefix]

A part of `--rows` log rows and as many in inserts of 500,000 are merged: whole, by one process; then each slice by a
process of its own, as tasks on workers are, `--together` at a time; and assembled by one more. With `--rows 20000000`
every process has to stay below 1 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mergelake as ml
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.jobs.merge.slices import slice_tasks, with_split
from mergelake.jobs.merge.task_json import encode_task
from mergelake.testing.logtable import CREATE, log_block

_BATCH = 500_000
_WORK = """
import json, re, sys
from pathlib import Path
from mergelake.api.python.warehouse import Warehouse
from mergelake.jobs.merge.task_json import decode_task
from mergelake.jobs.mutate.work import execute_task

planned = decode_task(Path(sys.argv[1]).read_bytes())
warehouse = Warehouse(planned.url)
part = execute_task(warehouse.store, planned.task, warehouse.ids, warehouse.clock, threads=2)
used = warehouse.store.counters
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10
print(json.dumps({"peak": peak, "get": used.bytes_get, "put": used.bytes_put, "requests": used.requests,
                  "rows": part.rows, "bytes": part.bytes_on_disk}))
"""


def filled(url: str, rows: int, slices: int) -> ml.Table:
    """The table, whose settings give so many slices."""
    db = ml.connect(url)
    db.sql(CREATE.format(name="logs", partition="tuple()"))
    table = db.table("logs")
    for half in range(2):
        for block in range(0, rows, _BATCH):
            table.append(log_block(half * 1000 + block // _BATCH, min(_BATCH, rows - block)))
        if half == 0:
            table.optimize(final=True)
    size = table.handle.log.state.partitions.totals.bytes_on_disk
    table.modify_settings({"min_bytes_to_split_merge": 1, "merge_slice_bytes": -(-size // slices)})
    return table


def run(document: bytes, folder: Path, name: str) -> dict[str, Any]:
    """Execute a task in a process of its own; what it used."""
    path = folder / f"{name}.json"
    path.write_bytes(document)
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _WORK, str(path)], capture_output=True, text=True, check=True)
    return {**json.loads(done.stdout), "seconds": time.perf_counter() - began}


def main() -> None:
    """Print a line for each process, and sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--together", type=int, default=2)
    parser.add_argument("--url", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mergelake-split-") as temporary:
        folder = Path(temporary)
        table = filled(given.url or f"{temporary}/warehouse", given.rows, given.slices)
        store = table.handle.store
        (task,) = plan_optimize(table.handle, final=True)
        split = with_split(store, task, table.handle.log.state.fence)
        plain = sum(source.manifest.bytes_uncompressed for source in task.sources)
        print(f"{len(task.sources)} sources: {task.rows:,} rows, {task.bytes_on_disk >> 20} MiB, {plain >> 20} plain")
        whole = run(encode_task(store.url, task), folder, "whole")
        show("whole", whole)
        began = time.perf_counter()
        with ThreadPoolExecutor(given.together) as pool:
            pieces = [encode_task(store.url, piece) for piece in slice_tasks(split)]
            slices = [*pool.map(lambda at: run(pieces[at], folder, f"slice-{at}"), range(len(pieces)))]
        for at, each in enumerate(slices):
            show(f"slice {at}", each)
        written = time.perf_counter() - began
        assembled = run(encode_task(store.url, split), folder, "assemble")
        show("assemble", assembled)
        read, put = (sum(each[name] for each in slices) for name in ("get", "put"))
        print(f"slices: {written:.1f} s, read {read / whole['get']:.3f} and written {put / whole['put']:.3f} of whole")
        print(f"in all {written + assembled['seconds']:.1f} s against {whole['seconds']:.1f}")
        assert assembled["rows"] == whole["rows"]


def show(name: str, used: dict[str, Any]) -> None:
    """One process."""
    print(
        f"{name:10} {used['seconds']:7.1f} s {used['peak']:5} MiB {used['rows']:>12,} rows "
        f"{used['get'] >> 20:6} MiB read {used['put'] >> 20:6} MiB written {used['requests']:6} requests"
    )


if __name__ == "__main__":
    main()
