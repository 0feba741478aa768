"""Concurrent calls to a store: several at once, or one in the background.

While the interpreter shuts down no thread can be started; then the calling thread does the work itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from mergelake.store.metering.meter import Pool

T = TypeVar("T")
R = TypeVar("R")


def at_once(call: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """The result of `call` for each item, in order, by up to `threads` threads."""
    if len(items) <= 1 or threads <= 1:
        return [call(item) for item in items]
    with Pool(min(threads, len(items))) as pool:
        try:
            results = pool.map(call, items)
        except RuntimeError:
            return [call(item) for item in items]
        return list(results)


def apart(work: Callable[[], None], name: str) -> None:
    """Run `work` in a thread of its own, which the process joins at its end."""
    try:
        threading.Thread(target=partial(copy_context().run, work), name=name).start()
    except RuntimeError:
        work()
