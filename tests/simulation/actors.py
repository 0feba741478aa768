"""What processes do: each action is a call of the real code, by a process that may stop or die in the middle.

An actor is born with its role, opens the table, and acts until it dies. Failures that the store or a race explains
are taken as they come; anything else (a wrong answer, an error that nothing explains) fails the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mergelake.core.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    MergelakeError,
    NotFoundError,
    UnavailableError,
)
from mergelake.log.operations import (
    AddParts,
    AlterMetadata,
    DropDetached,
    DropRange,
    DropTable,
    KillMutation,
    LogOp,
    Mutation,
    Tag,
    Untag,
)
from mergelake.log.state import State
from mergelake.log.volatile import unfinished
from mergelake.table.clone import check_holds, plan_clone, take_holds
from mergelake.table.collect import collect_round
from mergelake.table.handle import TableHandle
from mergelake.table.insert import commit_parts
from mergelake.table.rollback import rollback
from tests.simulation.bucket import ProcessStore
from tests.simulation.kernel import Process
from tests.simulation.tiny import PARTITIONS, Rows, decode, keys_of, write

if TYPE_CHECKING:
    from tests.simulation.world import World

EXPLAINED = (ConflictError, UnavailableError)
"""Lost races and silent stores: no action owes us more."""


class Actor:
    """One process and its table; subclasses say what it does."""

    directory = "t"
    roams = False
    """Whether it also works on clones."""
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
                if not process.doubtful and not self.table.state.dropped:
                    raise
                if self.table.state.dropped:
                    self.handle = None
            process.sleep(self.random.random() ** 2 * self.world.pace_s)

    def open(self) -> None:
        self.directory = self.random.choice([*self.world.tables]) if self.roams else "t"
        self.compared, self.least = None, 0
        self.handle = self.open_table(self.directory)

    def open_table(self, directory: str) -> TableHandle:
        process = self.process
        return TableHandle.open(self.store, directory, clock=process.clock, ids=process.ids, author=process.name)

    def look(self) -> None:
        """By the scheduler, whenever this process stopped: what it believes must be true."""
        if self.handle is not None and self.state is not self.compared:
            self.table.compare(self.state, self.least)
            self.compared, self.least = self.state, self.state.version

    def follow(self) -> None:
        self.handle.refresh()

    def commit(self, build: Callable[[State], Sequence[LogOp]]) -> int:
        """Commit; the version if it is in the log for certain."""
        committed = self.handle.log.commit(build)
        if committed.entry is not None:
            self.table.acknowledge(committed.entry)
        return committed.version

    def write(self, partition_id: str, rows: Rows, born: int | None = None):
        """A new part in the store."""
        part_id = self.process.ids.new_id()
        self.world.bodies[f"{self.directory}/{part_id}/data.packed"] = rows
        born = self.handle.born() if born is None else born
        return write(self.store, self.directory, part_id, partition_id, rows, born)

    def read(self, parts) -> Rows:
        """The rows of parts, from their objects; what is there must be what was written."""
        out: list = []
        for part in parts:
            for key in keys_of(self.directory, part):
                rows = decode(self._get(key))
                assert rows == self.world.bodies[key], f"{key} does not hold what was written"
                out += rows
        return tuple(out)

    def _get(self, key: str) -> bytes:
        data = self.store.get(key)
        if data != self.world.bucket.objects.get(key, (data,))[0]:
            raise CorruptDataError(f"{key} is truncated")
        return data


class Inserter(Actor):
    """Inserts with and without tokens; what it does not know, it tries again with the same token."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world, process)
        self.unsure: list[tuple[str, str, dict[str, Rows]]] = []

    def actions(self):
        return {self.insert: 8, self.again: 3}

    def insert(self) -> None:
        chosen = self.random.sample(PARTITIONS, self.random.choice([1, 1, 2]))
        rows = {name: self.world.new_rows(self.random.randint(1, 2)) for name in chosen}
        way = self.random.random()
        name = f"{self.process.name} {self.process.ids.new_id()[:6]}"
        self.send(name if way < 0.4 else "", name if way > 0.8 else "", rows)

    def again(self) -> None:
        if self.unsure:
            self.send(*self.unsure.pop(self.random.randrange(len(self.unsure))))

    def send(self, token: str, digest: str, rows: dict[str, Rows]) -> None:
        if (token or digest) and self.random.random() < 0.3:
            self.unsure.append((token, digest, rows))  # a replay of what is known to be there
        try:
            born = self.handle.born()
            parts = [self.write(name, held, born) for name, held in rows.items()]
            done = commit_parts(self.handle, parts, token or None, digest)
        except EXPLAINED:
            if token or digest:
                self.unsure.append((token, digest, rows))
            raise
        entry = self.table.entries[done.version]
        held = {part.id for op in entry.ops if isinstance(op, AddParts) for part in op.parts}
        brought = {part.id for part in parts} & held
        if done.duplicate:
            assert not brought, "a duplicate was inserted"
        elif not digest:
            assert len(brought) == len(parts), "an acknowledged insert is not where it was said to be"


