"""`Meter`: the thread-safe counters behind `Store.counters`."""

from __future__ import annotations

import dataclasses
import threading
from typing import Literal

from mergelake.store.protocol import Counters

Kind = Literal["put", "get", "list", "head", "delete"]


def key_class(key: str) -> str:
    """The class under which a key is counted: its first segment with a leading `_`, else `data`.

    >>> key_class("5f/_log/00042.json"), key_class("5f/all_1_1_0/a.bin"), key_class("_catalog/_log/1.json")
    ('_log', 'data', '_catalog')
    """
    return next((segment for segment in key.split("/") if segment.startswith("_")), "data")


class Meter:
    """Counts requests and bytes; `counters` is a copy that later requests do not change."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._lock = threading.Lock()

    @property
    def counters(self) -> Counters:
        """Requests and bytes so far."""
        with self._lock:
            return dataclasses.replace(self._counters, details=dict(self._counters.details))

    def count(self, kind: Kind, key: str, *, requests: int = 1, sent: int = 0, received: int = 0) -> None:
        """Add `requests` of one kind about `key`, with the bytes that they moved."""
        detail = f"{kind} {key_class(key)}"
        with self._lock:
            counters = self._counters
            setattr(counters, kind, getattr(counters, kind) + requests)
            counters.bytes_put += sent
            counters.bytes_get += received
            counters.details[detail] = counters.details.get(detail, 0) + requests

    def retried(self) -> None:
        """Add a retry (its request is counted apart)."""
        with self._lock:
            self._counters.retries += 1
