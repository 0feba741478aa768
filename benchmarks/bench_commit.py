"""Commits a second to one table: 1, 8 and 32 writers, as threads and as processes, wherever the log may lie.

    python benchmarks/bench_commit.py [seconds] [memory directory s3 zookeeper]

Each writer adds an entry of one part, again and again (the part itself is not written). *Together* is the way it is:
threads of a process share entries. *One each* allows one caller an entry. Processes race each other for positions.
The S3 server and ZooKeeper run on the same machine, and are started and stopped by this script.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from rich.console import Console
from rich.table import Table

from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import RandomIds
from mergelake.core.model.manifest import Extent, PartFile, PartManifest, encode_files
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.log.backends.backends import Backends
from mergelake.log.backends.keeper import Address, close_all
from mergelake.log.commit import group
from mergelake.log.commit.commit import Log
from mergelake.log.commit.migrate import new_tree
from mergelake.log.model.operations import AddParts, CreateTable
from mergelake.log.model.state import State
from mergelake.log.storage.checkpoint import encode_checkpoint
from mergelake.log.storage.machine import TableMachine
from mergelake.store import Store, StoreSpec, open_store
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.services import ServiceUnavailable, service

WRITERS = (1, 8, 32)
CLOCK, IDS = SystemClock(), RandomIds()
SCHEMA = TableSchema((Column(0, "k", parse_type("Int64")),), order_by=("k",), primary_key=("k",))


@dataclass(frozen=True)
class Place:
    """Where a log lies: a store, and, if it is there, ZooKeeper."""

    name: str
    spec: StoreSpec
    zookeeper: str = ""
    store: Store | None = None
    """Of a place that other processes cannot reach."""

    def open(self, prefix: str) -> Log[State]:
        """The log below `prefix`, as one more process."""
        store = self.store or self.spec.open()
        return Log.open(store, prefix, TableMachine(), clock=CLOCK, ids=IDS, backends=Backends(self.zookeeper))

    def create(self) -> str:
        """A new table's log; its prefix."""
        prefix = f"{IDS.new_id()}/_log"
        log = self.open(prefix)
        store = self.store or self.spec.open()
        moves = [new_tree(Address.parse(self.zookeeper), store, prefix, CLOCK, IDS)] if self.zookeeper else []
        log.commit(lambda _: [CreateTable(SCHEMA), *moves])
        return prefix


def part() -> PartManifest:
    """A manifest of a small part with ten files in one object."""
    name = IDS.new_id()
    files = [PartFile(f"c{n}.bin", 1000, (Extent(f"{name}/files.packed", n * 1000, 1000),), name) for n in range(10)]
    return PartManifest(name, "all", 1000, encode_files(files), marks=1, bytes_on_disk=10_000, columns=(0,))


def commit_until(log: Log[State], end_s: float) -> tuple[list[float], int]:
    """Commit until then; seconds of each commit, and races lost. Whoever calls has warmed up (`warm`)."""
    took, lost = [], 0
    while (started := time.monotonic()) < end_s:
        lost += log.commit(lambda _: [AddParts((part(),))]).races_lost
        took.append(time.monotonic() - started)
    return took, lost


def warm() -> None:
    """Load what the first checkpoint of a process loads."""
    encode_checkpoint(State())


def of_threads(place: Place, writers: int, seconds: float) -> list[tuple[list[float], int]]:
    """Threads that share one log."""
    log = place.open(place.create())
    end_s = time.monotonic() + seconds
    with ThreadPoolExecutor(writers) as pool:
        return list(pool.map(lambda _: commit_until(log, end_s), range(writers)))


