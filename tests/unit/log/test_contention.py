"""Many processes commit to one log without a leader: requests, pace and fairness, in virtual time."""

from __future__ import annotations

import pytest

from mergelake.log.model.operations import Tag
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.crowd import commit_all
from tests.helpers.manifests import new_log, open_log, schema_with


def entries(done):
    plain = MemoryStore()
    plain._space = done.store._space
    log = open_log(plain)
    return log, list(log.entries())


def test_a_lone_writer_neither_waits_nor_asks():
    done = commit_all(1, 1e9, commits=200, schema=schema_with(checkpoint_interval=1000))
    assert done.requests.details["put _log"] == 200
    assert done.requests.details["get _log"] == 3  # and a LIST, to open the log
    assert done.requests.details["list _log"] == 1 + 200 // 16  # beside its commits
    assert max(done.took_s[0]) < 1.25 * 0.03


@pytest.mark.parametrize("writers", [1, 4, 16, pytest.param(64, marks=pytest.mark.slow)])
def test_contention_never_takes_the_pace(writers):
    done = commit_all(writers, 20.0 if writers < 64 else 8.0)
    assert done.per_s > 20
    assert done.fairness > 0.5
    assert done.requests.requests / done.count < 6
    took = sorted(each for took in done.took_s for each in took[4:])  # in the first they meet
    assert took[int(0.99 * (len(took) - 1))] < 3 * writers * 0.03
    log, found = entries(done)
    assert log.state.part_count == done.count
    attempts = [member.attempt for entry in found for member in entry.parties]
    assert len(set(attempts)) == len(attempts) == done.count + 1


def test_two_writers_take_turns_that_are_worth_it():
    done = commit_all(2, 20.0)
    assert done.per_s > 0.8 * commit_all(1, 5.0).per_s
    assert done.fairness > 0.7
    assert done.requests.requests / done.count < 3
    took = sorted(each for took in done.took_s for each in took[2:])
    assert took[int(0.99 * (len(took) - 1))] < 7 * 0.03


def test_a_third_writer_is_let_in_by_two():
    done = commit_all(3, 20.0)
    assert done.per_s > 20
    assert done.fairness > 0.7


def test_one_of_two_that_leaves_is_not_waited_for():
    """What the other commits from then on takes one request each, but for a few pauses."""
    done = commit_all(2, 6.0, commits=lambda writer: 20 if writer else 10_000)
    assert len(done.took_s[0]) > 150
    assert max(done.took_s[0][-50:]) < 1.25 * 0.03


def test_writers_that_leave_do_not_hold_up_the_others():
    """Each leaves after a few commits, one of them always while the others count on it."""
    done = commit_all(16, 1e9, commits=5)
    assert done.count == 80
    assert done.seconds < 6


def test_writers_with_something_else_to_do_meet_now_and_then():
    done = commit_all(8, 60.0, rest_s=1.0)
    assert done.p99_s < 1.5
    assert done.fairness > 0.5


def test_a_writer_that_met_others_is_alone_again_after_sixteen_entries():
    store = MemoryStore()
    log = new_log(store)
    log._contention.knocked = ["a third", "a fourth"]
    lists = []
    for number in range(20):
        before = store.counters
        log.commit(lambda _, number=number: [Tag(f"tag {number}", 1)])
        lists.append((store.counters - before).list)
    assert sum(lists) == 16
    assert lists[-4:] == [0] * 4
