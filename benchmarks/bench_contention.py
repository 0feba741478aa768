"""Processes that commit to one table without a leader, on a store whose requests take their time.

    python -m benchmarks.bench_contention [seconds] [milliseconds a request] [writers …]

The store is a directory, without syncing; each request waits half of its time before and half after. Every writer is a
process of its own, adds one part an entry, and begins the next commit when it has the answer of the last. *share* is
what the slowest writer committed for each commit of the fastest one.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.bench_commit import CLOCK, IDS, SCHEMA, part, warm
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import AddParts, CreateTable
from mergelake.log.model.state import State
from mergelake.log.storage.machine import TableMachine
from mergelake.store import Store, open_store

WRITERS = (1, 2, 4, 16)
SLOW = ("get", "get_range", "get_ranges", "put", "create", "head", "delete")


class SlowStore:
    """A store each of whose requests takes so many seconds more."""

    def __init__(self, store: Store, request_s: float) -> None:
        self._store, self._half_s = store, request_s / 2
        self.spec, self.url = store.spec, store.url
        for name in SLOW:
            setattr(self, name, self._slowly(getattr(store, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _slowly(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any) -> Any:
            time.sleep(self._half_s)
            try:
                return call(*arguments)
            finally:
                time.sleep(self._half_s)

        return slow

    def list(self, prefix: str, after: str = "") -> Iterator[Any]:
        """One page."""
        found: Iterable[Any] = self._slowly(lambda: list(self._store.list(prefix, after)))()
        return iter(found)


def open_log(folder: str, request_s: float) -> Log[State]:
    """The log, as one more process; and its store."""
    store: Any = SlowStore(open_store(folder, {"sync": "false"}), request_s)
    return Log.open(store, "t/_log", TableMachine(), clock=CLOCK, ids=IDS)


def work(pipe: Connection, folder: str, request_s: float) -> None:
    """One writer."""
    warm()
    log = open_log(folder, request_s)
    store: Any = log._store
    pipe.send("ready")
    end_s = pipe.recv()
    before, took = store.counters, []
    while (began_s := time.monotonic()) < end_s:
        log.commit(lambda _: [AddParts((part(),))])
        took.append(time.monotonic() - began_s)
    pipe.send((took, (store.counters - before).requests))


def measure(writers: int, seconds: float, request_s: float) -> tuple[list[list[float]], int]:
    """Seconds of each commit of each writer, and requests."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as folder:
        open_log(folder, 0.0).commit(lambda _: [CreateTable(SCHEMA)])
        pipes = []
        for _ in range(writers):
            ours, theirs = context.Pipe()
            context.Process(target=work, args=(theirs, folder, request_s), daemon=True).start()
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        for pipe in pipes:
            pipe.send(time.monotonic() + seconds)
        found = [pipe.recv() for pipe in pipes]
    return [took for took, _ in found], sum(requests for _, requests in found)


def main(seconds: float = 10.0, request_ms: float = 30.0, *counts: float) -> None:
    """Measure and print."""
    title = f"Processes that commit to one table, {request_ms:g} ms a request, {seconds:g} s"
    table = Table(title=title, title_justify="left")
    for name in ("writers", "commits/s", "requests a commit", "p50, ms", "p99, ms", "worst, ms", "share"):
        table.add_column(name, justify="right")
    for writers in map(int, counts or WRITERS):
        took_s, requests = measure(writers, seconds, request_ms / 1000)
        took, per = sorted(each for writer in took_s for each in writer), sorted(map(len, took_s))
        p50, p99, worst = (1000 * took[int(share * (len(took) - 1))] for share in (0.5, 0.99, 1.0))
        table.add_row(
            str(writers), f"{len(took) / seconds:.1f}", f"{requests / len(took):.1f}", f"{p50:.0f}", f"{p99:.0f}",
            f"{worst:.0f}", f"{per[0] / per[-1]:.2f}",
        )  # fmt: skip
    Console(width=100).print(table)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
