"""The objects of a log's segments: written once under a random name, read with one retry, and noted if they are bad."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from mergelake.core.base.errors import CorruptDataError, NotFoundError, UnavailableError
from mergelake.store.interface.protocol import Store, Stored

T = TypeVar("T")


class SegmentObjects:
    """The segments under `<prefix>/checkpoints`."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.prefix = f"{prefix}/checkpoints"
        self.bad: set[str] = set()
        """Names of those that could not be read; they are not used again."""

    def key(self, name: str) -> str:
        """Key of a segment."""
        return f"{self.prefix}/{name}"

    def create(self, name: str, data: bytes) -> None:
        """Write a segment; UnavailableError if the outcome is unknown."""
        outcome = self.store.create(self.key(name), data)
        if not isinstance(outcome, Stored):
            raise UnavailableError(f"It is not known whether segment {self.key(name)} was written: {outcome}")

    def read(self, name: str, load: Callable[[str], T]) -> T:
        """The result of `load` for the segment's key. Damaged data is read twice: it may have been damaged in transit.

        Raises NotFoundError and CorruptDataError; then the segment is `bad`.
        """
        with self.noted(name):
            with suppress(CorruptDataError):
                return load(self.key(name))
            return load(self.key(name))

    @contextmanager
    def noted(self, name: str) -> Iterator[None]:
        """Note a segment as `bad` if reading it within fails."""
        try:
            yield
        except (NotFoundError, CorruptDataError):
            self.bad.add(name)
            raise
