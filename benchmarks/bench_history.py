"""What history costs the metadata: commits, checkpoints and opening against the number of retired parts that are kept.

    python -m benchmarks.bench_history [0 10000 100000 600000]

A table of a thousand parts, of which as many were replaced before as the argument says and all versions are kept. Then
a thousand inserts of one part, with a merge of two after every fourth; then a new process opens the table and commits
once more; then history up to the middle of what was replaced is given up. All times are of the processor.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Sequence

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.bench_metadata import SCHEMA, inserted, new_log, part
from mergelake.log.model.operations import AddParts, AdvanceGcHorizon, CreateTable, DropRange
from mergelake.store.objects.memory import MemoryStore

PARTS = 1000


def measure(retired: int) -> list[str]:
    """One line of the result."""
    store = MemoryStore()
    log = new_log(store)
    log.commit(lambda _: [CreateTable(SCHEMA)])
    for _ in range(0, retired, PARTS):
        log.commit(lambda _: [AddParts(tuple(part(n % 10) for n in range(PARTS)))])
        log.commit(lambda _: [DropRange(None)])
    middle = log.state.version // 2
    log.commit(lambda _: [AddParts(tuple(part(n % 10) for n in range(PARTS)))])
    log.write_checkpoint()
    log = new_log(store)
    cost = inserted(store, log, 10)
    log.write_checkpoint()
    root = len(store.get(f"t/_log/checkpoints/{log.state.version:020d}.arrow"))
    del log
    gc.collect()
    tracemalloc.start()
    before, started = store.counters, time.process_time()
    log = new_log(store)
    log.commit(lambda _: [AddParts((part(1, log.state.version),))])
    open_s, gets = time.process_time() - started, (store.counters - before).get
    gc.collect()
    memory = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()
    tracemalloc.stop()
    kept, started = len(log.state.retired), time.process_time()
    log.commit(lambda _: [AdvanceGcHorizon(0, max(middle, log.state.history))])
    forget_s = time.process_time() - started
    return [
        f"{kept:,}",
        f"{cost.ratio:.2f}",
        f"{cost.commit_s * 1000:.2f} ms, {cost.all_s * 1000:.2f}",
        f"{root / 1000:,.0f} kB",
        f"{open_s:.2f} s, {gets}",
        f"{memory / 1e6:,.0f} MB",
        f"{kept - len(log.state.retired):,} in {forget_s * 1000:.0f} ms",
    ]


def main(counts: Sequence[int]) -> None:
    """Print a table."""
    table = Table(title=f"Metadata against history: {PARTS:,} parts", title_justify="left")
    for name in (
        "retired parts",
        "checkpoints / entries, bytes",
        "CPU a commit, with checkpoints",
        "root",
        "open and commit: CPU, GETs",
        "memory",
        "forgotten",
    ):
        table.add_column(name, justify="right")
    for retired in counts:
        table.add_row(*measure(retired))
    Console(width=120).print(table)


if __name__ == "__main__":
    main([int(count) for count in sys.argv[1:]] or [0, 10_000, 100_000, 600_000])
