"""Commits to one table through a leader, with 30 ms for each request to the store.

    python benchmarks/bench_leader.py [seconds] [processes x logs x threads …]

Senders are `processes` operating system processes, each with so many logs of its own (as if each were a process: it
folds every entry, and has its own connection) and so many threads on each log. The leader is one more process. The
store is a directory whose every request takes 30 ms; requests are those of all processes together.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.bench_commit import SCHEMA, part
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.ids import RandomIds
from mergelake.log.backends.backends import Backends
from mergelake.log.commit.commit import Log
from mergelake.log.commit.passing import SERVICE
from mergelake.log.model.operations import AddParts, CreateTable, RenewLease
from mergelake.log.model.state import State
from mergelake.log.relay.leader import CommitService
from mergelake.log.storage.machine import TableMachine
from mergelake.store import Store, open_store
from mergelake.store.peer import Listener, PeerClient

REQUEST_S = 0.03
CLOCK, IDS = SystemClock(), RandomIds()
PREFIX = "t/_log"


def slow_store(folder: str) -> Store:
    """A directory that is as far away as a bucket."""
    store: Any = open_store(folder)
    for name in ("get", "get_range", "get_ranges", "put", "put_large", "create", "head", "list", "delete"):
        setattr(store, name, _delayed(getattr(store, name)))
    return store  # type: ignore[no-any-return]


def _delayed(call: Any) -> Any:
    @functools.wraps(call)
    def delayed(*arguments: Any, **more: Any) -> Any:
        time.sleep(REQUEST_S)
        return call(*arguments, **more)

    return delayed


def open_log(store: Store, peers: PeerClient | None = None) -> Log[State]:
    """One more process's log."""
    return Log.open(store, PREFIX, TableMachine(), clock=CLOCK, ids=IDS, backends=Backends("", peers))


def requests(store: Store) -> int:
    """All that it was asked."""
    counters = store.counters
    return counters.put + counters.get + counters.list + counters.head + counters.delete


def lead(folder: str, pipe: Connection) -> None:
    """The leader: a log, a listener, and a lease that says so."""
    store, token = slow_store(folder), IDS.new_id()
    log = open_log(store)
    log.commit(lambda _: [CreateTable(SCHEMA)])
    listener, service = Listener("127.0.0.1", 0, token, clock=CLOCK, ids=IDS), CommitService()
    listener.serve(SERVICE, service)
    service.add(log)
    listener.start()
    address = f"127.0.0.1:{listener.port}"
    log.commit(lambda state: [RenewLease("leader", state.version, CLOCK.now_ms() + 3_600_000, address, token)])
    pipe.send("ready")
    pipe.recv()
    before, version = requests(store), log.state.version
    pipe.send("go")
    pipe.recv()
    entries = log.state.version - version
    pipe.send((requests(store) - before, entries))


@dataclass
class Sent:
    """What a sender's process has measured."""

    took: list[float]
    counts: list[int]
    requests: int


def send(folder: str, logs: int, threads: int, pipe: Connection) -> None:
    """Commit by so many threads on each of so many logs, from a moment to another."""
    stores = [slow_store(folder) for _ in range(logs)]
    opened = [open_log(store, PeerClient(clock=CLOCK, ids=IDS)) for store in stores]
    pipe.send("ready")
    begin_s, end_s = pipe.recv()
    before = [requests(store) for store in stores]
    took: list[list[float]] = [[] for _ in range(logs * threads)]

    def work(at: int) -> None:
        log = opened[at % logs]
        time.sleep(max(begin_s - time.monotonic(), 0))
        while (started := time.monotonic()) < end_s:
            log.commit(lambda _: [AddParts((part(),))])
            took[at].append(time.monotonic() - started)

    running = [threading.Thread(target=work, args=(at,)) for at in range(logs * threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    asked = sum(requests(store) - earlier for store, earlier in zip(stores, before, strict=True))
    pipe.send(Sent([each for one in took for each in one], list(map(len, took)), asked))


def measure(processes: int, logs: int, threads: int, seconds: float) -> list[str]:
    """One line of the result."""
    context = multiprocessing.get_context("fork")
    root = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mergelake-bench-", dir=root) as folder:
        leading, theirs = context.Pipe()
        context.Process(target=lead, args=(folder, theirs), daemon=True).start()
        leading.recv()
        pipes = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            context.Process(target=send, args=(folder, logs, threads, theirs), daemon=True).start()
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        leading.send("go")
        leading.recv()
        begin_s = time.monotonic() + 0.2
        for pipe in pipes:
            pipe.send((begin_s, begin_s + seconds))
        found: list[Sent] = [pipe.recv() for pipe in pipes]
        leading.send("end")
        asked, entries = leading.recv()
    took = sorted(each for one in found for each in one.took)
    counts = sorted(each for one in found for each in one.counts)
    total = asked + sum(one.requests for one in found)
    return [
        f"{processes} x {logs} x {threads}", f"{len(took) / seconds:,.0f}", f"{1000 * took[len(took) // 2]:.0f}",
        f"{1000 * took[int(0.99 * (len(took) - 1))]:.0f}", f"{1000 * took[-1]:.0f}", f"{total / len(took):.3f}",
        f"{len(took) / max(entries, 1):.1f}", f"{counts[0]} to {counts[-1]}",
    ]  # fmt: skip


def main(seconds: float = 5.0, shapes: list[str] | None = None) -> None:
    """Measure and print."""
    table = Table(title=f"Commits through a leader, {seconds:g} s each, 30 ms a request", title_justify="left")
    columns = ("processes x logs x threads", "commits/s", "p50, ms", "p99, ms", "worst, ms")
    for name in (*columns, "requests each", "commits an entry", "per sender"):
        table.add_column(name, justify="right")
    for shape in shapes or ["1x1x1", "4x1x1", "16x1x1", "64x1x1", "8x1x32"]:
        processes, logs, threads = map(int, shape.split("x"))
        table.add_row(*measure(processes, logs, threads, seconds))
    Console(width=130).print(table)


if __name__ == "__main__":
    main(*(float(number) for number in sys.argv[1:2]), shapes=sys.argv[2:] or None)
