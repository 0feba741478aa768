"""The row order of a merge's result, one or two bytes a row.

Every source is read in its own order, so the order is determined by the source of each row, and whether the row
stays. It is recorded once, from the key columns, and replayed for each other column.
Up to 64 MiB are kept in memory; a longer order goes to an unlinked temporary file and is mapped.

Source of the idea: ClickHouse, `RowSourcePart` of `src/Processors/Merges/Algorithms/`.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mergelake.core.jit.intrinsics import kernel
from mergelake.engines.order.merging import MergeStep
from mergelake.engines.rules.mode import KeepStream, KeySplitter

_MEMORY_BYTES = 64 << 20
Entry = np.dtype[np.uint8] | np.dtype[np.uint16]
Entries = NDArray[Any]
"""uint8, or uint16 for more than 127 sources; shape (rows of all sources,)."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The recorded order."""

    entries: Entries
    """For each row of the sources, in merge order: the source's index, plus `dropped` if the row is left out."""
    dropped: int
    """The bit of a row that is left out: 128, or 32768 for more than 127 sources."""
    rows: int
    """Rows of the result."""
    combined: RowOrder | None = None
    """Of an engine that combines rows: the order with those that are removed; None: none is."""
    removed: NDArray[np.bool_] | None = None
    """Of each row of `combined` whether it is removed."""
    _all: NDArray[np.int64] | None = field(default=None, init=False, repr=False, compare=False)

    def spans(self, rows: int) -> Iterator[Entries]:
        """The entries, `rows` at a time."""
        for start in range(0, len(self.entries), rows):
            yield self.entries[start : start + rows]

    def counts(self, entries: Entries, sources: int) -> NDArray[np.int64]:
        """Rows of each source in a span, dropped ones included; last, the number of rows that stay.

        The result for the whole order is computed once, as each column of a small merge needs it.
        """
        if len(entries) < len(self.entries):
            return count_rows(entries, sources, self.dropped)
        counts = self._all
        if counts is None:
            counts = count_rows(entries, sources, self.dropped)
            object.__setattr__(self, "_all", counts)
        return counts


def record_order(
    steps: Iterable[MergeStep],
    sources: int,
    stream: KeepStream | None = None,
    parts: NDArray[np.int64] | None = None,
) -> RowOrder:
    """Record the order of `steps` over `sources` sorted runs; `stream` decides which rows stay, None: all.

    `parts` has a number for each source, as a `KeySplitter` needs it; None: keys are not split.
    """
    splitter = KeySplitter()
    narrow = sources <= 127
    dtype: Entry = np.dtype(np.uint8) if narrow else np.dtype(np.uint16)
    dropped = 128 if narrow else 32768
    log = ByteLog()
    rows = 0
    waiting: deque[NDArray[np.uint16]] = deque()

    def settle(keeps: list[NDArray[np.bool_]]) -> None:
        nonlocal rows
        for keep in keeps:
            rows += int(keep.sum())
            log.append((waiting.popleft() | np.where(keep, 0, dropped)).astype(dtype))

    for step in steps:
        if not len(step.runs):
            continue
        if stream is not None:
            waiting.append(step.runs)
            repeats = step.repeats if parts is None else splitter.push(step.repeats, parts[step.runs])
            settle(stream.push(repeats, step.ranks))
        else:
            rows += len(step.runs)
            log.append(step.runs.astype(dtype))
    if stream is not None:
        settle(stream.finish())
    return RowOrder(log.view(dtype), dropped, rows)


@kernel
def _add_counts(entries: Any, dropped: int, counts: NDArray[np.int64]) -> None:
    for i in range(len(entries)):
        entry = entries[i]
        counts[entry & (dropped - 1)] += 1
        counts[len(counts) - 1] += entry < dropped


def count_rows(entries: Entries, sources: int, dropped: int) -> NDArray[np.int64]:
    """Rows of each source, dropped ones included; last, the number of rows that stay."""
    counts = np.zeros(sources + 1, np.int64)
    _add_counts(entries, dropped, counts)
    return counts


class ByteLog:
    """Arrays that are appended, and then read as one, in memory or in a temporary file."""

    def __init__(self) -> None:
        self._pieces: list[Entries] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def append(self, entries: Entries) -> None:
        """Add an array at the end; it must not be changed afterwards."""
        self._pieces.append(entries)
        self._bytes += entries.nbytes
        if self._bytes > _MEMORY_BYTES:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="mergelake-order-")  # noqa: SIM115
            for piece in self._pieces:
                self._file.write(piece.data)
            self._pieces.clear()

    def view(self, dtype: Entry) -> Entries:
        """All arrays as one."""
        if self._file is None:
            return np.concatenate(self._pieces) if self._pieces else np.empty(0, dtype)
        self._file.flush()
        return np.memmap(self._file, dtype, mode="r", shape=(self._bytes // dtype.itemsize,))
