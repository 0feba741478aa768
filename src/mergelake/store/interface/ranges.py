"""Coalescing of byte ranges: near ones share a request. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mergelake.core.base.errors import CorruptDataError, InvalidInputError
from mergelake.store.interface.protocol import Buffer


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request: `length` bytes from `start`; `wanted` are the indexes of the ranges in it."""

    start: int
    length: int
    wanted: tuple[int, ...]

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.start + self.length


def coalesce(ranges: Sequence[tuple[int, int]], gap: int) -> list[Fetch]:
    """Requests that cover every (start, length), in order of start, joined across gaps of up to `gap` bytes.

    Empty ranges need no request and appear in none. `InvalidInputError` for a negative start or length.

    >>> coalesce([(100, 10), (0, 10), (15, 5)], gap=8)
    [Fetch(start=0, length=20, wanted=(1, 2)), Fetch(start=100, length=10, wanted=(0,))]
    """
    if any(start < 0 or length < 0 for start, length in ranges):
        raise InvalidInputError("a byte range cannot have a negative start or length", name="BAD_ARGUMENTS")
    fetches: list[Fetch] = []
    for index in sorted((i for i, (_, length) in enumerate(ranges) if length), key=lambda i: ranges[i]):
        start, length = ranges[index]
        last = fetches[-1] if fetches else None
        if last is not None and start - last.end <= gap:
            end = max(last.end, start + length)
            fetches[-1] = Fetch(last.start, end - last.start, (*last.wanted, index))
        else:
            fetches.append(Fetch(start, length, (index,)))
    return fetches


def scatter(ranges: Sequence[tuple[int, int]], fetches: Sequence[Fetch], bodies: Sequence[Buffer]) -> list[Buffer]:
    """The bytes of each wanted range, cut without copying from the bodies of the requests."""
    results: list[Buffer] = [b""] * len(ranges)
    for fetch, body in zip(fetches, bodies, strict=True):
        view = memoryview(body)
        for index in fetch.wanted:
            start, length = ranges[index]
            results[index] = view[start - fetch.start : start - fetch.start + length]
    return results


def truncated(key: str, start: int, length: int, available: int) -> CorruptDataError:
    """The error for an object that ends inside a range that should be there."""
    return CorruptDataError(
        "the object is shorter than its metadata says",
        name="CANNOT_READ_ALL_DATA",
        object_key=key,
        offset=start,
        expected=f"{length} bytes",
        found=f"{max(available, 0)} bytes",
    )
