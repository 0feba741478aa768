"""Who keeps house in the bucket: collectors, publishers, and those who look whether all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mergelake.core.base.errors import NotFoundError
from mergelake.jobs.gc.collect import collect_round
from mergelake.jobs.gc.fsck import fsck
from mergelake.jobs.gc.transactions import collect_transactions
from mergelake.jobs.publish.publish import publish
from mergelake.log.model.retention import reachable
from mergelake.table.handle.handle import TableHandle
from tests.simulation.actors import Actor

if TYPE_CHECKING:
    from tests.simulation.shown import Shown

SHOWN_GRACE_S = 300.0
"""How long a covered name stays: less than two clocks differ."""


class Collector(Actor):
    """Rounds of collection."""

    attentive = 0.0
    roams = 0.6
    buries = True

    def actions(self):
        return {self.collect: 2, self.rehearse: 0.3, self.reopen: 0.3}

    def open(self) -> None:
        """Also tables that were dropped."""
        self.directory = self.only or self.world.choose(self.random, self.roams, dropped=True)
        self.compared, self.least = None, 0
        self.handle = self.open_table(self.directory)

    def collect(self) -> None:
        report = collect_round(self.handle)
        self.world.did["objects deleted"] += len(report.deleted)
        self.world.did["entries deleted"] += report.entries
        if len(self.world.tables) > 1 and self.random.random() < 0.5:
            self.world.did["records deleted"] += len(collect_transactions(self.store, self.open_any))
        if self.world.settling:
            self.reopen()

    def open_any(self, directory: str) -> TableHandle:
        """A table that others may not know of (yet)."""
        if directory in self.world.tables:
            return self.open_table(directory)
        process = self.process
        return TableHandle.open(self.store, directory, clock=process.clock, ids=process.ids, author=process.author)

    def rehearse(self) -> None:
        """A dry run deletes nothing."""
        writes = self.store.writes
        collect_round(self.handle, dry_run=True)
        assert self.store.writes == writes, "a dry run wrote something"


class Publisher(Actor):
    """Shows the table to ClickHouse."""

    roams = 0.2

    def actions(self):
        return {self.publish: 3, self.reopen: 0.2}

    def publish(self) -> None:
        shown = self.table.shown
        before = self.given(shown)
        try:
            report = publish(self.handle, grace_seconds=SHOWN_GRACE_S)
        except NotFoundError as failure:
            require_collected(self, failure)
            report = None
        for token in self.given(shown) - before:
            there = shown.files_of(token) or self.table.state.dropped
            assert there, f"a round left {shown.names[token]} shown, and its files are gone"
        if report is None:
            return
        self.world.did["names given"] += len(report.added) + len(report.dropped)
        self.world.did["names taken"] += len(report.removed)

    def given(self, shown: Shown) -> set[str]:
        """What this process has named, and is still shown."""
        return {token for token in shown.names if shown.given_by[token] == self.process.name}


def require_collected(actor: Actor, failure: NotFoundError) -> None:
    """Raise it, unless it is about a part of a version that is not the newest any more, and was collected."""
    needed = any(directory in str(failure) for directory in reachable(actor.table.state))
    if needed and not actor.process.doubtful:
        raise failure


class Inspector(Actor):
    """Looks whether all is well, and mends what is not; where nothing was damaged, all is well."""

    roams = 0.4

    def actions(self):
        return {self.inspect: 2, self.repair: 1, self.reopen: 0.5}

    def inspect(self) -> None:
        self.judge(fsck(self.handle))

    def repair(self) -> None:
        try:
            report = fsck(self.handle, repair=True)
        except NotFoundError as failure:  # while it showed parts to ClickHouse
            require_collected(self, failure)
            return
        self.judge(report)
        self.world.did["repairs"] += len(report.repaired)

    def judge(self, report) -> None:
        if self.process.doubtful or self.table.state.dropped:
            return
        damaged = any(key.startswith(f"{self.directory}/_log/") for key in self.world.bucket.damaged_ever)
        for found in report.findings:
            excused = found.harmless or found.kind == "name" or (found.kind == "log" and damaged)
            assert excused, f"fsck found in {self.directory}: {found.where}: {found.what}"


class Checkpointer(Actor):
    """Writes the newest state down again and again, as `fsck --repair` does: two may do so for one version."""

    attentive = 1.0

    def actions(self):
        return {self.checkpoint: 1}

    def checkpoint(self) -> None:
        self.handle.log.write_checkpoint()
