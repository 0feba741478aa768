"""Old knowledge of the head is not believed: the traps that lie in shortening a log."""

from __future__ import annotations

import json

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import CorruptDataError, InternalError, InvalidInputError, UnavailableError
from mergelake.log.model.operations import AddParts, AdvanceGcHorizon
from mergelake.log.reading.head_freshness import HEAD_FRESHNESS_S, Instant
from mergelake.store.interface.protocol import OutcomeUnknown, Stored
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log, schema_with

LONG_S = HEAD_FRESHNESS_S + 1
FREQUENT = schema_with(checkpoint_interval=4)


class SleepyStore(MemoryStore):
    """Runs something once, just before a request that `asleep` picks: what others do while this process sleeps."""

    def __init__(self, of, when, meanwhile, after=False):
        super().__init__()
        self._space = of._space
        self._when, self._meanwhile, self._after = when, meanwhile, after

    def _sleep(self, kind, key, after):
        if self._meanwhile is not None and after == self._after and self._when(kind, key):
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()

    def create(self, key, data):
        self._sleep("create", key, False)
        outcome = super().create(key, data)
        self._sleep("create", key, True)
        return outcome

    def get(self, key):
        self._sleep("get", key, False)
        try:
            return super().get(key)
        finally:
            self._sleep("get", key, True)

    def put(self, key, data):
        self._sleep("put", key, False)
        super().put(key, data)


def insert(log, part_id):
    return log.commit(lambda _: [AddParts((manifest(part_id, base_version=log.state.version),))])


def shorten(log, clock=None):
    """Collect everything but the newest version. Returns where the log begins now."""
    log.refresh()
    log.commit(lambda state: [AdvanceGcHorizon(state.version, state.version)])
    base = log.retire_checkpoints(log.state.history)
    log.truncate(base)
    return base


def filled(count=10, clock=None):
    store = MemoryStore()
    log = new_log(store, FREQUENT, clock=clock or ManualClock())
    for number in range(1, count):
        insert(log, number)
    return store, log


def entry_versions(store):
    return [int(item.key[-25:-5]) for item in store.list("t/_log") if item.key.endswith(".json")]


def test_age_is_told_by_the_clock_that_says_more():
    class Clock:
        wall, hand = 1_000_000, 5.0

        def now_ms(self):
            return self.wall

        def monotonic_s(self):
            return self.hand

    clock = Clock()
    then = Instant.now(clock)
    clock.hand += 7
    assert then.age_s(clock) == 7
    clock.wall += 60_000  # a machine that its host held: only the wall clock was put right
    assert then.age_s(clock) == 60
    clock.wall -= 3_600_000
    assert then.age_s(clock) == 7


def test_a_log_is_cut_at_the_newest_checkpoint_that_history_allows():
    store, log = filled(10)
    log.commit(lambda _: [AdvanceGcHorizon(9, 7)])
    assert log.retire_checkpoints(log.state.history) == 4
    assert log.truncate(4) == 3
    assert log.truncate(4) == 0
    assert entry_versions(store) == list(range(4, 12))
    log.commit(lambda _: [AdvanceGcHorizon(9, 9)])
    assert log.retire_checkpoints(log.state.history) == 8
    assert log.truncate(8) == 4
    sizes = {item.key[-8:-6]: item.size for item in store.list("t/_log/checkpoints")}
    assert sizes["04"] == 0
    assert sizes["08"] > 0
    assert open_log(store).state == log.state
    for version in (8, 9, 11):
        assert open_log(store).state_at(version).version == version
    with pytest.raises(InvalidInputError, match="collected"):
        open_log(store).state_at(7)


def test_who_opens_a_log_without_a_hint_does_not_begin_where_it_is_cut():
    """The hint of the only checkpoint was lost: the first entry is where readers begin, and must not be later on."""
    store, log = filled(5)
    store.delete(["t/_log/_last_checkpoint"])
    log.commit(lambda _: [AdvanceGcHorizon(6, 5)])
    assert log.retire_checkpoints(log.state.history) == 4
    assert json.loads(store.get("t/_log/_last_checkpoint")) == {"version": 4}


