"""Bytes written to the store for each byte inserted, and parts that readers see, by rate of inserts and by target.

    python -m benchmarks.bench_write_amplification                          # the quick points of the grid
    python -m benchmarks.bench_write_amplification all [FILE.json]          # all of it: hours
    python -m benchmarks.bench_write_amplification "6 MB/s" "24 h" 2.1      # one point
    python -m benchmarks.bench_write_amplification picture FILE.json [OUT.svg]   # of what `all` wrote

The real planner of a node and the real log state, on a clock that jumps: 32 merges at a time at 50 MB/s each, uploads
at 100 MB/s; after the last insert, as long as a partition takes to rest. A merge of n bytes gives n bytes. Compression,
which gets better as parts grow, would only lower the figures.
"""

from __future__ import annotations

import heapq
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.curves import trade
from mergelake.core.model.manifest import PartManifest, encode_files
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.merge.volatile import LocalPart, build_task
from mergelake.jobs.node.actions import (
    Action,
    Build,
    Discard,
    Merge,
    NodeView,
    Propose,
    PublishVolatile,
    TableView,
    Upload,
)
from mergelake.jobs.node.candidates import Memory
from mergelake.jobs.node.plan import tick
from mergelake.log.model.fold import apply
from mergelake.log.model.operations import (
    AddParts,
    AddVolatile,
    AdvanceGcHorizon,
    CreateTable,
    Entry,
    LogOp,
    MergeRecipe,
    Publish,
)
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves

Arrivals = Callable[[float], Iterator[tuple[float, dict[str, int]]]]
"""Seconds to insert for -> times and the bytes for each partition."""
BATCH = 6_000_000
HOUR_S, DAY_S, LOOK_S = 3600.0, 86400.0, 60.0
QUICK = (
    ("6 MB/s", "1 h"),
    ("6 MB/min", "24 h"),
    ("an hour a day", "24 h"),
    ("200 partitions", "1 h"),
    ("1 % late", "1 h"),
)
START_MS = 1_700_000_000_000
MERGE_BYTES_PER_S, UPLOAD_BYTES_PER_S = 50e6, 100e6
SLOTS = MergeSlots(total=32, lower_at_free=8, whole_partition_at_free=25)
SCHEMA = TableSchema((Column(0, "k", parse_type("UInt64")),), order_by=("k",), primary_key=("k",))


@dataclass
class Figures:
    """What a run adds up to; samples are taken while batches come."""

    inserted: int = 0
    stored: int = 0
    """Bytes of merges that went to the store."""
    uploads: int = 0
    merges: int = 0
    merging_s: float = 0.0
    parts: list[int] = field(default_factory=list)
    """Parts in the store: what a reader without the disk reads."""
    on_disk: list[int] = field(default_factory=list)
    """Bytes on the disk."""
    end: int = 0
    """Parts in the store once all partitions rest."""

    def row(self) -> dict[str, float]:
        """The figures of a table."""
        return {
            "amplification": 1 + self.stored / self.inserted,
            "average": sum(self.parts) / len(self.parts),
            "most": max(self.parts),
            "end": self.end,
            "disk": max(self.on_disk),
            "merging_s": self.merging_s,
            "uploads": self.uploads,
            "inserted": self.inserted,
        }


