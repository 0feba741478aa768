"""Batches of 20,000 log rows, one after the other, with merging in the background, against INSERTs into chdb.

    python -m benchmarks.bench_ingest [BATCHES]     # default: 150, that is 3M rows

Each side inserts the same Arrow tables in a process of its own, and merges in the background: here a node in a second
process, with a disk for volatile parts; ClickHouse in its threads. The clock stops after the last insert; what is left
to merge then is waited for, and counted apart. Parts are those of a reader who takes volatile parts from the node.
Both write LZ4 to the same file system. Turn by turn, the faster of two runs counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from typing import Any

import mergelake as ml
from benchmarks.common import Ratio, in_process, show
from mergelake.log.model.volatile import leaves, outermost
from mergelake.testing.logtable import CREATE, log_block
from tests.helpers.services import free_ports

BATCH_ROWS = 20_000
ENGINES = ("MergeTree", "ReplacingMergeTree")
SETTINGS = "default_compression_codec = 'LZ4'"


def here(table_engine: str, batches: int, root: str) -> dict[str, float]:
    """Insert through `append`, beside a node in a process of its own."""
    db = ml.connect(f"{root}/lake")
    db.sql(_create("logs", table_engine))
    table, blocks = db.table("logs"), _blocks(batches)
    table.append(blocks[0])  # starting is not inserting
    listen = f"127.0.0.1:{free_ports(1)}"
    options = ["--local", f"{root}/disk", "--poll", "0.1", "--metrics", listen]
    node = subprocess.Popen([sys.executable, "-m", "mergelake.api.cli", "node", f"{root}/lake", *options], stdout=-3)
    try:
        while _status(listen) is None:
            time.sleep(0.05)
        started = time.perf_counter()
        for block in blocks[1:]:
            table.append(block)
        seconds = time.perf_counter() - started
        parts = _parts_of_node(table)
        quiet_s = time.perf_counter()
        while time.perf_counter() - quiet_s < 0.5:
            status = _status(listen)
            if status is None or status["running"]:
                quiet_s = time.perf_counter()
            time.sleep(0.02)
    finally:
        node.terminate()
        node.wait()
    return {"seconds": seconds, "rest": quiet_s - started - seconds, "parts": parts}


def _status(listen: str) -> dict[str, Any] | None:
    """What the node reports; None before it has found its tables."""
    with suppress(OSError), urllib.request.urlopen(f"http://{listen}/status", timeout=5) as reply:
        status: dict[str, Any] = json.load(reply)
        return status if status["tables"] else None
    return None


def _parts_of_node(table: ml.Table) -> int:
    """Parts that a reader finds who takes volatile parts from the node."""
    state = table.handle.refresh()
    covered = [part for live in state.volatile.values() for part in outermost(live)]
    stored = {name: list(parts) for name, parts in state.partitions.items()}
    hidden = sum(len(leaves(stored[part.info.partition_id], part.info)) for part in covered)
    return sum(map(len, stored.values())) - hidden + len(covered)


def clickhouse(table_engine: str, batches: int, root: str) -> dict[str, float]:
    """The same by ClickHouse."""
    import chdb.session

    session = chdb.session.Session(f"{root}/clickhouse")
    session.query(_create("default.logs", table_engine))
    blocks = _blocks(batches)

    def insert(data: Any) -> None:
        session.query("INSERT INTO default.logs SELECT * FROM Python(data)")

    def number(query: str) -> int:
        return int(str(session.query(query, "TSV")))

    insert(blocks[0])
    started = time.perf_counter()
    for block in blocks[1:]:
        insert(block)
    seconds = time.perf_counter() - started
    parts = number("SELECT count() FROM system.parts WHERE table = 'logs' AND active")
    while number("SELECT count() FROM system.merges"):
        time.sleep(0.05)
    rest = time.perf_counter() - started - seconds
    session.close()
    return {"seconds": seconds, "rest": rest, "parts": parts}


def _create(name: str, table_engine: str) -> str:
    text = CREATE.format(name=name, partition="tuple()").replace("ENGINE = MergeTree", f"ENGINE = {table_engine}")
    return f"{text.rstrip()}{', ' if 'SETTINGS' in text else ' SETTINGS '}{SETTINGS}"


def _blocks(batches: int) -> list[Any]:
    return [log_block(number, BATCH_ROWS) for number in range(batches)]


def main(batches: int) -> None:
    """Run both sides and print the table."""
    lines = []
    for table_engine in ENGINES:
        runs: dict[str, list[dict[str, float]]] = {"here": [], "clickhouse": []}
        for _ in range(2):
            for side, found in runs.items():
                with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as root:
                    found.append(in_process("benchmarks.bench_ingest", side, table_engine, str(batches), root))
        rows = (batches - 1) * BATCH_ROWS
        mine, theirs = (min(found, key=lambda run: run["seconds"]) for found in runs.values())
        rates = [rows / run["seconds"] for run in (mine, theirs)]
        lines.append(Ratio(f"{table_engine}: inserts", *rates, "rows/s", 1.0, higher_is_better=True))
        whole = [rows / (run["seconds"] + run["rest"]) for run in (mine, theirs)]
        lines.append(Ratio(f"{table_engine}: until all is merged", *whole, "rows/s", 1.0, higher_is_better=True))
        lines.append(
            Ratio(f"{table_engine}: parts after the last insert", mine["parts"], theirs["parts"], "parts", 2.0)
        )
    show(f"{batches} batches of {BATCH_ROWS:,} rows", "ClickHouse", lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["here"]:
        print(json.dumps(here(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
    elif sys.argv[1:2] == ["clickhouse"]:
        print(json.dumps(clickhouse(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
