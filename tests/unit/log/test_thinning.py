"""Checkpoints far behind the head are thinned out; every kept version can be read all the same."""

from __future__ import annotations

import random
from dataclasses import replace
from unittest import mock

import pytest

from mergelake.log.model.operations import AddParts, AdvanceGcHorizon
from mergelake.log.reading import truncate
from mergelake.log.reading.tail import LogReader
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log, schema_with

ENTRIES = 300


def filled(store, entries=ENTRIES):
    log = new_log(store, schema_with(checkpoint_interval=4))
    for number in range(entries):
        log.commit(lambda _, n=number: [AddParts((manifest(f"p{n}"),))])
    return log


def standing(store):
    return [int(m.key[-26:-6]) for m in store.list("t/_log/checkpoints") if m.size]


@pytest.fixture(autouse=True)
def small_entries(monkeypatch):
    monkeypatch.setattr(truncate, "ENTRY_BYTES", 1)


def test_what_is_once_not_kept_never_is_again():
    draw = random.Random(1)
    for _ in range(2000):
        version, size = draw.randrange(1, 10**6), draw.randrange(1, 10**9)
        heads = sorted(draw.randrange(version, version + 10**6) for _ in range(5))
        kept = [truncate.is_kept(version, size, head) for head in heads]
        assert kept == sorted(kept, reverse=True)


def test_checkpoints_far_behind_are_fewer_and_old_versions_are_what_they_were():
    store = MemoryStore()
    log = filled(store)
    states = {version: log.state_at(version) for version in range(1, ENTRIES + 1, 7)}
    before = standing(store)
    assert log.retire_checkpoints(log.state.history) == 0  # nothing is cut: all history is kept
    after = standing(store)
    assert len(before) == ENTRIES // 4 > 2 * len(after)
    assert [v for v in before if v > ENTRIES - 30] == [v for v in after if v > ENTRIES - 30]
    assert all(truncate.is_kept(v, 10**6, log.state.version) for v in after)
    fresh = open_log(store)
    assert fresh.state == log.state
    assert {version: fresh.state_at(version) for version in states} == states
    assert not fresh.verify().problems
    puts = store.counters.put
    assert log.retire_checkpoints(log.state.history) == 0
    assert store.counters.put == puts  # nothing is left to do


def test_small_checkpoints_all_stay(monkeypatch):
    monkeypatch.setattr(truncate, "ENTRY_BYTES", 1 << 20)
    store = MemoryStore()
    log = filled(store, 100)
    log.retire_checkpoints(log.state.history)
    assert len(standing(store)) == 25


@pytest.mark.parametrize("history", [80, 100, 148, 250])
def test_a_collector_that_slept_never_empties_where_the_log_is_cut(history, monkeypatch):
    """It decided on an older state; meanwhile history went on, and another chose where to cut."""
    store = MemoryStore()
    log = filled(store)
    slept = open_log(store)
    late: list[str] = []
    real = store.put
    monkeypatch.setattr(store, "put", lambda key, data: late.append(key) if not data else real(key, data))
    slept.retire_checkpoints(slept.state.history)
    monkeypatch.undo()
    monkeypatch.setattr(truncate, "ENTRY_BYTES", 1)
    log.commit(lambda _: [AdvanceGcHorizon(log.state.fence, history)])
    for number in range(60):  # the head goes on: others are no longer kept
        log.commit(lambda state, n=number: [AddParts((replace(manifest(f"q{n}"), base_version=state.version),))])
    states = {version: log.state_at(version) for version in range(history, log.state.version, 9)}
    base = log.retire_checkpoints(log.state.history)
    assert 0 < base <= history
    assert late
    for key in late:  # now it wakes
        store.put(key, b"")
    assert log.truncate(base) == base - 1
    fresh = open_log(store)
    assert fresh.state == log.state
    assert {version: fresh.state_at(version) for version in states} == states


def test_who_opens_while_all_that_it_listed_is_emptied_looks_again():
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=16))

    def insert(numbers):
        for n in numbers:
            log.commit(lambda state, n=n: [AddParts((manifest(n, base_version=state.version),))])

    insert(range(1, 60))
    store.delete(["t/_log/_last_checkpoint"])
    real, asked = LogReader.checkpoint, []

    def slow(self, version):
        asked.append(version)
        if len(asked) == 1:
            insert(range(60, 120))
            log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
            log.write_checkpoint()
            log.truncate(log.retire_checkpoints(log.state.history))
        return real(self, version)

    with mock.patch.object(LogReader, "checkpoint", slow):
        assert open_log(store).state == log.state
