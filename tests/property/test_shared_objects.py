"""Whatever is inserted, merged, dropped, detached, rolled back and collected: rows stay readable, and no object is left
that nothing needs."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.gc.collect import collect_round
from mergelake.jobs.gc.fsck import fsck
from mergelake.log.model.retention import reachable
from mergelake.parts.write.objects import shared_size
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.partitions.shared import shared_space

HOUR = 3600
SETTINGS = {
    "history_retention_seconds": HOUR,
    "gc_grace_seconds": HOUR,
    "checkpoint_interval": 8,
    "max_shared_object_bytes": 12_000,
}


class Life:
    """A table, what must be in it, and what happens to both."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        clock = ManualClock()
        warehouse = Warehouse(MemoryStore(clock=clock), clock=clock, ids=SeededIds(seed), author="me", threads=1)
        schema = define({"p": "UInt32", "k": "UInt64"}, partition_by="p", order_by="k", settings=SETTINGS)
        self.table = warehouse.create_table("t", schema)
        self.rows: dict[int, list[int]] = {}
        self.next = 0
        self.versions = {}
        self.token = 0

    def insert(self):
        partitions = self.chance.sample(range(12), self.chance.randint(1, 8))
        data = {p: [self.next + 10 * p + n for n in range(self.chance.randint(1, 3))] for p in partitions}
        self.next += 1000
        flat = [(p, k) for p, held in data.items() for k in held]
        self.token += 1
        by_part = self.chance.random() < 0.5
        for _ in range(self.chance.choice([1, 1, 2])):  # a repetition adds nothing, and takes nothing away
            batch = pa.table(
                {"p": pa.array([p for p, _ in flat], pa.uint32()), "k": pa.array([k for _, k in flat], pa.uint64())}
            )
            self.table.insert(batch, f"load {self.token}", by_part=by_part)
        for p, held in data.items():
            self.rows.setdefault(p, []).extend(held)

    def merge(self):
        self.table.optimize(partition=self.chance.randrange(12), final=True)

    def drop(self):
        p = self.chance.randrange(12)
        if self.rows.pop(p, None):
            self.table.drop_partition(p)

    def detach(self):
        parts = self.table.snapshot().parts
        if parts:
            name = self.chance.choice(parts).name
            self.table.detach_part(name)
            if self.chance.random() < 0.5:
                self.collect()
            self.table.attach_part(name)

    def remember(self):
        if self.table.version not in self.versions:
            self.table.tag(f"v{self.table.version}")
            at = self.table.version - 1
            self.versions[f"v{at}"] = {p: list(held) for p, held in self.rows.items()}

    def roll_back(self):
        if self.versions:
            name = self.chance.choice(list(self.versions))
            self.table.rollback(name)
            self.rows = {p: list(held) for p, held in self.versions[name].items()}
            self.check()
            if self.chance.random() < 0.7:
                self.table.untag(name)
                del self.versions[name]

    def collect(self):
        self.table.handle.clock.advance_s(self.chance.choice([10, HOUR + 1]))
        collect_round(self.table.handle)

    def check(self, version=None, rows=None):
        rows = self.rows if rows is None else rows
        found = sorted(self.table.scan(version=version).arrow()["k"].to_pylist())
        assert found == sorted(k for held in rows.values() for k in held)


@pytest.mark.parametrize("seed", range(30))
def test_rows_stay_and_needless_objects_go(seed):
    life = Life(seed)
    acts = [life.insert] * 5 + [life.merge] * 4 + [life.collect] * 4 + [life.drop, life.detach]
    acts += [life.remember, life.roll_back]
    for _ in range(60):
        life.chance.choice(acts)()
    life.check()
    for name, rows in life.versions.items():
        life.check(name, rows)
        life.table.untag(name)
    for _ in range(4):
        collect_round(life.table.handle)
        life.table.handle.clock.advance_s(HOUR + 1)
    collect_round(life.table.handle)
    life.check()
    handle = life.table.handle
    cut = len(handle.directory) + 1
    sizes = {m.key[cut:]: m.size for m in handle.store.list(handle.directory) if not m.key[cut:].startswith("_")}
    needed = {key for part in life.table.snapshot().parts for key in part.manifest.object_keys()}
    assert set(sizes) == needed
    assert {key.partition("/")[0] for key in sizes} <= reachable(handle.log.state)
    assert fsck(handle).findings == []
    shared = {key: size for key, size in sizes.items() if shared_size(key) is not None}
    space = shared_space(handle.log.state)
    sharing = [
        p.manifest for p in life.table.snapshot().parts if not shared.keys().isdisjoint(p.manifest.object_keys())
    ]
    size, live = sum(shared.values()), sum(manifest.bytes_on_disk for manifest in sharing)
    assert (space.objects, space.bytes, space.dead_bytes) == (len(shared), size, size - live)
