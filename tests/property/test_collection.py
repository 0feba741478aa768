"""Whatever happens to a few tables that are cloned, rolled back, tagged and merged: collection never takes an object
that a kept version needs, and after a while of quiet nothing is left that nobody needs.

Parts have no bytes to speak of: what a version needs is what its manifests name. Inserts take their time (they are
begun at one step and committed at a later one), collectors stop in the middle, and clocks jump.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError, MergelakeError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.gc import collect, holds as collect_holds
from mergelake.jobs.gc.collect import collect_round
from mergelake.jobs.gc.tables import collect_warehouse, table_directories
from mergelake.log.model import fold
from mergelake.log.model.operations import AddParts, DropDetached, DropRange, Publish, Tag, Untag
from mergelake.parts.read.layout import object_key
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.catalog.catalog import Catalog
from mergelake.table.partitions.rollback import rollback
from tests.helpers.manifests import manifest, schema_with

HOUR = 3600
GRACE, RETENTION = 4 * HOUR, 10 * HOUR
SCHEMA = schema_with(gc_grace_seconds=GRACE, history_retention_seconds=RETENTION, checkpoint_interval=5)


class StoppingStore(MemoryStore):
    """A store that stops answering after some requests: the caller dies there."""

    left = 1 << 60

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise UnavailableError("the process was killed")

    def put(self, key, data):
        self._count()
        super().put(key, data)

    def create(self, key, data):
        self._count()
        return super().create(key, data)

    def delete(self, keys):
        keys = list(keys)
        for key in keys[: len(keys) // 2]:
            super().delete([key])
        self._count()
        super().delete(keys)


class World:
    """Tables, unfinished work, and chance."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.store = StoppingStore(clock=self.clock)
        self.ids = SeededIds(seed)
        self.catalog = Catalog(self.store, clock=self.clock, ids=self.ids)
        self.tables = {}
        self.pending = []
        self.names = 0
        self.refused = 0
        self.create()

    def create(self):
        self.names += 1
        name = f"t{self.names}"
        self.tables[name] = self.catalog.create_table(("default", name), SCHEMA)

    def table(self):
        return self.tables[self.random.choice(sorted(self.tables))]

    def write(self, handle, rows=1):
        """The objects of a part; nothing is committed."""
        part = manifest(self.ids.new_id(), self.random.choice("ab"), rows=rows, base_version=handle.base_version())
        for key in {extent.key for file in part.file_table().values() for extent in file.extents}:
            self.store.put(f"{handle.directory}/{key}", b"x")
        return part

    def begin_insert(self):
        handle = self.table()
        self.pending.append((handle, self.write(handle), None))

    def begin_merge(self):
        handle = self.table()
        partitions = handle.refresh().partitions
        if partitions:
            parts = partitions[self.random.choice(sorted(partitions))]
            first = self.random.randrange(len(parts))
            chosen = parts[first : first + self.random.randint(1, 4)]
            made = manifest(self.ids.new_id(), chosen[0].info.partition_id, base_version=handle.base_version())
            self.store.put(f"{handle.directory}/{made.id}/files.packed", b"x")
            self.pending.append((handle, made, tuple(part.manifest.id for part in chosen)))

    def finish(self):
        """Commit the oldest or any unfinished work; sometimes it is forgotten instead."""
        if not self.pending:
            return
        handle, part, replaced = self.pending.pop(self.random.randrange(len(self.pending)))
        if self.random.random() < 0.2:
            return
        try:
            op = AddParts((part,)) if replaced is None else Publish(part, replaced)
            handle.log.commit(lambda _: [op])
        except MergelakeError as refusal:
            self.refused += "being deleted" in str(refusal)

    def drop_rows(self):
        kind = self.random.choice(["drop", "truncate", "detach"])
        self.table().log.commit(lambda _: [DropRange(self.random.choice(["a", None]), kind)])

    def attach(self):
        handle = self.table()
        aside = handle.refresh().detached
        if aside:
            part = aside[0].manifest
            if self.random.random() < 0.3:
                handle.log.commit(lambda _: [DropDetached((part.id,))])
                return
            again = replace(part, id=self.ids.new_id(), base_version=handle.base_version())
            handle.log.commit(lambda _: [AddParts((again,), detached=(part.id,))])

    def version(self, handle):
        state = handle.refresh()
        return self.random.choice([*range(max(1, state.history), state.version + 1), *state.tags.values()])

    def roll_back(self):
        handle = self.table()
        rollback(handle, self.version(handle))

    def tag(self):
        handle = self.table()
        name = self.random.choice("xyz")
        version = self.version(handle)
        handle.log.commit(lambda state: [Untag(name) if name in state.tags else Tag(name, version)])

    def clone(self):
        handle = self.table()
        state = handle.state_at(self.version(handle))
        self.names += 1
        name = f"t{self.names}"
        self.tables[name] = self.catalog.clone_table(("default", name), handle, state)

    def drop_table(self):
        if len(self.tables) > 1:
            name = self.random.choice(sorted(self.tables))
            self.catalog.drop_table(("default", name))
            del self.tables[name]

    def collect(self):
        if self.random.random() < 0.4:
            self.store.left = self.random.randrange(12)
        try:
            if self.random.random() < 0.5:
                list(collect_warehouse(self.store, self.catalog, clock=self.clock, ids=self.ids))
            else:
                collect_round(self.table())
        except (UnavailableError, ConflictError):
            pass
        finally:
            self.store.left = 1 << 60
        for handle in self.tables.values():
            handle.refresh()

    def pass_time(self):
        self.clock.advance_s(self.random.choice([60, HOUR, GRACE, RETENTION]))

    def step(self):
        weights = {
            self.begin_insert: 6, self.finish: 8, self.begin_merge: 4, self.drop_rows: 1, self.attach: 1,
            self.roll_back: 1, self.tag: 1, self.clone: 0.5, self.drop_table: 0.3, self.collect: 4, self.pass_time: 4,
        }  # fmt: skip
        (action,) = self.random.choices(list(weights), list(weights.values()))
        action()
        return action.__name__

    def check(self):
        """Every version that is kept can be read: its state is there, and every object of its parts."""
        there = {meta.key for meta in self.store.list("")}
        for name, handle in self.tables.items():
            fresh = self.catalog.open_table(("default", name))
            state = fresh.log.state
            kept = [*range(max(1, state.history), state.version + 1), *state.tags.values()]
            for version in kept if len(kept) < 8 else self.random.sample(kept, 8):
                for part in fresh.state_at(version).parts():
                    for file in part.manifest.file_table().values():
                        for extent in file.extents:
                            assert object_key(handle.directory, extent) in there, (name, version, part.name)

    def settle(self):
        self.pending = []
        for _ in range(14):
            for _ in collect_warehouse(self.store, self.catalog, clock=self.clock, ids=self.ids):
                pass
            self.clock.advance_s(RETENTION)


