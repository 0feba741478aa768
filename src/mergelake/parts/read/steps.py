"""Cutting of a read: mark ranges into batches, batches into windows of requests. Pure.

A *step* becomes one record batch: adjacent or separate runs of granules with about the requested number of rows.
A *window* is a run of steps whose bytes are requested together: large enough for few requests, small enough for
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mergelake.core.base.errors import InternalError

MarkRange = tuple[int, int]
"""Granules `first` to `end`, end exclusive."""


@dataclass(frozen=True, slots=True)
class ReadStep:
    """The granules of one batch."""

    ranges: tuple[MarkRange, ...]
    rows: int


def plan_steps(granule_rows: NDArray[np.int64], ranges: Sequence[MarkRange], batch_rows: int) -> list[ReadStep]:
    """Cut ascending, disjoint mark ranges into steps of about `batch_rows` rows, at least a granule each."""
    starts = np.concatenate([[0], np.cumsum(granule_rows)])
    steps: list[ReadStep] = []
    pending: list[MarkRange] = []
    rows = 0
    last = 0
    for first, end in ranges:
        if not last <= first <= end <= len(granule_rows):
            raise InternalError(f"Mark ranges {list(ranges)[:5]} do not fit a part of {len(granule_rows)} marks")
        last = end
        while first < end:
            # As many granules as fit into `batch_rows`, at least one.
            room = max(batch_rows - rows, 1)
            upto = int(np.searchsorted(starts, starts[first] + room, side="right")) - 1
            upto = min(max(upto, first + 1), end)
            if pending and rows + int(starts[upto] - starts[first]) > batch_rows:
                steps.append(ReadStep(tuple(pending), rows))
                pending, rows = [], 0
                continue
            pending.append((first, upto))
            rows += int(starts[upto] - starts[first])
            first = upto
            if rows >= batch_rows:
                steps.append(ReadStep(tuple(pending), rows))
                pending, rows = [], 0
    if pending:
        steps.append(ReadStep(tuple(pending), rows))
    return [ReadStep(join_ranges(step.ranges), step.rows) for step in steps]


def join_ranges(ranges: Sequence[MarkRange]) -> tuple[MarkRange, ...]:
    """Join adjacent ranges."""
    joined: list[MarkRange] = []
    for first, end in ranges:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return tuple(joined)


def plan_windows(sizes: Sequence[int], window_bytes: int) -> list[tuple[int, int]]:
    """Runs of steps (start, stop), each of at most `window_bytes` unless a single step has more.

    >>> plan_windows([4, 4, 9, 1, 1], 8)
    [(0, 2), (2, 3), (3, 5)]
    """
    windows: list[tuple[int, int]] = []
    start = size = 0
    for index, step in enumerate(sizes):
        if index > start and size + step > window_bytes:
            windows.append((start, index))
            start, size = index, 0
        size += step
    if start < len(sizes):
        windows.append((start, len(sizes)))
    return windows
