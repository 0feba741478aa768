"""A store in memory that is read as a bucket is: far away, by rounds of requests that can be counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from mergelake.store.interface.protocol import Buffer, StoreSpec
from mergelake.store.interface.ranges import coalesce
from mergelake.store.metering.meter import Meter
from mergelake.store.objects.memory import MemoryStore

GAP_BYTES = 1 << 20
"""As a bucket joins ranges."""
TICK_S = 0.02
TICKS = 6


class FarStore(MemoryStore):
    """Remembers what was read. While `gated`, no read is answered before it has been quiet for `TICKS` looks: all that
    are answered together are a round. A look that comes late, on a busy machine, does not count as quiet.
    """

    def __init__(self, **options: str) -> None:
        super().__init__(gap=GAP_BYTES)
        self.url = f"far://{self.url.partition('://')[2]}"
        self.spec = StoreSpec.of(self.url, options)
        self._meter = Meter(self.url)
        self._turn = threading.Condition()
        self._waiting = self._bytes_waiting = 0
        self.gated = False
        self.start()

    def start(self) -> None:
        """Forget what was read."""
        self.rounds = 0
        self.asked: list[tuple[str, int, int]] = []
        """(object, start, end) of each request."""
        self.at_once = 0
        """Most requests that waited at once, and"""
        self.bytes_at_once = 0
        """most bytes."""

    def get(self, key: str) -> bytes:
        self._wait([(key, 0, -1)])
        return super().get(key)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        self._wait([(key, fetch.start, fetch.end) for fetch in coalesce(ranges, GAP_BYTES)])
        return super().get_ranges(key, ranges)

    def repeated(self) -> list[tuple[str, int, int]]:
        """Requests for nothing but bytes of parts that were asked for before."""
        seen: list[tuple[str, int, int]] = []
        again = []
        for key, start, end in self.asked:
            if "/_log/" in key or key.startswith("_catalog"):
                continue
            if any(key == other and first <= start and end <= stop for other, first, stop in seen):
                again.append((key, start, end))
            seen.append((key, start, end))
        return again

    def _wait(self, requests: Sequence[tuple[str, int, int]]) -> None:
        if not requests:
            return
        size = sum(max(0, end - start) for _, start, end in requests)
        with self._turn:
            self.asked += requests
            self._waiting += len(requests)
            self._bytes_waiting += size
            self.at_once = max(self.at_once, self._waiting)
            self.bytes_at_once = max(self.bytes_at_once, self._bytes_waiting)
            mine, ticks = self.rounds, 0
            while self.gated and self.rounds == mine:
                came, began = len(self.asked), time.monotonic()
                self._turn.wait(TICK_S)
                ticks = ticks + 1 if came == len(self.asked) and time.monotonic() - began < 2 * TICK_S else 0
                if self.rounds == mine and ticks == TICKS:
                    self.rounds += 1
                    self._turn.notify_all()
            self._waiting -= len(requests)
            self._bytes_waiting -= size
