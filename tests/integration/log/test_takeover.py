"""A log on its way into ZooKeeper and back: one sequencer at a time, whoever sleeps, dies or comes back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mergelake.core.base.errors import FencedError, InvalidInputError, UnavailableError
from mergelake.core.base.ids import RandomIds
from mergelake.log.backends import backend_zookeeper
from mergelake.log.backends.backends import Backends
from mergelake.log.backends.keeper import Address
from mergelake.log.commit.migrate import new_tree, take_over
from mergelake.log.model.sequencer import Sequencer
from mergelake.log.storage.machine import TableMachine
from mergelake.store.interface.protocol import Lost, OutcomeUnknown, Stored
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.tcp_proxy import TcpProxy
from tests.integration.log.places import CLOCK, PREFIX, Bucket, Ensemble, insert, part_ids

SEALED = Backends("sealed")


@pytest.fixture
def place(zookeeper):
    made = Ensemble(MemoryStore(), zookeeper["ZOOKEEPER_HOSTS"], timeout_s=2)
    yield made
    made.close()


def taken_over(place, backends=None, force=False):
    backends = backends or Backends(place.address())
    return take_over(place.store, PREFIX, TableMachine(), backends, clock=CLOCK, ids=RandomIds(), force=force)


def unsealed(log):
    """The log, which copies nothing to the bucket from now on."""
    log.backend._sealer.nudge = lambda: None
    return log


def test_the_bucket_alone_shows_what_is_sealed_and_takes_nothing(place):
    log = unsealed(place.new_log())
    ids = [insert(log) for _ in range(3)]
    log.backend.seal(3)
    alone = place.open_log(backends=SEALED)
    assert part_ids(alone.state) == ids[:2]
    with pytest.raises(InvalidInputError, match=r"only read.*READONLY"):
        insert(alone)
    log.backend.seal(4)
    assert part_ids(alone.refresh()) == ids


def test_nobody_appends_through_the_bucket_by_mistake(place):
    insert(place.new_log())
    log = place.open_log(backends=Backends(""))
    assert log.state.sequencer.url.startswith(f"zookeeper://{place.hosts}{place.root}/")
    insert(log)
    assert place.open_log().state == log.state


def test_a_takeover_copies_everything_and_writers_go_on(place):
    writer = unsealed(place.new_log())
    ids = [insert(writer) for _ in range(100)]
    done = taken_over(place)
    assert done.ended == 101
    assert done.version == 102
    assert taken_over(place).sequencer == ""
    name = done.sequencer.rpartition("/")[2]
    assert name not in place.children()  # nothing is left behind
    ids += [insert(writer), insert(place.open_log(backends=SEALED))]
    assert writer.refresh().sequencer == Sequencer("", 102)
    assert part_ids(Bucket(place.store).open_log(backends=SEALED).state) == ids
    assert len(list(writer.entries())) == 104


def test_no_commit_is_lost_or_doubled_while_logs_are_moved_to_and_fro(place):
    place.new_log()
    stop = threading.Event()

    def write(_):
        log, written = place.open_log(), []
        while not stop.is_set():
            written.append(insert(log))
        return written

    mover = place.open_log()
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, number) for number in range(4)]
        for _ in range(3):
            target = mover.refresh().version + 5
            while mover.wait(1).version < target:
                pass
            assert taken_over(place).ended
            move = new_tree(Address.parse(place.address()), place.store, PREFIX, CLOCK, RandomIds())
            assert mover.commit(lambda _, move=move: [move]).entry
        stop.set()
        written = sorted(part_id for writer in writers for part_id in writer.result())
    assert len(written) >= 12
    assert sorted(part_ids(place.open_log().state)) == written
    taken_over(place)
    alone = Bucket(place.store).open_log(backends=SEALED)
    assert sorted(part_ids(alone.state)) == written
    assert len(list(alone.entries())) == alone.state.version


def test_who_waits_is_told_of_a_move_and_waits_on_in_the_bucket(place):
    log, follower = place.new_log(), place.open_log()
    versions = []

    def follow():
        while len(versions) < 2:
            versions.append(follower.wait(120).version)

    thread = threading.Thread(target=follow)
    thread.start()
    thread.join(0.3)
    assert taken_over(place).version == 2
    thread.join(0.7)
    insert(log)
    thread.join(60)
    assert versions == [2, 3]


def test_of_takeovers_at_once_one_moves_the_log(place):
    log = unsealed(place.new_log())
    ids = [insert(log) for _ in range(10)]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: taken_over(place), range(4)))
    assert {each.version for each in done} == {12}
    fresh = place.open_log(backends=SEALED)
    assert fresh.state.version == 12
    assert part_ids(fresh.state) == ids


def test_a_takeover_that_died_half_way_is_repeated(place, monkeypatch):
    monkeypatch.setattr(backend_zookeeper, "TAKEOVER_S", 0.2)
    log = unsealed(place.new_log())
    ids = [insert(log) for _ in range(5)]
    assert log.backend.end() == 6
    with pytest.raises(FencedError, match="being moved"):
        insert(log)
    assert part_ids(place.open_log().state) == ids
    assert taken_over(place).ended == 6
    insert(log)
    assert log.state.version == 8


@pytest.mark.parametrize("sealed", [0, 3, 5])
def test_a_writer_that_slept_takes_no_position_that_was_taken(place, sealed):
    backend, sleeper = place.backend(), place.backend()
    for version in range(1, 6):
        assert backend.create(version, b"%d" % version) == Stored()
    backend.seal(sealed)
    backend.trim(sealed)
    if sealed:
        backend.truncate(sealed)
    for version in range(1, 6):
        assert sleeper.create(version, b"late") == Lost()
    assert sleeper.read(5) == b"5"
    assert backend.end() == 5
    assert sleeper.create(3, b"late") == Lost()
    assert Bucket(place.store).backend().create(6, b"moved") == Stored()
    assert sleeper.create(6, b"late") == Lost()


def test_without_zookeeper_what_had_reached_the_bucket_is_taken_over(place):
    with TcpProxy(place.hosts) as proxy:
        place.new_log()
        log = unsealed(place.open_log(proxy.address))
        ids = [insert(log) for _ in range(4)]
        log.backend.seal(3)
        proxy.refuse = True
        proxy.cut()
        gone = Backends(place.address(proxy.address))
        with pytest.raises(UnavailableError, match="gave no clear answer"):
            taken_over(place, gone)
        done = taken_over(place, gone, force=True)
    assert done.ended is None
    assert done.version == 4
    after = place.open_log(backends=SEALED)
    assert part_ids(after.state) == ids[:2]
    insert(after)


def test_writers_of_a_log_that_was_taken_over_by_force_are_stopped(place):
    """ZooKeeper was not gone after all: the first of its writers that copies an entry finds out, and ends the tree."""
    log, other = unsealed(place.new_log()), unsealed(place.open_log())
    ids = [insert(log) for _ in range(3)]
    log.backend.seal(3)
    nowhere = Backends("zookeeper://127.0.0.1:1/x?timeout_s=0.3")
    assert taken_over(place, nowhere, force=True).version == 4
    insert(log)
    with pytest.raises(FencedError, match="taken over by the bucket at version 4"):
        log.backend.seal(5)
    for _ in range(2):
        with pytest.raises(FencedError, match="taken over"):
            insert(log)
    with pytest.raises(FencedError, match="taken over"):
        log.refresh()
    ids[2:] = [insert(other), insert(place.open_log())]
    assert part_ids(place.open_log().state) == ids
    assert part_ids(place.open_log(backends=SEALED).state) == ids


def test_a_copier_that_is_late_puts_nothing_behind_a_takeover(place):
    log = unsealed(place.new_log())
    for _ in range(5):
        insert(log)
    backend = log.backend
    backend.seal(3)
    assert Bucket(place.store).backend().create(4, b"moved") == Stored()
    with pytest.raises(FencedError):
        backend.seal(6)
    assert Bucket(place.store).backend().read_many([4, 5, 6]) == [b"moved", None, None]


def test_a_copy_of_which_the_reply_was_lost_is_made_once(place):
    log = unsealed(place.new_log())
    ids = [insert(log) for _ in range(3)]
    store, lost = place.store, []
    create = store.create

    def forgetful(key, data):
        outcome = create(key, data)
        if key not in lost:
            lost.append(key)
            return OutcomeUnknown("a test")
        return outcome

    store.create = forgetful
    log.backend.seal(4)
    del store.create
    assert len(lost) == 2  # entry 2, and 3 with 4
    assert part_ids(place.open_log(backends=SEALED).state) == ids


def test_copies_are_made_in_the_background_by_whoever_commits(place):
    log = place.new_log()
    last = [insert(log) for _ in range(20)][-1]
    follower = place.open_log(backends=SEALED)
    for _ in range(20):
        if part_ids(follower.refresh())[-1:] == [last]:
            break
        follower.wait(0.5)
    assert follower.state == log.state
