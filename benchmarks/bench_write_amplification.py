"""Bytes that merges write to the store for each byte that is inserted, by `merge_upload_policy`.

    python benchmarks/bench_write_amplification.py [hours] [megabytes of a batch] [seconds between batches]

The real planner of a node and the real log state, on a clock that jumps: one batch after the other into one partition,
32 merges at a time at 50 MB/s each, uploads at 100 MB/s; then as much time again without inserts. A merge of n bytes
gives n bytes. Compression, which gets better as parts grow, would only lower the figures.
"""

from __future__ import annotations

import heapq
import sys
from dataclasses import dataclass, field

from mergelake.core.manifest import PartManifest, encode_files
from mergelake.core.schema import Column, TableSchema
from mergelake.core.settings import GIB
from mergelake.core.types import parse_type
from mergelake.log.fold import apply
from mergelake.log.operations import (
    AddParts,
    AddVolatile,
    AdvanceGcHorizon,
    CreateTable,
    Entry,
    LogOp,
    MergeRecipe,
    Publish,
)
from mergelake.log.state import State
from mergelake.log.volatile import leaves, top_level
from mergelake.merge.select import MergeSlots
from mergelake.merge.volatile import LocalPart, build_task
from mergelake.node.actions import (
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
from mergelake.node.plan import tick

START_MS = 1_700_000_000_000
MERGE_BYTES_PER_S, UPLOAD_BYTES_PER_S = 50e6, 100e6
SLOTS = MergeSlots(total=32, lower_at_free=8, whole_partition_at_free=25)
SCHEMA = TableSchema((Column(0, "k", parse_type("UInt64")),), order_by=("k",), primary_key=("k",))


@dataclass
class Figures:
    """What a run adds up to; samples are taken every ten seconds while batches come."""

    inserted: int = 0
    stored: int = 0
    """Bytes of merges that went to the store."""
    uploads: int = 0
    merges: int = 0
    parts: list[int] = field(default_factory=list)
    """Stored parts: what a reader without the disk reads."""
    elements: list[int] = field(default_factory=list)
    """What the node itself sees at the top level."""
    at_risk: list[int] = field(default_factory=list)
    """Bytes on the disk only: to be merged again if it is lost."""


class Run:
    """One table, one node, one clock."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.now_s = 0.0
        self.ids = 0
        self.figures = Figures()
        self.state = State()
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

    def part(self, size: int) -> PartManifest:
        """The manifest of a part of so many bytes."""
        self.ids += 1
        return PartManifest(f"{self.ids:032x}", "all", size // 300, encode_files(()), bytes_on_disk=size)

    def insert(self, size: int) -> None:
        self.figures.inserted += size
        self.commit(AddParts((self.part(size),)))

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
            actions = [action for action in tick(node, [view]) if self.start(action)]

    def start(self, action: Action) -> bool:
        match action:
            case Merge(_, sources):
                self.merging[action.part_ids] = "all"
                self.later(action, sum(part.manifest.bytes_on_disk for part in sources), MERGE_BYTES_PER_S)
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
                self.later(action, task.bytes_on_disk, MERGE_BYTES_PER_S)
            case Upload(_, volatile_id):
                self.uploading.add(volatile_id)
                self.later(action, self.local[volatile_id].manifest.bytes_on_disk, UPLOAD_BYTES_PER_S)
            case PublishVolatile(_, volatile_id):
                part = self.state.live(volatile_id)
                assert part is not None
                replaced = tuple(leaf.manifest.id for leaf in leaves(self.state.partitions["all"], part.info))
                self.commit(Publish(self.uploaded.pop(volatile_id), replaced, "volatile", volatile_id))
            case Discard(_, ids):
                for volatile_id in ids:
                    del self.local[volatile_id]
            case _:
                return False
        return True

    def later(self, action: Action, size: int, bytes_per_s: float) -> None:
        made = self.part(size)
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
        parts, live = self.state.partitions.get("all", ()), self.state.volatile.get("all", ())
        self.figures.parts.append(len(parts))
        self.figures.elements.append(len(top_level(parts, live)))
        self.figures.at_risk.append(sum(found.manifest.bytes_on_disk for found in self.local.values()))


def simulate(settings: dict[str, str], hours: float, batch: int, every_s: float) -> Figures:
    """Insert for `hours`, then wait as long."""
    run = Run(settings)
    batches = round(hours * 3600 / every_s)
    for number in range(2 * batches):
        run.now_s = number * every_s
        if number < batches:
            run.insert(batch)
        run.work()
        if number < batches and number % max(1, round(10 / every_s)) == 0:
            run.sample()
        if number % 500 == 0:  # what was retired is forgotten, as collection does
            run.commit(AdvanceGcHorizon(run.state.version, run.state.version))
    run.figures.parts.append(len(run.state.partitions["all"]))
    return run.figures


def main() -> None:
    given = sys.argv[1:]
    hours, megabytes, every_s = map(float, given + ["4", "6", "1"][len(given) :])
    policies = {
        "direct": {"merge_upload_policy": "direct"},
        "volatile, 1 GiB": {"merge_upload_policy": "volatile", "max_bytes_to_merge_volatile": str(GIB)},
        "volatile, 4 GiB": {"merge_upload_policy": "volatile"},
    }
    print("| policy | inserted, GB | bytes to the store / inserted | merges | of them written to the store |", end="")
    print(" stored parts avg / max / end | node sees avg | on the disk only, GB avg / max |")
    print("|---|---|---|---|---|---|---|---|")
    for name, settings in policies.items():
        f = simulate(settings, hours, int(megabytes * 1e6), every_s)
        share = 1 + f.stored / f.inserted
        seen = f.parts[:-1]
        print(
            f"| {name} | {f.inserted / 1e9:.0f} | {share:.2f} | {f.merges} | {f.uploads} "
            f"| {sum(seen) / len(seen):.0f} / {max(seen)} / {f.parts[-1]} | {sum(f.elements) / len(f.elements):.0f} "
            f"| {sum(f.at_risk) / len(f.at_risk) / 1e9:.1f} / {max(f.at_risk) / 1e9:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
