"""Where deliberate mistakes are registered, and how they are made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

Patch: TypeAlias = Callable[[], AbstractContextManager[object]]
BUGS: dict[str, Patch] = {}


def bug(make: Patch) -> Patch:
    BUGS[make.__name__] = make
    return make


@contextlib.contextmanager
def both(*patches: AbstractContextManager[object]) -> Iterator[None]:
    """All of these at once."""
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield
