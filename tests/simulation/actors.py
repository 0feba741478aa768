"""What processes do: each action is a call of the real code, by a process that may stop or die in the middle.

An actor is born with its role, opens a table, and acts until it dies. Failures that the store or a race explains
are taken as they come; anything else (a wrong answer, an error that nothing explains) fails the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mergelake.core.base.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    MergelakeError,
    NotFoundError,
    UnavailableError,
)
from mergelake.core.model.manifest import PartManifest
from mergelake.log.backends.backends import Backends
from mergelake.log.model.operations import LogOp
from mergelake.log.model.state import State
from mergelake.log.reading.head_freshness import HEAD_FRESHNESS_S
from mergelake.table.handle.handle import TableHandle
from tests.simulation.bucket import ProcessStore
from tests.simulation.kernel import EPOCH_MS, Process
from tests.simulation.network import SimPeers
from tests.simulation.tiny import Place, Rows, decode, places_of, sharing, write

if TYPE_CHECKING:
    from tests.simulation.world import World

EXPLAINED = (ConflictError, UnavailableError)
"""Lost races and silent stores: no action owes us more."""


class Actor:
    """One process and its table; subclasses say what it does."""

    directory = "t"
    only = ""
    """The one table that it works on, if there is one."""
    buries = False
    """Whether it works on tables that were dropped, too."""
    roams = 0.0
    """How often it opens another table than the first."""
    attentive = 0.3
    """How often it looks at the log before it acts."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.random = process.random
        self.store = ProcessStore(world.bucket, process)
        self.handle: TableHandle | None = None
        self.least = 0
        self.compared: State | None = None

    @property
    def table(self):
        return self.world.tables[self.directory]

    @property
    def state(self) -> State:
        return self.handle.log.state

    def actions(self) -> dict[Callable[[], None], float]:
        """What it may do, and how often."""
        raise NotImplementedError

    def run(self, process: Process) -> None:
        choices = self.world.weighed(self.actions())
        choices[self.follow] = 0.5
        while True:
            process.doubtful = False
            table, since, began_s = self.table, self.table.state.version, self.world.kernel.now_s
            try:
                if self.handle is None:
                    self.open()
                else:
                    act = self.random.choices([*choices], [*choices.values()])[0]
                    self.world.did[act.__name__] += 1
                    if self.random.random() < self.attentive:
                        self.follow()
                    act()
            except EXPLAINED as failure:
                self.world.failed[type(failure).__name__] += 1
            except MergelakeError:
                # Damaged bytes may look like a version that was collected; of a table that was dropped all may be gone.
                if table.was_dropped(since) or self.table.state.dropped:
                    self.reopen()
                elif self.world.kernel.now_s - began_s > HEAD_FRESHNESS_S and self.world.bucket.damaged_ever:
                    self.reopen()  # what stood for a damaged segment may be gone by now
                elif not process.doubtful:
                    raise
            if self.table.state.dropped and not self.buries:
                self.reopen()
            process.turns += 1
            process.sleep(self.random.random() ** 2 * self.world.pace_s)

    def open(self) -> None:
        self.directory = self.only or self.world.choose(self.random, self.roams)
        self.compared, self.least = None, 0
        self.handle = self.open_table(self.directory)

    def open_for_all(self, opened: Callable[[], None], *names: str) -> None:
        """What the first of several threads has opened is used by all of them: attributes, by name."""
        shared = self.world.shared.setdefault(self.process.machine.group, {})
        if not shared:
            opened()
            if not shared:  # another thread may have been faster
                shared.update({name: getattr(self, name) for name in names})
        for name in names:
            setattr(self, name, shared[name])
        self.compared, self.least = None, 0

    def reopen(self) -> None:
        """A restart; perhaps with another table."""
        self.handle, self.compared = None, None

    def open_table(self, directory: str) -> TableHandle:
        process = self.process
        handle = TableHandle.open(
            self.store,
            directory,
            clock=process.clock,
            ids=process.ids,
            author=process.author,
            backends=Backends("", SimPeers(self.world.network, process)),
        )
        self.world.tables[directory].watch(handle.log)
        return handle

    def look(self) -> None:
        """By the scheduler, whenever this process stopped: what it believes must be true."""
        if self.handle is not None and self.state is not self.compared:
            stage = self.world.stage
            self.table.compare(self.state, self.least, by_hash=stage is not None and stage.by_hash)
            self.compared, self.least = self.state, self.state.version

    def follow(self) -> None:
        """8: who asks for the newest version gets one that is no older than the question."""
        asked = self.table.state.version
        state = self.handle.refresh()
        assert state.version >= asked or self.table.state.dropped, (
            f"{self.process.name} asked at version {asked}, and was told of {state.version}"
        )

    def commit(self, build: Callable[[State], Sequence[LogOp]]) -> int:
        """Commit; the version if it is in the log for certain."""
        return self.handle.log.commit(build).version

    def write(self, partition_id: str, rows: Rows, base_version: int | None = None):
        """A new part in the store."""
        part_id = self.process.ids.new_id()
        self.world.bodies[f"{self.directory}/{part_id}/files.packed", 0] = rows
        base_version = self.handle.base_version() if base_version is None else base_version
        return write(self.store, self.directory, part_id, partition_id, rows, base_version)

    def write_all(self, held: Mapping[str, Rows], base_version: int) -> list[PartManifest]:
        """New parts of one insert; several often share an object."""
        if len(held) < 2 or self.random.random() < 0.2:
            return [self.write(partition_id, rows, base_version) for partition_id, rows in held.items()]
        parts = [(self.process.ids.new_id(), partition_id, rows) for partition_id, rows in held.items()]
        data, manifests = sharing(self.process.ids.new_id(), parts, base_version)
        for manifest, (_, _, rows) in zip(manifests, parts, strict=True):
            ((key, offset, _),) = places_of(self.directory, manifest)
            self.world.bodies[key, offset] = rows
        self.store.put(key, data)
        return manifests

    def read(self, parts) -> Rows:
        """The rows of parts, from their objects; what is there must be what was written."""
        out: list = []
        for part in parts:
            for place in places_of(self.directory, part):
                out += self.rows_at(place)
        return tuple(out)

    def rows_at(self, place: Place) -> Rows:
        """The rows at a place; as the frames of a real part, they tell whether they are what was written."""
        key, offset, length = place
        data = self.store.get(key)
        there = self.world.bucket.objects.get(key, (data,))[0]
        if data != there or key in self.world.rotten:
            self.process.doubt()
            raise CorruptDataError(f"{key} is damaged")
        try:
            rows = decode(data[offset : offset + length])
            assert rows == self.world.bodies.get((key, offset), rows), f"{key} does not hold what was written"
        except (ValueError, AssertionError):
            if key in self.world.bucket.objects:
                raise
            raise NotFoundError(f"{key} was collected, and damaged on the way before") from None
        return rows


