"""How a command, or a statement, that goes on until it is told to end hears that.

A handler runs in the middle of whatever the main thread does, another handler included. So it takes no lock: an
`Event` that is set there hangs the process when the thread is just inside of it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; what they did before, they do again afterwards."""
    stop = threading.Event()
    told: SimpleQueue[bool] = SimpleQueue()  # its `put` is reentrant

    def pass_on() -> None:
        if told.get():
            stop.set()

    threading.Thread(target=pass_on, name="mergelake-signals", daemon=True).start()
    before = {number: signal.signal(number, lambda *_: told.put(True)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        told.put(False)


@contextmanager
def counted_interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed meanwhile; it interrupts nothing. Outside of the main thread, nobody hears of it."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
