"""OPTIMIZE … FINAL of a table of many small partitions, against ClickHouse: so many merges at one statement.

    python benchmarks/bench_optimize_many.py [partitions] [rows of a part] [parts of a partition]

Both sides have the same rows in a directory. Printed beside the times: entries of the log and requests of ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa

from benchmarks.common import Ratio, show

_CREATE = (
    "CREATE TABLE {}t (p UInt32, k UInt64, service LowCardinality(String), latency Float64, message String) "
    "ENGINE = MergeTree PARTITION BY p ORDER BY (service, k)"
)


def block(number: int, partitions: int, rows: int) -> pa.Table:
    """The rows of one part in each partition."""
    rng = np.random.default_rng(number)
    count = partitions * rows
    p = np.repeat(np.arange(partitions, dtype=np.uint32), rows)
    k = rng.integers(0, 1 << 40, count, dtype=np.uint64)
    services = pa.array([f"service-{n}" for n in rng.integers(0, 20, count)])
    messages = pa.array([f"request {n} took a while" for n in rng.integers(0, 1000, count)])
    return pa.table({"p": p, "k": k, "service": services, "latency": rng.random(count), "message": messages})


def ours(root: str, partitions: int, rows: int, parts: int) -> dict[str, float]:
    """Seconds, log entries and requests of the statement."""
    import mergelake as ml

    db = ml.connect(root)
    db.sql(f"{_CREATE.format('')} SETTINGS max_partitions_per_insert_block = 0")
    table = db.table("t")
    for number in range(parts):
        table.append(block(number, partitions, rows))
    version, before = table.version, table.handle.store.counters
    started = time.perf_counter()
    merges = table.optimize(final=True)
    seconds = time.perf_counter() - started
    after = table.handle.store.counters
    assert merges == partitions == table.handle.log.state.part_count
    return {
        "seconds": seconds,
        "entries": table.version - version,
        "puts": after.put - before.put,
        "gets": after.get - before.get,
    }


def clickhouse(root: str, partitions: int, rows: int, parts: int) -> dict[str, float]:
    """Seconds of ClickHouse."""
    import chdb.session

    session = chdb.session.Session(root)
    session.query(f"{_CREATE.format('default.')} SETTINGS max_parts_to_merge_at_once = 100")
    session.query("SYSTEM STOP MERGES default.t")
    for number in range(parts):
        data = block(number, partitions, rows)  # noqa: F841  ClickHouse reads it by its name
        session.query("INSERT INTO default.t SELECT * FROM Python(data) SETTINGS max_partitions_per_insert_block = 0")
    session.query("SYSTEM START MERGES default.t")
    started = time.perf_counter()
    session.query("OPTIMIZE TABLE default.t FINAL")
    seconds = time.perf_counter() - started
    left = str(session.query("SELECT count() FROM system.parts WHERE active AND table = 't'")).strip()
    assert left == str(partitions), left
    return {"seconds": seconds}


def main() -> None:
    """Run both and print the table."""
    sizes = [*sys.argv[1:4], *("1000", "20", "3")[len(sys.argv[1:4]) :]]
    with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as folder:
        mine, theirs = (_child(who, f"{folder}/{who}", *sizes) for who in ("ours", "clickhouse"))
    print({name: round(value, 2) for name, value in mine.items()})
    line = Ratio(f"{sizes[0]} merges of {sizes[2]} parts", mine["seconds"], theirs["seconds"], "s", 1.0)
    show("OPTIMIZE TABLE … FINAL", "ClickHouse", [line])


def _child(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.bench_optimize_many", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["ours"]:
        print(json.dumps(ours(sys.argv[2], *map(int, sys.argv[3:]))))
    elif sys.argv[1:2] == ["clickhouse"]:
        print(json.dumps(clickhouse(sys.argv[2], *map(int, sys.argv[3:]))))
    else:
        main()
