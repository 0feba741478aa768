"""Where deliberate mistakes are registered, and how they are made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias
from unittest import mock

from mergelake.log.model import conflict
from mergelake.log.model.conflict import Reject

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


def allowed(name: str, reason: str) -> AbstractContextManager[object]:
    """A precondition of `conflict` is not asked for."""
    real = getattr(conflict, name)

    def careless(*arguments: object) -> Reject | None:
        found = real(*arguments)
        return None if isinstance(found, Reject) and reason in found.reason else found

    return mock.patch.object(conflict, name, careless)
