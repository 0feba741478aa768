"""Retired parts in segments of checkpoints: shared by all who write, read when needed, swept when the log is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError
from mergelake.log.model.operations import AddParts, AdvanceGcHorizon, DropParts, Publish, Tag
from mergelake.log.reading.head_freshness import HEAD_FRESHNESS_S
from mergelake.log.storage import stored_runs
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log, schema_with


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_runs, "INLINE_PARTS_MAX", 10)
    monkeypatch.setattr(stored_runs, "RUN_PARTS_MAX", 40)


def merge(log, numbers):
    """Insert a part and merge it into the one that stands there, over and over: one retired part an entry, about."""
    for n in numbers:
        new = manifest(2 * n, "all", base_version=log.state.version)
        log.commit(lambda _, new=new: [AddParts((new,))])
        parts = log.state.partitions["all"]
        if len(parts) > 1:
            rows = sum(part.manifest.rows for part in parts)
            into = manifest(2 * n + 1, "all", rows=rows, base_version=log.state.version)
            log.commit(lambda _, into=into, parts=parts: [Publish(into, tuple(p.manifest.id for p in parts))])


def segments(store):
    return {meta.key for meta in store.list("t/_log/checkpoints") if meta.key.endswith(".retired.segment")}


def test_what_checkpoints_write_does_not_grow_with_history():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    written = []
    for first in range(1, 1201, 300):
        before = store.counters
        merge(log, range(first, first + 300))
        written.append((store.counters - before).bytes_put)
    assert len(log.state.retired) > 2000
    assert max(written) < 1.2 * min(written)
    root = len(store.get(f"t/_log/checkpoints/{log.state.version // 16 * 16:020d}.arrow"))
    assert root < 20_000
    assert log.state.retired.in_memory < 60


def test_opening_reads_none_of_it_and_all_of_it_is_the_same():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    merge(log, range(1, 200))
    log.write_checkpoint()
    before = store.counters
    other = open_log(store)
    merge(other, [1000])
    few = (store.counters - before).get
    assert few <= 4
    assert other.state.retired.in_memory < 20 < 300 < len(other.state.retired)
    assert (store.counters - before).get == few
    assert tuple(log.refresh().retired) == tuple(other.state.retired)
    assert log.state == other.state
    assert other.verify().problems == []


def test_writers_that_take_turns_use_each_others_runs():
    store = MemoryStore()
    logs = [new_log(store, schema_with(checkpoint_interval=16)), *(open_log(store, seed=n) for n in (1, 2, 3))]
    for n in range(1, 300):
        logs[n % 4].refresh()
        merge(logs[n % 4], [n])
    alone = MemoryStore()
    merge(new_log(alone, schema_with(checkpoint_interval=16)), range(1, 300))
    assert len(segments(store)) < 1.3 * len(segments(alone))
    assert open_log(store).state == logs[0].refresh()


def test_a_part_that_was_in_the_table_does_not_come_in_again_whoever_asks():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    merge(log, range(1, 100))
    log.write_checkpoint()
    other = open_log(store)
    for number in (2, 5, 100, 190):
        again = manifest(number, "all", base_version=0)
        assert other.state.retired.get(again.id) is not None
        with pytest.raises(ConflictError):
            other.commit(lambda _, again=again: [AddParts((again,))])


def test_they_are_swept_once_history_has_passed_them_but_for_what_tags_pin():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    merge(log, range(1, 60))
    tagged = log.state
    log.commit(lambda state: [Tag("kept", tagged.version)])
    merge(log, range(60, 300))
    log.write_checkpoint()
    old = open_log(store, seed=7, clock=(clock := ManualClock()))
    log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
    assert [part.id for part in log.state.retired] == [part.manifest.id for part in tagged.parts()]
    log.write_checkpoint()
    log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
    there = segments(store)
    base = log.retire_checkpoints(log.state.history)
    assert base == log.state.version - 1
    log.truncate(base)
    assert segments(store) == set() < there
    clock.sleep_s(2 * HEAD_FRESHNESS_S)
    assert old.refresh() == log.state
    merge(old, range(300, 320))
    old.write_checkpoint()
    assert open_log(store).state == log.refresh()
    assert log.verify().problems == []


@pytest.mark.parametrize("gone", [False, True])
def test_damage_is_made_good_from_an_older_checkpoint_and_written_anew(gone):
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=32))
    merge(log, range(1, 100))
    log.write_checkpoint()
    key = max(segments(store))
    if gone:
        store.delete([key])
    else:
        store.put(key, b"x" + store.get(key)[1:])
    other = open_log(store)
    assert tuple(other.state.retired) == tuple(log.state.retired)
    assert "checkpoint" in {problem.kind for problem in other.verify().problems}
    merge(other, range(1000, 1020))
    other.write_checkpoint()
    after = open_log(store, seed=3)
    assert after._reader.sound(after.state.version)
    assert after.state == log.refresh()


def test_what_was_detached_for_long_keeps_its_place_in_the_list():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))
    log.commit(lambda state: [AddParts((manifest(10_000, "aside", base_version=state.version),))])
    log.commit(lambda _: [DropParts("aside", (f"{10_000:032x}",), "detach")])
    merge(log, range(1, 60))
    part = log.state.detached[0].manifest
    new = replace(part, id="f" * 32, base_version=log.state.version)
    log.commit(lambda _: [AddParts((new,), detached=(part.id,))])
    merge(log, range(60, 120))
    log.write_checkpoint()
    other = open_log(store)
    assert tuple(other.state.retired) == tuple(log.state.retired)
    assert [p.noted for p in other.state.retired] == sorted(p.noted for p in other.state.retired)
