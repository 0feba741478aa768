"""Commits a second through ZooKeeper beside a bucket that takes its time: does the copying keep up, and bound nothing?

    python benchmarks/bench_sealing.py [seconds] [milliseconds a request]

Writers are threads, of one process or of several that race each other for positions. *Left to copy* is how many entries
had not reached the bucket when the writers stopped. ZooKeeper runs on the same machine, and is started and stopped by
this script.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import bench_commit
from benchmarks.bench_commit import Place, Processes, warm
from mergelake.log.backends.keeper import close_all
from mergelake.store import StoreSpec

CASTS = ((1, 1), (1, 64), (4, 1), (8, 1), (8, 8), (16, 1), (64, 1))
"""Processes, and threads of each."""


class Distant:
    """A store that is so many seconds away."""

    def __init__(self, store: Any, away_s: float) -> None:
        self._store, self._away_s = store, away_s

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in ("get", "get_range", "get_ranges", "put", "put_large", "create", "head", "list", "delete"):
            return call

        def asked(*arguments: Any) -> Any:
            time.sleep(self._away_s)
            return call(*arguments)

        return asked


@dataclass(frozen=True)
class DistantSpec:
    """How another process opens it."""

    spec: StoreSpec
    away_s: float

    def open(self) -> Any:
        """The store."""
        return Distant(self.spec.open(), self.away_s)


@dataclass(frozen=True)
class Cast:
    """A log, and how many threads of each process commit to it."""

    place: Place
    prefix: str
    threads: int

    def open(self, prefix: str) -> Any:
        """The log, and the number of threads."""
        return self.place.open(prefix), self.threads

    def create(self) -> str:
        """It is there."""
        return self.prefix


def commit_until(opened: Any, end_s: float) -> tuple[list[float], int]:
    """As in `bench_commit`, by several threads."""
    log, count = opened
    with ThreadPoolExecutor(count) as pool:
        done = list(pool.map(lambda _: _commit_until(log, end_s), range(count)))
    return [each for took, _ in done for each in took], sum(lost for _, lost in done)


_commit_until = bench_commit.commit_until


def sealed(store: Any, prefix: str) -> int:
    """The last entry that has reached the bucket: where the last object begins, so a few more may have."""
    names = (item.key.rpartition("/")[2] for item in store.list(prefix))
    return max((int(name[:20]) for name in names if name[:20].isdigit()), default=0)


def main(seconds: float = 4.0, away_ms: float = 30.0) -> None:
    """Measure and print."""
    bench_commit.commit_until = commit_until
    processes = Processes(max(count for count, _ in CASTS))
    warm()
    title = f"Commits through ZooKeeper, {away_ms:g} ms a request to the bucket, {seconds:g} s each"
    table = Table(title=title, title_justify="left")
    for name in ("processes", "threads", "commits/s", "entries/s", "p50, ms", "p99, ms", "left to copy"):
        table.add_column(name, justify="right")
    with bench_commit.places(["zookeeper"]) as found:
        near = found[0].spec.open()
        spec: Any = DistantSpec(found[0].spec, away_ms / 1000)
        place = replace(found[0], spec=spec)
        for count, threads in CASTS:
            cast: Any = Cast(place, place.create(), threads)
            done = processes.run(cast, count, seconds)
            reached, state = sealed(near, cast.prefix), place.open(cast.prefix).state
            took = sorted(each for commits, _ in done for each in commits)
            table.add_row(
                str(count), str(threads), f"{len(took) / seconds:,.0f}", f"{state.version / seconds:,.0f}",
                f"{1000 * took[len(took) // 2]:.1f}", f"{1000 * took[int(0.99 * (len(took) - 1))]:.0f}",
                str(state.version - reached),
            )  # fmt: skip
        processes.leave()
        close_all()
    Console(width=120).print(table)


if __name__ == "__main__":
    main(*(float(number) for number in sys.argv[1:3]))
