"""Real processes that are killed at random moments: writers, nodes and collectors on one warehouse.

A writer notes each batch that was acknowledged in a file of its own, which outlives it; whoever takes its place sends
the first batch that is not noted again, with the same token. In the end each acknowledged row is there exactly once,
and no other row more than once.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa

import mergelake as ml
from mergelake.core.base.errors import ConflictError, UnavailableError

EXPLAINED = (ConflictError, UnavailableError)
"""What a process of a cluster under fire has to live with; anything else ends it, and the test."""
ROWS = 20
SLOT = 10**9
"""Rows of a writer begin at its number times this."""
CREATE = """CREATE TABLE t (k UInt64) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k SETTINGS
    gc_grace_seconds = 3, history_retention_seconds = 0, checkpoint_interval = 16, merge_upload_policy = 'volatile',
    volatile_upload_age_seconds = 2, volatile_lease_seconds = 5, merge_selector_base = 2"""


@dataclass
class Place:
    """How to reach the warehouse; it pickles."""

    url: str
    options: Mapping[str, str]
    log: str | None = None

    def open(self) -> ml.Database:
        return ml.connect(self.url, dict(self.options), log=self.log)


def batch_rows(slot: int, number: int) -> range:
    first = slot * SLOT + number * ROWS
    return range(first, first + ROWS)


def acknowledged(path: Path) -> int:
    """How many batches, counted from the first, were acknowledged. A last line that was cut off does not count."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def writer(place: Place, folder: str, slot: int) -> None:
    path = Path(folder) / f"writer-{slot}"
    number = acknowledged(path)
    while True:
        with suppress(*EXPLAINED):
            table = place.open().table("t")
            while True:
                table.append(pa.table({"k": pa.array(batch_rows(slot, number), pa.uint64())}), f"{slot}-{number}")
                with path.open("ab") as file:
                    file.write(b"%d\n" % number)
                number += 1
        time.sleep(0.1)


def node(place: Place, folder: str, slot: int) -> None:
    while True:
        with suppress(*EXPLAINED):
            warehouse = place.open().warehouse
            warehouse.node(f"node-{slot}", poll_s=0.2, local=folder, roles=("merge", "upload")).run(Event())
        time.sleep(0.1)


def leader(place: Place, folder: str, slot: int) -> None:
    """A node that takes commits of the writers."""
    while True:
        with suppress(*EXPLAINED):
            warehouse = place.open().warehouse
            listening = warehouse.node(f"leader-{slot}", poll_s=0.2, roles=("merge",), listen="127.0.0.1:0")
            listening.run(Event())
        time.sleep(0.1)


def collector(place: Place, folder: str, slot: int) -> None:
    while True:
        with suppress(*EXPLAINED):
            warehouse = place.open().warehouse
            while True:
                warehouse.gc()
                time.sleep(0.3)
        time.sleep(0.1)


Role = Callable[[Place, str, int], None]


@dataclass
class Report:
    """What was done to the processes, and what became of the rows."""

    kills: int = 0
    stops: int = 0
    restarts: int = 0
    batches: int = 0
    version: int = 0
    parts: int = 0
    history: int = 0
    """The oldest version that the collectors left."""
    passed_on: int = 0
    """Commits in the last entries that one process appended for another."""


def torture(
    place: Place,
    *,
    kills: int,
    writers: int = 8,
    nodes: int = 2,
    leaders: int = 1,
    pause_s: float = 0.3,
    seed: int = 0,
    restarts: Sequence[tuple[int, Callable[[], None]]] = (),
    calm: Callable[[], None] = lambda: None,
) -> Report:
    """Kill `kills` processes, one about every `pause_s` seconds (one of ten is stopped for longer than the grace period
    instead), then look at the table. Leaders are hit as often as all others. `restarts`: what to do after so many
    kills. `calm` ends all other faults.
    """
    draw = random.Random(seed)
    place.open().sql(CREATE)
    context: Any = get_context("forkserver")
    context.set_forkserver_preload(["tests.helpers.torture"])
    roles: list[tuple[Role, int]] = [(writer, slot) for slot in range(writers)]
    roles += [(node, slot) for slot in range(nodes)] + [(collector, 0)]
    roles += [(leader, slot) for slot in range(leaders)]
    report = Report()
    with tempfile.TemporaryDirectory(prefix="mergelake-torture-") as folder:
        running = [_process(context, role, place, folder, slot) for role, slot in roles]
        try:
            for process in running:
                process.start()
            _until_all_write(folder, writers)
            stopped: list[tuple[float, int]] = []
            while report.kills < kills:
                time.sleep(pause_s * 2 * draw.random())
                now = time.monotonic()
                for due, pid in [item for item in stopped if item[0] <= now]:
                    stopped.remove((due, pid))
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                fallen = [process.name for process in running if process.exitcode is not None]
                assert not fallen, f"{fallen} ended by themselves"
                at = draw.randrange(len(running))
                if leaders and draw.random() < 0.5:
                    at = len(running) - 1 - draw.randrange(leaders)
                if draw.random() < 0.1:
                    os.kill(running[at].pid, signal.SIGSTOP)
                    stopped.append((now + 6.0 * draw.random(), running[at].pid))
                    report.stops += 1
                    continue
                os.kill(running[at].pid, signal.SIGKILL)
                running[at].join()
                report.kills += 1
                for after, act in restarts:
                    if after == report.kills:
                        act()
                        report.restarts += 1
                role, slot = roles[at]
                running[at] = _process(context, role, place, folder, slot)
                running[at].start()
        finally:
            for process in running:
                if process.pid is not None:
                    process.kill()
                    process.join()
        calm()
        batches = {slot: acknowledged(Path(folder) / f"writer-{slot}") for slot in range(writers)}
    return check(place, batches, report)


def _process(context: Any, role: Role, place: Place, folder: str, slot: int) -> Any:
    name = f"{role.__name__} {slot}"
    return context.Process(target=role, name=name, args=(place, folder, slot), daemon=True)


def _until_all_write(folder: str, writers: int) -> None:
    end = time.monotonic() + 120
    while any(not acknowledged(Path(folder) / f"writer-{slot}") for slot in range(writers)):
        assert time.monotonic() < end, "the writers do not begin"
        time.sleep(0.2)


def check(place: Place, batches: Mapping[int, int], report: Report) -> Report:
    """Every acknowledged row exactly once, no row twice, a batch whole or not at all, and a clean fsck."""
    warehouse = place.open().warehouse
    table = warehouse.table("t")
    found = Counter(table.scan().arrow().column("k").to_pylist())
    assert not [k for k, count in found.items() if count > 1], "rows are there twice"
    for slot, count in batches.items():
        missing = [number for number in range(count) if not all(k in found for k in batch_rows(slot, number))]
        assert not missing, f"batches {missing[:5]} of writer {slot} were acknowledged, and are not there"
        last = sum(k in found for k in batch_rows(slot, count))
        assert last in (0, ROWS), "a batch is there in part"
    most = sum(batches.values()) * ROWS + len(batches) * ROWS
    assert sum(found.values()) <= most, "there are rows that nobody sent"
    for name, found_bad in warehouse.fsck("t"):
        assert found_bad.clean, f"fsck of {name}: {found_bad.findings[:3]}"
    report.batches = sum(batches.values())
    state = table.state()
    entries = table.handle.log.entries(max(state.history, state.version - 200, 1))
    passed = [member for entry in entries for member in entry.members if member.author != entry.author]
    report.passed_on = len(passed)
    report.version, report.parts, report.history = state.version, state.part_count, state.history
    return report
