"""Volatile parts of any types, layouts and codecs, near and far: all bytes are fetched before the first row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.volatile import build_task
from mergelake.jobs.node.disk import LocalDisk
from mergelake.log.model.operations import AddVolatile, MergeRecipe
from mergelake.parts.read.cache import PartCache
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.scan.read.read import read_items
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.volatile.volatile_reads import OFF, PEERS, VolatileReads
from mergelake.table.volatile.volatile_snapshot import snapshot_to_read
from mergelake.table.volatile.volatile_store import VolatileStore, volatile_store
from tests.helpers.far_store import FarStore
from tests.helpers.random_tables import random_table
from tests.helpers.scans import ScanTable
from tests.property.test_together import _request, _table

PLACES = (
    "mergelake.scan.read.hold",
    "mergelake.parts.read.ahead",
    "mergelake.parts.read.joined",
    "mergelake.scan.read.ahead",
)


def built(table: ScanTable) -> VolatileReads:
    """All parts of each partition merged on a disk of this process; who reads it."""
    ids, clock = SeededIds(7), ManualClock()
    reads = VolatileReads(None, clock)
    reads.disks["n"] = MemoryStore()
    disk = LocalDisk(reads.disks["n"], "t")
    for name, parts in table.handle.log.state.partitions.items():
        if len(parts) > 1:
            sources = tuple(part.manifest.id for part in parts)
            op = AddVolatile(ids.new_id(), name, sources, MergeRecipe(table.handle.log.state.schema_version, 0), "n")
            table.handle.log.commit(lambda _, op=op: [op])
    state = table.handle.log.state
    for live in state.volatile.values():
        for part in live:
            task = build_task("t", state, part, {})
            disk.add(part, execute_merge(table.store, task, ids, clock, threads=1, disk=disk.store))
    return reads


@pytest.mark.parametrize("small", [True, False], ids=["whole", "ranges"])
@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("seed", [2])
def test_nothing_is_fetched_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: bool, small: bool, seed: int):
    assert compared(tmp_path, monkeypatch, far, small, seed) > 0


def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: bool, small: bool, seed: int) -> int:
    """Compare reads of a random table; how many volatile parts were read. `small`: they are fetched whole."""
    rng = np.random.default_rng([26, seed])
    store = FarStore() if far else DirectoryStore(str(tmp_path / "store"))
    table = _table(random_table(rng), store, tmp_path / "schema", rng)
    reads = built(table)
    merged = 0
    if not small:
        for place in PLACES:
            monkeypatch.setattr(f"{place}.SMALL_BYTES", 0)
    for _ in range(4):
        request = _request(table, rng)
        if rng.random() < 0.3 and table.schema.order_by:
            request = ScanRequest(request.columns, request.where, ordered=True)
        found = []
        for mode in (PEERS, OFF):
            state = table.handle.log.state
            snapshot = snapshot_to_read(table.handle, state, reads, mode)
            read_from = volatile_store(table.store, "t", snapshot.merged, reads)
            caches = PartCache()
            plan = plan_scan(read_from, "t", snapshot, request, caches)
            merged += len(snapshot.merged)
            rows = [
                row for batch in read_items(read_from, "t", plan, caches=caches, threads=2) for row in batch.to_pylist()
            ]
            found.append(sorted(map(repr, rows)))
            if isinstance(read_from, VolatileStore):
                assert read_from.late == 0
        assert found[0] == found[1]
    return merged