class Processes:
    """Writers in processes of their own, forked before anything else is started, and used again and again."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            context.Process(target=self._serve, args=(theirs,), daemon=True).start()
            self._pipes.append(ours)

    @staticmethod
    def _serve(pipe: Connection) -> None:
        while True:
            job = pipe.recv()
            if job is None:
                close_all()
                pipe.send("left")
                return
            place, prefix = job
            log = place.open(prefix)
            warm()
            pipe.send("ready")
            end_s = pipe.recv()
            try:
                pipe.send(commit_until(log, end_s))
            except MergelakeError as failure:
                pipe.send(failure)

    def leave(self) -> None:
        """End them, and their sessions."""
        for pipe in self._pipes:
            pipe.send(None)
        for pipe in self._pipes:
            pipe.recv()

    def run(self, place: Place, writers: int, seconds: float) -> list[tuple[list[float], int]]:
        """As many of them, each with a log of its own."""
        prefix, pipes = place.create(), self._pipes[:writers]
        for pipe in pipes:
            pipe.send((place, prefix))
        for pipe in pipes:
            pipe.recv()
        end_s = time.monotonic() + seconds
        for pipe in pipes:
            pipe.send(end_s)
        found = [pipe.recv() for pipe in pipes]
        for failure in found:
            if isinstance(failure, MergelakeError):
                raise failure
        return found


def show(
    table: Table, place: str, writers: int, how: str, seconds: float, found: list[tuple[list[float], int]]
) -> None:
    """One line of the result."""
    took = sorted(each for took, _ in found for each in took)
    counts = sorted(len(took) for took, _ in found)
    lost = sum(lost for _, lost in found)
    table.add_row(
        place, str(writers), how, f"{len(took) / seconds:,.0f}", f"{1000 * took[len(took) // 2]:.1f}",
        f"{1000 * took[int(0.99 * (len(took) - 1))]:.0f}", f"{1000 * took[-1]:.0f}", f"{lost / len(took):.1f}",
        f"{counts[0]} to {counts[-1]}",
    )  # fmt: skip


@contextmanager
def places(names: list[str]) -> Iterator[list[Place]]:
    """The places that can be had here."""
    with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as folder:
        found = []
        if "memory" in names:
            memory = MemoryStore()
            found.append(Place("memory", memory.spec, store=memory))
        if "directory" in names:
            found.append(Place("directory", open_store(folder).spec))
        with _s3("s3" in names) as s3, _zookeeper("zookeeper" in names) as hosts:
            if s3 is not None:
                found.append(Place("S3", s3))
            if hosts:
                found.append(Place("ZooKeeper", open_store(folder).spec, f"zookeeper://{hosts}/bench-{IDS.new_id()}"))
            yield found


@contextmanager
def _s3(wanted: bool) -> Iterator[StoreSpec | None]:
    if not wanted:
        yield None
        return
    try:
        with service("s3") as s3:
            options = {
                "access_key_id": s3["AWS_ACCESS_KEY_ID"], "secret_access_key": s3["AWS_SECRET_ACCESS_KEY"],
                "endpoint": s3["S3_ENDPOINT"], "region": "us-east-1",
            }  # fmt: skip
            yield open_store(f"s3://{s3['S3_BUCKET']}/bench", options).spec
    except ServiceUnavailable as why:
        print(f"no S3 server: {why}", file=sys.stderr)
        yield None


@contextmanager
def _zookeeper(wanted: bool) -> Iterator[str]:
    if not wanted:
        yield ""
        return
    try:
        with service("zookeeper", ports=1, ZK_FSYNC="no") as zookeeper:
            yield zookeeper["ZOOKEEPER_HOSTS"]
    except ServiceUnavailable as why:
        print(f"no ZooKeeper: {why}", file=sys.stderr)
        yield ""


def main(seconds: float = 3.0, names: list[str] | None = None) -> None:
    """Measure and print."""
    table = Table(title=f"Commits to one table, {seconds:g} s each", title_justify="left")
    columns = ("log", "writers", "how", "commits/s", "p50, ms", "p99, ms", "worst, ms", "races lost each", "per writer")
    for name in columns:
        table.add_column(name, justify="left" if name in ("log", "how") else "right")
    processes = Processes(max(WRITERS))
    callers = group.CALLERS_MAX
    warm()
    with places(names or ["memory", "directory", "s3", "zookeeper"]) as found:
        for place in found:
            for writers in WRITERS:
                show(table, place.name, writers, "threads, together", seconds, of_threads(place, writers, seconds))
                if writers > 1:
                    group.CALLERS_MAX = 1
                    show(table, place.name, writers, "threads, one each", seconds, of_threads(place, writers, seconds))
                    group.CALLERS_MAX = callers
                if place.store is None:
                    show(table, place.name, writers, "processes", seconds, processes.run(place, writers, seconds))
            table.add_section()
        processes.leave()
        close_all()
    Console(width=130).print(table)


if __name__ == "__main__":
    main(*(float(number) for number in sys.argv[1:2]), names=sys.argv[2:] or None)
