"""Who changes tables: mutations, drops, detach and attach, schema, tags, rollback, clones, the end of a table."""

from __future__ import annotations

import contextlib
import dataclasses

from mergelake.core.base.errors import CorruptDataError, InvalidInputError, NotFoundError, UnavailableError
from mergelake.log.model.operations import (
    AddParts,
    AlterMetadata,
    DropDetached,
    DropRange,
    DropTable,
    KillMutation,
    Mutation,
    RowsUnchanged,
    Tag,
    UndropTable,
    Untag,
)
from mergelake.log.model.state import State
from mergelake.log.model.volatile import unfinished
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.clone import check_holds, plan_clone, take_holds, with_lacks
from mergelake.table.partitions.freeze import freeze, unfreeze
from mergelake.table.partitions.parts import attach_part, attach_partition, drop_part
from mergelake.table.partitions.rollback import rollback
from mergelake.table.partitions.undrop import undrop
from tests.simulation.actors import Actor
from tests.simulation.tiny import PARTITIONS, drops_rows

TABLES_MAX = 3
"""That are there at once."""


class Admin(Actor):
    """Anything that a user may say to a table."""

    roams = 0.4

    def actions(self):
        return {
            self.mutate: 2,
            self.kill: 1,
            self.drop: 1,
            self.detach: 2,
            self.attach: 4,
            self.drop_detached: 0.3,
            self.replace: 0.5,
            self.alter: 0.3,
            self.derive: 0.5,
            self.tag: 1,
            self.untag: 0.5,
            self.rollback: 0.4,
            self.rollback_to_time: 0.4,
            self.clone: 1.5,
            self.drop_table: 0.4,
            self.undrop_table: 0.6,
            self.reopen: 0.5,
            self.idle: 2,
        }

    def tag(self) -> None:
        """Also of a version that is just being collected: it is refused then."""
        version = self.random.randint(max(1, self.state.history - 2), self.state.version)
        name = self.process.ids.new_id()[:4]
        with contextlib.suppress(InvalidInputError):
            self.commit(lambda _: [Tag(name, version)])

    def untag(self) -> None:
        if self.state.tags:
            name = self.random.choice(sorted(self.state.tags))
            with contextlib.suppress(InvalidInputError):
                self.commit(lambda _: [Untag(name)])

    def rollback(self) -> None:
        version = self.random.choice([*self.state.whole_tags.values(), max(self.state.history, self.state.version - 5)])
        try:
            done = rollback(self.handle, version)
        except InvalidInputError as refusal:
            if refusal.name != "BAD_ARGUMENTS":
                raise
        except CorruptDataError:
            if version in self.table.readable() and not self.process.doubtful:
                raise
        else:
            self.is_back(done, version)

    def rollback_to_time(self) -> None:
        """The version that is meant is found by the log's times, and never another one."""
        entries = self.table.entries
        wanted = self.random.randint(max(self.state.history, 1), self.state.version)
        time_ms = self.table.time_of(wanted)
        last = self.table.state.version
        try:
            done = rollback(self.handle, timestamp_ms=time_ms)
        except InvalidInputError as refusal:
            if refusal.name != "BAD_ARGUMENTS":
                raise
        except CorruptDataError:
            if wanted in self.table.readable() and not self.process.doubtful:
                raise
        else:
            later = min((v for v in entries if self.table.time_of(v) > time_ms), default=done)
            of_that_time = min(later, done) - 1
            self.is_back(done, *{min(newest, of_that_time) for newest in range(last, done)})

    def is_back(self, done: int, *versions: int) -> None:
        """The entry, if it is ours, has the rows of one of these versions."""
        entry, views = self.table.entries[done], self.table.views
        alone = len(entry.parties) == 1  # else the rows of other members stand behind it
        if alone and entry.author == self.process.author and not self.table.state.dropped and versions:
            assert any(views[done] == views[version] for version in versions), "a rollback gave other rows"

    def clone(self) -> None:
        """As the catalog does it; only when the holds were seen to stand does anybody else know of the clone."""
        if len(self.world.living()) >= TABLES_MAX:
            return
        process, directory = self.process, self.process.ids.new_id()
        plan = plan_clone(self.state, self.directory, process.ids)
        owners = take_holds(directory, plan, self.open_table)
        options = {"clock": process.clock, "ids": process.ids, "author": process.author, "more": plan.more}
        try:
            TableHandle.create(self.store, directory, plan.schema, **options)
        except InvalidInputError:
            if directory in self.world.buried:  # it held for so long, without beginning, that it was given up
                return
            raise
        check_holds(directory, owners)
        self.world.know(directory)

    def drop_table(self) -> None:
        """A clone; now and then the first one of all, and another takes its place."""
        clones = [name for name in self.world.living() if name != self.world.home]
        first = self.random.random() < 0.3
        if not clones and not first:
            return
        chosen = self.world.home if first else self.random.choice(clones)
        if chosen in self.world.living():
            handle = self.open_table(chosen)
            handle.log.commit(lambda state: () if state.dropped else [DropTable()])
        if first:
            directory = self.process.ids.new_id()
            options = {"clock": self.process.clock, "ids": self.process.ids, "author": self.process.author}
            TableHandle.create(self.store, directory, self.world.schema, **options)
            self.world.know(directory)
            self.world.home = directory

    def undrop_table(self) -> None:
        """One that was dropped is as it was, if its time is not over."""
        dropped = [name for name, table in self.world.tables.items() if table.state.dropped]
        if not dropped or len(self.world.living()) >= TABLES_MAX:
            return
        table = self.world.tables[self.random.choice(dropped)]
        before = table.state.dropped_version - 1
        try:
            handle = self.open_table(table.directory)
            undrop(handle)
        except (InvalidInputError, NotFoundError, CorruptDataError):
            there = table.state.dropped and before in table.kept() and not self.process.doubtful
            if there:
                raise
            return
        undone = [v for v, entry in table.entries.items() if v > before and isinstance(entry.ops[0], UndropTable)]
        if undone and not any(table.entries[v].ops[0] == DropTable() for v in range(before + 2, undone[0])):
            assert table.views[undone[0]] == table.views[before], "a table came back with other rows"

    def idle(self) -> None:
        """Nothing: time for others."""

    def mutate(self) -> None:
        k = self.random.randint(3, 9)
        r = self.random.randrange(k)
        update = self.world.new_update()
        commands = self.random.choice([update if k % 2 else f"{update} {k} {r}", f"DELETE {k} {r}"])
        scope = self.random.choice([None, (self.random.choice(PARTITIONS),)])
        op = Mutation(self.process.ids.new_id()[:8], commands, scope, drops_rows(commands))
        try:
            self.commit(lambda _: [op])
        except UnavailableError:  # who was not told whether it landed says the same once more
            self.commit(lambda _: [op])

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
        """New ids for old bytes, with the mutations that they lack; nothing is copied. It does not look again."""
        detached = self.state.detached
        if detached:
            chosen = self.random.choice(detached)
            ids, version = self.process.ids, self.state.version
            part = dataclasses.replace(chosen.manifest, id=ids.new_id(), base_version=version)
            ops = with_lacks([(part, chosen.lacks)], ids, {part.id: chosen.manifest.id})
            self.commit(lambda _: ops)

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

    def derive(self) -> None:
        """Rows that follow from those that were read: nothing must have changed these since."""
        name, version = self.random.choice(PARTITIONS), self.state.version
        part = self.write(name, self.world.new_rows(1))
        self.process.sleep(self.random.random() * self.world.pace_s)
        self.commit(lambda _: [RowsUnchanged(version), AddParts((part,))])

    def alter(self) -> None:
        def build(state: State):
            return [AlterMetadata(dataclasses.replace(state.schema, version=state.schema_version + 1))]

        self.commit(build)


