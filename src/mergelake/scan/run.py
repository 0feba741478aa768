"""One read of a plan: what all its threads share."""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.core.cancel import Cancel
from mergelake.parts.cache import PartCache
from mergelake.parts.fetch import is_remote
from mergelake.scan.plan import ScanItem, ScanPlan
from mergelake.scan.source import PartSource, of_part, open_part
from mergelake.scan.stats import ScanStats
from mergelake.store.protocol import Store


@dataclass(frozen=True, slots=True)
class ReadRun:
    """From where, how, and what it has cost so far."""

    store: Store
    directory: str
    plan: ScanPlan
    caches: PartCache
    workers: int
    """Threads that compute."""
    stats: ScanStats
    cancel: Cancel | None

    @property
    def is_far(self) -> bool:
        """Whether the store answers after a while."""
        return is_remote(self.store)

    def check(self) -> None:
        """QUERY_WAS_CANCELLED once the statement is to end."""
        if self.cancel is not None:
            self.cancel.check()

    def source(self, item: ScanItem) -> PartSource:
        """The part of an item; an error in it names the part."""
        schema = self.plan.schema
        with of_part(item.info):
            return PartSource(
                open_part(self.store, self.directory, item.manifest, schema, self.caches), item.info, schema
            )