def test_a_collector_that_stood_still_does_not_mind_that_another_cut_further():
    _, log = filled(10)
    log.commit(lambda _: [AdvanceGcHorizon(9, 7)])
    assert log.retire_checkpoints(7) == 4
    log.commit(lambda _: [AdvanceGcHorizon(9, 9)])
    assert log.retire_checkpoints(9) == 8
    assert log.truncate(4) == 0


def test_nothing_is_cut_that_history_needs_or_that_no_readable_checkpoint_replaces():
    store, log = filled(10)
    with pytest.raises(InternalError, match="is kept"):
        log.truncate(8)
    log.commit(lambda _: [AdvanceGcHorizon(11, 10)])
    assert log.truncate(8) == 0  # one before it stands
    key = "t/_log/checkpoints/00000000000000000008.arrow"
    whole = store.get(key)
    store.put(key, whole[:-1])
    assert log.retire_checkpoints(10) == 4  # the newer one is damaged
    assert log.truncate(8) == 0
    store.put("t/_log/checkpoints/00000000000000000004.arrow", b"")
    assert log.retire_checkpoints(10) == 0
    with pytest.raises(CorruptDataError, match="damaged"):
        log.truncate(8)
    assert entry_versions(store) == list(range(1, 12))


def test_a_stale_reader_before_a_collected_position_opens_anew():  # M-088
    clock = ManualClock()
    store, log = filled(10, clock)
    stale = open_log(store, clock=clock, seed=1)
    clock.advance_s(LONG_S)
    for number in range(20, 30):
        insert(log, number)
    assert shorten(log) == 20
    assert stale.state.version == 10
    assert stale.refresh() == log.state
    other = open_log(store, clock=clock, seed=2)
    assert other.state == log.state


def test_a_quiet_reader_pays_for_a_new_look_only_after_the_trust_period():
    clock = ManualClock()
    store, _ = filled(8, clock)
    reader = open_log(store, clock=clock, seed=1)
    for pause_s, requests in ((HEAD_FRESHNESS_S - 1, 1), (HEAD_FRESHNESS_S - 1, 1), (LONG_S, 3)):
        clock.advance_s(pause_s)
        before = store.counters.requests
        reader.refresh()
        assert store.counters.requests - before == requests


def test_a_reader_that_sleeps_between_checkpoint_and_tail_begins_again():
    clock = ManualClock()
    store, log = filled(10, clock)

    def meanwhile():
        clock.advance_s(LONG_S)
        for number in range(20, 30):
            insert(log, number)
        shorten(log)

    def at_the_tail(kind, key):
        return kind == "get" and key.endswith("09.json")

    sleeper = open_log(SleepyStore(store, at_the_tail, meanwhile), clock=clock, seed=1)
    assert sleeper.state == log.state


def test_an_old_writer_looks_before_it_appends():
    clock = ManualClock()
    store, log = filled(10, clock)
    old = open_log(store, clock=clock, seed=1)
    clock.advance_s(LONG_S)
    for number in range(20, 30):
        insert(log, number)
    shorten(log)
    versions = entry_versions(store)
    assert insert(old, 40).version == log.state.version + 1
    assert entry_versions(store) == [*versions, log.state.version + 1]


@pytest.mark.parametrize("reply", [Stored(), OutcomeUnknown("cut off")], ids=["stored", "unknown"])
def test_a_stalled_writer_that_creates_a_collected_position_again_does_not_call_it_stored(reply):
    clock = ManualClock()
    store, log = filled(10, clock)

    def meanwhile():
        clock.advance_s(LONG_S)
        for number in range(20, 30):
            insert(log, number)
        shorten(log)

    class Sleepy(SleepyStore):
        def create(self, key, data):
            outcome = super().create(key, data)
            return reply if isinstance(outcome, Stored) else outcome

    stalled = open_log(Sleepy(store, lambda kind, key: kind == "create", meanwhile), clock=clock, seed=1)
    with pytest.raises(UnavailableError, match="not known whether version 11"):
        insert(stalled, 99)
    assert 11 in entry_versions(store)  # where nobody looks
    assert f"{99:032x}" not in {part.manifest.id for part in open_log(store, clock=clock).state.parts()}
    assert insert(stalled, 98).version == log.state.version + 1
    assert open_log(store, clock=clock).state == stalled.state
    shorten(log)
    assert 11 not in entry_versions(store)


