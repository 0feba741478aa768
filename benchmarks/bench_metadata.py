"""What the metadata of a table costs against its size: bytes a commit, checkpoints, opening, planning, memory.

    python -m benchmarks.bench_metadata [--columns 10] [--picture docs/scale.svg] [1000 10000 100000 1000000]

Parts of ten columns (or as many as are said) in partitions of a hundred; only the log is there, in memory. Each table
gets its parts a thousand at a time (fewer of many columns), then `COMMITS` inserts of one part, with a merge of two
after every fourth. Then a new process opens it, and reads one partition; another one reads all rows of segments. *Plan*
is a SELECT of one partition, and a look-up by a key that one part may hold, the second time each. All times are of the
processor.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.curves import svg
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.ids import RandomIds
from mergelake.core.model.manifest import Extent, PartFile, PartManifest, encode_files
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import AddParts, CreateTable, Publish, TableOp
from mergelake.log.model.state import State
from mergelake.log.storage.machine import TableMachine
from mergelake.parts.read.cache import PartCache
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot
from tests.helpers.background import settle

COLUMNS = 10
PARTITION = 100
COMMITS = 1024
COLUMNS_MAX = 10_000
"""Those of one entry have at most so many columns together."""
IDS = RandomIds()
NUMBERS = itertools.count()


def schema(columns: int = COLUMNS) -> TableSchema:
    """The table's, of so many columns."""
    return TableSchema(
        tuple(Column(n, f"column_{n}", parse_type("Int64")) for n in range(columns)),
        order_by=("column_0",),
        primary_key=("column_0",),
        partition_by=("column_1",),
    )


SCHEMA = schema()


def part(partition: int, base_version: int = 0, columns: int = COLUMNS) -> PartManifest:
    """A packed part as an insert of some thousand rows makes it: two files a column and five more."""
    name, at, files = IDS.new_id(), 0, list[PartFile]()
    names = [f"column_{n}.{kind}" for n in range(columns) for kind in ("bin", "cmrk2")]
    names += ["count.txt", "columns.txt", "primary.cidx", "checksums.txt", "types.json"]
    digests = os.urandom(32 * len(names)).hex()
    for number, file in enumerate(names):
        size, digest = 1000 + int(name[:3], 16) + number, digests[64 * number : 64 * number + 64]
        place = Extent(f"{name}/files.packed", at, size)
        files.append(PartFile(file, size, (place,), digest[:32], 4000, digest[32:]))
        at += size
    first = next(NUMBERS) * 10
    value = hex_of(partition)
    return PartManifest(
        name,
        f"{partition}",
        1000,
        encode_files(files),
        partition=value,
        minmax={"column_1": (value, value)},
        key_range=(hex_of(first), hex_of(first + 9)),
        marks=1,
        bytes_on_disk=at,
        bytes_uncompressed=80_000,
        columns=tuple(range(columns)),
        storage="packed",
        base_version=base_version,
    )


def hex_of(number: int) -> str:
    """An Int64 as manifests keep it."""
    return number.to_bytes(8, "little").hex()


def new_log(store: MemoryStore) -> Log[State]:
    """The log of the table, as one more process."""
    return Log.open(store, "t/_log", TableMachine(), clock=SystemClock(), ids=IDS)


@dataclass(frozen=True, slots=True)
class Inserted:
    """What inserts and merges have cost; CPU seconds a commit."""

    ratio: float
    """Bytes of checkpoints, for a byte of log entries."""
    commit_s: float
    """The commit alone: what its caller waits for, but for the store."""
    all_s: float
    """With its share of checkpoints, and of looking up the parts of partitions that are merged."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One line of the result; times in seconds."""

    parts: int
    cost: Inserted
    root: int
    open_s: float
    gets: int
    at_rest: int
    hot_s: float
    columns: int
    plan_partition_s: float
    plan_key_s: float


