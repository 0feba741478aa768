"""Reading what is known while asking whether it is the newest: one wait for two round trips.

A statement on a far store asks for news and then for data. Where nothing was new the last time, it does both at once:
an answer counts once the reply says that it was read from the newest versions. Else it is thrown away, and so are its
errors, and the statement runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from mergelake.core.cancel import CancelToken, current, running
from mergelake.core.errors import MergelakeError

T = TypeVar("T")


def read_beside(read: Callable[[], T], ask: Callable[[], bool], discard: Callable[[T], None]) -> T | None:
    """What `read` gives, if `ask` finds meanwhile that it reads what is newest; None if it does not.

    Then `read` is cancelled, or what it gave goes to `discard`. Its error is raised only where `ask` is true.
    """
    statement = current()
    reading = CancelToken() if statement is None else statement.part()
    asked = ThreadPoolExecutor(1, "mergelake-news")
    newest = asked.submit(copy_context().run, ask)
    asked.shutdown(wait=False)
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
