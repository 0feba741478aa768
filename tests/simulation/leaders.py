"""Leaders: processes that take commits of others.

A leader is a process of several threads: one announces it and commits for itself, the others take messages, and each of
them stops anywhere, for hours, or dies with all of them. Its next life has another token; what was meant for the one
before is never heard.
"""

from __future__ import annotations

from mergelake.core.base.errors import ConflictError, CorruptDataError
from mergelake.log.model.operations import DropRange, ReleaseLease, RenewLease
from mergelake.log.relay.leader import CommitService
from mergelake.table.write.deduplication import NO_IDENTITY
from mergelake.table.write.insert import discard_refused
from tests.simulation.inserters import Caller, Inserter, Order
from tests.simulation.tiny import PARTITIONS


class Leader(Caller):
    """The thread of a process that listens which announces it, and commits for itself."""

    roams = 0.0

    def actions(self):
        return {self.announce: 3, self.insert: 2, self.again: 1.1, self.withdraw: 0.05}

    @property
    def address(self) -> str:
        return f"{self.process.machine.group}:1"

    def open(self) -> None:
        self.open_for_all(self.begin, "directory", "handle", "service", "token")
        self.world.network.listen(self.address, self.token)

    def begin(self) -> None:
        super(Caller, self).open()
        self.service = CommitService()
        self.service.add(self.handle.log)
        self.token = self.process.ids.new_id()

    def reopen(self) -> None:
        shared = self.world.shared.get(self.process.machine.group, {})
        if shared.get("handle") is self.handle:
            self.world.shared.pop(self.process.machine.group)
        self.handle, self.compared = None, None

    def announce(self) -> None:
        until_ms = self.process.clock.now_ms() + self.random.choice([2_000_000, 40_000_000])
        node = self.process.machine.group
        self.commit(lambda state: [RenewLease(node, state.version, until_ms, self.address, self.token)])

    def withdraw(self) -> None:
        self.commit(lambda _: [ReleaseLease(self.process.machine.group)])


class Desk(Leader):
    """A thread of it which takes what arrives."""

    attentive = 0.0

    def actions(self):
        return {self.take: 8}

    def take(self) -> None:
        network = self.world.network
        inbox = network.inboxes.get((self.address, self.token))
        if not inbox:
            return
        message = inbox.pop(0)
        try:
            answer = self.service(message.payload)
        except CorruptDataError as failure:
            self.world.bucket.violation = self.world.bucket.violation or failure
            raise
        self.world.kernel.point(self.process, "the answer")
        if self.process.chance.random() >= network.trouble / 2:
            message.answer = answer


class Hasty(Inserter):
    """A sender that does nothing else but commit."""

    roams = 0.0
    attentive = 0.0

    def actions(self):
        return {self.insert: 4, self.again: 3, self.change_its_mind: 4, self.compete: 6, self.drop: 1.1}

    def compete(self) -> None:
        """Rows under a token that others use too: who comes second is told of a duplicate."""
        rows = {self.random.choice(PARTITIONS): self.world.new_rows(1)}
        self.bring(Order(self.directory, f"hasty {self.random.randint(1, 3)}", "", rows))

    def drop(self) -> None:
        """And forget what was inserted there."""
        name = self.random.choice(PARTITIONS)
        self.commit(lambda _: [DropRange(name, "drop")])

    def drop_all(self) -> None:
        """Every token is free again."""
        self.commit(lambda _: [DropRange(None, "drop")])

    def change_its_mind(self) -> None:
        """An insert that is given up as soon as it has to be said anew: then it is not in the log, and never will
        be."""
        parts = self.write_all({self.random.choice(PARTITIONS): self.world.new_rows(1)}, self.handle.base_version())
        said = NO_IDENTITY.additions(parts)

        def build(_):
            if not said:
                raise ConflictError("it takes too long")
            return [said.pop()]

        try:
            self.commit(build)
        except ConflictError:
            held = {part.manifest.id for part in self.table.state.parts()}
            assert not held & {part.id for part in parts}, "what was given up is in the log"
            discard_refused(self.handle, parts)
            raise


class Contender(Hasty):
    """Inserts under few tokens, which it frees again: much is refused that is possible soon after."""

    def actions(self):
        return {self.compete: 6, self.drop_all: 2}
