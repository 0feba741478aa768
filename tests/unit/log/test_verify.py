"""Damaged logs: what is found, and what is mended."""

from __future__ import annotations

import json

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import UnavailableError
from mergelake.log.model.operations import AddParts, AdvanceGcHorizon, DropRange, Entry, Publish
from mergelake.log.reading.tail import LogReader
from mergelake.log.storage.checkpoint import encode_checkpoint
from mergelake.log.storage.encoding import decode_entry, encode_entry
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log, schema_with

HINT = "t/_log/_last_checkpoint"


def entry(version):
    return f"t/_log/{version:020d}.json"


def checkpoint(version):
    return f"t/_log/checkpoints/{version:020d}.arrow"


@pytest.fixture
def store():
    """Ten versions, checkpoints of 4 and 8."""
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=4))
    for number in range(1, 9):
        log.commit(lambda _, number=number: [AddParts((manifest(number),))])
    ids = [part.manifest.id for part in log.state.parts()][:3]
    log.commit(lambda _: [Publish(manifest(20), tuple(ids)), DropRange("nothing")])
    return store


def verified(store):
    log = open_log(store)
    return log, log.verify()


def found(report):
    return [(problem.kind, problem.version) for problem in report.problems]


def test_a_whole_log_has_no_problems(store):
    told = []
    log = open_log(store)
    report = log.verify(lambda done, total: told.append((done, total)))
    assert found(report) == []
    assert (report.first, report.last, report.entries, report.checkpoints) == (1, 10, 10, [4, 8])
    assert report.state == log.state
    assert told[-1] == (10, 10)


def test_a_checkpoint_that_was_collected_since_it_was_listed_is_not_damaged(store, monkeypatch):
    get = store.get

    def late(key):
        if key == checkpoint(4):
            store.put(key, b"")
        return get(key)

    log = open_log(store)
    monkeypatch.setattr(store, "get", late)
    report = log.verify()
    assert found(report) == []
    assert report.checkpoints == [8]


def test_entries_that_were_collected_while_the_log_was_read_are_not_missing(store, monkeypatch):
    get, other = store.get, open_log(store)

    def late(key):
        if key == entry(5) and get(checkpoint(4)):
            other.commit(lambda _: [AdvanceGcHorizon(10, 9)])
            other.truncate(other.retire_checkpoints(9))
        return get(key)

    log = open_log(store)
    monkeypatch.setattr("mergelake.log.reading.verify.PREFETCH_MAX", 1)
    monkeypatch.setattr(store, "get", late)
    report = log.verify()
    assert found(report) == []
    assert (report.first, report.last, report.checkpoints) == (9, 11, [8])


def test_a_log_that_is_cut_during_every_look_is_not_called_damaged(store, monkeypatch):
    """By a process that stands still for hours each time."""
    clock = ManualClock()
    read, other = LogReader.read_many, open_log(store, clock=clock)

    def late(self, versions):
        for number in range(4):
            part = manifest(100 * other.state.version + number, base_version=other.state.version)
            other.commit(lambda _, part=part: [AddParts((part,))])
        other.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
        other.truncate(other.retire_checkpoints(other.state.history))
        clock.sleep_s(7200)
        return read(self, versions)

    log = open_log(store, clock=clock)
    monkeypatch.setattr(LogReader, "read_many", late)
    with pytest.raises(UnavailableError):
        log.verify()


def test_a_shortened_log_is_verified_from_its_first_checkpoint(store):
    log = open_log(store)
    log.commit(lambda _: [AdvanceGcHorizon(10, 9)])
    log.truncate(log.retire_checkpoints(9))
    _, report = verified(store)
    assert found(report) == []
    assert (report.first, report.last, report.checkpoints) == (9, 11, [8])


def test_a_checkpoint_that_came_after_the_log_was_cut_is_no_gap(store):
    """Its writer slept: nothing behind it is there, and nothing of that is kept."""
    log = open_log(store)
    late = encode_checkpoint(log.state_at(3))
    log.commit(lambda _: [AdvanceGcHorizon(10, 9)])
    log.truncate(log.retire_checkpoints(9))
    store.put("t/_log/checkpoints/00000000000000000003.arrow", late)
    _, report = verified(store)
    assert found(report) == []
    assert (report.first, report.last, report.checkpoints) == (9, 11, [8])


@pytest.mark.parametrize("damage", ["missing", "flipped"])
@pytest.mark.parametrize("version", [3, 9])
def test_a_damaged_entry_is_named_and_the_rest_is_read_on_from_the_next_checkpoint(store, damage, version):
    log = open_log(store)
    if damage == "missing":
        store.delete([entry(version)])
    else:
        data = bytearray(store.get(entry(version)))
        data[60] ^= 4
        store.put(entry(version), bytes(data))
    report = log.verify()
    assert found(report) == [("entry", version)]
    assert report.state.version == (10 if version == 3 else 8)
    assert log.repair_checkpoints(report) == []


