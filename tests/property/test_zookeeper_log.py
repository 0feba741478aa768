"""A log in ZooKeeper and on its way out of it, under random interleavings and lost replies: no server, no threads.

Before every request of an actor to ZooKeeper or to the bucket, another one may do something whole: append, copy, trim,
truncate, end the tree, take the log over. Each request may fail before or after it happened.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import CorruptDataError, FencedError, MergelakeError, UnavailableError
from mergelake.log.backends import batches, sealing
from mergelake.log.backends.backend import EVERY, CollectedError, ObjectBackend
from mergelake.log.backends.backend_zookeeper import ZooKeeperBackend, make_tree
from mergelake.log.backends.intake import Left, encode_left
from mergelake.log.model.operations import DropTable
from mergelake.store.interface.protocol import Lost, OutcomeUnknown, Stored
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.fake_keeper import FakeEnsemble, FakeKeeper

STEPS = 60
DEPTH = 2


class FaultyBucket:
    """The store of one actor."""

    def __init__(self, store, fault):
        self._store = store
        self._fault = fault

    def __getattr__(self, name):
        call = getattr(self._store, name)
        if name not in ("get", "create", "put"):
            return call

        def asked(*arguments):
            how = self._fault(name)
            if how == "before" and name == "create":
                return OutcomeUnknown("a test")
            if how and name != "create":
                raise UnavailableError("a test")
            outcome = call(*arguments)
            return OutcomeUnknown("a test") if how else outcome

        return asked


class World:
    """Actors, what they were promised, and what must hold."""

    def __init__(self, seed, *, force=False):
        self.random = random.Random(seed)
        self.ensemble = FakeEnsemble()
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.force = force
        self.depth = 0
        self.busy = []
        self.promised: dict[int, bytes] = {}
        self.left: dict[str, Left] = {}
        self.moved = 0
        self.truncated = 0
        self.numbers = iter(range(10**6))
        make_tree(FakeKeeper(self.ensemble), "/logs/1", "a test")
        self.actors = [self.actor() for _ in range(4)]

    def actor(self, faults=True):
        fault = self.fault if faults else lambda _: ""
        store = FaultyBucket(self.store, fault)
        bucket = ObjectBackend(store, "t", clock=self.clock, threads=1, batched=EVERY)
        made = ZooKeeperBackend(FakeKeeper(self.ensemble, fault), "/logs/1", 0, bucket, self.clock)
        made._sealer.nudge = lambda: None
        return made

    def fault(self, _):
        if self.depth < DEPTH and self.random.random() < 0.1:
            self.depth += 1
            try:
                self.step()
            finally:
                self.depth -= 1
        return self.random.choice(["before", "after"]) if self.random.random() < 0.03 else ""

    def step(self):
        actor = self.random.choice([actor for actor in self.actors if actor not in self.busy])
        acts = (
            [self.append] * 8
            + [self.seal] * 3
            + [self.trim, self.truncate, self.read, self.follow, self.read_bucket]
            + [self.leave, self.take]
        )
        if self.random.random() < 0.05:
            acts = [self.take_over]
        self.busy.append(actor)
        try:
            self.random.choice(acts)(actor)
        except UnavailableError:
            pass
        except CollectedError:
            assert self.truncated
        except CorruptDataError:
            assert self.moved
            assert "/logs/1" not in self.ensemble.nodes
        except FencedError:
            assert self.moved or self.ended()
        finally:
            self.busy.pop()

    def ended(self):
        return "/logs/1/tail" not in self.ensemble.nodes

    def last(self):
        """The last version here; the tree of a log that has moved may be gone."""
        tail = self.ensemble.nodes.get("/logs/1/tail") or self.ensemble.nodes.get("/logs/1/end")
        return int(tail.data or 0) if tail else self.moved - 1

    def append(self, actor):
        newest = self.last() + 1
        version = self.random.choice([newest, newest, newest, max(newest - 1, 1), self.random.randint(1, newest)])
        data = b"%d" % next(self.numbers) * self.random.choice([1, 1, 200_000])
        while True:
            outcome = actor.create(version, data)
            if isinstance(outcome, Stored):
                return self.promise(version, data)
            found = actor.read(version)
            if isinstance(outcome, Lost) and found is None:
                assert version < self.truncated
                return None
            if found is not None:
                return self.promise(version, data) if found == data else None

    def leave(self, actor):
        left = Left(self.last() + 1, f"{next(self.numbers):032x}", "me", (DropTable(),))
        self.left[left.attempt] = left
        actor.intake.leave(left.position, left.attempt, encode_left(left))

    def take(self, actor):
        position = self.last() + 1
        for left in actor.intake.take(position, ""):
            assert self.left[left.attempt] == left
            assert left.position == position
        actor.intake.sweep(self.last())

    def promise(self, version, data):
        assert self.promised.setdefault(version, data) == data

    def read(self, actor):
        first = self.random.randint(max(self.truncated, 1), max(self.last(), self.truncated, 1))
        promised = dict(self.promised)
        for version, data in enumerate(actor.read_many(range(first, first + 3)), first):
            if version in promised and not (self.moved and version >= self.moved):
                assert data == promised[version] or version < self.truncated

    def follow(self, actor):
        """Read on: what comes is what was promised, and nothing that was there before is left out."""
        first = self.random.randint(max(self.truncated, 1), max(self.last(), self.truncated, 1))
        promised, last = dict(self.promised), 0 if self.moved else self.last()
        found = actor.read_on(first, self.random.choice([1, 1, 4]))
        for version, data in enumerate(found, first):
            if version in promised and not (self.moved and version >= self.moved):
                assert data == promised[version] or version < self.truncated
            assert data is not None or version > last or version < self.truncated or self.moved

    def read_bucket(self, _):
        """Who has only the bucket misses nothing of what has reached it, wherever he begins."""
        bucket = self.bucket()
        numbers = self.numbers_of(bucket)
        end = max(numbers[-1] + len(bucket.object_at(numbers[-1])) - 1 if numbers else 0, self.truncated)
        first = self.random.randint(max(self.truncated, 1), max(end, 1))
        found = bucket.read_many(range(first, first + self.random.choice([1, 3, 90])))
        for version, data in enumerate(found, first):
            if version in self.promised and self.truncated <= version <= end:
                assert data == self.promised[version] or (self.moved and version >= self.moved)

    def bucket(self):
        return ObjectBackend(self.store, "t", clock=self.clock, threads=1, batched=EVERY)

    def numbers_of(self, bucket):
        return [int(item.key[2:22]) for item in bucket.store.list("t") if item.key.endswith(".json")]

    def seal(self, actor):
        actor.seal(self.last())

    def trim(self, actor):
        actor.trim(self.last())

    def truncate(self, actor):
        if self.moved == 0 and self.last():
            before = self.random.randint(1, self.last())
            actor.seal(before)
            self.truncated = max(self.truncated, before)
            actor.truncate(before)

    def take_over(self, actor):
        if self.moved:
            return
        if not self.force:
            last = actor.end()
            actor.seal(last)
        bucket = self.bucket()
        version = max(self.truncated, 1)
        while bucket.read(version) is not None:
            version += 1
        if bucket.create(version, b"moved") == Stored():
            self.moved = version
            for lost in [v for v in self.promised if v >= version]:
                assert self.force
                del self.promised[lost]
            if not self.force:
                actor.forget()

    def check(self):
        calm = self.actor(faults=False)
        if not self.moved:
            calm.seal(self.last())
        bucket = self.bucket()
        for version, data in self.promised.items():
            if version >= self.truncated and not (self.moved and version >= self.moved):
                assert bucket.read(version) == data
        numbers = self.numbers_of(bucket)
        objects = {number: bucket.object_at(number) for number in numbers}
        chain = [number for number in numbers if number + len(objects[number]) > self.truncated]
        for number, following in pairwise(chain):
            assert number + len(objects[number]) == following
        if self.moved:
            assert bucket.read(self.moved) == b"moved"
            assert bucket.read(self.moved + 1) is None


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("group", range(4))
def test_no_interleaving_loses_doubles_or_tears_the_log(group, force, monkeypatch):
    monkeypatch.setattr("mergelake.log.backends.backend_zookeeper.INLINE_MAX", 100_000)
    for seed in range(group, 100, 4):
        world = World(seed, force=force)
        try:
            for _ in range(STEPS):
                world.step()
            world.check()
        except (AssertionError, MergelakeError) as failure:
            raise AssertionError(f"seed {seed}: {failure!r}") from failure


def found(monkeypatch, seeds=40, enough=4, **options):
    """Whether so many of these seeds find something wrong."""
    monkeypatch.setattr("mergelake.log.backends.backend_zookeeper.INLINE_MAX", 100_000)
    wrong = 0
    for seed in range(seeds):
        world = World(seed, **options)
        try:
            for _ in range(STEPS):
                world.step()
            world.check()
        except (AssertionError, MergelakeError):
            wrong += 1
            if wrong == enough:
                return True
    return False


def test_an_append_that_does_not_count_is_found(monkeypatch):
    """Bug: create the entry if absent, without the tail. A writer that slept takes a trimmed position again."""

    def careless(self, *steps):
        commit(self, *[step for step in steps if not getattr(step, "path", "").endswith("/tail") or len(steps) > 2])
        for step in steps:
            if step.path.endswith("/tail") and step.path in self._ensemble.nodes and hasattr(step, "data"):
                self._ensemble.nodes["/logs/1/tail"] = type(self._ensemble.nodes["/"])(step.data, 0)

    commit = FakeKeeper.commit
    monkeypatch.setattr(FakeKeeper, "commit", careless)
    assert found(monkeypatch)


def test_copying_out_of_order_is_found(monkeypatch):
    """Bug: entries are copied in any order. A takeover by force commits before one that is there already."""
    copy = sealing.Sealer._copy

    def backwards(self, first, last):
        for version in range(last, first - 1, -1):
            node = self._keeper.get(self._tree.entry(version))
            data = self._body(version, node)
            if data is None:
                return copy(self, first, last)
            self._put(version, [data])
        return last

    monkeypatch.setattr(sealing.Sealer, "_copy", backwards)
    assert found(monkeypatch, force=True)


def test_trimming_what_is_not_sealed_is_found(monkeypatch):
    def early(self, version):
        self._remove(1, version)

    monkeypatch.setattr(sealing.Sealer, "trim", early)
    assert found(monkeypatch)


def test_a_reader_that_takes_the_middle_of_a_batch_for_the_end_is_found(monkeypatch):
    monkeypatch.setattr(ObjectBackend, "_inside", lambda *_: ())
    assert found(monkeypatch)


def test_batches_that_are_not_aligned_are_found(monkeypatch):
    """Bug: whatever there is goes into one object. Who begins within it does not know where it began."""
    monkeypatch.setattr(batches, "longest", lambda first, sizes: len(sizes))
    monkeypatch.setattr(batches, "decode", lambda first, data: decoded(data))
    assert found(monkeypatch)


def decoded(data):
    head, _, body = data.partition(b"\n")
    return body.removesuffix(b"\n#batch").split(b"\n") if head.startswith(b"#batch") else [data]


def test_a_copier_that_does_not_look_what_was_there_before_is_found(monkeypatch):
    """Bug: where another object lies at a position, a copier goes on behind it. A takeover is not noticed."""
    put = sealing.Sealer._put

    def careless(self, first, entries):
        try:
            return put(self, first, entries)
        except FencedError:
            return first + len(entries) - 1

    monkeypatch.setattr(sealing.Sealer, "_put", careless)
    monkeypatch.setattr(sealing.Sealer, "end", lambda self, last=None: last)
    assert found(monkeypatch, force=True)
