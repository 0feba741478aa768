"""The rows that pending mutations change in one source: found once, before its columns are read in order.

A bit for each row and command is held, so each column that a condition uses is read once more in all, however many
columns the mutations change.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """For each step the rows that match, packed; rows that a mask of the part hides are not counted."""
    deleted: Bits | None
    """The rows that a step deletes; None if there are none."""

    def alive(self, first: int, rows: int) -> Mask | None:
        """Which of `rows` rows from row `first` on stay; None: all."""
        return None if self.deleted is None else ~_unpacked(self.deleted, first, rows)

    def known(self, first: int, rows: int, alive: Mask | None) -> list[Mask]:
        """`known` of `Steps.apply` for the rows that stay among these."""
        masks = [_unpacked(bits, first, rows) for bits in self.found]
        return masks if alive is None else [mask[alive] for mask in masks]


def find_matches(steps: Steps, batches: Iterable[pa.RecordBatch]) -> Matches | None:
    """The matches in a source, read as `steps.for_matches()`; None if no row matches any step."""
    pieces: list[list[Mask]] = []
    rows = 0
    for batch in batches:
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        pieces.append(steps.matches(arrays, batch.num_rows))
        rows += batch.num_rows
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    useful = [at for at, column in enumerate(columns) if column.any()]
    if not useful:
        return None
    deleting = [columns[at] for at in useful if steps.steps[at].deletes]
    deleted = np.logical_or.reduce(deleting) if deleting else None
    return Matches(
        replace(steps, steps=tuple(steps.steps[at] for at in useful)),
        rows - (int(deleted.sum()) if deleted is not None else 0),
        tuple(np.packbits(columns[at], bitorder="little") for at in useful),
        None if deleted is None else np.packbits(deleted, bitorder="little"),
    )


def _unpacked(bits: Bits, first: int, rows: int) -> Mask:
    start = first // 8
    window = np.unpackbits(bits[start : (first + rows + 7) // 8], bitorder="little")
    return window[first - start * 8 : first - start * 8 + rows].astype(np.bool_)
