"""Who works on a table of real parts: each act is a call of the library, as users and nodes make it."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field

from mergelake.api.python.environment import Environment
from mergelake.api.python.scan import Scan
from mergelake.api.python.table import Table
from mergelake.core.base.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from mergelake.jobs.mutate.submit import kill, submit
from mergelake.jobs.mutate.validate import Submission
from mergelake.jobs.node.serving import VolatileService
from mergelake.log.model.operations import DropRange
from mergelake.log.model.volatile import unfinished
from mergelake.log.relay.leader import CommitService
from mergelake.table.partitions.parts import attach_partition, drop_part, drop_partition
from mergelake.table.volatile.volatile_reads import PEERS, VolatileReads
from tests.simulation.actors import Actor
from tests.simulation.network import SimPeers
from tests.simulation.planned import PlannedNode
from tests.simulation.real_rows import KEYS, NAMES, PARTITIONS, RANKS, condition, meaning, row_of, values_of
from tests.simulation.tiny import Row, Rows


def by_partition(scan: Scan) -> dict[str, Rows]:
    """The rows of a scan of `NAMES`."""
    held: dict[str, list] = {}
    for values in scan:
        row = dict(zip(NAMES, map(int, values), strict=True))
        held.setdefault(str(row["p"]), []).append(row_of(row))
    return {name: tuple(sorted(rows)) for name, rows in held.items()}


class User(Actor):
    """Opens the table as a user does."""

    def open(self) -> None:
        super().open()
        self.lake = Table("default.t", self.handle, Environment())

    def read(self, version: int, *, final: bool, where: str | None = None) -> dict[str, Rows]:
        """The rows of a version, by partition."""
        return by_partition(self.lake.scan(NAMES, where, final=final, version=version))

    def sees_merges(self) -> bool:
        """Whether it must read with FINAL."""
        return False

    def check(self, version: int) -> None:
        """6: what is read at a version is the model's at that version, all of it or the rows of a condition."""
        chosen = condition(self.random) if self.random.random() < 0.5 else None
        final = self.world.collapses and (self.sees_merges() or self.random.random() < 0.7)
        try:
            found = self.read(version, final=final, where=chosen.text if chosen else None)
        except (NotFoundError, CorruptDataError, InvalidInputError):
            if version in self.table.readable():
                raise
            return
        views = (self.table.views if final else self.table.physical)[version]
        wanted = {
            name: tuple(sorted(row for row in rows if chosen is None or chosen.holds(values_of(row))))
            for name, rows in views.items()
        }
        wanted = {name: rows for name, rows in wanted.items() if rows}
        where = f" where {chosen.text}" if chosen else ""
        assert found == wanted, f"version {version}{where} reads as {found}, not {wanted}"


class RealInserter(User):
    """Inserts rows; what it does not know, it tries again with the same token."""

    roams = 0.0

    def actions(self):
        return {self.insert: 8, self.again: 3}

    def open(self) -> None:
        super().open()
        self.unsure: list[tuple[str, Rows]] = []

    def insert(self) -> None:
        numbers = [number for number, _ in self.world.new_rows(self.random.randint(1, 8))]
        rows = tuple(map(self.drawn, numbers))
        self.bring(f"{self.process.name} {numbers[0]}", rows)

    def drawn(self, number: int) -> Row:
        """Rows of one key lie in one partition: FINAL is about the whole table."""
        key = self.random.randrange(KEYS)
        partition, rank = PARTITIONS[key % len(PARTITIONS)], self.random.randrange(RANKS)
        low, high = self.random.choice([(0, 100), (-1, 2)])  # small ones may add up to nothing
        return number, (partition, key, rank, self.random.randrange(low, high), self.random.randrange(low, high))

    def again(self) -> None:
        if self.unsure:
            self.bring(*self.unsure.pop())

    def bring(self, token: str, rows: Rows) -> None:
        columns = zip(*(values_of(row).values() for row in rows), strict=True)
        try:
            done = self.lake.append(dict(zip(NAMES, map(list, columns), strict=True)), token)
        except UnavailableError:
            self.unsure.append((token, rows))
            raise
        except ConflictError:
            return
        if done.duplicate:
            return
        held = [part for op in self.table.entries[done.version].ops for part in getattr(op, "parts", ())]
        mine = [row for part in held for row in self.table.model.known[part.id] if row[0] in {n for n, _ in rows}]
        kind, engine = self.table.kind, self.handle.schema.engine
        wanted: list = []
        for partition in PARTITIONS:  # an insert is collapsed by itself
            some = tuple(sorted((row for row in rows if row[1][0] == partition), key=lambda row: row[1][1]))
            wanted += kind.merged(some, engine).values()
        assert Counter(mine) == Counter(wanted), f"{wanted} were inserted as {mine}"
        self.check(done.version)


