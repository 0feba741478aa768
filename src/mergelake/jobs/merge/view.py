"""The rows of one source that are deleted or changed on the way into its view.

Found once, before its columns are read in order. A bit for each row and command is held, so each column that a
condition uses is read once more in all, however many columns the mutations change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.table.pending.bound import Mask, Steps

Bits = NDArray[np.uint8]
_COUNTED_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Matches:
    """Steps that match rows of a source, and where."""

    steps: Steps
    """The steps that match any row."""
    rows: int
    """Rows of the source that stay."""
    found: tuple[Bits, ...]
    """For each step the rows that match, packed."""
    deleted: Bits | None
    """The rows that a step deletes, or the part's mask hides; None if there are none."""

    @property
    def deletes(self) -> bool:
        """Whether a step deletes rows."""
        return self.steps.deletes

    def alive(self, first: int, rows: int) -> Mask | None:
        """Which of `rows` rows from row `first` on stay; None: all."""
        return None if self.deleted is None else ~_unpacked(self.deleted, first, rows)

    def count(self, first: int, end: int) -> int:
        """How many rows from `first` to `end` (exclusive) stay."""
        if self.deleted is None:
            return end - first
        starts = range(first, end, _COUNTED_ROWS)
        return end - first - sum(int(_unpacked(self.deleted, s, min(_COUNTED_ROWS, end - s)).sum()) for s in starts)

    def known(self, first: int, rows: int, alive: Mask | None) -> list[Mask]:
        """`known` of `Steps.apply` for the rows that stay among these."""
        masks = [_unpacked(bits, first, rows) for bits in self.found]
        return masks if alive is None else [mask[alive] for mask in masks]


def find_matches(
    steps: Steps,
    batches: Iterable[pa.RecordBatch],
    rows: int,
    places: Sequence[tuple[int, int]] | None = None,
    hidden: Bits | None = None,
) -> Matches:
    """The matches in a source of `rows` rows, read as `steps.for_matches()`.

    `places` are the ranges of rows that `batches` hold; None: all. `hidden` are the rows that the part's mask hides
    (packed): they match no step.
    """
    size = (rows + 7) // 8
    found = [np.zeros(size, np.uint8) for _ in steps.steps]
    spans = _Spans(places if places is not None else [(0, rows)])
    for batch in batches:
        pieces = spans.take(batch.num_rows)
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        visible = None
        if hidden is not None:
            visible = ~np.concatenate([_unpacked(hidden, first, end - first) for first, end in pieces])
            keep = pa.array(np.flatnonzero(visible))
            arrays = {name: array.take(keep) for name, array in arrays.items()}
        count = batch.num_rows if visible is None else int(visible.sum())
        for bits, matched in zip(found, steps.matches(arrays, count), strict=True):
            whole = matched
            if visible is not None:
                whole = np.zeros(batch.num_rows, np.bool_)
                whole[visible] = matched
            at = 0
            for first, end in pieces:
                _set(bits, first, whole[at : at + end - first])
                at += end - first
    useful = [number for number, bits in enumerate(found) if bits.any()]
    gone = [found[number] for number in useful if steps.steps[number].deletes]
    if hidden is not None:
        gone.append(hidden)
    deleted = np.bitwise_or.reduce(gone) if gone else None
    return Matches(
        replace(steps, steps=tuple(steps.steps[number] for number in useful)),
        rows - (int(np.bitwise_count(deleted).sum()) if deleted is not None else 0),
        tuple(found[number] for number in useful),
        deleted if deleted is not None and deleted.any() else None,
    )


def packed(masks: Iterable[Mask], rows: int, at: int = 0) -> Bits:
    """A bit for each of `rows` rows, from consecutive masks of the rows from `at` on."""
    bits = np.zeros((rows + 7) // 8, np.uint8)
    for mask in masks:
        _set(bits, at, mask)
        at += len(mask)
    return bits


def _set(bits: Bits, first: int, mask: Mask) -> None:
    """Set the bits from row `first` on where `mask` is true."""
    if mask.any():
        aligned = np.packbits(np.concatenate((np.zeros(first % 8, np.bool_), mask)), bitorder="little")
        bits[first // 8 : first // 8 + len(aligned)] |= aligned


class _Spans:
    """Takes rows from ranges of rows, in order."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._ranges = list(ranges)

    def take(self, rows: int) -> list[tuple[int, int]]:
        """The ranges of the next `rows` rows."""
        out: list[tuple[int, int]] = []
        while rows:
            first, end = self._ranges.pop(0)
            stop = min(end, first + rows)
            out.append((first, stop))
            rows -= stop - first
            if stop < end:
                self._ranges.insert(0, (stop, end))
        return out


def _unpacked(bits: Bits, first: int, rows: int) -> Mask:
    start = first // 8
    window = np.unpackbits(bits[start : (first + rows + 7) // 8], bitorder="little")
    return window[first - start * 8 : first - start * 8 + rows].astype(np.bool_)
