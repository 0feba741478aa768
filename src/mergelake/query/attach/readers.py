"""Which statements read attached tables now: requests of ClickHouse to the endpoint do not say for which they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mergelake.store.metering.meter import Tally, current_tally


class Readers:
    """The statements that read attached tables, by the directory of the table. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: dict[str, list[Tally]] = {}

    @contextmanager
    def reading(self, directory: str) -> Iterator[None]:
        """Note within the context that the operation of this thread reads the table."""
        tally = current_tally()
        if tally is None:
            yield
            return
        with self._lock:
            self._reading.setdefault(directory, []).append(tally)
        try:
            yield
        finally:
            with self._lock:
                self._reading[directory].remove(tally)
                if not self._reading[directory]:
                    del self._reading[directory]

    def first(self, directory: str) -> Tally | None:
        """The statement for which a request about the table counts: the one that began first, if several read it."""
        with self._lock:
            return next(iter(self._reading.get(directory, ())), None)


READERS = Readers()
"""Those of this process."""
