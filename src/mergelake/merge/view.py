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

from mergelake.views.bound import Mask, Steps

Bits = NDArray[np.uint8]


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

    def known(self, first: int, rows: int, alive: Mask | None) -> list[Mask]:
        """`known` of `Steps.apply` for the rows that stay among these."""
        masks = [_unpacked(bits, first, rows) for bits in self.found]
        return masks if alive is None else [mask[alive] for mask in masks]


def find_matches(
    steps: Steps,
    batches: Iterable[pa.RecordBatch],
    rows: int,
    places: Sequence[tuple[int, int]] | None = None,
    hidden: Mask | None = None,
) -> Matches:
    """The matches in a source of `rows` rows, read as `steps.for_matches()`.

    `places` are the ranges of rows that `batches` hold; None: all. `hidden` are the rows that the part's mask hides:
    they match no step.
    """
    spans = places if places is not None else [(0, rows)]
    row_of = np.concatenate([np.arange(first, end) for first, end in spans]) if places is not None else None
    found = [np.zeros(rows, np.bool_) for _ in steps.steps]
    at = 0
    for batch in batches:
        end = at + batch.num_rows
        chosen = row_of[at:end] if row_of is not None else np.arange(at, end)
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        if hidden is not None and hidden[chosen].any():
            keep = np.flatnonzero(~hidden[chosen])
            chosen = chosen[keep]
            arrays = {name: array.take(pa.array(keep)) for name, array in arrays.items()}
        for mask, matched in zip(found, steps.matches(arrays, len(chosen)), strict=True):
            mask[chosen[matched]] = True
        at = end
    useful = [number for number, mask in enumerate(found) if mask.any()]
    gone = [found[number] for number in useful if steps.steps[number].deletes]
    if hidden is not None:
        gone.append(hidden)
    deleted = np.logical_or.reduce(gone) if gone else None
    return Matches(
        replace(steps, steps=tuple(steps.steps[number] for number in useful)),
        rows - (int(deleted.sum()) if deleted is not None else 0),
        tuple(np.packbits(found[number], bitorder="little") for number in useful),
        np.packbits(deleted, bitorder="little") if deleted is not None and deleted.any() else None,
    )


def _unpacked(bits: Bits, first: int, rows: int) -> Mask:
    start = first // 8
    window = np.unpackbits(bits[start : (first + rows + 7) // 8], bitorder="little")
    return window[first - start * 8 : first - start * 8 + rows].astype(np.bool_)
