"""A checkpoint of a large table is a root and segments: written once, shared by all who write, read when needed."""

from __future__ import annotations

import pickle
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError, CorruptDataError
from mergelake.core.model.manifest import FileTable
from mergelake.log.model.fold import fold
from mergelake.log.model.operations import AddParts, AdvanceGcHorizon, DropParts, Publish
from mergelake.log.model.state import State
from mergelake.log.reading.head_freshness import HEAD_FRESHNESS_S
from mergelake.log.storage import layout, segments as segments_module
from mergelake.log.storage.layout import FANOUT, SEGMENT_MAX, to_merge
from mergelake.log.storage.segment import OpenSegment, SegmentMember, SegmentRef, StoredFiles
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log, schema_with


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "INLINE_MAX", 8_000)
    monkeypatch.setattr(layout, "SEGMENT_MAX", 400_000)
    monkeypatch.setattr(layout, "FANOUT", 4)


def insert(log, numbers, partitions=3):
    for n in numbers:
        part = manifest(n, f"p{n % partitions}", base_version=log.state.version)
        log.commit(lambda _, part=part: [AddParts((part,))])


def segments(store):
    return {meta.key: meta.size for meta in store.list("t/_log/checkpoints") if meta.key.endswith(".segment")}


def files(state):
    return {part.manifest.id: part.manifest.files.text for part in state.parts()}


def test_a_small_table_has_none_and_asks_for_none():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=4))
    insert(log, range(1, 20))
    assert segments(store) == {}
    before = store.counters
    open_log(store)
    assert (store.counters - before).requests == 3


def test_a_state_that_was_read_from_segments_is_the_same_and_its_file_tables_are_read_when_asked_for():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=8))
    insert(log, range(1, 200))
    log.write_checkpoint()
    assert segments(store)
    other = open_log(store)
    assert other.state == log.state
    most = 2 * len(segments(store)) + 199 // 64
    before = store.counters
    assert files(other.state) == files(log.state)
    few = (store.counters - before).requests
    assert 1 <= few <= most
    assert files(other.state) == files(log.state)
    assert (store.counters - before).requests == few  # kept
    assert pickle.loads(pickle.dumps(other.state)) == log.state


def test_the_keys_outside_the_directory_of_a_part_are_known_without_a_request():
    store = MemoryStore()
    log = new_log(store)
    shared = replace(manifest(1), files=FileTable(manifest(2).files.text))
    log.commit(lambda _: [AddParts((shared, *(manifest(n) for n in range(3, 90))), begun=(f"{2:032x}",))])
    log.write_checkpoint()
    assert segments(store)
    part = open_log(store).state.partitions["all"][0].manifest
    before = store.counters
    assert part.keys_outside() == (f"{2:032x}/files.packed",)
    assert part.files == shared.files
    assert store.counters.requests == before.requests
    # Under another id, what lies in its own directory changes: then the text is asked.
    assert replace(part, id=f"{2:032x}").keys_outside() == ()


def test_what_checkpoints_write_does_not_grow_with_the_table():
    written = []
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    for first in range(1, 1601, 400):
        before = store.counters
        insert(log, range(first, first + 400), partitions=50)
        entries = sum(len(store.get(f"t/_log/{v:020d}.json")) for v in range(first + 1, first + 401))
        written.append(((store.counters - before).bytes_put - entries) / entries)
    assert max(written) < 4
    assert max(written[1:]) < 1.4 * min(written[1:])
    assert open_log(store).state == log.state


def test_inserts_and_their_checkpoints_make_no_part_of_a_partition_that_lies_in_segments(monkeypatch):
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=1000))
    insert(log, range(1, 200))
    log.write_checkpoint()
    monkeypatch.setattr(segments_module, "EAGER_BYTES", 0)
    other = open_log(store)
    with mock.patch.object(OpenSegment, "parts", autospec=True, side_effect=OpenSegment.parts) as made:
        for first in (200, 260, 320):
            insert(other, range(first, first + 60))
            other.write_checkpoint()
        assert made.call_count == 0
        with pytest.raises(ConflictError, match="in the table already"):  # sent again, as it was
            other.commit(lambda _: [AddParts((manifest(200, "p2", base_version=199),))])
    assert made.call_count > 0  # it was begun before the checkpoint that holds it: its partition is looked through
    log.refresh()
    assert open_log(store).state == other.state == log.state


