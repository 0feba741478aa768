"""Threads that commit while an append is under way share the next entry."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import ConflictError, UnavailableError
from mergelake.core.base.ids import RandomIds
from mergelake.log.commit import group
from mergelake.log.model.operations import AddParts, DropRange, Publish
from mergelake.store.interface.protocol import OutcomeUnknown
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log

SECONDS = 20


class GatedStore(MemoryStore):
    """Once closed, it holds each `create` until it is let through."""

    def __init__(self):
        super().__init__()
        self.closed = False
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.after = lambda outcome: outcome

    def create(self, key, data):
        if self.closed:
            self.entered.release()
            assert self.gate.acquire(timeout=SECONDS)
        return self.after(super().create(key, data))


@pytest.fixture
def store():
    return GatedStore()


@pytest.fixture
def log(store):
    return new_log(store)


def adding(part_id, **fields):
    return lambda _: [AddParts((manifest(part_id),), **fields)]


def together(store, log, first, *builds):
    """Commit `first`; while its append is under way all of `builds`, in order. The outcomes, errors included."""
    store.closed = True
    with ThreadPoolExecutor(len(builds) + 1) as pool:
        futures = [pool.submit(log.commit, first)]
        assert store.entered.acquire(timeout=SECONDS)
        for number, build in enumerate(builds, 1):
            futures.append(pool.submit(log.commit, build))
            while len(log._line) < number:
                pass
        store.closed = False
        store.gate.release()
        return [future.exception(SECONDS) or future.result() for future in futures]


def test_what_waits_for_an_append_goes_into_one_entry(store, log):
    before = store.counters.put
    outcomes = together(store, log, adding(1), adding(2), adding(3), adding(4))
    assert [outcome.version for outcome in outcomes] == [2, 3, 3, 3]
    assert store.counters.put - before == 2
    assert [len(entry.ops) for entry in log.entries(1, 3)] == [1, 1, 3]
    assert log.state == open_log(store).state


def test_each_caller_gets_the_state_right_after_its_own_operations(store, log):
    outcomes = together(store, log, adding(1), adding(2), lambda _: [DropRange()], adding(3))
    names = [[part.name for part in outcome.state.parts()] for outcome in outcomes]
    assert names == [["all_1_1_0"], ["all_1_1_0", "all_2_2_0"], [], ["all_3_3_0"]]
    assert [outcome.state.version for outcome in outcomes] == [2, 3, 3, 3]


def test_each_is_judged_on_what_those_before_it_leave(store, log):
    seen = []

    def second(state):
        seen.append((state.version, [part.name for part in state.parts()]))
        return [Publish(manifest(9), tuple(part.manifest.id for part in state.parts()))]

    outcomes = together(store, log, adding(1), adding(2), second)
    assert seen == [(2, ["all_1_1_0", "all_2_2_0"])]
    assert outcomes[2].version == 3
    assert [part.name for part in open_log(store).state.parts()] == ["all_1_2_1"]


def test_one_that_is_refused_or_raises_fails_alone(store, log):
    def broken(_):
        raise RuntimeError("a mistake")

    outcomes = together(store, log, adding(1), adding(2), adding(1), broken, lambda _: [], adding(3))
    assert isinstance(outcomes[2], ConflictError)
    assert isinstance(outcomes[3], RuntimeError)
    assert outcomes[4].entry is None
    assert [outcomes[n].version for n in (1, 5)] == [3, 3]
    assert log.state.part_count == 3


def test_a_token_counts_within_the_group(store, log):
    def once(part_id):
        return lambda state: [] if "token" in state.tokens else [AddParts((manifest(part_id),), dedup_token="token")]

    outcomes = together(store, log, adding(1), once(2), once(3))
    assert outcomes[2].entry is None
    assert outcomes[2].version == outcomes[2].state.tokens["token"].version == 3
    assert log.state.part_count == 2


def test_a_lost_race_is_judged_anew_for_all_of_them(store, log):
    other = open_log(store, seed=1)
    calls = []

    def build(state):
        calls.append([part.name for part in state.parts()])
        if len(calls) == 1:
            store.closed = False
            other.refresh()
            other.commit(adding(7))
        return [AddParts((manifest(2),))]

    def merge(state):
        return [Publish(manifest(9), tuple(part.manifest.id for part in state.parts())[-1:])]

    outcomes = together(store, log, adding(1), build, merge)
    assert [outcome.version for outcome in outcomes] == [2, 4, 4]
    assert [outcome.races_lost for outcome in outcomes] == [0, 1, 1]
    assert calls == [["all_1_1_0"], ["all_1_1_0", "all_2_2_0"]]
    assert [part.name for part in log.state.parts()] == ["all_1_1_0", "all_2_2_0", "all_3_3_1"]


def test_all_hear_of_an_unknown_outcome_but_those_who_were_refused(store, log):
    def silent(_):
        raise UnavailableError("cut off")

    first = adding(1)

    def then_silent(state):
        store.get = silent
        store.after = lambda _: OutcomeUnknown("cut off")
        return adding(2)(state)

    outcomes = together(store, log, first, then_silent, adding(3), adding(1))
    assert outcomes[0].version == 2
    assert [type(outcome) for outcome in outcomes[1:]] == [UnavailableError, UnavailableError, ConflictError]
    assert "not known whether version 3" in str(outcomes[2])


def test_a_group_is_bounded_by_callers_and_bytes(store, log, monkeypatch):
    monkeypatch.setattr("mergelake.log.commit.group.CALLERS_MAX", 3)
    outcomes = together(store, log, *(adding(n) for n in range(1, 9)))
    assert [outcome.version for outcome in outcomes] == [2, 3, 3, 3, 4, 4, 4, 5]
    monkeypatch.setattr(group, "BYTES_MAX", 1000)
    outcomes = together(store, log, *(adding(n) for n in range(11, 17)))
    assert [outcome.version for outcome in outcomes] == sorted(outcome.version for outcome in outcomes)
    assert outcomes[-1].version > 7
    assert open_log(store).state.part_count == 14


def test_one_writer_alone_is_asked_once_and_writes_once(store, log):
    asked = []
    before = store.counters

    def build(state):
        asked.append(state)
        return adding(1)(state)

    state = log.state
    committed = log.commit(build)
    assert asked == [state]
    assert committed.state is log.state
    assert (store.counters - before).requests == 1


def test_an_interrupted_thread_leaves_no_other_one_waiting(store, log):
    class Interrupt(BaseException):
        pass

    def interrupted(_):
        raise Interrupt

    store.closed = True
    heard = []

    def run(build):
        try:
            log.commit(build)
        except BaseException as failure:
            heard.append(type(failure).__name__)

    threads = [threading.Thread(target=run, args=(build,)) for build in (adding(1), interrupted, adding(2), adding(3))]
    threads[0].start()
    assert store.entered.acquire(timeout=SECONDS)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        while len(log._line) < number:
            pass
    store.closed = False
    store.gate.release()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert "Interrupt" in heard
    assert log.state == open_log(store).state


def test_a_process_reads_what_it_wrote():
    store = MemoryStore()
    log = new_log(store, clock=SystemClock())

    def work(first):
        for number in range(first, first + 20):
            version = log.commit(adding(number)).version
            state = log.refresh() if number % 2 else log.state
            assert state.version >= version
            assert f"{number:032x}" in {part.manifest.id for part in state.parts()}

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work, 1 + 20 * n) for n in range(8)]:
            future.result()
    assert log.state.part_count == 160


def test_threads_that_look_at_once_share_a_request():
    class Slow(MemoryStore):
        def get(self, key):
            try:
                return super().get(key)
            finally:
                clock.sleep_s(0.02)

    clock = SystemClock()
    store = Slow()
    log = new_log(store, clock=clock)
    before = store.counters.get
    with ThreadPoolExecutor(16) as pool:
        states = list(pool.map(lambda _: log.refresh(), range(16)))
    assert len(set(map(id, states))) == 1
    assert store.counters.get - before <= 4


@pytest.mark.parametrize("shared", [True, False], ids=["threads", "processes"])
def test_none_of_32_writers_starves(shared):
    """Each of 32 writers commits without pause on a store of 2 ms; nobody loses more than half of what it may."""

    class Slow(MemoryStore):
        def _wait(self):
            clock.sleep_s(0.002)

        def create(self, key, data):
            self._wait()
            outcome = super().create(key, data)
            self._wait()
            return outcome

        def get(self, key):
            self._wait()
            return super().get(key)

    clock = SystemClock()
    store = Slow()
    log = new_log(store, clock=clock)

    def work(writer):
        own = log if shared else open_log(store, clock=clock, ids=RandomIds())
        return [own.commit(adding(1000 * writer + n)).races_lost for n in range(6)]

    with ThreadPoolExecutor(32) as pool:
        lost = [races for races_of in pool.map(work, range(1, 33)) for races in races_of]
    state = open_log(store).state
    assert state.part_count == 32 * 6
    assert max(lost) < 50
    assert state.version < 60 if shared else state.version <= 193


def test_a_thread_that_is_stopped_while_it_waits_is_not_waited_for(store, log, monkeypatch):
    """Signals reach a waiting thread as exceptions; here its event raises one."""

    class Stop(BaseException):
        pass

    class Signalled(threading.Event):
        def wait(self, timeout=None):
            super().wait(SECONDS)
            if threading.current_thread().name == "stopped":
                raise Stop

    monkeypatch.setattr("mergelake.log.commit.group.threading.Event", Signalled)
    outcomes = []

    def run(build):
        try:
            outcomes.append(log.commit(build).version)
        except Stop:
            outcomes.append("stopped")

    store.closed = True
    names = ("first", "stopped", "third", "fourth")  # the second would lead next
    threads = [threading.Thread(target=run, args=(adding(n),), name=name) for n, name in enumerate(names, 1)]
    threads[0].start()
    assert store.entered.acquire(timeout=SECONDS)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        while len(log._line) < number:
            pass
    store.closed = False
    store.gate.release()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert sorted(map(str, outcomes)) == ["2", "3", "3", "stopped"]
    assert log.commit(adding(9)).version == 4


def test_a_look_that_failed_is_nobodys_look():
    class Failing(MemoryStore):
        def __init__(self):
            super().__init__()
            self.entered, self.gate = threading.Semaphore(0), threading.Semaphore(0)
            self.fails = False

        def get(self, key):
            if self.fails:
                self.fails = False
                self.entered.release()
                assert self.gate.acquire(timeout=SECONDS)
                raise UnavailableError("cut off")
            return super().get(key)

    store = Failing()
    log = new_log(store)
    open_log(store, seed=1).commit(adding(1))
    store.fails = True
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(log.refresh)
        assert store.entered.acquire(timeout=SECONDS)
        second = pool.submit(log.refresh)
        store.gate.release()
        assert isinstance(first.exception(SECONDS), UnavailableError)
        assert second.result(SECONDS).version == 2