class Streamer(Inserter):
    """Batches with numbers as tokens; after a restart it replays from its last checkpoint."""

    def actions(self):
        return {self.batch: 1}

    def batch(self) -> None:
        source = self.world.stream
        at = source.setdefault(self.process.machine.name, [0, {}])
        number, batches = at
        rows = batches.setdefault(number, {self.random.choice(PARTITIONS): self.world.new_rows(2)})
        self.send(f"{self.process.machine.name} batch {number}", "", rows)
        self.unsure.clear()
        at[0] += 1
        if self.random.random() < 0.1:
            self.handle = None  # a restart: the offsets of the last batches were not saved
            at[0] = max(0, at[0] - self.random.randint(1, 3))


class Admin(Actor):
    """Mutations, drops, detach and attach, changes of the schema."""

    def actions(self):
        return {
            self.mutate: 2,
            self.kill: 1,
            self.drop: 1,
            self.detach: 1,
            self.attach: 4,
            self.drop_detached: 0.3,
            self.replace: 0.5,
            self.alter: 0.3,
            self.tag: 1,
            self.untag: 0.5,
            self.rollback: 0.4,
            self.clone: 0.6,
            self.drop_clone: 0.2,
            self.idle: 4,
        }

    def tag(self) -> None:
        version = self.random.randint(max(1, self.state.history), self.state.version)
        name = self.process.ids.new_id()[:4]
        with contextlib.suppress(InvalidInputError):  # it may have been collected by then
            self.commit(lambda _: [Tag(name, version)])

    def untag(self) -> None:
        if self.state.tags:
            name = self.random.choice(sorted(self.state.tags))
            with contextlib.suppress(InvalidInputError):
                self.commit(lambda _: [Untag(name)])

    def rollback(self) -> None:
        version = self.random.choice([*self.state.tags.values(), max(self.state.history, self.state.version - 5)])
        try:
            done = rollback(self.handle, version)
        except InvalidInputError as refusal:
            if refusal.name not in ("UNFINISHED", "BAD_ARGUMENTS"):
                raise
        except CorruptDataError:
            if version in self.table.readable() and not self.process.doubtful:
                raise
        else:
            if self.table.entries[done].author == self.process.name:
                assert self.table.views[done] == self.table.views[version], "a rollback gave other rows"

    def clone(self) -> None:
        """As the catalog does it; only when the holds were seen to stand does anybody else know of the clone."""
        if len(self.world.tables) > 2:
            return
        process, directory = self.process, self.process.ids.new_id()
        try:
            plan = plan_clone(self.state, "t", process.ids)
        except InvalidInputError as refusal:
            if refusal.name != "UNFINISHED":
                raise
            return
        owners = take_holds(directory, plan, self.open_table)
        options = {"clock": process.clock, "ids": process.ids, "author": process.name, "more": plan.more}
        TableHandle.create(self.store, directory, plan.schema, **options)
        check_holds(directory, owners)
        self.world.know(directory)

    def drop_clone(self) -> None:
        clones = [name for name, table in self.world.tables.items() if name != "t" and not table.state.dropped]
        if clones:
            handle = self.open_table(self.random.choice(clones))
            handle.log.commit(lambda state: () if state.dropped else [DropTable()])

    def idle(self) -> None:
        """Nothing: time for others."""

    def mutate(self) -> None:
        k = self.random.randint(3, 9)
        commands = self.random.choice(["UPDATE", f"DELETE {k} {self.random.randrange(k)}"])
        scope = self.random.choice([None, (self.random.choice(PARTITIONS),)])
        name = self.process.ids.new_id()[:8]
        self.commit(lambda _: [Mutation(name, commands, scope)])

    def kill(self) -> None:
        pending = unfinished(self.state)
        if pending:
            chosen = self.random.choice(pending)
            self.commit(lambda _: [KillMutation(chosen.id)])

    def drop(self) -> None:
        scope = self.random.choice([*PARTITIONS, *PARTITIONS, None])
        bound = self.random.choice([None, self.random.randint(0, self.state.block_counter)])
        kind = "truncate" if scope is None else "drop"
        self.commit(lambda _: [DropRange(scope, kind, bound)])

    def detach(self) -> None:
        name = self.random.choice(PARTITIONS)
        if name in self.state.partitions:
            self.commit(lambda _: [DropRange(name, "detach")])

    def attach(self) -> None:
        """New ids for old bytes; nothing is copied."""
        detached = self.state.detached
        if not detached:
            return
        chosen = self.random.choice(detached).manifest
        part = dataclasses.replace(chosen, id=self.process.ids.new_id(), born=self.state.version)
        self.commit(lambda _: [AddParts((part,), detached=(chosen.id,))])

    def drop_detached(self) -> None:
        detached = self.state.detached
        if detached:
            ids = tuple(part.manifest.id for part in self.random.sample(detached, min(2, len(detached))))
            self.commit(lambda _: [DropDetached(ids)])

    def replace(self) -> None:
        """The rows of a partition go, others take their place, in one entry."""
        name = self.random.choice(PARTITIONS)
        part = self.write(name, self.world.new_rows(2))
        self.commit(lambda _: [DropRange(name, "replace"), AddParts((part,))])

    def alter(self) -> None:
        def build(state: State):
            return [AlterMetadata(dataclasses.replace(state.schema, version=state.schema_version + 1))]

        self.commit(build)


