"""Optimistic reads: read the known versions while checking that they are the newest; the two round trips overlap.

A statement on a far store first checks for new versions and then reads data. If nothing was new the last time, it does
both at once: the result counts once the check confirms that the newest versions were read. Otherwise the result, or
its error, is discarded, and the statement runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from mergelake.core.base.cancel import CancelToken, current, running
from mergelake.core.base.errors import MergelakeError

T = TypeVar("T")


def read_beside(read: Callable[[], T], is_newest: Callable[[], bool], discard: Callable[[T], None]) -> T | None:
    """The result of `read` if `is_newest`, which runs at the same time, returns true; else None.

    In the latter case `read` is cancelled, or its result is passed to `discard`. An error of `read` is raised only if
    `is_newest` returns true.
    """
    statement = current()
    reading = CancelToken() if statement is None else statement.part()
    executor = ThreadPoolExecutor(1, "mergelake-news")
    newest = executor.submit(copy_context().run, is_newest)
    executor.shutdown(wait=False)
    newest.add_done_callback(lambda done: reading.set() if done.exception() or not done.result() else None)
    try:
        with running(reading):
            answer = read()
    except MergelakeError:
        if statement is not None:
            statement.check()
        if newest.result():
            raise
        return None
    try:
        if newest.result():
            return answer
    except MergelakeError:
        discard(answer)
        raise
    discard(answer)
    return None