def test_other_writers_use_the_segments_that_one_has_written():
    store = MemoryStore()
    logs = [new_log(store, schema_with(checkpoint_interval=16)), *(open_log(store, seed=n) for n in (1, 2, 3))]
    for n in range(1, 800):
        insert(logs[n % 4], [n])
    alone = MemoryStore()
    insert(new_log(alone, schema_with(checkpoint_interval=16)), range(1, 800))
    assert sum(segments(store).values()) < 1.3 * sum(segments(alone).values())
    assert open_log(store).state == logs[0].refresh()


def test_who_comes_second_with_a_checkpoint_goes_on_with_the_segments_of_the_first(monkeypatch):
    store = MemoryStore()
    logs = [new_log(store, schema_with(checkpoint_interval=1000)), open_log(store, seed=1)]
    insert(logs[0], range(1, 100))
    logs[1].refresh()
    create = store.create

    def second(key, data):
        if key.endswith(".arrow"):
            monkeypatch.setattr(store, "create", create)
            logs[0].write_checkpoint()
        return create(key, data)

    monkeypatch.setattr(store, "create", second)
    logs[1].write_checkpoint()
    insert(logs[1], [100])
    logs[1].write_checkpoint()
    roots = [set(logs[1]._reader.layout(version).members) for version in (100, 101)]
    assert roots[0]
    assert roots[1] == roots[0] < {key.rpartition("/")[2] for key in segments(store)}
    assert open_log(store, seed=2).state == logs[1].state


def test_parts_that_are_gone_are_not_active_and_merged_away_with_their_segments():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    insert(log, range(1, 100), partitions=1)
    for n in range(1, 99):
        log.commit(lambda _, n=n: [DropParts("p0", (f"{n:032x}",))])
    log.write_checkpoint()
    state = open_log(store).state
    assert state == log.state
    assert state.part_count == 1
    merged = manifest(500, "p0", rows=10)
    log.commit(lambda _: [Publish(merged, (f"{99:032x}",))])
    log.write_checkpoint()
    assert open_log(store).state == log.state


def test_segments_are_swept_once_the_log_is_cut_and_who_still_knows_one_finds_the_file_table_elsewhere():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    insert(log, range(1, 150))
    log.write_checkpoint()
    clock = ManualClock()
    old = open_log(store, seed=7, clock=clock)
    insert(log, range(150, 700))
    log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
    log.write_checkpoint()
    there = segments(store)
    base = log.retire_checkpoints(log.state.history)
    assert base
    log.truncate(base, sweep=False)
    assert segments(store) == there
    log.truncate(base)
    assert 0 < len(segments(store)) < len(there)
    assert open_log(store).state == log.state
    assert files(open_log(store).state) == files(log.state)
    assert files(old.state) == {key: text for key, text in files(log.state).items() if int(key, 16) < 150}
    # What it knew was swept: its next checkpoint names none of it.
    clock.sleep_s(2 * HEAD_FRESHNESS_S)
    old.refresh()
    insert(old, range(700, 730))
    old.write_checkpoint()
    assert open_log(store).state == log.refresh()
    assert log.verify().problems == []


def test_a_file_table_is_found_in_any_checkpoint_that_stands(monkeypatch):
    """Its segment is damaged, its entry gone, and the first checkpoint that had it is emptied while one looks."""
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    insert(log, range(1, 200))
    log.write_checkpoint()
    whole = files(open_log(store).state)
    insert(log, range(200, 500))
    log.commit(lambda state: [AdvanceGcHorizon(240, 240)])
    log.write_checkpoint()
    log.truncate(log.retire_checkpoints(log.state.history), sweep=False)
    standing = [version for version, size in log._reader.checkpoints() if size]
    newest = set(log._reader.layout(standing[-1]).members)
    for name in newest - set(log._reader.layout(standing[0]).members):
        key = f"t/_log/checkpoints/{name}"
        data = bytearray(store.get(key))
        data[-5] ^= 1
        data[-400] ^= 1
        store.put(key, bytes(data))
    reader = open_log(store)
    listed = [(version, size or 1) for version, size in reader._reader.checkpoints()]
    monkeypatch.setattr(reader._reader, "checkpoints", lambda: listed)
    found = files(reader.state)
    assert {part_id: found[part_id] for part_id in whole} == whole


