"""Who moves partitions from table to table, and who reads several tables at once."""

from __future__ import annotations

import contextlib

from mergelake.api.python.joint import JointStates
from mergelake.core.base.errors import CorruptDataError, InvalidInputError, NotFoundError
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.exchange_parts import bring_partition
from tests.simulation.actors import Reader
from tests.simulation.admins import TABLES_MAX, Admin
from tests.simulation.tiny import PARTITIONS


class Mover(Admin):
    """Moves, replaces and attaches partitions between all tables that are there."""

    roams = 0.5

    def actions(self):
        return {
            self.move: 6,
            self.take_over: 2,
            self.found: 2,
            self.mutate: 0.7,
            self.kill: 0.2,
            self.drop: 0.3,
            self.drop_table: 0.15,
            self.reopen: 0.5,
            self.idle: 1,
        }

    def found(self) -> None:
        """Another table."""
        if len(self.world.living()) >= TABLES_MAX:
            return
        directory = self.process.ids.new_id()
        options = {"clock": self.process.clock, "ids": self.process.ids, "author": self.process.author}
        TableHandle.create(self.store, directory, self.world.schema, **options)
        self.world.know(directory)

    def move(self) -> None:
        self.bring("move")

    def take_over(self) -> None:
        self.bring(self.random.choice(["replace", "attach"]))

    def bring(self, kind) -> None:
        others = [name for name in self.world.living() if name != self.directory]
        if not others:
            return
        chosen = self.random.choice(others)
        source, target = self.handle, self.open_table(chosen)
        directories = [self.directory, chosen]
        if self.random.random() < 0.5:
            source, target = target, source
        try:
            version = bring_partition(source, target, self.random.choice(PARTITIONS), kind, self.open_any)
        except (InvalidInputError, NotFoundError, CorruptDataError) as refusal:
            gone = any(self.world.tables[name].state.dropped for name in directories) or self.process.doubtful
            if not gone and refusal.name not in ("BAD_ARGUMENTS", "UNFINISHED"):
                raise
            return
        table = self.world.tables[target.directory]
        assert table.state.dropped or version in table.entries, "what was acknowledged is not in the log"

    def open_any(self, directory: str) -> TableHandle:
        """The owner of some objects: also a table that was dropped."""
        return self.open_table(directory)


class Settler(Mover):
    """Drops no table."""

    def actions(self):
        return {act: weight for act, weight in super().actions().items() if act != self.drop_table}


class Taker(Mover):
    """Takes the same parts over again and again, and drops them in between."""

    def actions(self):
        return {self.take_over: 6, self.found: 2, self.drop: 3, self.reopen: 0.3, self.idle: 1}


class JointReader(Reader):
    """Reads all tables at once."""

    roams = 0.5

    def actions(self):
        return {self.together: 4, self.one_after_the_other: 2, self.as_of_a_time: 3, self.reopen: 0.5}

    def opened(self) -> list[TableHandle]:
        handles = [self.handle]
        for name in self.world.living():
            if name != self.directory:
                with contextlib.suppress(NotFoundError, InvalidInputError):
                    handles.append(self.open_table(name))
        self.random.shuffle(handles)
        return handles

    def together(self) -> None:
        """As a statement does that names them."""
        handles = self.opened()
        for handle in handles:
            if self.random.random() < 0.7:
                handle.refresh()
            self.process.sleep(self.random.random() * self.world.pace_s)
        states = JointStates()
        states.pin(handles)
        self.judge(handles, states)

    def one_after_the_other(self) -> None:
        """As one that finds more of them while it goes on."""
        states = JointStates()
        handles = self.opened()
        for handle in handles:
            handle.refresh()
            with contextlib.suppress(InvalidInputError):  # what was before is not kept
                states.of(handle)
            self.process.sleep(self.random.random() * self.world.pace_s)
        self.judge([handle for handle in handles if handle.directory in states._states], states)

    def judge(self, handles: list[TableHandle], states: JointStates) -> None:
        found = {handle.directory: states.of(handle) for handle in handles}
        living = {name: state for name, state in found.items() if not self.world.tables[name].state.dropped}
        self.world.transactions.check(living)
        own = self.handle
        try:
            for handle in handles:
                if handle.directory in living:
                    self.turn_to(handle)
                    self.check(found[handle.directory])
        finally:
            self.turn_to(own)

    def turn_to(self, handle: TableHandle) -> None:
        """It is about this table now."""
        self.handle, self.directory, self.compared, self.least = handle, handle.directory, None, 0

    def as_of_a_time(self) -> None:
        handles = self.opened()
        table = self.table
        if not table.entries:
            return
        version = self.random.choice([*table.entries])
        time_ms = self.random.choice([table.time_of(version), table.entries[version].timestamp_ms])
        time_ms += self.random.choice([-1, 0, 1])
        states = {}
        for handle in handles:
            asked = self.world.tables[handle.directory].state
            try:
                state = handle.state_at(timestamp_ms=time_ms)
            except (InvalidInputError, NotFoundError, CorruptDataError):
                continue
            # What is committed while it is read, with a time that is over, is not seen by who was faster.
            if state.version < asked.version and not self.world.tables[handle.directory].state.dropped:
                states[handle.directory] = state
        self.world.transactions.check(states)