class RealMutator(User):
    """Changes rows, reads what it changed, gives some up, and waits for others."""

    roams = 0.0

    def actions(self):
        return {self.mutate: 3, self.kill: 0.5, self.apply: 0.7, self.optimize: 0.5, self.idle: 3}

    def idle(self) -> None:
        """Nothing: time for others."""

    def mutate(self) -> None:
        commands = self.table.kind.learn([meaning(self.random) for _ in range(self.random.choice([1, 1, 2]))])
        given = Submission(self.handle.clock.now_ms())
        self.check(submit(self.handle, commands, given).version)

    def kill(self) -> None:
        pending = unfinished(self.state)
        if pending:
            chosen = self.random.choice(pending)
            with contextlib.suppress(InvalidInputError):  # it is finished, or somebody else gave it up
                self.check(kill(self.handle, chosen.name))

    def apply(self) -> None:
        """What was there before is written down when it returns."""
        asked = self.table.state.version
        self.lake.apply_mutations()
        left = [m.name for m in unfinished(self.table.state) if m.added <= asked]
        assert not left, f"mutations were applied, and {left} are not"

    def optimize(self) -> None:
        self.lake.optimize(final=self.random.random() < 0.5)


class RealSurgeon(RealMutator):
    """Takes parts and partitions aside and back, while mutations of them are pending."""

    def actions(self):
        return {self.mutate: 3, self.kill: 0.5, self.detach: 1, self.detach_part: 1, self.attach: 2, self.idle: 3}

    def detach(self) -> None:
        name = self.random.choice([None, *map(str, PARTITIONS)])
        self.check(drop_partition(self.handle, name, "detach"))

    def detach_part(self) -> None:
        parts = [*self.state.parts()]
        if parts:
            with contextlib.suppress(NotFoundError):  # it was merged meanwhile
                self.check(drop_part(self.handle, self.random.choice(parts).name, "detach"))

    def attach(self) -> None:
        self.check(attach_partition(self.handle, self.random.choice([None, *map(str, PARTITIONS)])))


class RealReader(User):
    """Reads the newest version, and old ones."""

    roams = 0.0

    def actions(self):
        return {self.newest: 3, self.older: 2, self.reopen: 0.5}

    def newest(self) -> None:
        self.follow()
        self.check(self.state.version)

    def older(self) -> None:
        self.check(self.random.randint(max(self.state.history, 1), self.state.version))


class Changer(RealMutator):
    """Changes and drops rows, while volatile parts stay Live."""

    def actions(self):
        return {self.mutate: 1.5, self.kill: 0.3, self.truncate: 0.2, self.idle: 5}

    def truncate(self) -> None:
        self.commit(lambda _: [DropRange(self.random.choice([None, *map(str, PARTITIONS)]))])


class PeerReader(RealReader):
    """Reads as they do, and takes volatile parts from nodes: it sees the same rows, whatever becomes of these."""

    attentive = 0.8

    def open(self) -> None:
        super().open()
        reads = VolatileReads(SimPeers(self.world.network, self.process), self.process.clock)
        self.lake.env = Environment(read_volatile=PEERS, volatile=reads)

    def read(self, version: int, *, final: bool, where: str | None = None) -> dict[str, Rows]:
        scan = self.lake.scan(NAMES, where, final=final, version=version)
        self.world.did["volatile parts read"] += sum(item.merged is not None for item in scan.plan.items)
        found = by_partition(scan)
        assert getattr(scan.store, "late", 0) == 0, "a read needed bytes that it had not fetched before"
        return found

    def sees_merges(self) -> bool:
        """Rows of engines that collapse them are the same under FINAL only."""
        return self.world.collapses


@dataclass
class SimListening:
    """What a node that listens has of its socket: `jobs.node.listening.Listening`."""

    address: str
    token: str
    service: CommitService = field(default_factory=CommitService)
    """Nobody sends commits there."""
    volatile: VolatileService = field(default_factory=VolatileService)


class RealNode(PlannedNode):
    """A node with the library's own merges, builds and rewrites."""

    roams = 0.0

    def actions(self):
        return (
            {self.tick: 5, self.work: 8, self.leave: 0.05, self.reopen: 0.1}
            if self.world.has_peers
            else super().actions()
        )

    def listening(self) -> SimListening | None:
        if not self.world.has_peers:
            return None
        listening = SimListening(f"{self.process.machine.name}:1", self.process.ids.new_id())
        self.world.network.serve(self.process, listening.address, listening.token, listening.volatile)
        return listening

    def open(self) -> None:
        self.environment = Environment()
        super().open()

    def merge_bytes(self, handle, task):
        return self.environment.run_merges(handle, [task])[0]

    def mutation_bytes(self, handle, tasks):
        return self.environment.run_mutations(handle, tasks)

    def build_bytes(self, handle, task, disk, unwanted):
        return self.environment.build_volatile(handle, task, disk.store, unwanted)
