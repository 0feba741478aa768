"""A reader of a `Lake` that takes volatile parts from its nodes, over a network in one process."""

from __future__ import annotations

from mergelake.core.base.clock import ManualClock
from mergelake.jobs.node.serving import VolatileService
from mergelake.log.model.operations import RenewLease
from mergelake.parts.read.cache import PartCache
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.scan.read.read import read_items
from mergelake.table.handle.handle import TableHandle
from mergelake.table.volatile.volatile_reads import PEERS, VolatileReads
from mergelake.table.volatile.volatile_snapshot import snapshot_to_read
from mergelake.table.volatile.volatile_store import volatile_store
from mergelake.table.volatile.volatile_wire import SERVICE
from tests.helpers.peers import Network


def serving(network: Network, lake, node, token: str = "a token") -> str:
    """Let a `TinyNode` listen; its address."""
    service = VolatileService()
    service.add("t", node.worker.served, node.disk)
    address = f"{node.name}:9440"
    network.services[address, token, SERVICE] = service
    until_ms = lake.clock.now_ms() + (1 << 40)
    lake.handle.log.commit(lambda state: [RenewLease(node.name, state.version, until_ms, address, token)])
    return address


class Reader:
    """One process that reads."""

    def __init__(self, lake, network: Network | None, store=None) -> None:
        self.clock = ManualClock()
        self.reads = VolatileReads(network, self.clock)
        self.handle = TableHandle.open(store or lake.store, "t", clock=lake.clock, ids=lake.ids)
        self.caches = PartCache()

    def scan(self, *, mode: str = PEERS, version: int | None = None, threads: int = 1, **request):
        """A planned read: the plan, and its batches."""
        self.handle.refresh()
        snapshot = snapshot_to_read(self.handle, self.handle.state_at(version), self.reads, mode)
        store = volatile_store(self.handle.store, "t", snapshot.merged, self.reads)
        plan = plan_scan(store, "t", snapshot, ScanRequest(**request), self.caches)
        return plan, read_items(store, "t", plan, caches=self.caches, threads=threads), store

    def rows(self, **options) -> list[tuple]:
        """The rows, sorted unless the read is ordered."""
        plan, batches, store = self.scan(**options)
        out = [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
        assert getattr(store, "late", 0) == 0, "a read needed bytes that it had not fetched before"
        return out if plan.request.ordered else sorted(out)

    def says(self, **options) -> list[str]:
        """What EXPLAIN says about volatile parts."""
        return [str(read) for read in self.scan(**options)[0].volatile]
