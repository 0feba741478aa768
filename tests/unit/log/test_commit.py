"""Appending, following, opening, looking back."""

from __future__ import annotations

import threading

import pytest

from mergelake.core.base.clock import ManualClock, SystemClock
from mergelake.core.base.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from mergelake.log.backends.backend import CollectedError, ObjectBackend
from mergelake.log.model.operations import AddParts, DropRange, Publish, Tag, Untag
from mergelake.log.storage import checkpoint
from mergelake.store.objects.memory import MemoryStore
from mergelake.testing.faulty_store import Fault, FaultyStore
from tests.helpers.manifests import manifest, new_log, open_log, schema_with

FREQUENT = schema_with(checkpoint_interval=4)


def insert(log, part_id, **fields):
    return log.commit(lambda _: [AddParts((manifest(part_id, **fields),))])


def requests(store, before):
    now = store.counters
    return {kind: getattr(now, kind) - getattr(before, kind) for kind in ("put", "get", "list", "head")}


def test_a_commit_without_contention_is_one_put():  # M-068, M-069
    store = MemoryStore()
    log = new_log(store)
    before = store.counters
    committed = insert(log, 1)
    assert committed.version == 2
    assert committed.state is log.state
    assert requests(store, before) == {"put": 1, "get": 0, "list": 0, "head": 0}


def test_following_a_quiet_log_is_one_get():
    store = MemoryStore()
    log = new_log(store)
    before = store.counters
    log.refresh()
    assert requests(store, before) == {"put": 0, "get": 1, "list": 0, "head": 0}


def test_a_lost_race_is_judged_again_on_the_winners_state():
    store = MemoryStore()
    first = new_log(store)
    second = open_log(store, seed=1)
    insert(first, 1)
    seen = []

    def build(state):
        seen.append(state.version)
        return [AddParts((manifest(2),))]

    assert second.commit(build).version == 3
    assert seen == [1, 2]
    assert second.state == first.refresh()


def test_a_merge_that_lost_its_sources_is_a_conflict():
    store = MemoryStore()
    log = new_log(store)
    insert(log, 1)
    insert(log, 2)
    other = open_log(store, seed=1)
    sources = tuple(part.manifest.id for part in log.state.parts())
    other.commit(lambda _: [DropRange()])
    with pytest.raises(ConflictError, match="no longer active"):
        log.commit(lambda _: [Publish(manifest(9), sources)])
    assert log.state.version == 4


def test_nothing_to_do_commits_nothing_and_is_one_look():
    store = MemoryStore()
    log = new_log(store)
    before = store.counters
    committed = log.commit(lambda _: [])
    assert (committed.entry, committed.version) == (None, 1)
    assert requests(store, before) == {"put": 0, "get": 1, "list": 0, "head": 0}


def test_a_repeated_insert_is_done_only_if_the_newest_state_says_so():
    store = MemoryStore()
    log, other = new_log(store), open_log(store, seed=1)

    def once(part_id):
        return lambda state: () if "day" in state.tokens else (AddParts((manifest(part_id),), "day"),)

    assert log.commit(once(1)).entry is not None
    other.commit(lambda _: [DropRange(kind="truncate")])
    assert log.commit(once(2)).entry is not None
    assert log.state.row_count == 10


def test_a_refusal_is_of_the_newest_state():
    store = MemoryStore()
    log, other = new_log(store), open_log(store, seed=1)
    insert(log, 1, base_version=1)
    other.commit(lambda _: [DropRange(kind="detach")])
    with pytest.raises(ConflictError, match="is in the table already"):
        insert(log, 1, base_version=1)
    log.commit(lambda _: [Tag("a", 2)])
    other.commit(lambda _: [Untag("a")])
    assert log.commit(lambda _: [Tag("a", 3)]).state.tags == {"a": 3}


def test_a_time_is_not_looked_up_in_a_log_with_a_gap():
    store, clock = MemoryStore(), ManualClock()
    log = new_log(store, clock=clock)
    for number in range(8):
        clock.advance_s(1)
        insert(log, number)
    assert log.version_at(log.state.timestamp_ms - 6000) == 3
    store.delete([log.backend.key(4)])
    with pytest.raises(CorruptDataError, match="missing"):
        log.version_at(log.state.timestamp_ms - 6000)


def test_an_entry_that_another_place_has_collected_is_one_that_is_missing(monkeypatch):
    log = new_log(MemoryStore())

    def collected(*_):
        raise CollectedError("it was there once")

    monkeypatch.setattr(ObjectBackend, "read_many", collected)
    monkeypatch.setattr(ObjectBackend, "read", lambda *_: None)
    with pytest.raises(CorruptDataError, match="missing"):
        list(log.entries(1, 1))