class Reader(Actor):
    """Reads the newest version, old ones, those of a time, and pinned ones, slowly."""

    roams = 0.5

    def actions(self):
        return {self.newest: 4, self.older: 2, self.as_of: 2, self.reopen: 1}

    def newest(self) -> None:
        self.follow()
        self.check(self.state)

    def older(self) -> None:
        version = self.random.choice(
            [self.random.randint(max(self.state.history, 1), self.state.version), *self.state.whole_tags.values()]
        )
        try:
            state = self.handle.state_at(version)
        except (NotFoundError, CorruptDataError, InvalidInputError):
            if version in self.table.readable() and not self.process.doubtful:
                raise
            return
        assert state.version == version or self.table.state.dropped, f"version {version} was read as {state.version}"
        self.check(state)

    def as_of(self) -> None:
        """The version of a time is the last one whose entry is not younger."""
        times = {version: self.table.time_of(version) for version in self.table.entries}
        first, last = max(self.state.history, 1), self.state.version
        about = times.get(self.random.randint(first, last), EPOCH_MS)
        time_ms = about + self.random.choice([-1, 0, 0, 1, self.random.randint(-600_000, 600_000)])
        asked = self.table.state
        try:
            state = self.handle.state_at(timestamp_ms=time_ms)
        except (NotFoundError, CorruptDataError, InvalidInputError):
            oldest = self.table.state.history
            if times.get(max(oldest, 1), time_ms + 1) <= time_ms and not self.process.doubtful:
                raise
            return
        if self.table.state.dropped:
            return
        times |= {version: self.table.time_of(version) for version in self.table.entries}
        following = times.get(state.version + 1)
        assert state.timestamp_ms <= time_ms, f"version {state.version} is younger than the time that was asked for"
        assert following is None or following > time_ms or state.version >= asked.version, (
            f"version {state.version} is not the last one of its time"
        )
        self.check(state)

    def check(self, state: State) -> None:
        """6: what is read at a version is the model's at that version; only what is no longer kept may be gone."""
        try:
            self.table.compare(state, 0)
        except (NotFoundError, CorruptDataError):  # parts of it had yet to be read
            if state.version in self.table.readable():
                raise
            return
        if self.table.state.dropped:
            return
        expected = self.table.views[state.version]
        try:
            rows = {
                name: self.world.seen(state, held, [self.read([p.manifest]) for p in held])
                for name, held in state.partitions.items()
            }
        except NotFoundError:
            if state.version in self.table.kept():
                raise
            return
        for name in {*rows, *expected}:
            found, there = rows.get(name, ()), expected.get(name, ())
            assert found == there, f"version {state.version}: partition {name} reads as {found}, not {there}"


class Follower(Reader):
    """Looks at the log all the time, and reads seldom."""

    roams = 0.0
    attentive = 1.0

    def actions(self):
        return {self.newest: 0.008}
