"""How long things are kept: nothing goes sooner than retention and grace say, by the store's clock.

Judged by when entries landed and what times they carry, not by what a collector noted or planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mergelake.core.model.settings import TableSettings
from mergelake.log.model.operations import AdvanceGcHorizon, DropReference, Entry, ReleaseLease, RenewLease
from mergelake.log.model.retention import foreign
from mergelake.log.model.state import State
from tests.simulation.tiny import keys_of

if TYPE_CHECKING:
    from tests.simulation.table import Table

SLACK_MS = 1000
"""Stores tell whole seconds."""


class Periods:
    """Of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.landed_ms: dict[int, int] = {}
        """Version -> when its entry was in the store."""
        self.let_go_ms: dict[str, int] = {}
        """Key -> when the newest state last stopped to refer to it."""
        self.leased_ms: dict[str, int] = {}
        """Node -> when its lease last changed."""

    def on_entry(self, before: State, entry: Entry, after: State, landed_ms: int) -> None:
        self.landed_ms[entry.version] = landed_ms
        collects = any(isinstance(op, AdvanceGcHorizon) for op in entry.ops)
        for op in entry.ops:
            match op:
                case RenewLease(node, version):
                    assert version in self.table.kept_by(before), f"{node} leases version {version}, which is not kept"
                case ReleaseLease(node) if collects and node in before.leases:
                    self.lease_is_over(before, node, landed_ms)
                case DropReference(holder):
                    self.holder_needs_nothing(holder)
                case AdvanceGcHorizon(base_version, history):
                    self.collects_in_time(before, base_version, history, landed_ms)
        assert after.history >= before.history, "history went back"
        for node, lease in after.leases.items():
            if before.leases.get(node) != lease:
                self.leased_ms[node] = landed_ms
        self.let_go(before, after, landed_ms)

    def let_go(self, before: State, after: State, now_ms: int) -> None:
        """A part that was detached is read by nobody from then on: that it is kept aside is another matter."""
        left = {part.manifest.id for part in after.parts()}
        for part in before.parts():
            if part.manifest.id not in left:
                for key in keys_of(self.table.directory, part.manifest):
                    self.let_go_ms[key] = now_ms

    def of(self, state: State) -> tuple[int, int]:
        """Retention and grace, in milliseconds."""
        settings = state.schemas[state.schema_version].settings
        grace = int(settings["gc_grace_seconds"])
        return 1000 * max(int(settings["history_retention_seconds"]), grace), 1000 * grace

    def collects_in_time(self, before: State, base_version: int, history: int, now_ms: int) -> None:
        retention_ms, grace_ms = self.of(before)
        if history > before.history:
            age_ms = now_ms - self.landed_ms[history] + SLACK_MS
            assert age_ms >= retention_ms or self.over_limit(before), f"history went to {history} before its time"
            assert age_ms >= grace_ms, f"history went to {history}, younger than the grace period"
        if base_version > before.fence:
            at = self.landed_ms.get(base_version - 1, 0)
            assert at <= now_ms - grace_ms + SLACK_MS, (
                f"the fence went to {base_version}, younger than the grace period"
            )

    def over_limit(self, state: State) -> bool:
        """Whether more is kept for older versions than the settings of a table say that it is worth."""
        settings = TableSettings(state.schemas[state.schema_version].settings)
        share = settings.number("retention_max_ratio") * sum(part.manifest.bytes_on_disk for part in state.parts())
        limit = max(settings.integer("retention_max_bytes"), int(share))
        return not state.dropped and sum(part.bytes_on_disk for part in state.retired) > limit

    def lease_is_over(self, before: State, node: str, now_ms: int) -> None:
        retention_ms, grace_ms = self.of(before)
        ended = before.leases[node].until_ms <= now_ms - grace_ms + SLACK_MS
        stale = self.leased_ms.get(node, now_ms) <= now_ms - retention_ms + SLACK_MS
        assert ended or stale, f"the lease of {node} was taken from it"

    def holder_needs_nothing(self, holder: str) -> None:
        there = self.table.tables.get(holder)
        needs = there is not None and any(table == self.table.directory for table, _ in foreign(there.state))
        assert not needs, f"the hold of {holder} was released, and it refers to objects here"

    def on_delete(self, key: str, now_ms: int) -> None:
        """What the newest version referred to is there for a grace period longer."""
        if key in self.let_go_ms:
            _, grace_ms = self.of(self.table.state)
            gone_ms = now_ms - self.let_go_ms[key]
            assert gone_ms >= grace_ms - SLACK_MS, f"{key} was deleted {gone_ms / 1000:.0f} s after it was in use"