def test_a_slow_append_to_a_log_that_was_not_cut_is_stored():
    clock = ManualClock()
    store, log = filled(10, clock)

    def meanwhile():
        clock.advance_s(LONG_S)
        insert(log, 20)

    slow = open_log(SleepyStore(store, lambda kind, key: kind == "create", meanwhile, after=True), clock=clock, seed=1)
    committed = insert(slow, 99)
    assert committed.version == 11
    assert slow.state.version == 12  # it has looked
    assert slow.state == log.refresh()


def test_a_slow_append_that_lost_its_race_is_tried_again_on_what_is_there():
    clock = ManualClock()
    store, log = filled(10, clock)

    def meanwhile():
        insert(log, 20)
        clock.advance_s(LONG_S)

    slow = open_log(SleepyStore(store, lambda kind, key: kind == "create", meanwhile), clock=clock, seed=1)
    committed = insert(slow, 99)
    assert (committed.version, committed.races_lost) == (12, 1)
    assert open_log(store, clock=clock).state == slow.state


def test_a_commit_whose_position_was_collected_before_its_reply_came_is_not_known():
    clock = ManualClock()
    store, log = filled(10, clock)

    def meanwhile():
        clock.advance_s(LONG_S)
        for number in range(20, 30):
            insert(log, number)
        shorten(log)

    slow = open_log(SleepyStore(store, lambda kind, key: kind == "create", meanwhile, after=True), clock=clock, seed=1)
    with pytest.raises(UnavailableError, match="not known whether version 11"):
        insert(slow, 99)
    assert f"{99:032x}" in {part.manifest.id for part in slow.state.parts()}


def test_an_unknown_outcome_that_cannot_be_looked_up_after_a_long_append_stays_unknown():
    clock = ManualClock()
    store, _ = filled(10, clock)
    sleepy = SleepyStore(store, lambda kind, key: kind == "create", lambda: clock.advance_s(LONG_S), after=True)
    log = open_log(sleepy, clock=clock, seed=1)

    def silent(_):
        raise UnavailableError("cut off")

    sleepy.get = silent
    with pytest.raises(UnavailableError, match="not known whether version 11"):
        insert(log, 99)


def test_a_late_checkpoint_does_not_bring_a_collected_one_back():
    clock = ManualClock()
    store, log = filled(10, clock)
    old = open_log(store, clock=clock, seed=1)
    for number in range(20, 22):
        insert(old, number)  # 11 and 12: version 12 has a checkpoint
    key = "t/_log/checkpoints/00000000000000000012.arrow"
    data = store.get(key)
    store.delete([key, "t/_log/_last_checkpoint"])
    late = open_log(store, clock=clock, seed=2)
    assert late.state.version == 12
    store.put(key, data)
    clock.advance_s(LONG_S)
    log.refresh()
    for number in range(30, 40):
        insert(log, number)
    shorten(log)
    hint = store.get("t/_log/_last_checkpoint")
    late.write_checkpoint()
    assert store.get(key) == b""
    assert store.get("t/_log/_last_checkpoint") == hint
    assert open_log(store, clock=clock, seed=3).state == log.state


def test_a_checkpoint_that_is_written_too_late_is_not_made_known():
    """None was there, so none was emptied; the entries behind it are gone."""
    clock = ManualClock()
    store, log = filled(10, clock)
    late = open_log(store, clock=clock, seed=2)
    assert late.state.version == 10
    clock.advance_s(LONG_S)
    for number in range(30, 40):
        insert(log, number)
    shorten(log)
    hint = store.get("t/_log/_last_checkpoint")
    late.write_checkpoint()
    assert store.get("t/_log/checkpoints/00000000000000000010.arrow")
    assert store.get("t/_log/_last_checkpoint") == hint
    for damage in ([], ["t/_log/_last_checkpoint"]):
        store.delete(damage)
        assert open_log(store, clock=clock, seed=3).state == log.state


