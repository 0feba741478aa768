"""The bytes of a few steps of a read, fetched together and sliced without copying."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from mergelake.core.base.errors import InternalError
from mergelake.core.model.manifest import PartFile
from mergelake.parts.read.fetch import FileRange, fetch
from mergelake.store.interface.protocol import Buffer, Store


class ReadWindow:
    """Ranges of files in memory; other ranges may be in the window `under` it."""

    def __init__(self, ranges: Sequence[FileRange], bodies: Sequence[Buffer], under: ReadWindow | None = None) -> None:
        self._under = under
        self._starts: dict[str, list[int]] = {}
        self._bodies: dict[str, list[memoryview]] = {}
        for part, body in zip(ranges, bodies, strict=True):
            self._starts.setdefault(part.name, []).append(part.start)
            self._bodies.setdefault(part.name, []).append(memoryview(body))

    def get(self, name: str, start: int, end: int) -> memoryview:
        """Bytes [start, end) of a file; the window must cover them."""
        if start == end:
            return memoryview(b"")
        at = self._place(name, start, end)
        if at < 0:
            if self._under is None:
                raise InternalError(f"Bytes {start} to {end} of {name} were not fetched")
            return self._under.get(name, start, end)
        base = self._starts[name][at]
        return self._bodies[name][at][start - base : end - base]

    def covers(self, part: FileRange) -> bool:
        """Whether `get` can return these bytes."""
        here = self._place(part.name, part.start, part.end) >= 0
        return here or (self._under is not None and self._under.covers(part))

    def _place(self, name: str, start: int, end: int) -> int:
        """Index of the file's body that has these bytes; -1 if there is none."""
        at = bisect_right(self._starts.get(name, ()), start) - 1
        return at if at >= 0 and end <= self._starts[name][at] + len(self._bodies[name][at]) else -1


def fetch_window(
    store: Store,
    directory: str,
    files: Mapping[str, PartFile],
    wanted: Sequence[FileRange],
    under: ReadWindow | None = None,
    gap: int | None = None,
) -> ReadWindow:
    """Fetch ranges that may overlap, each byte once, without those that `under` covers. `gap` as of `PartRanges`."""
    ranges = merge_ranges(wanted)
    if under is not None:
        ranges = [part for part in ranges if not under.covers(part)]
        if not ranges:
            return under
    return ReadWindow(ranges, fetch(store, directory, files, ranges, gap), under)


def merge_ranges(wanted: Sequence[FileRange]) -> list[FileRange]:
    """Ranges in the order of file and start; overlapping and adjacent ones are joined.

    >>> merge_ranges([FileRange("a", 5, 9), FileRange("a", 0, 6), FileRange("a", 10, 11)])
    [FileRange(name='a', start=0, end=9), FileRange(name='a', start=10, end=11)]
    """
    merged: list[FileRange] = []
    for part in sorted(wanted, key=lambda part: (part.name, part.start, part.end)):
        last = merged[-1] if merged else None
        if last is not None and last.name == part.name and part.start <= last.end:
            merged[-1] = FileRange(last.name, last.start, max(last.end, part.end))
        elif part.start < part.end:
            merged.append(part)
    return merged


def plain_bytes(blocks: memoryview) -> int:
    """Plain bytes that compressed blocks claim to hold, from their headers; broken ones end the count."""
    at = total = 0
    while at + 25 <= len(blocks):
        packed = int.from_bytes(blocks[at + 17 : at + 21], "little")
        total += int.from_bytes(blocks[at + 21 : at + 25], "little")
        if packed < 9:
            break
        at += 16 + packed
    return total