def bug_no_fence(monkeypatch):
    collect = fold.Draft._collect

    def unfenced(draft, op):
        collect(draft, op)
        draft._fence = 0

    monkeypatch.setattr(fold.Draft, "_collect", unfenced)


def bug_parts_that_borrow_are_forgotten(monkeypatch):
    monkeypatch.setattr(fold, "refers", lambda manifest: ())


def bug_tags_and_leases_keep_nothing(monkeypatch):
    monkeypatch.setattr(fold, "pins", lambda *_: ())


def bug_holds_are_released_at_once(monkeypatch):
    monkeypatch.setattr(collect_holds, "refers_to", lambda *_: False)


def bug_what_was_noted_is_deleted_unseen(monkeypatch):
    monkeypatch.setattr(collect, "still_unused", lambda found, *_: list(found))


@pytest.mark.parametrize("bug", [fault for name, fault in list(globals().items()) if name.startswith("bug_")])
def test_this_property_would_see_a_bug(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises((AssertionError, MergelakeError)):
        test_collection_takes_nothing_that_is_needed_and_in_the_end_all_that_is_not(0)


@pytest.mark.parametrize("seed", range(8))
def test_collection_takes_nothing_that_is_needed_and_in_the_end_all_that_is_not(seed):
    world = World(seed)
    trace = []
    for _ in range(150):
        trace.append(world.step())
        if trace[-1] in ("collect", "clone", "roll_back", "finish"):
            world.check()
    world.settle()
    world.check()
    needed = set()
    for handle in world.tables.values():
        state = handle.refresh()
        tagged = [part for version in state.tags.values() for part in handle.state_at(version).parts()]
        for part in [*state.parts(), *state.detached, *tagged]:
            for file in part.manifest.file_table().values():
                needed |= {object_key(handle.directory, extent).rsplit("/", 1)[0] for extent in file.extents}
    there = {"/".join(meta.key.split("/")[:2]) for meta in world.store.list("") if len(meta.key.split("/")[1]) == 32}
    # A clone holds all that it ever referred to until it refers to nothing of that table.
    held = {
        f"{directory}/{name}"
        for directory in table_directories(world.store)
        for names in world.catalog.open_id(directory).log.state.holds.values()
        for name in names
    }
    assert there - held <= needed
    assert needed <= there