def test_a_rejected_operation_writes_nothing():
    store = MemoryStore()
    log = new_log(store)
    with pytest.raises(InvalidInputError, match="unknown schema version"):
        insert(log, 1, schema_version=9)
    assert log.refresh().version == 1


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_REPLY])
def test_a_lost_reply_is_cleared_up_by_reading_the_position(fault):
    store = MemoryStore()
    new_log(store)
    opening = FaultyStore(store)
    open_log(opening)
    log = open_log(FaultyStore(store, script={opening.operations: fault}), seed=1)
    assert insert(log, 1).version == 2
    assert open_log(store).state.part_count == 1
    assert open_log(store).state == log.state


def test_a_lost_reply_to_a_lost_race_is_a_lost_race():
    store = MemoryStore()
    winner = new_log(store)
    faulty = FaultyStore(store, rates={Fault.LOSE_REPLY: 0.5}, seed=3, only=lambda kind, key: kind == "create")
    log = open_log(faulty, seed=1)
    for number in range(1, 21):
        winner.refresh()
        insert(winner, 2 * number)
        insert(log, 2 * number + 1)
    assert open_log(store).state.part_count == 40
    assert open_log(store).state.version == 41


def test_an_entry_that_was_sent_twice_on_the_way_is_still_ours():
    class Echo(MemoryStore):
        def create(self, key, data):
            super().create(key, data)
            return super().create(key, data)  # a proxy repeated the request: the reply says "exists already"

    store = Echo()
    log = new_log(store)
    assert insert(log, 1).version == 2
    assert open_log(store).state.part_count == 1


def test_a_lost_race_reads_the_winner_once():
    store = MemoryStore()
    first = new_log(store)
    second = open_log(store, seed=1)
    insert(first, 1)
    before = store.counters
    insert(second, 2)
    assert requests(store, before) == {"put": 2, "get": 2, "list": 0, "head": 0}


def test_a_silent_store_is_reported_as_not_known():
    store = MemoryStore()
    new_log(store)
    faulty = FaultyStore(store, rates={Fault.FAIL_BEFORE: 1.0})
    log = open_log(store)
    log._reader.backend = ObjectBackend(faulty, "t/_log", clock=SystemClock())
    with pytest.raises(UnavailableError, match="not known whether version 2"):
        insert(log, 1)


def test_the_time_of_entries_never_goes_back():
    store = MemoryStore()
    late = new_log(store, clock=ManualClock(2_000))
    early = open_log(store, seed=1, clock=ManualClock(1_000))
    insert(early, 1)
    assert [entry.timestamp_ms for entry in late.entries(1, 2)] == [2_000, 2_000]


def test_an_old_version_is_the_state_as_it_was():
    store = MemoryStore()
    clock = ManualClock(1_000)
    log = new_log(store, FREQUENT, clock=clock)
    states = [log.state]
    for number in range(1, 12):
        clock.advance_s(1)
        states.append(insert(log, number).state)
    reopened = open_log(store, seed=1)
    for state in states:
        assert reopened.state_at(version=state.version) == state
        assert reopened.state_at(timestamp_ms=state.timestamp_ms) == state
        assert reopened.state_at(timestamp_ms=state.timestamp_ms + 999) == state
    for wrong in ({"version": 0}, {"version": 13}, {"timestamp_ms": 999}, {"version": 1, "timestamp_ms": 5}):
        with pytest.raises(InvalidInputError):
            reopened.state_at(**wrong)


def test_old_versions_are_read_from_the_nearest_checkpoint():
    store = MemoryStore()
    log = new_log(store, FREQUENT)
    for number in range(1, 12):
        insert(log, number)
    before = store.counters
    assert log.state_at(version=9).version == 9
    assert requests(store, before) == {"put": 0, "get": 2, "list": 1, "head": 0}


def test_a_log_opens_from_hint_checkpoint_and_one_probe():
    store = MemoryStore()
    log = new_log(store, FREQUENT)
    for number in range(1, 8):
        insert(log, number)
    before = store.counters
    assert open_log(store).state == log.state
    assert requests(store, before) == {"put": 0, "get": 3, "list": 0, "head": 0}


