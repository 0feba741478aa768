"""Sources of identifiers, which are passed as arguments. Only this module generates random ones."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Protocol


class IdSource(Protocol):
    """Protocol of sources of identifiers."""

    def new_id(self) -> str:
        """A new, unique id of 32 hex digits."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1), to spread retries."""
        ...


def seed_of(ids: IdSource) -> Callable[[], int]:
    """Numbers of 128 bits, each fresh, for generators of random values."""
    return lambda: int(ids.new_id(), 16)


class RandomIds:
    """Random identifiers from the operating system."""

    def new_id(self) -> str:
        """A new id of 32 hex digits."""
        return uuid.uuid4().hex

    def jitter(self) -> float:
        """A number in [0, 1)."""
        return random.random()


class SeededIds:
    """Reproducible identifiers, for tests and the simulation."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def new_id(self) -> str:
        """The next 32-digit hex id of this seed."""
        return f"{self._random.getrandbits(128):032x}"

    def jitter(self) -> float:
        """The next number in [0, 1) of this seed."""
        return self._random.random()
