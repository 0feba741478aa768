"""Copying entries out of ZooKeeper: what it asks of the bucket, and when a commit waits for it. No server."""

from __future__ import annotations

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import CorruptDataError, FencedError, UnavailableError
from mergelake.log.backends import backend_zookeeper, sealing
from mergelake.log.backends.backend import EVERY, ObjectBackend
from mergelake.log.backends.backend_zookeeper import ZooKeeperBackend, make_tree
from mergelake.log.backends.keeper import Create, Delete
from mergelake.store.interface.protocol import Lost, OutcomeUnknown, Stored
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.fake_keeper import FakeEnsemble, FakeKeeper


class Place:
    """A tree, a bucket, and how often ZooKeeper was asked."""

    def __init__(self):
        self.store, self.clock, self.ensemble, self.asked = MemoryStore(), ManualClock(), FakeEnsemble(), []
        make_tree(FakeKeeper(self.ensemble), "/logs/1", "a test")

    def backend(self, store=None):
        """One more process; it copies only when it is told to."""
        bucket = ObjectBackend(store or self.store, "t", clock=self.clock, threads=1, batched=EVERY)
        made = ZooKeeperBackend(CountingKeeper(self), "/logs/1", 0, bucket, self.clock)
        made._sealer.nudge = lambda: None
        return made

    def filled(self, count):
        backend = self.backend()
        for version in range(1, count + 1):
            assert backend.create(version, b"%d" % version) == Stored()
        return backend

    def nodes(self):
        return sum(path.startswith("/logs/1/log/") for path in self.ensemble.nodes)

    def bucket(self):
        return ObjectBackend(self.store, "t", clock=self.clock, threads=1, batched=EVERY)


class CountingKeeper(FakeKeeper):
    def __init__(self, place):
        super().__init__(place.ensemble)
        self._place = place

    def commit(self, *steps):
        self._place.asked.append("commit")
        super().commit(*steps)

    def get_many(self, paths):
        self._place.asked.append("get")
        return super().get_many(paths)


class Silent:
    """A bucket that is out."""

    def __getattr__(self, name):
        def asked(*_):
            raise UnavailableError("a test")

        return asked


class CutOnce:
    """A bucket of which the first answer to a GET is cut off."""

    def __init__(self, store, length):
        self._store, self._length, self.cut = store, length, False

    def __getattr__(self, name):
        return getattr(self._store, name)

    def get(self, key):
        data = self._store.get(key)
        if self.cut:
            return data
        self.cut = True
        return data[: self._length]


def test_a_commit_asks_nothing_of_the_bucket_and_a_copy_one_put_for_64_entries():
    place = Place()
    backend = place.filled(256)
    assert place.store.counters.requests == 0
    assert place.asked == ["commit"] * 256
    backend.seal(256)
    assert place.store.counters.put == place.store.counters.requests == 4
    assert place.bucket().read_all(range(1, 258)) == [*(b"%d" % version for version in range(1, 257)), None]


def test_a_copier_that_begins_anywhere_soon_copies_the_longest_batches():
    place = Place()
    backend = place.filled(384)
    backend.seal(2)
    before = place.store.counters
    backend.seal(384)
    assert (place.store.counters - before).put == 5 + 5  # 3 to 64, then 64 each


def test_many_that_come_in_a_round_are_copied_up_to_a_round_number_and_few_at_once():
    place = Place()
    backend = place.filled(70)
    backend._sealer._round()
    assert backend._sealer.sealed == 64
    assert backend._sealer._wanted
    backend._sealer._round()
    assert backend._sealer.sealed == 70
    assert place.store.counters.put == 3  # of 64, then 4 and 2


def test_one_process_copies_and_the_others_ask_seldom():
    place = Place()
    one, two = place.filled(32), place.backend()
    one._sealer._claim()
    place.asked.clear()
    for _ in range(9):
        two._sealer._round()
    assert place.asked == ["get"] * 9
    assert two._sealer._linger_s == sealing.LINGER_MAX_S
    assert place.store.counters.requests == 0
    one._sealer._keeper.commit(Delete("/logs/1/sealer"))
    two._sealer._round()
    assert two._sealer.sealed == 32
    assert two._sealer._linger_s == sealing.LINGER_S


