"""Who brings rows: once, again after an answer was lost, in numbered batches, and by several threads of one process."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from mergelake.core.base.errors import ConflictError, InvalidInputError
from mergelake.core.model.manifest import PartManifest
from mergelake.log.model.operations import AddParts, DropRange, KillMutation, Mutation, Tag, Untag
from mergelake.log.model.volatile import unfinished
from mergelake.table.write.deduplication import InsertIdentity
from mergelake.table.write.insert import commit_parts
from tests.simulation.actors import EXPLAINED, Actor
from tests.simulation.kernel import Process
from tests.simulation.tiny import PARTITIONS, Rows

REPEAT_MAX_S = 20_000.0
"""Several grace periods of the world: history has gone on, and the fence may not have yet."""


@dataclass
class Order:
    """Rows that are to be inserted, and what was written of them."""

    directory: str
    token: str
    digest: str
    rows: dict[str, Rows]
    parts: list[PartManifest] = field(default_factory=list)
    """Written, and perhaps committed: nobody was told."""


class Inserter(Actor):
    """Inserts with and without tokens; what it does not know, it tries again with the same token or the same parts."""

    roams = 0.15

    def __init__(self, world, process: Process) -> None:
        super().__init__(world, process)
        self.unsure: list[Order] = []

    def actions(self):
        return {self.insert: 8, self.again: 3, self.reopen: 0.2}

    def insert(self) -> None:
        chosen = self.random.sample(PARTITIONS, self.random.choice([1, 1, 2]))
        rows = {name: self.world.new_rows(self.random.randint(1, 2)) for name in chosen}
        way = self.random.random()
        name = f"{self.process.name} {self.process.ids.new_id()[:6]}"
        self.send(name if way < 0.4 else "", name if way > 0.8 else "", rows)

    def again(self) -> None:
        mine = [order for order in self.unsure if order.directory == self.directory]
        if mine:
            order = self.random.choice(mine)
            self.unsure.remove(order)
            self.bring(order)

    def send(self, token: str, digest: str, rows: dict[str, Rows]) -> None:
        if (token or digest) and self.random.random() < 0.3:  # a replay of what is known to be there
            self.unsure.append(Order(self.directory, token, digest, rows))
        self.bring(Order(self.directory, token, digest, rows))

    def bring(self, order: Order) -> None:
        asked = self.table.state
        parts = order.parts
        try:
            if not parts:
                base_version = self.handle.base_version()
                parts = self.write_all(order.rows, base_version)
            done = commit_parts(self.handle, parts, InsertIdentity(order.token, rows_hash=order.digest))
        except EXPLAINED as failure:
            # A known refusal has deleted the parts; while the outcome is open, they may be sent as they are.
            same = parts if not isinstance(failure, ConflictError) and self.random.random() < 0.5 else []
            if order.token or order.digest or same:
                self.unsure.append(Order(order.directory, order.token, order.digest, order.rows, same))
            raise
        entry = self.table.entries[done.version]
        held = {part.id for op in entry.ops if isinstance(op, AddParts) for part in op.parts}
        brought = {part.id for part in parts} & held
        if done.duplicate:
            assert order.parts or not brought, "a duplicate was inserted"
            self.was_known(order, asked.version)
        elif not order.digest:
            assert len(brought) == len(parts), "an acknowledged insert is not where it was said to be"
        if not done.duplicate and self.random.random() < 0.1:  # who did not see the answer sends the same parts
            landed = [part for part in parts if part.id in brought]  # those of known rows have been deleted
            self.unsure.append(Order(order.directory, order.token, order.digest, order.rows, landed))

    def was_known(self, order: Order, since: int) -> None:
        """7, 17: who is told of a duplicate asked when the insert was remembered (not: some time before)."""
        if order.token and not self.table.state.dropped:
            versions = range(since, self.table.state.version + 1)
            known = any(order.token in self.table.history[version].tokens for version in versions)
            assert known, f"{order.token} was called a duplicate, and is not in the table"


class Repeater(Inserter):
    """Inserts without a token, and sends the same parts once more, hours later: who was not told, and stood still."""

    roams = 0.0

    def actions(self):
        return {self.repeat: 1}

    def repeat(self) -> None:
        rows = {self.random.choice(PARTITIONS): self.world.new_rows(1)}
        order = Order(self.directory, "", "", rows, self.write_all(rows, self.handle.base_version()))
        self.bring(order)
        self.process.clock.sleep_s(self.random.random() * REPEAT_MAX_S)
        self.bring(order)


class Streamer(Inserter):
    """Batches with numbers as tokens; after a restart it replays from its last checkpoint.

    Two with one name are one stream, one of which should have died.
    """

    roams = 0.0

    def actions(self):
        return {self.batch: 1}

    def batch(self) -> None:
        machine = self.process.machine
        stream = machine.alias or machine.name
        offsets, batches = self.world.stream.setdefault(f"{stream} into {self.directory}", ({}, {}))
        number = offsets.setdefault(machine.name, 0)
        rows = batches.setdefault(number, {self.random.choice(PARTITIONS): self.world.new_rows(2)})
        self.send(f"{stream} batch {number}", "", rows)
        self.unsure.clear()
        offsets[machine.name] += 1
        if self.random.random() < 0.1:
            self.handle = None  # a restart: the offsets of the last batches were not saved
            offsets[machine.name] = max(0, offsets[machine.name] - self.random.randint(1, 3))


class Rival(Inserter):
    """Inserts, and gives and takes away few names: of several who do the same in one entry, all but one are refused."""

    roams = 0.0

    def actions(self):
        return {self.insert: 4, self.name: 8}

    def name(self) -> None:
        name, version = f"rival {self.random.randint(1, 3)}", self.state.version
        with contextlib.suppress(InvalidInputError):
            self.commit(lambda state: [Untag(name)] if name in state.tags else [Tag(name, version)])


class Caller(Inserter):
    """A thread of a process that shares its open table with others: their commits may share an entry."""

    def actions(self):
        return {self.insert: 8, self.again: 3, self.drop: 0.5, self.mutate: 0.5, self.kill: 0.3, self.tag: 1}

    def open(self) -> None:
        self.open_for_all(super().open, "directory", "handle")

    def reopen(self) -> None:
        self.world.shared.pop(self.process.machine.group, None)
        super().reopen()

    def drop(self) -> None:
        name = self.random.choice(PARTITIONS)
        self.commit(lambda _: [DropRange(name, "drop")])

    def mutate(self) -> None:
        op = Mutation(self.process.ids.new_id()[:8], self.world.new_update(), None, drops_rows=False)
        self.commit(lambda _: [op])

    def kill(self) -> None:
        pending = unfinished(self.state)
        if pending:
            chosen = self.random.choice(pending)
            self.commit(lambda _: [KillMutation(chosen.id)])

    def tag(self) -> None:
        """Of a few names: one of several that come together is refused."""
        name, version = f"shared {self.random.randint(1, 20)}", self.state.version
        with contextlib.suppress(InvalidInputError):
            self.commit(lambda _: [Tag(name, version)])
