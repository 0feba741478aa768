"""Calls that wait for a store: side by side, or apart from who has no use for the answer.

At the end of a process, while its last threads finish, none can be started: then work is done where it is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def at_once(call: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """What a call that waits for the store gives for each item, by several threads."""
    if len(items) <= 1 or threads <= 1:
        return [call(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        try:
            found = pool.map(call, items)
        except RuntimeError:
            return [call(item) for item in items]
        return list(found)


def apart(work: Callable[[], None], name: str) -> None:
    """Do it in a thread of its own, which the process waits for at its end."""
    try:
        threading.Thread(target=partial(copy_context().run, work), name=name).start()
    except RuntimeError:
        work()
