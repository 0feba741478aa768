"""14: when faults stop, mutations end within a number of ticks, and rows go on to be inserted meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

from mergelake.log.model.volatile import pending
from mergelake.table.partitions.mutations import open_mutations
from tests.simulation.inserters import Inserter
from tests.simulation.kernel import Machine
from tests.simulation.planned import SLOTS, PlannedNode
from tests.simulation.runner import simulated, uncollected
from tests.simulation.tiny import PARTITIONS
from tests.simulation.world import Turn, World

TICKS_EXTRA = 12
"""Ticks, beside those that rewrite parts: until a lease is over, until volatile parts are adopted, built, uploaded and
published or given up, and until the log says that mutations are finished."""
TICKS_ALONE = 2
"""The same where there are no volatile parts."""
TICK_S = 420.0
STEPS = 500


class Ticking(PlannedNode):
    """A node whose work of a tick is done before the next one."""

    roams = 0.0

    def actions(self):
        return {self.round: 1}

    def round(self) -> None:
        self.handle.refresh()
        self.tick()
        while self.started:
            self.work()


class Rewriting(Ticking):
    """One without the role `merge`."""

    merges = False


class Steady(Inserter):
    """Inserts, one part at a time."""

    roams = 0.0

    def actions(self):
        return {self.insert_one: 1}

    def insert_one(self) -> None:
        self.send("", "", {self.random.choice(PARTITIONS): self.world.new_rows(1)})


@dataclass(frozen=True)
class Ending:
    """How mutations came to their end."""

    lacking: int
    """Parts that lacked any when the faults stopped."""
    ticks: int
    inserts: int
    """Those that were tried meanwhile."""
    refused: int
    """Commits that failed meanwhile."""

    def ticks_max(self, extra: int) -> int:
        """The parts by the slots, and some more."""
        return -(-self.lacking // SLOTS) + extra


def end_of_mutations(seed: int, role: type[Ticking]) -> Ending:
    """A history with faults, then a node that ticks until no mutation of it is open. Each part is a piece of work."""
    with simulated(seed), uncollected(), mock.patch("mergelake.jobs.mutate.plan.BATCH_PARTS", 1):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
            world.settling = True
            world.calm()
            for process in [*world.kernel.processes]:
                process.die()
                del world.actors[process]
                world.kernel.processes.remove(process)
            table = world.tables[world.home]
            last = table.state.block_counter
            open_ones = open_mutations(table.state)
            lacking = sum(bool(pending(open_ones, part.info)) for part in table.state.parts())
            world.start(Machine("ticks", 0.0), role, world.home)
            world.start(Machine("inserts", 0.0), Steady, world.home)
            world.did.clear()
            world.failed.clear()
            while any(m.version <= last for m in open_mutations(table.state)):
                assert world.did["round"] < lacking + 4 * TICKS_EXTRA, f"{lacking} parts, and no end"
                world.step(Turn(TICK_S, "ticks", 0.0))
                world.step(Turn(1.0, "inserts", 0.0))
        finally:
            world.close()
    return Ending(lacking, world.did["round"], world.did["insert_one"], sum(world.failed.values()))