class Mutator(Admin):
    """Changes rows, and little else."""

    roams = 0.0

    def actions(self):
        return {self.mutate: 3, self.kill: 1.5, self.idle: 6}


class Killer(Mutator):
    """Gives up what others wanted to change, and keeps old versions."""

    def actions(self):
        return {self.kill: 2, self.idle: 3, self.tag: 1, self.untag: 0.5}


class Borrower(Admin):
    """Refers to objects that are there already: clones, rollbacks, attached parts."""

    roams = 0.2

    def actions(self):
        return {
            self.clone: 8,
            self.drop_clone: 3,
            self.rollback: 2,
            self.detach: 1,
            self.attach: 1.5,
        }

    def drop_clone(self) -> None:
        clones = [name for name in self.world.living() if name != self.world.home]
        if clones:
            self.open_table(self.random.choice(clones)).log.commit(lambda state: () if state.dropped else [DropTable()])


class Surgeon(Admin):
    """Works on single parts."""

    roams = 0.0

    def actions(self):
        return {
            self.drop_part: 2,
            self.detach_part: 2,
            self.attach_part: 2,
            self.attach: 2,
            self.drop_detached: 0.3,
            self.drop: 0.7,
            self.rollback: 0.5,
            self.mutate: 0.5,
            self.idle: 4,
        }

    def drop_part(self) -> None:
        self.on_a_part("drop")

    def detach_part(self) -> None:
        self.on_a_part("detach")

    def on_a_part(self, kind: str) -> None:
        parts = [*self.state.parts()]
        if not parts:
            return
        part = self.random.choice(parts)
        if kind == "drop" and part.info.min_block % 3 == 0:
            kind = "expire"  # as by a TTL
        with contextlib.suppress(NotFoundError):  # it was merged meanwhile
            drop_part(self.handle, part.name, kind)

    def attach_partition(self) -> None:
        attach_partition(self.handle, self.random.choice([None, *PARTITIONS]))

    def attach_part(self) -> None:
        detached = self.state.detached
        if detached:
            with contextlib.suppress(InvalidInputError):  # somebody else has taken it
                attach_part(self.handle, str(self.random.choice(detached).info))


class Attacher(Surgeon):
    """Takes parts aside and back, without looking who else does."""

    attentive = 0.0

    def actions(self):
        return {
            self.detach_part: 1,
            self.attach: 2,
            self.attach_partition: 0.5,
            self.freeze: 0.2,
            self.unfreeze: 0.2,
        }

    def freeze(self) -> None:
        freeze(self.handle, "", self.random.choice([None, *PARTITIONS]))

    def unfreeze(self) -> None:
        if self.state.tags:
            unfreeze(self.handle, self.random.choice(sorted(self.state.tags)), self.random.choice([None, *PARTITIONS]))
