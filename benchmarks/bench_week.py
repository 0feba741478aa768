"""A busy table's log after some days of one insert a second, by a clock that is moved: bytes, objects, CPU a commit.

    python -m benchmarks.bench_week [DAYS] [PARTS]

Default settings; parts of ten columns in partitions of a hundred. A part is inserted every second, and every fourth
insert is followed by a merge of the last five parts of its partition, so that the table keeps its size. A collector
makes a round every hour. Only the log is there, in memory. Every day is a line of the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks.bench_metadata import IDS, PARTITION, SCHEMA, part
from mergelake.core.base.clock import ManualClock
from mergelake.jobs.gc.collect import collect_round
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import AddParts, CreateTable, Publish
from mergelake.log.model.state import State
from mergelake.log.storage.machine import TableMachine
from mergelake.store.interface.protocol import ObjectMeta, PutOutcome
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.handle.handle import TableHandle
from tests.helpers.background import settle

DAY_S, ROUND_S = 86400, 3600
BESIDE, INTAKE = "t/_log/checkpoints", "t/_log/intake"


class LogStore(MemoryStore):
    """A store in memory that lists checkpoints, and the empty intake, without looking at each entry."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self._beside: set[str] = set()

    def create(self, key: str, data: bytes) -> PutOutcome:
        """As ever."""
        if key.startswith(BESIDE):
            self._beside.add(key)
        return super().create(key, data)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectMeta]:
        """As ever."""
        if prefix.startswith(INTAKE):
            return
        if prefix != BESIDE or after:
            yield from super().list(prefix, after)
            return
        there = self._space.objects
        self._beside &= there.keys()
        for key in sorted(self._beside):
            yield ObjectMeta(key, len(there[key][0]), there[key][1])


def main(days: int, parts: int) -> None:
    """Print a table."""
    clock = ManualClock()
    store = LogStore(clock)
    log: Log[State] = Log.open(store, "t/_log", TableMachine(), clock=clock, ids=IDS)
    log.commit(lambda _: [CreateTable(SCHEMA)])
    for first in range(0, parts, 1000):
        log.commit(lambda _, first=first: [AddParts(tuple(part((first + n) // PARTITION) for n in range(1000)))])
        settle()
    handle = TableHandle(store, "t", log, clock=clock, ids=IDS)
    table = Table(title=f"One insert a second into {parts:,} parts", title_justify="left")
    for name in (
        "day",
        "versions",
        "kept",
        "retired parts",
        "_log",
        "checkpoints",
        "written / entries",
        "CPU a commit",
    ):
        table.add_column(name, justify="right")
    for day in range(1, days + 1):
        table.add_row(str(day), *_day(handle, store, clock, parts // PARTITION))
        print(*(list(column.cells)[-1] for column in table.columns), sep="  ", flush=True)
    Console(width=120).print(table)


def _day(handle: TableHandle, store: LogStore, clock: ManualClock, partitions: int) -> list[str]:
    log, before, entry_bytes, cpu_s = handle.log, store.counters, 0, 0.0
    first = log.state.version
    for second in range(DAY_S):
        clock.advance_s(1)
        started = time.process_time()
        new = part(second // 4 % partitions, log.state.version)
        log.commit(lambda _, new=new: [AddParts((new,))])
        if second % 4 == 3:
            sources = tuple(each.manifest.id for each in log.state.partitions[new.partition_id][-5:])
            merged = part(second // 4 % partitions, log.state.version)
            log.commit(lambda _, merged=merged, sources=sources: [Publish(merged, sources)])
        settle()  # a checkpoint, before the clock moves
        cpu_s += time.process_time() - started
        if second % ROUND_S == 0:
            collect_round(handle)
    written = store.counters - before
    state = log.state
    for version in range(first + 1, state.version + 1):
        entry_bytes += len(store.get(f"t/_log/{version:020d}.json"))
    sizes = {key: len(data) for key, (data, _) in store._space.objects.items()}
    beside = sum(size for key, size in sizes.items() if key.startswith(BESIDE))
    return [
        f"{state.version:,}",
        f"{state.version - state.history:,}",
        f"{len(state.retired):,}",
        f"{sum(sizes.values()) / 1e9:.2f} GB",
        f"{beside / 1e9:.2f} GB",
        f"{written.bytes_put / entry_bytes:.2f}",
        f"{cpu_s / (state.version - first) * 1000:.2f} ms",
    ]


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:2] or ["7"]), *(int(each) for each in sys.argv[2:3] or ["100000"]))