def test_an_entry_that_was_not_allowed_is_named(store):
    good = decode_entry(store.get(entry(6)))
    twice = decode_entry(store.get(entry(5)))
    store.put(entry(6), encode_entry(Entry(6, good.attempt, good.timestamp_ms, good.author, twice.ops)))
    store.delete([checkpoint(8), HINT])
    _, report = verified(store)
    assert ("entry", 6) in found(report)
    assert "in the table already" in report.problems[0].what


@pytest.mark.parametrize("version", [4, 8])
def test_a_checkpoint_that_cannot_be_read_is_set_aside(store, version):
    store.put(checkpoint(version), store.get(checkpoint(version))[:-5])
    log, report = verified(store)
    assert ("checkpoint", version) in found(report)
    assert log.repair_checkpoints(report)
    _, report = verified(store)
    assert found(report) == []
    assert report.checkpoints == [n for n in (4, 8, 10) if n != version]
    assert json.loads(store.get(HINT)) == {"version": 10}


def test_a_checkpoint_that_says_something_else_is_found_and_not_believed(store):
    """It is sound in itself, and readers open it; only the entries tell."""
    right = open_log(store).state_at(9)
    other = MemoryStore()
    log = new_log(other, schema_with(checkpoint_interval=4))
    for number in range(31, 38):
        log.commit(lambda _, number=number: [AddParts((manifest(number),))])
    store.put(checkpoint(8), encode_checkpoint(log.state))
    store.delete([entry(10)])
    wrong, report = verified(store)
    assert ("checkpoint", 8) in found(report)
    assert wrong.state != right
    done = ["wrote a checkpoint of version 9", "emptied the checkpoint of version 8"]
    assert wrong.repair_checkpoints(report) == done
    assert open_log(store).state == wrong.state == right


def test_a_wrong_checkpoint_of_the_newest_version_is_replaced(store):
    log = open_log(store)
    log.write_checkpoint()
    right = log.state
    store.put(checkpoint(10), store.get(checkpoint(10))[:-1])
    log, report = verified(store)
    assert ("checkpoint", 10) in found(report)
    assert log.repair_checkpoints(report) == ["wrote a checkpoint of version 10"]
    log, report = verified(store)
    assert found(report) == []
    assert 10 in report.checkpoints
    assert log.state == right


@pytest.mark.parametrize("hint", [b"nonsense", b'{"version": 7}', None])
def test_a_bad_hint_is_written_anew(store, hint):
    store.delete([HINT]) if hint is None else store.put(HINT, hint)
    log, report = verified(store)
    assert [problem.kind for problem in report.problems] == ["hint"]
    assert log.repair_checkpoints(report) == ["wrote a checkpoint of version 10"]
    assert json.loads(store.get(HINT)) == {"version": 10}


def test_who_slept_since_the_look_makes_nothing_good(store):
    """What came after the verified state was collected meanwhile: its end looks like the head, and is far behind it."""
    store.delete([HINT])
    slow, report = verified(store)
    log = open_log(store)
    for number in range(30, 36):
        log.commit(lambda _, number=number: [AddParts((manifest(number),))])
    store.delete([entry(version) for version in range(1, 16)])
    before = {meta.key: store.get(meta.key) for meta in store.list("t/_log")}
    with pytest.raises(UnavailableError, match="while it was looked at"):
        slow.repair_checkpoints(report)
    assert {meta.key: store.get(meta.key) for meta in store.list("t/_log")} == before


def test_the_only_checkpoint_of_a_shortened_log_is_never_emptied(store):
    log = open_log(store)
    log.commit(lambda _: [AdvanceGcHorizon(10, 9)])
    log.truncate(log.retire_checkpoints(9))
    store.put(checkpoint(8), store.get(checkpoint(8))[:-1])
    before = {item.key: item.size for item in store.list("t")}
    report = open_unopened(store).verify()
    assert report.problems
    assert open_unopened(store).repair_checkpoints(report) == []
    assert {item.key: item.size for item in store.list("t")} == before


def open_unopened(store):
    from mergelake.core.base.clock import ManualClock
    from mergelake.core.base.ids import SeededIds
    from mergelake.log.commit.commit import Log
    from mergelake.log.storage.machine import TableMachine

    return Log(store, "t/_log", TableMachine(), clock=ManualClock(), ids=SeededIds(0))