@pytest.mark.parametrize("damage", ["no hint", "stale hint", "garbage hint", "no checkpoint", "corrupt checkpoint"])
def test_a_bad_hint_or_checkpoint_only_makes_opening_slower(damage):
    store = MemoryStore()
    log = new_log(store, FREQUENT)
    for number in range(1, 11):
        insert(log, number)
    newest, hint = "t/_log/checkpoints/00000000000000000008.arrow", "t/_log/_last_checkpoint"
    if damage == "no hint":
        store.delete([hint])
    elif damage == "stale hint":
        store.put(hint, b'{"version": 4}')
    elif damage == "garbage hint":
        store.put(hint, b"what?")
    elif damage == "no checkpoint":
        store.delete([newest])
    else:
        store.put(newest, store.get(newest)[:-40])
    assert open_log(store).state == log.state


def test_a_truncated_log_opens_from_a_listed_checkpoint():
    store = MemoryStore()
    log = new_log(store, FREQUENT)
    for number in range(1, 11):
        insert(log, number)
    store.delete([f"t/_log/{version:020d}.json" for version in range(1, 9)] + ["t/_log/_last_checkpoint"])
    assert open_log(store).state == log.state


@pytest.mark.parametrize(("entries", "interval", "gets"), [(40, 64, 43), (1200, 64, 70)])
def test_a_lost_hint_costs_a_listing_not_the_whole_log(entries, interval, gets):
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=interval))
    for number in range(1, entries):
        insert(log, number)
    store.delete(["t/_log/_last_checkpoint"])
    before = store.counters
    assert open_log(store).state == log.state
    spent = store.counters - before
    assert spent.get <= gets  # the hint, a checkpoint, what follows it and the position behind that
    assert spent.list <= 3


def test_checkpoints_are_written_while_others_commit():
    """Another thread's commit ends before the checkpoint that was due does."""
    store = SlowCheckpoints()
    log = new_log(store, FREQUENT)
    insert(log, 1)
    insert(log, 2)
    other = threading.Thread(target=insert, args=(log, 3))
    other.start()
    assert store.waiting.wait(10)
    insert(log, 4)
    store.go_on.set()
    other.join()
    assert log.state.version == 5


class SlowCheckpoints(MemoryStore):
    """Where a checkpoint of version 4 waits to be let through."""

    def __init__(self):
        super().__init__()
        self.waiting, self.go_on = threading.Event(), threading.Event()

    def create(self, key, data):
        if key.endswith(f"checkpoints/{4:020d}.arrow"):
            self.waiting.set()
            assert self.go_on.wait(10)
        return super().create(key, data)


def test_a_checkpoint_that_fails_does_not_fail_the_commit():
    store = MemoryStore()
    writing = ("put", "create")
    faulty = FaultyStore(
        store, rates={Fault.FAIL_BEFORE: 1.0}, only=lambda kind, key: kind in writing and "checkpoint" in key
    )
    log = new_log(faulty, FREQUENT)
    for number in range(1, 9):
        insert(log, number)
    assert not list(store.list("t/_log/checkpoints"))
    assert open_log(store).state == log.state


def test_a_missing_entry_in_the_middle_is_an_error():
    store = MemoryStore()
    log = new_log(store)
    insert(log, 1)
    store.delete(["t/_log/00000000000000000002.json"])
    with pytest.raises(Exception, match="missing"):
        list(log.entries())


def test_an_empty_place_has_an_empty_log():
    log = open_log(MemoryStore())
    assert log.state.version == 0
    with pytest.raises(NotFoundError):
        insert(log, 1)


@pytest.mark.parametrize("own_logs", [False, True])
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_eight_threads_commit_every_insert_once(tmp_path, kind, own_logs):  # M-065
    from mergelake.store import open_store

    store = MemoryStore() if kind == "memory" else open_store(str(tmp_path), {"sync": "false"})
    shared = new_log(store)
    failures = []

    def work(thread):
        from mergelake.core.base.clock import SystemClock

        log = open_log(store, seed=thread + 1, clock=SystemClock()) if own_logs else shared
        try:
            for number in range(12):
                insert(log, 1000 * thread + number)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    state = open_log(store).state
    assert state.version <= 97  # writers who meet share entries
    assert len({part.manifest.id for part in state.parts()}) == state.part_count == 96
    assert [part.info.min_block for part in state.parts()] == list(range(1, 97))


def test_a_damaged_state_is_not_taken_for_the_real_one():
    store = MemoryStore()
    log = new_log(store)
    insert(log, 1)
    data = checkpoint.encode_checkpoint(log.state)
    insert(log, 2)
    other = checkpoint.state_hash(log.state)
    assert other != checkpoint.state_hash(checkpoint.decode_checkpoint(data))
    with pytest.raises(Exception, match=r"does not hold"):
        checkpoint.decode_checkpoint(data.replace(checkpoint.state_hash(log.state_at(2)).encode(), b"0" * 32))
