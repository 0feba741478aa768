"""Every order of the first steps of five processes on one table, by brute force.

Two writers (with one token between them), a merger, a collector whose grace period is over, and a writer that stood
still since before that collector's first round. Each stops at the phase points of the commit path: before a part is
written, before an entry is created, before its reply is heard, before a listing, a note and a deletion. All schedules
of the first `depth` choices are run, each on a fresh world; then the processes finish one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

from mergelake.jobs.gc.collect import collect_round
from mergelake.table.handle.handle import TableHandle
from tests.simulation.actors import EXPLAINED, Actor
from tests.simulation.bucket import Bucket
from tests.simulation.inserters import Inserter
from tests.simulation.keepers import Collector
from tests.simulation.kernel import Kernel, Machine, Process
from tests.simulation.nodes import Merger
from tests.simulation.runner import simulated
from tests.simulation.tiny import DIRECTORY, SCHEMA
from tests.simulation.world import GRACE_S, HASHES_MAX, World

DEPTH = int(os.environ.get("DEPTH", "5"))
"""Each more takes five times as long: 6 are 15,625 schedules, and minutes."""
SETTINGS = {
    "history_retention_seconds": "0",
    "gc_grace_seconds": str(GRACE_S),
    "checkpoint_interval": "4",
    "non_replicated_deduplication_window": str(HASHES_MAX),
}
_PHASES = ("create ", "the reply to create ", "put ", "upload ", "delete ", "list ")


class Phases(Kernel):
    """Stops at each phase point, and only there."""

    def point(self, process: Process, what: str) -> None:
        if process.running and what.startswith(_PHASES):
            process.suspend()


class Stage(World):
    """A small table with work for everybody."""

    def __init__(self) -> None:
        kernel = Phases(0)
        self.furnish(kernel, Bucket(kernel, 0.0, 0.0, page=1000))
        first = self.actor(Merger, "first")
        options = {"clock": first.process.clock, "ids": first.process.ids}
        first.handle = TableHandle.create(first.store, DIRECTORY, SCHEMA.with_settings(SETTINGS), **options)
        inserter = self.actor(Inserter, "insert")
        inserter.handle = first.handle
        for _ in range(2):
            inserter.send("", "", {"a": self.new_rows(1)})
        first.merge()
        self.stalled = self.begin(Inserter, "insert stalled", lambda actor: actor.send("", "", {"a": self.new_rows(1)}))
        for _ in range(2):  # up to the point where its part is written, and its entry is not
            self.stalled.resume()
        first.handle.refresh()
        self.kernel.advance(1.0)
        collect_round(first.handle)
        for _ in range(2):
            inserter.send("", "", {"a": self.new_rows(1)})
        self.kernel.advance(GRACE_S + 1.0)
        token = {"a": self.new_rows(1)}
        self.processes = [
            self.begin(Inserter, "insert 1", lambda actor: actor.send("token", "", token)),
            self.begin(Inserter, "insert 2", lambda actor: actor.send("token", "", token)),
            self.begin(Merger, "node", Merger.merge),
            self.begin(Collector, "gc", Collector.collect),
            self.stalled,
        ]

    def actor(self, role: type[Actor], name: str) -> Actor:
        return role(self, Process(self.kernel, name, lambda _: None, Machine(name, 0.0)))

    def begin(self, role: type[Actor], name: str, act) -> Process:
        """A process with an open table and one thing to do."""

        def main(_: Process) -> None:
            try:
                act(actor)
            except EXPLAINED as failure:
                self.failed[type(failure).__name__] += 1

        process = Process(self.kernel, name, main, Machine(name, 0.0))
        actor = role(self, process)
        self.actors[process] = actor
        actor.open()
        return process

    def play(self, schedule: list[int]) -> tuple[list[int], list[int]]:
        """Choices among those that are not done, then the rest in order. What was chosen, and among how many."""
        chosen: list[int] = []
        options: list[int] = []
        while alive := [process for process in self.processes if not process.dead]:
            if len(chosen) < len(schedule):
                at = schedule[len(chosen)]
                options.append(len(alive))
                chosen.append(at)
            else:
                at = 0
            alive[at].resume()
            if self.bucket.violation is not None:
                raise self.bucket.violation
            self.actors[alive[at]].look()
        table = self.tables[DIRECTORY]
        table.finish()
        assert len(table.state.tokens) <= 1
        return chosen, options


def schedules(depth: int, first: int | None = None) -> Iterator[list[int]]:
    """Every schedule of `depth` choices, each played; those that begin with `first`, or all."""
    schedule = [first or 0, *[0] * (depth - 1)]
    # What was decoded is remembered from schedule to schedule: most entries are the same in all of them.
    with simulated(), mock.patch("mergelake.log.commit.commit._BACKOFF_MAX_S", 0.0):
        while True:
            stage = Stage()
            try:
                chosen, options = stage.play(schedule)
            except Exception as failure:
                raise AssertionError(f"schedule {schedule}: {failure}") from failure
            finally:
                stage.kernel.close()
            yield chosen
            at = len(chosen) - 1
            while at >= 0 and schedule[at] + 1 >= options[at]:
                at -= 1
            if at < (0 if first is None else 1):
                return
            schedule = [*schedule[:at], schedule[at] + 1, *[0] * (depth - at - 1)]