def measure(parts: int, columns: int) -> Figures:
    """One line of the result."""
    store = MemoryStore()
    log = new_log(store)
    log.commit(lambda _: [CreateTable(schema(columns))])
    many = min(1000, COLUMNS_MAX // columns)
    for first in range(0, parts, many):
        new = tuple(part((first + n) // PARTITION, 0, columns) for n in range(many))
        log.commit(lambda _, new=new: [AddParts(new)])
    log.write_checkpoint()
    log = new_log(store)
    cost = inserted(store, log, max(parts // PARTITION, 1), columns)
    log.write_checkpoint()
    size = len(store.get(f"t/_log/checkpoints/{log.state.version:020d}.arrow"))
    del log
    gc.collect()
    tracemalloc.start()
    before, started = store.counters, time.process_time()
    opened = new_log(store)
    one = opened.state.partitions["7"]
    open_s, gets = time.process_time() - started, (store.counters - before).get
    gc.collect()
    at_rest = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()
    tracemalloc.stop()
    started = time.process_time()
    opened.state.partitions.read(opened.state.partitions)
    hot_s, columns = time.process_time() - started, pa.total_allocated_bytes()
    handle = TableHandle(store, "t", opened, clock=SystemClock(), ids=IDS)
    snapshot = handle.snapshot()
    key = int.from_bytes(bytes.fromhex(one[3].manifest.key_range[0]), "little") + 5
    plans = [_planned(store, snapshot, where) for where in (f"column_1 = 7 AND column_0 > {key}", f"column_0 = {key}")]
    gc.collect()
    return Figures(parts, cost, size, open_s, gets, at_rest, hot_s, columns, *plans)


def inserted(store: MemoryStore, log: Log[State], partitions: int, columns: int = COLUMNS) -> Inserted:
    """Insert and merge."""
    settle()
    version, before, began_s = log.state.version, store.counters, time.process_time()
    made_s = commit_s = 0.0
    for n in range(COMMITS):
        at_s = time.thread_time()
        new = [part(n % partitions, log.state.version, columns) for _ in range(1 + (n % 4 == 3))]
        made_s += time.thread_time() - at_s
        commit_s += _committed(log, AddParts((new[0],)))
        if n % 4 == 3:
            held = log.state.partitions[new[0].partition_id]
            commit_s += _committed(log, Publish(new[1], tuple(each.manifest.id for each in held[-2:])))
    settle()
    all_s, written = time.process_time() - began_s - made_s, (store.counters - before).bytes_put
    last = log.state.version
    entries = sum(len(store.get(f"t/_log/{each:020d}.json")) for each in range(version + 1, last + 1))
    return Inserted((written - entries) / entries, commit_s / (last - version), all_s / (last - version))


def _committed(log: Log[State], op: TableOp) -> float:
    """CPU seconds of a commit."""
    started = time.thread_time()
    log.commit(lambda _: [op])
    return time.thread_time() - started


def told(found: Figures) -> list[str]:
    """A row of the table."""
    return [
        f"{found.parts:,}",
        f"{found.cost.ratio:.2f}",
        f"{found.cost.commit_s * 1000:.2f} ms, {found.cost.all_s * 1000:.2f}",
        f"{found.root / 1000:,.0f} kB",
        f"{found.open_s:.2f} s, {found.gets}",
        f"{found.at_rest / 1e6:,.0f} MB",
        f"{found.hot_s:.2f} s, {found.columns / 1e6:,.0f} MB",
        f"{found.plan_partition_s * 1000:.1f} ms",
        f"{found.plan_key_s * 1000:.1f} ms",
    ]


def picture(found: Sequence[Figures]) -> str:
    """The curves."""
    series = {
        "metadata bytes / entry bytes": [1 + each.cost.ratio for each in found],
        "a commit, ms of CPU": [each.cost.commit_s * 1000 for each in found],
        "with checkpoints and merges": [each.cost.all_s * 1000 for each in found],
        "open + one partition, GETs": [float(each.gets) for each in found],
        "open + one partition, MB": [each.at_rest / 1e6 for each in found],
        "plan of one partition, ms": [each.plan_partition_s * 1000 for each in found],
        "plan of a key look-up, ms": [each.plan_key_s * 1000 for each in found],
    }
    return svg("What metadata costs against the number of parts", "parts", [each.parts for each in found], series)


def _planned(store: MemoryStore, snapshot: Snapshot, where: str) -> float:
    """Processor seconds of planning, the second time."""
    request = ScanRequest(columns=("column_0",), where=where)
    caches = PartCache()
    for _ in range(2):
        started = time.process_time()
        found = plan_scan(store, "t", snapshot, request, caches, count_steps=False)
        took = time.process_time() - started
    assert found.items
    return took


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="What the metadata of a table costs against its size")
    parser.add_argument("parts", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--picture", type=Path, help="where to draw the curves, as SVG")
    parser.add_argument("--columns", type=int, default=COLUMNS)
    options = parser.parse_args()
    title = f"Metadata against size: {options.columns:,} columns, {PARTITION} parts a partition"
    table = Table(title=title, title_justify="left")
    for name in (
        "parts",
        "checkpoints / entries, bytes",
        "CPU a commit, with checkpoints",
        "root",
        "open, one partition: CPU, GETs",
        "memory",
        "all columns: CPU, memory",
        "plan: partition",
        "key",
    ):
        table.add_column(name, justify="right")
    found = [measure(parts, options.columns) for parts in options.parts]
    for each in found:
        table.add_row(*told(each))
    Console(width=120).print(table)
    if options.picture is not None:
        options.picture.write_text(picture(found))


if __name__ == "__main__":
    main()
