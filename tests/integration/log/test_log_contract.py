"""What every backend of a log owes, asked of each: memory, a directory, a real S3 server, a real ZooKeeper."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mergelake.log.model.state import State
from mergelake.store import open_store
from mergelake.store.interface.protocol import Lost, Stored
from mergelake.store.objects.memory import MemoryStore
from tests.integration.log.places import Bucket, Ensemble, insert, part_ids

KINDS = ["memory", "directory", pytest.param("s3", marks=pytest.mark.s3)]
ZOOKEEPER = pytest.param("zookeeper", marks=pytest.mark.zookeeper)


@pytest.fixture(params=[*KINDS, ZOOKEEPER])
def place(request, tmp_path):
    """Where the log of this test lies."""
    match request.param:
        case "memory":
            made = Bucket(MemoryStore())
        case "directory":
            made = Bucket(open_store(str(tmp_path), {"sync": "false"}))
        case "s3":
            ask = request.getfixturevalue
            made = Bucket(open_store(ask("s3_url"), ask("s3_options")))
        case _:
            made = Ensemble(MemoryStore(), request.getfixturevalue("zookeeper")["ZOOKEEPER_HOSTS"])
    yield made
    made.close()


def test_an_entry_is_read_as_it_was_created(place):
    backend = place.backend()
    assert backend.read(1) is None
    assert backend.create(1, b"one") == Stored()
    assert backend.create(2, b"\x00\xff") == Stored()
    other = place.backend()
    assert other.read(1) == b"one"
    assert other.read_many(range(1, 5)) == [b"one", b"\x00\xff", None, None]


def test_a_taken_position_is_lost_and_nothing_of_it_changes(place):
    one, two = place.backend(), place.backend()
    assert one.create(1, b"one") == Stored()
    assert two.create(1, b"two") == Lost()
    assert one.create(1, b"one") == Lost()
    assert two.read(1) == b"one"


def test_of_32_writers_of_one_position_one_wins(place):  # M-068
    backends = [place.backend() for _ in range(4)]
    for version in (1, 2, 3):
        barrier = threading.Barrier(32)

        def write(number, version=version, barrier=barrier):
            barrier.wait()
            return backends[number % 4].create(version, b"%d" % number)

        with ThreadPoolExecutor(32) as pool:
            outcomes = list(pool.map(write, range(32)))
        assert outcomes.count(Stored()) == 1
        assert outcomes.count(Lost()) == 31
        assert backends[0].read(version) == b"%d" % outcomes.index(Stored())


def test_a_big_entry_is_like_any_other(place):
    backend = place.backend()
    big = bytes(range(256)) * 12_000
    assert backend.create(1, b"small") == Stored()
    assert backend.create(2, big) == Stored()
    assert backend.create(2, b"late") == Lost()
    assert backend.create(3, b"small") == Stored()
    assert place.backend().read_many([1, 2, 3]) == [b"small", big, b"small"]


def test_a_waiting_reader_wakes_long_before_it_would_have_enough(place):
    one, two = place.backend(), place.backend()
    assert one.create(1, b"one") == Stored()
    assert two.wait(1, 0) is True
    assert two.wait(2, 0.1) is False
    woken = []

    def wait():
        woken.append(two.wait(2, 120))
        woken.append(two.wait(3, 120))

    thread = threading.Thread(target=wait)
    thread.start()
    for version in (2, 3):
        thread.join(0.4)
        assert one.create(version, b"") == Stored()
    thread.join(60)
    assert woken == [True, True]


def test_what_is_truncated_is_gone_and_the_rest_is_dense(place):
    backend = place.backend()
    for version in range(1, 8):
        assert backend.create(version, b"%d" % version) == Stored()
    assert backend.truncate(5) == 4
    assert backend.truncate(5) == 0
    assert place.backend().read_many([5, 6, 7]) == [b"5", b"6", b"7"]
    assert backend.create(8, b"8") == Stored()


def test_sealed_entries_are_objects_of_the_bucket(place):
    backend = place.backend()
    entries = {version: b"%d" % version * 1000 for version in range(1, 6)}
    for version, data in entries.items():
        assert backend.create(version, data) == Stored()
    backend.seal(5)
    backend.trim(5)
    in_bucket = Bucket(place.store).backend()
    assert in_bucket.read_many(range(1, 7)) == [*entries.values(), None]
    assert place.backend().read_many(range(1, 7)) == [*entries.values(), None]


def test_many_writers_and_readers_agree_on_one_dense_history(place):  # M-068, M-070
    place.new_log()
    logs = [place.open_log() for _ in range(4)]

    def work(number):
        return [insert(logs[number % 4]) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        written = [part_id for ids in pool.map(work, range(8)) for part_id in ids]
    states: list[State] = [log.refresh() for log in [*logs, place.open_log()]]
    assert all(state == states[0] for state in states)
    assert sorted(part_ids(states[0])) == sorted(written)
    versions = [entry.version for entry in logs[0].entries()]
    assert versions == list(range(1, states[0].version + 1))


def test_a_follower_learns_of_a_commit_long_before_it_would_have_enough(place):
    log = place.new_log()
    follower = place.open_log()
    assert follower.wait(0.05) == log.state
    seen = []
    thread = threading.Thread(target=lambda: seen.append(follower.wait(120)))
    thread.start()
    thread.join(0.3)
    insert(log)
    thread.join(60)
    assert seen == [log.state]


def test_checkpoints_and_old_versions_are_found_wherever_the_entries_lie(place):
    log = place.new_log()
    ids = []
    for number in range(12):
        ids.append(insert(log))
        if number % 4 == 3:
            log.write_checkpoint()
    fresh = place.open_log()
    assert fresh.state == log.state
    assert part_ids(fresh.state_at(7)) == ids[:6]
    assert [entry.version for entry in fresh.entries(2, 13)] == list(range(2, 14))