def test_a_copier_goes_on_behind_what_a_faster_one_made_of_the_same_entries():
    place = Place()
    slow, fast = place.filled(20), place.backend()
    nodes = slow._sealer._keeper.get_many([slow.key(version) for version in range(1, 5)])
    fast.seal(20)
    assert slow._sealer._put(1, [node.data for node in nodes]) == 16
    before = place.store.counters
    slow.seal(20)
    assert (place.store.counters - before).requests == 0


def test_a_copier_ends_the_log_where_something_else_lies_in_its_way():
    place = Place()
    backend = place.filled(20)
    backend.seal(8)
    assert place.bucket().create(9, b"moved") == Stored()
    with pytest.raises(FencedError, match="taken over by the bucket at version 9"):
        backend.seal(20)
    assert place.bucket().read_all(range(8, 11)) == [b"8", b"moved", None]
    assert backend.end() == 8


def test_a_damaged_batch_is_told_and_does_not_end_the_log():
    place = Place()
    backend, other = place.filled(16), place.backend()
    place.store.put("t/00000000000000000001.json", b"#batch [1,1]\n1")
    with pytest.raises(CorruptDataError, match="batch of log entries is damaged"):
        other.seal(16)
    assert backend.create(17, b"17") == Stored()


@pytest.mark.parametrize("length", [1, 12, 30])
def test_a_look_that_was_cut_off_on_the_way_does_not_end_the_log(length):
    place = Place()
    backend = place.filled(16)
    backend._sealer._copy(1, 16)  # and dies before it notes how far it came
    cut = CutOnce(place.store, length)
    late = place.backend(cut)
    nodes = late._sealer._keeper.get_many([late.key(version) for version in range(1, 17)])
    assert late._sealer._put(1, [node.data for node in nodes]) == 16
    assert cut.cut
    assert backend.create(17, b"17") == Stored()


def test_a_bucket_that_refuses_and_has_nothing_does_not_end_the_log():
    place = Place()
    backend = place.filled(16)
    answers = iter([Lost(), OutcomeUnknown("a test")])
    create = place.store.create
    place.store.create = lambda key, data: next(answers, None) or create(key, data)
    backend.seal(16)
    del place.store.create
    assert place.bucket().read(16) == b"16"


def test_commits_wait_for_the_bucket_only_when_very_many_entries_do(monkeypatch):
    monkeypatch.setattr(backend_zookeeper, "BACKLOG_MAX", 32)
    place = Place()
    backend = place.filled(32)
    assert place.store.counters.requests == 0
    out = place.backend(Silent())
    with pytest.raises(UnavailableError):
        out.create(33, b"33")
    assert out.read(33) is None
    assert backend.create(33, b"33") == Stored()
    assert place.bucket().read(1) == b"1"
    for version in range(34, 133):
        assert backend.create(version, b"%d" % version) == Stored()
    assert backend._sealer.sealed >= 100


def test_a_lost_race_and_what_was_missed_are_three_round_trips():
    place = Place()
    loser, winner = place.filled(10), place.backend()
    for version in range(11, 31):
        winner.create(version, b"%d" % version)
    place.asked.clear()
    assert loser.create(11, b"mine") == Lost()
    assert loser.read(11) == b"11"
    assert loser.read_on(12, 1) == [*(b"%d" % version for version in range(12, 31)), None]
    assert place.asked == ["commit", "get", "get", "get"]
    assert loser.read_on(31, 1) == [None]
    place.asked.clear()
    assert isinstance(loser.create(32, b"too early"), OutcomeUnknown)
    assert place.asked == ["commit", "get"]


def test_a_cut_that_needs_the_nodes_no_more_leaves_a_dense_log():
    place = Place()
    backend = place.filled(100)
    backend.seal(80)
    backend.trim(80)
    assert place.nodes() == 20
    assert backend.truncate(70) == 64
    assert backend.truncate(97) == 32
    fresh = place.backend()
    assert fresh.read_many(range(97, 102)) == [b"97", b"98", b"99", b"100", None]


def test_a_tree_is_removed_though_a_copier_announces_itself_meanwhile():
    place = Place()
    backend = place.filled(3)
    backend.seal(3)
    sealer = f"{backend._tree.path}/sealer"
    asked = []

    def meanwhile(kind):
        asked.append(kind)
        if kind == "commit" and asked.count(kind) == 4:  # the end, entries, the copier that was there, the rest
            place.ensemble.commit([Create(sealer, ephemeral=True)])
        return ""

    backend._sealer._keeper = FakeKeeper(place.ensemble, meanwhile)
    backend.forget()
    assert not [name for name in place.ensemble.nodes if name.startswith(backend._tree.path)]
