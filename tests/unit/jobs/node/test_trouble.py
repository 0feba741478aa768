"""Pauses, blocks to stay away from, volatile parts to give up."""

from __future__ import annotations

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import UnavailableError
from mergelake.core.model.names import PartInfo
from mergelake.jobs.node.failures import AVOID_S, BACKOFF_MAX_S, FailureTracker

INFO = PartInfo.parse("all_1_5_1")


def test_pauses_grow_to_a_minute_and_are_short_again_after_a_success():
    trouble = FailureTracker(ManualClock())
    assert not trouble.waits
    assert [trouble.pause() for _ in range(8)] == [1, 2, 4, 8, 16, 32, BACKOFF_MAX_S, BACKOFF_MAX_S]
    assert trouble.waits
    trouble.over()
    assert trouble.pause() == 1


def test_what_fails_three_times_is_given_up_and_its_blocks_are_left_alone_for_a_while():
    clock = ManualClock()
    trouble = FailureTracker(clock)
    for _ in range(2):
        trouble.build_failed("v", INFO, MemoryError())
    trouble.built("v")
    for _ in range(2):
        trouble.build_failed("v", INFO, MemoryError())
    assert not trouble.failed
    trouble.build_failed("v", INFO, MemoryError())
    assert trouble.failed == {"v"}
    assert trouble.avoided() == (INFO,)
    trouble.forget(["v"])
    assert trouble.failed == {"v"}
    trouble.forget([])
    assert not trouble.failed
    clock.advance_s(AVOID_S)
    assert trouble.avoided() == ()


def test_a_store_that_is_silent_for_a_while_makes_nobody_give_up():
    trouble = FailureTracker(ManualClock())
    for _ in range(9):
        trouble.build_failed("v", INFO, UnavailableError("no answer"))
    assert not trouble.failed
    trouble.build_failed("v", INFO, UnavailableError("no answer"))
    assert trouble.failed == {"v"}
