"""A command that ends on a signal gives the signal back."""

from __future__ import annotations

import os
import signal

from mergelake.api.cli.signals import counted_interrupts, stop_on_signals


def test_signals_set_the_event_and_do_afterwards_what_they_did_before() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        with stop_on_signals() as stop:
            assert not stop.is_set()
            os.kill(os.getpid(), number)
            assert stop.wait(5)
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_flood_of_signals_hangs_nothing() -> None:
    with stop_on_signals() as stop:
        for _ in range(2000):
            signal.raise_signal(signal.SIGINT)
            stop.is_set()
        assert stop.wait(5)
    with counted_interrupts() as interrupted:
        assert not interrupted()
        for _ in range(2000):
            signal.raise_signal(signal.SIGINT)
        assert interrupted()