def test_a_hint_to_an_emptied_checkpoint_leads_to_the_newest():
    clock = ManualClock()
    store, log = filled(24, clock)
    assert shorten(log) == 24
    for stale in (4, 20):
        store.put("t/_log/_last_checkpoint", b'{"version": %d}' % stale)
        assert open_log(store, clock=clock, seed=3).state == log.state


def test_a_shortened_log_without_a_readable_checkpoint_is_damaged_not_empty():
    store, log = filled(10)
    shorten(log)
    key = "t/_log/checkpoints/00000000000000000008.arrow"
    store.put(key, store.get(key)[:-1])
    with pytest.raises(CorruptDataError, match="no beginning"):
        open_log(store)


def test_versions_are_found_by_time_in_a_shortened_log():
    clock = ManualClock(1_000)
    store = MemoryStore()
    log = new_log(store, FREQUENT, clock=clock)
    for number in range(1, 20):
        clock.advance_s(1)
        insert(log, number)
    log.commit(lambda _: [AdvanceGcHorizon(12, 12)])
    log.truncate(log.retire_checkpoints(12))
    again = open_log(store, clock=clock)
    assert again.state_at(timestamp_ms=1_000 + 15_500).version == 16
    with pytest.raises(InvalidInputError, match="collected"):
        again.state_at(timestamp_ms=1_000 + 3_000)


def test_a_log_never_goes_back():
    store, log = filled(10)
    store.delete(["t/_log/00000000000000000010.json"])
    log._known = Instant(-1e9, 0)
    with pytest.raises(CorruptDataError, match="ends before"):
        log.refresh()


def test_who_slept_between_finding_a_checkpoint_and_reading_it_finds_another():
    """What was listed is gone, and nothing is damaged."""
    clock = ManualClock()
    store, log = filled(10)
    store.put("t/_log/_last_checkpoint", b"?")

    def meanwhile():
        for number in range(11, 17):
            insert(log, number)
        assert shorten(log) == 16
        store.put("t/_log/_last_checkpoint", b"?")
        clock.sleep_s(LONG_S)

    sleepy = SleepyStore(store, lambda kind, key: kind == "get" and key.endswith("08.arrow"), meanwhile)
    assert open_log(sleepy, clock=clock).state == log.refresh()


def test_a_log_without_a_beginning_is_damaged_for_who_did_not_sleep():
    store, log = filled(10)
    shorten(log)
    store.put("t/_log/checkpoints/00000000000000000008.arrow", b"damaged")
    with pytest.raises(CorruptDataError, match="no beginning"):
        open_log(store)


@pytest.mark.parametrize(("where", "pause_s"), [("build", LONG_S), ("step", LONG_S), ("step", 0)])
def test_what_an_old_state_has_yet_to_read_may_be_gone_and_is_learned_anew(monkeypatch, where, pause_s):
    clock = ManualClock()
    store, log = filled(10, clock)
    machine = type(log._machine)
    gone, step = [CorruptDataError("A segment is gone", object_key="s")], machine.step

    def stumble():
        if gone:
            clock.advance_s(pause_s)
            raise gone.pop()

    def build(state):
        if where == "build":
            stumble()
        return [AddParts((manifest(40, base_version=state.version),))]

    def stumbling(self, *told):
        if where == "step":
            stumble()
        return step(self, *told)

    monkeypatch.setattr(machine, "step", stumbling)
    if not pause_s:
        with pytest.raises(CorruptDataError, match="is gone"):
            log.commit(build)
        return
    before = store.counters.requests
    assert log.commit(build).entry is not None
    assert store.counters.requests - before > 3  # the log was opened anew
    assert open_log(store, clock=clock).state.version == log.state.version
