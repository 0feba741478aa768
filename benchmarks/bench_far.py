"""Reads of a store that answers after a while: time at several latencies, and the requests of each statement.

`python -m benchmarks.bench_far [MS …]`. The store is in memory and waits before each answer, so what is measured is how
often a read waits, and what it does meanwhile; not bandwidth.

`python -m benchmarks.bench_far --cache [MS]`: each statement as the first and again, in new processes: without a cache
directory, with one that is empty, and with that one. Requests are those for data.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import mergelake as ml
from benchmarks.common import median_of
from mergelake.query.attach import attached
from mergelake.store.cache.cache_dir import CacheDir
from mergelake.store.cache.cached import CachedStore
from mergelake.store.interface.protocol import Buffer, Store, StoreSpec
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore

ROWS = 500_000
PARTS = 3
SMALL_PARTS = 300
BEGIN = 1_767_225_600
CREATE = """CREATE TABLE {}
    (ts DateTime, service LowCardinality(String), user_id UInt64, latency Float64, message String)
    ENGINE = {} ORDER BY (service, ts)"""
STATEMENTS = {
    "count": "SELECT count() FROM logs",
    "look-up by key": f"SELECT * FROM logs WHERE service = 'svc07' AND ts = toDateTime({BEGIN} + 4321)",
    "group by": "SELECT service, avg(latency), uniq(user_id) FROM logs GROUP BY service",
    "LIKE": "SELECT count() FROM logs WHERE message LIKE '%user 777'",
    "FINAL": "SELECT count(), sum(latency) FROM latest FINAL",
    "group by, 300 small parts": "SELECT service, avg(latency) FROM small GROUP BY service",
    "look-up, 300 small parts": f"SELECT * FROM small WHERE service = 'svc07' AND ts = toDateTime({BEGIN} + 4321)",
}


class SlowStore(MemoryStore):
    """In memory, and as slow to answer as a bucket."""

    def __init__(self) -> None:
        super().__init__(gap=1 << 20)
        self.url = f"slow://{self.url.partition('://')[2]}"
        self.spec = StoreSpec.of(self.url)
        self.delay_s = 0.0

    def get(self, key: str) -> bytes:
        """The whole object, late."""
        time.sleep(self.delay_s)
        return super().get(key)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Ranges of an object, late."""
        time.sleep(self.delay_s)
        return super().get_ranges(key, ranges)


class SlowDirectory(DirectoryStore):
    """On disk, so that other processes find it."""

    def __init__(self, root: str, delay_s: float) -> None:
        super().__init__(root, gap=1 << 20, sync=False)
        self.url = f"slow://{root}"
        self.delay_s = delay_s

    def get(self, key: str) -> bytes:
        """The whole object, late."""
        time.sleep(self.delay_s)
        return super().get(key)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Ranges of an object, late."""
        time.sleep(self.delay_s)
        return super().get_ranges(key, ranges)


def rows(rng: np.random.Generator, count: int) -> pa.Table:
    """Log rows of one day."""
    services = np.array([f"svc{i:02d}" for i in range(20)])
    users = rng.integers(0, 50_000, count)
    return pa.table(
        {
            "ts": pa.array((BEGIN + rng.integers(0, 86_400, count)).astype("datetime64[s]")),
            "service": services[rng.integers(0, 20, count)],
            "user_id": users.astype(np.uint64),
            "latency": rng.random(count),
            "message": [f"request {i} of user {user}" for i, user in enumerate(users)],
        }
    )


def main(delays_ms: Sequence[int]) -> None:
    """Print a table."""
    store = SlowStore()
    db = _filled(store)
    calls: dict[str, Callable[[], object]] = {name: partial(db.sql, text) for name, text in STATEMENTS.items()}
    logs = db.table("logs")
    calls["scan: first 10 by key"] = lambda: logs.scan(ordered=True, limit=10).arrow()
    calls["scan: two columns"] = lambda: logs.scan(["service", "latency"]).arrow()
    shown = Table(title=f"Reads of a far store, read before: {PARTS} parts of {ROWS:,} rows", title_justify="left")
    for title in ("", "requests", *(f"ms at {delay}" for delay in delays_ms)):
        shown.add_column(title, justify="right" if title else "left")
    for name, call in calls.items():
        call()
        before = store.counters
        call()
        cells = [str((store.counters - before).requests)]
        for delay in delays_ms:
            store.delay_s = delay / 1000
            cells.append(f"{1000 * median_of(5, call):,.0f}")
        store.delay_s = 0.0
        shown.add_row(name, *cells)
    Console(width=120).print(shown)


def _filled(store: Store) -> ml.Database:
    rng = np.random.default_rng(1)
    db = ml.Database(ml.Warehouse(store))
    for name, engine, count, parts in (
        ("logs", "MergeTree", ROWS, PARTS),
        ("latest", "ReplacingMergeTree", 100_000, 5),
        ("small", "MergeTree", 2000, SMALL_PARTS),
    ):
        db.sql(CREATE.format(name, engine))
        for _ in range(parts):
            db.table(name).append(rows(rng, count))
    return db


def with_cache(delay_ms: int) -> None:
    """Print a table of what processes took, one after the other."""
    with tempfile.TemporaryDirectory(prefix="mergelake-far-") as folder:
        _filled(SlowDirectory(f"{folder}/store", 0.0))
        kinds = {"without": "", "empty": f"{folder}/cache", "warm": f"{folder}/cache"}
        found = {}
        for kind, cache in kinds.items():
            told = [sys.executable, "-m", "benchmarks.bench_far", "--process", f"{folder}/store", cache, str(delay_ms)]
            found[kind] = json.loads(subprocess.run(told, capture_output=True, text=True, check=True).stdout)
    shown = Table(title=f"ms and requests for data, {delay_ms} ms each, in a new process", title_justify="left")
    shown.add_column("")
    for kind in kinds:
        for when in ("first", "again"):
            shown.add_column(f"{kind}: {when}", justify="right")
    for name in STATEMENTS:
        shown.add_row(name, *(f"{ms:,.0f} / {asked}" for kind in kinds for ms, asked in found[kind][name]))
    Console(width=140).print(shown)


def one_process(root: str, cache: str, delay_ms: int) -> None:
    """Run each statement five times; print those that count, as JSON."""
    slow = SlowDirectory(root, delay_ms / 1000)
    store = CachedStore(slow, CacheDir(cache, 10 << 30)) if cache else slow
    db = ml.Database(ml.Warehouse(store))
    found = {}
    for name, text in STATEMENTS.items():
        taken = []
        for _ in range(5):
            before, started = store.counters, time.perf_counter()
            db.sql(text)
            ms = 1000 * (time.perf_counter() - started)
            attached.SETS.settle()
            taken.append((ms, (store.counters - before).details.get("get data", 0)))
        found[name] = taken[0], taken[-1]
    print(json.dumps(found))


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["--process"]:
        one_process(given[1], given[2], int(given[3]))
    elif "--cache" in given:
        with_cache(int(next((each for each in given if each != "--cache"), 30)))
    else:
        main([int(delay) for delay in given] or [0, 30, 100])
