"""Signals that end commands and statements.

A signal handler interrupts whatever the main thread does, even another handler, so it must not take a lock: to set an
`Event` in it would hang the process if the main thread were inside of a method of that `Event`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set. Their previous handlers are restored afterwards."""
    stop = threading.Event()
    stop_requests: SimpleQueue[bool] = SimpleQueue()  # its `put` is reentrant

    def pass_on() -> None:
        if stop_requests.get():
            stop.set()

    threading.Thread(target=pass_on, name="mergelake-signals", daemon=True).start()
    before = {
        number: signal.signal(number, lambda *_: stop_requests.put(True)) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop_requests.put(False)


@contextmanager
def counted_interrupts() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C was pressed, which interrupts nothing; false outside of the main thread."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
