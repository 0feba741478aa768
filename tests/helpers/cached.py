"""Stores over a cache directory, and what they asked of the one beneath."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mergelake.store.cache.cache_dir import CacheDir
from mergelake.store.cache.cached import CachedStore
from mergelake.store.interface.protocol import Buffer
from mergelake.store.objects.memory import MemoryStore

KEYS = [f"{'5f' * 16}/{number:032x}/ts.bin" for number in range(3)]
"""Keys of objects of parts."""


class Watched(MemoryStore):
    """Remembers what was asked for: (key, start, length)."""

    def __init__(self) -> None:
        super().__init__(gap=0)
        self.asked: list[tuple[str, int, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        self.asked += [(key, start, length) for start, length in ranges]
        self.gate.wait()
        return super().get_ranges(key, ranges)

    def repeated(self) -> set[tuple[str, int]]:
        """Bytes that were asked for more than once, by their positions."""
        seen: dict[str, np.ndarray] = {}
        for key, start, length in self.asked:
            counts = seen.setdefault(key, np.zeros(1 << 22, np.uint16))
            counts[start : start + length] += 1
        return {(key, int(at)) for key, counts in seen.items() for at in np.flatnonzero(counts > 1)}


def filled(sizes: Sequence[int] = (300_000, 70_000, 5)) -> tuple[Watched, dict[str, bytes]]:
    """A store with an object of random bytes for each of `KEYS`; and these."""
    rng = np.random.default_rng(7)
    store, bodies = Watched(), {}
    for key, size in zip(KEYS, sizes, strict=True):
        bodies[key] = rng.integers(0, 256, size, np.uint8).tobytes()
        store.put(key, bodies[key])
    return store, bodies


def over(store: Watched, folder: Path, max_bytes: int = 1 << 30) -> CachedStore:
    """As another process opens it: it knows nothing but what lies in the folder."""
    return CachedStore(store, CacheDir(str(folder), max_bytes))


def files(folder: Path) -> list[Path]:
    """Those that hold bytes of objects."""
    return sorted(path for path in folder.glob("mergelake-1/*/*") if path.is_file())