class Run:
    """One table, one node, one clock."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.now_s = 0.0
        self.ids = 0
        self.figures = Figures()
        self.state = State()
        self.memories: dict[str, Memory] = {}
        self.commit(CreateTable(SCHEMA.with_settings(settings)))
        self.local: dict[str, LocalPart] = {}
        self.merging: dict[frozenset[str], str] = {}
        self.building: set[str] = set()
        self.large: set[str] = set()
        self.uploading: set[str] = set()
        self.uploaded: dict[str, PartManifest] = {}
        self.due: list[tuple[float, int, Action, PartManifest]] = []

    @property
    def now_ms(self) -> int:
        """The clock."""
        return START_MS + round(self.now_s * 1000)

    def commit(self, *ops: LogOp) -> None:
        self.state = apply(self.state, Entry(self.state.version + 1, "", self.now_ms, "", ops))

    def part(self, size: int, partition: str) -> PartManifest:
        """The manifest of a part of so many bytes."""
        self.ids += 1
        return PartManifest(f"{self.ids:032x}", partition, size // 300, encode_files(()), bytes_on_disk=size)

    def insert(self, sizes: Mapping[str, int]) -> None:
        """One insert: a part for each partition."""
        self.figures.inserted += sum(sizes.values())
        self.commit(AddParts(tuple(self.part(size, partition) for partition, size in sizes.items())))

    def work(self) -> None:
        """Finish what is done by now, and start what is due, until nothing is."""
        while self.due and self.due[0][0] <= self.now_s:
            _, _, action, made = heapq.heappop(self.due)
            self.finish(action, made)
        actions: list[Action] = [PublishVolatile("t", "")]
        while actions:
            node = NodeView("node", self.now_ms, SLOTS, disk=True)
            view = TableView(
                "t", self.state, self.local, self.merging, frozenset(self.building), frozenset(self.uploading),
                frozenset(self.uploaded),
            )  # fmt: skip
            actions = [action for action in tick(node, [view], self.memories) if self.start(action)]

    def start(self, action: Action) -> bool:
        match action:
            case Merge(_, sources):
                self.merging[action.part_ids] = action.partition_id
                size = sum(part.manifest.bytes_on_disk for part in sources)
                self.later(action, size, action.partition_id, MERGE_BYTES_PER_S)
            case Propose(_, partition, source_ids):
                self.ids += 1
                self.commit(AddVolatile(f"{self.ids:032x}", partition, source_ids, MergeRecipe(1, self.now_ms), "node"))
            case Build(_, volatile_id):
                part = self.state.live(volatile_id)
                assert part is not None
                self.building.add(volatile_id)
                task = build_task("t", self.state, part, self.local)
                if not task.local:
                    self.large.add(volatile_id)
                self.later(action, task.bytes_on_disk, part.info.partition_id, MERGE_BYTES_PER_S)
            case Upload(_, volatile_id):
                self.uploading.add(volatile_id)
                held = self.local[volatile_id]
                self.later(action, held.manifest.bytes_on_disk, held.info.partition_id, UPLOAD_BYTES_PER_S)
            case PublishVolatile(_, volatile_id):
                part = self.state.live(volatile_id)
                assert part is not None
                replaced = tuple(
                    leaf.manifest.id for leaf in leaves(self.state.partitions[part.info.partition_id], part.info)
                )
                self.commit(Publish(self.uploaded.pop(volatile_id), replaced, "volatile", volatile_id))
            case Discard(_, ids):
                for volatile_id in ids:
                    del self.local[volatile_id]
            case _:
                return False
        return True

    def later(self, action: Action, size: int, partition: str, bytes_per_s: float) -> None:
        made = self.part(size, partition)
        if bytes_per_s == MERGE_BYTES_PER_S:
            self.figures.merging_s += size / bytes_per_s
        heapq.heappush(self.due, (self.now_s + size / bytes_per_s, self.ids, action, made))

    def finish(self, action: Action, made: PartManifest) -> None:
        figures = self.figures
        match action:
            case Merge():
                del self.merging[action.part_ids]
                self.commit(Publish(made, tuple(part.manifest.id for part in action.sources)))
                figures.stored += made.bytes_on_disk
                figures.uploads += 1
                figures.merges += 1
            case Build(_, volatile_id):
                part = self.state.live(volatile_id)
                assert part is not None
                self.building.remove(volatile_id)
                figures.merges += 1
                if volatile_id in self.large:
                    self.uploaded[volatile_id] = made
                    figures.stored += made.bytes_on_disk
                    figures.uploads += 1
                else:
                    self.local[volatile_id] = LocalPart(volatile_id, part.info, made)
            case Upload(_, volatile_id):
                self.uploading.remove(volatile_id)
                self.uploaded[volatile_id] = made
                figures.stored += made.bytes_on_disk
                figures.uploads += 1

    def sample(self) -> None:
        """Note what readers see now."""
        figures = self.figures
        figures.parts.append(self.state.part_count)
        figures.on_disk.append(sum(found.manifest.bytes_on_disk for found in self.local.values()))


def _steady(every_s: float) -> Arrivals:
    def at(until_s: float) -> Iterator[tuple[float, dict[str, int]]]:
        return ((number * every_s, {"all": BATCH}) for number in range(round(until_s / every_s)))

    return at


def _bursts(until_s: float) -> Iterator[tuple[float, dict[str, int]]]:
    """A batch each second of the first hour of a day."""
    return ((at_s, {"all": BATCH}) for day in range(ceil(until_s / DAY_S)) for at_s in _span(day * DAY_S, HOUR_S, 1))


def _partitions(until_s: float) -> Iterator[tuple[float, dict[str, int]]]:
    """A batch each ten seconds into 200 partitions at once."""
    sizes = {f"{number:03d}": BATCH // 200 for number in range(200)}
    return ((at_s, sizes) for at_s in _span(0, until_s, 10))


def _late(until_s: float) -> Iterator[tuple[float, dict[str, int]]]:
    """A batch a minute into the partition of the day (of the hour, within a day); 1 % of the bytes go to older ones."""
    length_s = DAY_S if until_s > DAY_S else HOUR_S / 4
    draw = random.Random(1)
    for at_s in _span(0, until_s, 60 if until_s > HOUR_S else 5):
        now = int(at_s // length_s)
        old = draw.randrange(now) if now else 0
        yield at_s, {f"{now:03d}": BATCH - BATCH // 100, f"{old:03d}": BATCH // 100} if now else {"000": BATCH}


def _span(begin_s: float, length_s: float, step_s: float) -> Iterator[float]:
    return (begin_s + number * step_s for number in range(round(length_s / step_s)))


ARRIVALS: dict[str, Arrivals] = {
    "6 MB/s": _steady(1),
    "0.6 MB/s": _steady(10),
    "6 MB/min": _steady(60),
    "an hour a day": _bursts,
    "200 partitions": _partitions,
    "1 % late": _late,
}
PICTURED = ("2.1", "3", "direct")
SPANS = {"1 h": HOUR_S, "24 h": DAY_S, "30 d": 30 * DAY_S}
POLICIES: dict[str, dict[str, str]] = {
    "2.1": {"merge_upload_policy": "volatile"},
    "3": {"merge_upload_policy": "volatile", "write_amplification_target": "3"},
    "none": {"merge_upload_policy": "volatile", "write_amplification_target": "0"},
    "direct": {"merge_upload_policy": "direct"},
}


def simulate(settings: dict[str, str], arrivals: Arrivals, span_s: float) -> Figures:
    """Insert for `span_s` seconds, then wait until the partitions rest."""
    run = Run(settings)
    sample_s = max(10.0, span_s / 2000)
    sampled_s, looked_s, forgot = 0.0, 0.0, 0
    for at_s, sizes in chain(arrivals(span_s), [(span_s, {})]):
        while looked_s < at_s:  # what ends before, and a look at least each minute
            looked_s = min(at_s, looked_s + LOOK_S, *(run.due[0][:1] if run.due else ()))
            run.now_s = max(run.now_s, looked_s)
            run.work()
            if run.now_s >= sampled_s:
                run.sample()
                sampled_s = run.now_s + sample_s
        run.now_s = at_s
        if sizes:
            run.insert(sizes)
            run.work()
        if run.state.version > forgot + 500:  # what was retired is forgotten, as collection does
            run.commit(AdvanceGcHorizon(run.state.version, run.state.version))
            forgot = run.state.version
    for _ in range(200):  # until nothing more happens
        run.now_s += LOOK_S if not run.due else max(0.0, run.due[0][0] - run.now_s)
        run.work()
    run.figures.end = run.state.part_count
    return run.figures


def picture(points: list[dict[str, Any]]) -> str:
    """Parts that readers see against bytes written: a line for each rate that was run for all of `PICTURED`."""
    lines: dict[str, dict[str, tuple[float, float]]] = {}
    for row in points:
        if row["target"] in PICTURED:
            name = f"target {row['target']}" if row["target"] != "direct" else "direct"
            lines.setdefault(f"{row['rate']}, {row['span']}", {})[name] = (row["amplification"], row["average"])
    whole = {name: line for name, line in lines.items() if len(line) == len(PICTURED)}
    longest = {name.rpartition(", ")[0]: name for name in whole}  # spans grow
    return trade(
        "A higher target buys fewer parts",
        "bytes written to the bucket, by bytes inserted",
        "parts in the bucket, on average",
        {name: whole[name] for name in sorted(longest.values(), key=lambda name: -whole[name]["target 2.1"][1])},
    )


def main() -> None:
    given = sys.argv[1:]
    if given[:1] == ["picture"]:
        drawn = picture(json.loads(Path(given[1]).read_text()))
        Path(given[2] if len(given) > 2 else "docs/write-amplification.svg").write_text(drawn)
        return
    points = [(rate, span) for rate in ARRIVALS for span in SPANS]
    if len(given) == 3:
        points, policies = [(given[0], given[1])], [given[2]]
    else:
        policies = list(POLICIES)
        if not given:
            points = [point for point in points if point in QUICK]
    print(
        "| inserts | target | written / inserted | parts in the store: average / most / end | on the disk, GB: most |",
        end="",
    )
    print(" merging, hours | uploads |")
    print("|---|---|---|---|---|---|---|")
    out = []
    for rate, span in points:
        for policy in policies:
            f = simulate(POLICIES[policy], ARRIVALS[rate], SPANS[span])
            out.append({"rate": rate, "span": span, "target": policy, **f.row()})
            print(
                f"| {rate}, {span} | {policy} | {1 + f.stored / f.inserted:.2f} "
                f"| {sum(f.parts) / len(f.parts):.0f} / {max(f.parts)} / {f.end} | {max(f.on_disk) / 1e9:.1f} "
                f"| {f.merging_s / 3600:.1f} | {f.uploads} |",
                flush=True,
            )
            if given[:1] == ["all"] and len(given) > 1:
                Path(given[1]).write_text(json.dumps(out))


if __name__ == "__main__":
    main()
