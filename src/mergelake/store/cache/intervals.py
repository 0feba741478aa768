"""A set of disjoint intervals of the bytes of an object. Pure.

Intervals are half-open, (start, end), in bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Spanning(Protocol):
    """A value with an interval."""

    @property
    def start(self) -> int:
        """First byte."""
        ...

    @property
    def end(self) -> int:
        """Position after the last byte."""
        ...


T = TypeVar("T", bound=Spanning)


class Intervals(Generic[T]):
    """Values with disjoint intervals, in order."""

    __slots__ = ("_ends", "_held", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._held: list[T] = []

    def __len__(self) -> int:
        return len(self._held)

    def add(self, item: T) -> bool:
        """Add a value; returns False, and does nothing, if its interval is empty or overlaps another."""
        at = bisect_right(self._starts, item.start)
        free = at == 0 or self._ends[at - 1] <= item.start
        if item.start >= item.end or not free or (at < len(self._starts) and self._starts[at] < item.end):
            return False
        self._starts.insert(at, item.start)
        self._ends.insert(at, item.end)
        self._held.insert(at, item)
        return True

    def remove(self, item: T) -> None:
        """Remove a value, which must be in the set."""
        at = bisect_right(self._starts, item.start) - 1
        del self._starts[at], self._ends[at], self._held[at]

    def cover(self, start: int, end: int) -> list[tuple[int, int, T | None]]:
        """The interval cut at the bounds of the values: (start, end, the value that covers it, or None), in order."""
        pieces: list[tuple[int, int, T | None]] = []
        at, index = start, bisect_right(self._ends, start)
        while at < end:
            if index == len(self._held) or self._starts[index] >= end:
                pieces.append((at, end, None))
                break
            if self._starts[index] > at:
                pieces.append((at, self._starts[index], None))
                at = self._starts[index]
            stop = min(end, self._ends[index])
            pieces.append((at, stop, self._held[index]))
            at, index = stop, index + 1
        return pieces

    def __iter__(self) -> Iterator[T]:
        return iter(self._held)
