"""A command that ends on a signal gives the signal back."""

from __future__ import annotations

import os
import signal

from mergelake.cli.signals import stop_on_signals


def test_signals_set_the_event_and_do_afterwards_what_they_did_before() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        with stop_on_signals() as stop:
            assert not stop.is_set()
            os.kill(os.getpid(), number)
            assert stop.wait(5)
    assert {number: signal.getsignal(number) for number in before} == before
