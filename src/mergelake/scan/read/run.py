"""State of one read of a plan, shared by its threads."""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.core.base.cancel import CancelToken
from mergelake.engines.rules.states import StateFunctions
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.fetch import is_remote
from mergelake.scan.read.plan import ScanItem, ScanPlan
from mergelake.scan.read.source import PartSource, of_part, open_part
from mergelake.scan.read.stats import ScanStats
from mergelake.store.interface.protocol import Store
from mergelake.table.pending.bound import bind_steps


@dataclass(frozen=True, slots=True)
class ReadRun:
    """Store, plan, options and statistics of one read."""

    store: Store
    directory: str
    plan: ScanPlan
    caches: PartCache
    workers: int
    """Number of threads that decode and filter."""
    stats: ScanStats
    cancel: CancelToken | None
    states: StateFunctions | None = None
    """Merges aggregate states, for FINAL."""

    @property
    def is_far(self) -> bool:
        """Whether a request waits for a network."""
        return is_remote(self.store)

    def check(self) -> None:
        """Raise QUERY_WAS_CANCELLED if the statement was cancelled."""
        if self.cancel is not None:
            self.cancel.check()

    def source(self, item: ScanItem) -> PartSource:
        """Open the part of an item; errors name the part."""
        schema = self.plan.schema
        with of_part(item.info):
            reader = open_part(self.store, self.directory, item.manifest, schema, self.caches, self.plan.schemas)
            return PartSource(reader, item.info, schema, bind_steps(item.lacks, schema, item.info.partition_id))