class Reader(Actor):
    """Reads the newest version, old ones, and pinned ones, slowly."""

    roams = True

    def actions(self):
        return {self.newest: 4, self.older: 2, self.reopen: 1}

    def newest(self) -> None:
        self.handle.refresh()
        self.check(self.state)

    def older(self) -> None:
        version = self.random.choice(
            [self.random.randint(max(self.state.history, 1), self.state.version), *self.state.tags.values()]
        )
        try:
            state = self.handle.state_at(version)
        except (NotFoundError, CorruptDataError, InvalidInputError):
            if version in self.table.readable() and not self.process.doubtful:
                raise
            return
        self.check(state)

    def reopen(self) -> None:
        self.handle, self.compared = None, None

    def check(self, state: State) -> None:
        """6: what is read at a version is the model's at that version; only what is no longer kept may be gone."""
        self.table.compare(state, 0)
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


class Collector(Actor):
    """Rounds of collection."""

    attentive = 0.0
    roams = True

    def actions(self):
        return {self.collect: 2, self.rehearse: 0.3, self.reopen: 0.3}

    def collect(self) -> None:
        report = collect_round(self.handle)
        self.world.did["objects deleted"] += len(report.deleted)
        self.world.did["entries deleted"] += report.entries

    def rehearse(self) -> None:
        """A dry run deletes nothing."""
        writes = self.store.writes
        collect_round(self.handle, dry_run=True)
        assert self.store.writes == writes, "a dry run wrote something"

    def reopen(self) -> None:
        self.handle, self.compared = None, None