def test_a_sweep_that_stood_still_takes_nothing_of_checkpoints_that_came_meanwhile(monkeypatch):
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    insert(log, range(1, 300))
    log.write_checkpoint()
    log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
    base, slow = log.retire_checkpoints(log.state.history), open_log(store)
    listed = slow._reader.beside_entries()
    old = {f"t/_log/checkpoints/{name}" for name in listed[1]}

    def others_go_on():
        """The checkpoint that it has listed is emptied, and the one behind it names the same segments."""
        insert(log, range(300, 320))
        log.write_checkpoint()
        log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
        assert log.retire_checkpoints(log.state.history) > base
        return listed

    monkeypatch.setattr(slow._reader, "beside_entries", others_go_on)
    slow.truncate(base)
    assert old <= set(segments(store))
    assert files(open_log(store).state) == files(log.state)


def test_a_writer_that_followed_the_log_for_long_names_no_segment_that_is_gone():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    insert(log, range(1, 150))
    log.write_checkpoint()
    old = open_log(store, seed=7)
    insert(log, range(150, 700))
    log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
    log.write_checkpoint()
    base = log.retire_checkpoints(log.state.history)
    old.refresh()
    log.truncate(base)
    insert(old, range(700, 720))
    old.write_checkpoint()
    named = set(old._reader.layout(old.state.version).members)
    assert {f"t/_log/checkpoints/{name}" for name in named} <= set(segments(store))
    assert open_log(store, seed=9).state == old.state


@pytest.mark.parametrize("place", [5, -5])
def test_damage_is_seen_an_older_checkpoint_serves_and_fsck_mends(place):
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=32))
    insert(log, range(1, 131))
    key = max(segments(store))
    data = bytearray(store.get(key))
    data[place] ^= 1
    store.put(key, bytes(data))
    other = open_log(store)
    assert other.state == log.state
    assert files(other.state) == files(log.state)  # from the entries
    report = other.verify()
    assert {problem.kind for problem in report.problems} >= {"checkpoint"}
    assert other.repair_checkpoints(report)
    after = open_log(store, seed=3)
    assert after.verify().problems == []
    assert files(after.state) == files(log.state)


def test_a_segment_that_could_not_be_written_leaves_no_checkpoint(monkeypatch):
    store = MemoryStore()
    log = new_log(store)
    log.commit(lambda _: [AddParts(tuple(manifest(n) for n in range(1, 90)))])

    def refuse(key, data):
        raise CorruptDataError("no") if key.endswith(".segment") else AssertionError(key)

    monkeypatch.setattr(store, "create", refuse)
    with pytest.raises(CorruptDataError, match="no"):
        log.write_checkpoint()
    assert open_log(store).state == log.state


def member(size, rows=10, live=10, name="a"):
    flags = np.zeros(rows, bool)
    flags[:live] = True
    return SegmentMember(SegmentRef(f"{1:020d}-{name}", rows, 1, size, b""), flags)


def test_segments_are_merged_by_size_a_tier_at_a_time():
    small = [member(7_000, name=f"{n}") for n in range(3)]
    assert to_merge(small[:2]) == []
    assert len(to_merge(small)) == 3
    middle = [member(100_000, name=f"m{n}") for n in range(2)]
    assert len(to_merge([*small, *middle])) == 3
    assert to_merge([member(390_000, name=f"l{n}") for n in range(9)]) == []
    # One that is half dead comes down, and what is merged never takes more than a segment.
    dead = [member(390_000, live=3, name=f"d{n}") for n in range(9)]
    chosen = to_merge(dead)
    assert 2 <= len(chosen) <= 3
    assert (FANOUT, SEGMENT_MAX) != (layout.FANOUT, layout.SEGMENT_MAX)


def test_places_belong_to_the_part_that_was_stored():
    store = MemoryStore()
    log = new_log(store)
    log.commit(lambda _: [AddParts(tuple(manifest(n) for n in range(1, 90)))])
    log.write_checkpoint()
    part = open_log(store).state.partitions["all"][0].manifest
    assert isinstance(part.files.place, StoredFiles)
    # The same table under a new id, as a rollback brings it: in no segment yet.
    renewed = replace(part, id="f" * 32)
    log.commit(lambda _: [AddParts((renewed,))])
    log.write_checkpoint()
    assert open_log(store).state == log.state
    assert fold(State(), log.entries()) == log.state
