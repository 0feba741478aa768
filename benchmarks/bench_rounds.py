"""What a node, a publisher and a collector do again and again, against the size of the table: CPU time.

    python -m benchmarks.bench_rounds [1000 10000 100000]

Parts of ten columns in partitions of a hundred; their objects and names are listed by a store that makes listings up,
and what these cost alone is told apart. `first` is a round of a process that knows nothing yet.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from benchmarks.bench_metadata import IDS, PARTITION, SCHEMA, part
from mergelake.api.python.inspect import parts_table
from mergelake.core.base.clock import SystemClock
from mergelake.jobs.gc.collect import collect_round
from mergelake.jobs.gc.fsck import fsck
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.node.actions import NodeView, TableView
from mergelake.jobs.node.candidates import Memory
from mergelake.jobs.node.plan import tick
from mergelake.jobs.publish.publish import publish
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import AddParts, CreateTable
from mergelake.log.model.state import State
from mergelake.log.storage.machine import TableMachine
from mergelake.store.interface.protocol import ObjectMeta
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.handle.handle import TableHandle

CLOCK = SystemClock()
DIRECT = SCHEMA.with_settings({"merge_upload_policy": "direct"})


class Listing(MemoryStore):
    """A store that tells what its listings took."""

    spent_s = 0.0

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectMeta]:
        """As ever."""
        started = time.process_time()
        found = list(super().list(prefix, after))
        self.spent_s += time.process_time() - started
        return iter(found)


def timed(call: Callable[[], object], store: Listing | None = None) -> float:
    """CPU seconds, without those of listing."""
    gc.collect()
    started, before_s = time.process_time(), store.spent_s if store else 0.0
    call()
    return time.process_time() - started - ((store.spent_s - before_s) if store else 0.0)


def table(parts: int) -> TableHandle:
    """A table whose parts are objects of one byte, and shown to ClickHouse."""
    store = Listing()
    log: Log[State] = Log.open(store, "t/_log", TableMachine(), clock=CLOCK, ids=IDS)
    log.commit(lambda _: [CreateTable(DIRECT)])
    for first in range(0, parts, 50):  # collection reads some of the entries
        log.commit(lambda _, first=first: [AddParts(tuple(part((first + n) // PARTITION) for n in range(50)))])
    log.write_checkpoint()
    handle = TableHandle(store, "t", log, clock=CLOCK, ids=IDS)
    for held in log.state.parts():
        store.put(f"t/{held.manifest.id}/files.packed", b"x")
        token = f"plain-{held.manifest.id}"
        store.put(f"t/{token}/count.txt", b"x")
        store.put(f"t/__meta/{token}/prefix.path", f"{held.name}/".encode())
    return handle


def measure(parts: int) -> list[str]:
    """One column of the result."""
    handle = table(parts)
    state, memories = handle.log.state, dict[str, Memory]()
    view, now_ms = TableView("t", state), state.timestamp_ms

    def ticks(slots: int, later_s: int) -> Callable[[], object]:
        node = NodeView("node", now_ms + later_s * 1000, MergeSlots(total=slots))
        return lambda: tick(node, [view], memories)  # the view as it is by then

    out = {"tick, first": timed(ticks(32, 0))}
    out["tick, 32 slots"] = timed(ticks(32, 1))
    # No merge may have so many sources: nothing is due, whatever the age.
    idle = replace(state, schemas={state.schema_version: DIRECT.with_settings({"min_parts_to_merge_at_once": "101"})})
    view = TableView("t", idle)
    ticks(32, 2)()
    out["tick, idle"] = timed(ticks(32, 3))
    store = handle.store
    assert isinstance(store, Listing)
    before_s = store.spent_s
    out["publish, first"] = timed(lambda: publish(handle), store)
    out["publish, nothing new"] = timed(lambda: publish(handle), store)
    out["listing for each"] = (store.spent_s - before_s) / 2
    before_s = store.spent_s
    out["gc, first"] = timed(lambda: collect_round(handle), store)
    out["gc, nothing new"] = timed(lambda: collect_round(handle), store)
    out["listing for each "] = (store.spent_s - before_s) / 2
    out["fsck"] = timed(lambda: fsck(handle))
    out["t.parts()"] = timed(lambda: parts_table(state.parts()))
    return [f"{seconds * 1000:,.1f} ms" for seconds in out.values()]


NAMES = (
    *("tick, first", "tick, 32 slots", "tick, idle", "publish, first", "publish, nothing new", "listing for each"),
    *("gc, first", "gc, nothing new", "listing for each", "fsck", "t.parts()"),
)


def main(sizes: Sequence[int]) -> None:
    """Print a table."""
    shown = Table(title=f"Rounds against size: {PARTITION} parts a partition", title_justify="left")
    shown.add_column("")
    columns = [measure(parts) for parts in sizes]
    for parts in sizes:
        shown.add_column(f"{parts:,}", justify="right")
    for name, *row in zip(NAMES, *columns, strict=True):
        shown.add_row(name, *row)
    Console(width=120).print(shown)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [1000, 10_000, 100_000])
