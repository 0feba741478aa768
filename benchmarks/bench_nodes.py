"""One node process against two on the same table, a core each: bytes merged a second.

    python benchmarks/bench_nodes.py [partitions] [rows of a part] [parts of a partition]

Each process merges with one thread, at one merge a time, on a disk of its own, until nothing is due; the time is that
from the first start to the last merge. What a node lost to the other counts as nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.bench_optimize_many import block
from benchmarks.common import Ratio, show

_COLUMNS = {
    "p": "UInt32",
    "k": "UInt64",
    "service": "LowCardinality(String)",
    "latency": "Float64",
    "message": "String",
}


def fill(root: str, partitions: int, rows: int, parts: int) -> None:
    """A table whose partitions are all due."""
    import mergelake as ml

    settings: dict[str, str | int] = {"merge_upload_policy": "volatile", "write_amplification_target": 0}
    settings |= {"merge_selector_base": 2, "max_partitions_per_insert_block": 0}
    warehouse = ml.connect(root).warehouse
    table = warehouse.create_table("t", _COLUMNS, order_by=["service", "k"], partition_by="p", settings=settings)
    for number in range(parts):
        table.append(block(number, partitions, rows))


def work(root: str, name: str) -> dict[str, float]:
    """Merge from the moment a line comes in until nothing is due here or elsewhere."""
    from mergelake.api.python import Warehouse
    from mergelake.jobs.node.memory import bound_memory

    bound_memory()
    node = Warehouse(root, threads=1).node(name, local=f"{root}-disk", slots=1, roles=["merge", "upload"], poll_s=0.02)
    node.step()
    print("ready", flush=True)
    sys.stdin.readline()
    last = time.time()
    while time.time() - last < 2:
        done = node.status.merges_done
        if not node.step():
            time.sleep(0.005)
        if node.status.merges_done > done or not node.idle():
            last = time.time()
    node.abandon.set()
    status = node.status
    return {"bytes": status.bytes_merged, "merges": status.merges_done, "lost": status.merges_lost, "last": last}


def measured(root: str, processes: int) -> dict[str, float]:
    """The sums over the processes."""
    command = [sys.executable, "-m", "benchmarks.bench_nodes", "work", root]
    running = [
        subprocess.Popen([*command, f"n{at}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for at in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    began = time.time()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in running]
    found: list[dict[str, Any]] = [json.loads(output) for output in outputs]
    sums = {name: float(sum(each[name] for each in found)) for name in ("bytes", "merges", "lost")}
    return sums | {"seconds": max(each["last"] for each in found) - began}


def main() -> None:
    """Run both and print the table."""
    sizes = [int(text) for text in [*sys.argv[1:4], *("40", "8000", "8")[len(sys.argv[1:4]) :]]]
    speeds = []
    for processes in (1, 2):
        with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as folder:
            fill(f"{folder}/lake", *sizes)
            found = measured(f"{folder}/lake", processes)
        print(processes, {name: round(value, 2) for name, value in found.items()})
        speeds.append(found["bytes"] / found["seconds"] / 1e6)
    line = Ratio("bytes merged a second, a process", speeds[1] / 2, speeds[0], "MB/s", 1 / 0.75, higher_is_better=True)
    show("Two node processes against one", "one process", [line])


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        print(json.dumps(work(*sys.argv[2:])))
    else:
        main()
