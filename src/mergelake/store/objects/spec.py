"""`StoreSpec`: a URL and its options as a small picklable value, to open the same store elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mergelake.store.objects.protocol import Store

_SECRET_WORDS = ("secret", "key", "token", "password", "sas")
_opened: dict[tuple[int, StoreSpec], Store] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """Where a store is and how to reach it. A Spark task gets this, not a `Store`.

    `options` are complete: they include what `open_store` read from the environment of the first process,
    also credentials, as other processes may have another environment. `repr` hides secrets.
    """

    url: str
    options: tuple[tuple[str, str], ...] = ()
    """Sorted pairs."""

    @staticmethod
    def of(url: str, options: Mapping[str, str] | None = None) -> StoreSpec:
        """The spec with `options` in canonical order."""
        return StoreSpec(url, tuple(sorted((options or {}).items())))

    def open(self) -> Store:
        """The store, one instance per process and spec.

        The cache is keyed by process id: a forked child must not use its parent's connections.
        """
        from mergelake.store import open_store

        slot = (os.getpid(), self)
        with _lock:
            if slot not in _opened:
                _opened[slot] = open_store(self.url, dict(self.options))
            return _opened[slot]

    def __repr__(self) -> str:
        shown = {k: "***" if any(word in k for word in _SECRET_WORDS) else v for k, v in self.options}
        return f"StoreSpec({self.url!r}, {shown!r})"
