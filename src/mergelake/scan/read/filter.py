"""Filtering the rows of one piece of a part, reading as little as possible.

1. Each filter step reads its columns for the granules with surviving rows and evaluates its conditions on these rows.
2. Granules without survivors are dropped before the next step reads anything.
3. The remaining requested columns are read for granules with survivors only.

Columns that were read by a step are filtered and kept, never read twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.types.types import DataType
from mergelake.expr.bound import EvaluationContext
from mergelake.parts.read.ahead import fetch_windows
from mergelake.parts.read.fetch import FileRange
from mergelake.parts.read.window import ReadWindow
from mergelake.scan.prune.prune import MarkRange, join
from mergelake.scan.read.prewhere import FilterStep
from mergelake.scan.read.source import Arrays, PartSource, block_of
from mergelake.scan.read.stats import ScanStats

TOGETHER_BYTES = 1 << 20
"""Bytes of a far store that are fetched at once, even if conditions may drop them: a round trip takes as long."""


class RowSelection:
    """The surviving rows of some mark ranges, with the columns read so far."""

    def __init__(
        self, source: PartSource, ranges: Sequence[MarkRange], stats: ScanStats, ahead: ReadWindow | None = None
    ) -> None:
        self._source = source
        self.ahead = ahead
        """Bytes that were prefetched."""
        self._stats = stats
        self.ranges = tuple(ranges)
        """Mark ranges with surviving rows."""
        self._rows: NDArray[np.int64] | None = None
        """Row numbers in the part, ascending; None while all rows of the ranges are alive."""
        self._arrays: Arrays = {}
        self._base: Arrays = {}  # columns as the part has them, before its pending mutations
        self._settled = False  # whether deleted rows were dropped
        self._steps = source.steps_within(self.ranges)
        starts = source.row_starts
        self._looked_at = int(sum(starts[end] - starts[begin] for begin, end in ranges))
        stats.add(rows=self._looked_at, marks=sum(end - begin for begin, end in ranges))

    @property
    def count(self) -> int:
        """Number of surviving rows."""
        self._settle()
        return self._alive

    @property
    def _alive(self) -> int:
        return self._looked_at if self._rows is None else len(self._rows)

    def fetch(self, names: Sequence[str]) -> Arrays:
        """The columns' values in the surviving rows; columns that were not read yet are read."""
        missing = [name for name in names if name not in self._arrays]
        if missing:
            self._settle()
            steps = self._steps
            if steps is None:
                self._arrays.update(self._read(missing))
            else:
                base = self._read_base(steps.base(missing, deletes=False))
                self._arrays.update(steps.apply(base, self._alive, missing, deletes=False)[0])
        return {name: self._arrays[name] for name in names}

    def _read(self, names: Sequence[str]) -> Arrays:
        arrays = self._source.read(names, self.ranges, self.ahead)
        self._stats.add(bytes_=sum(array.nbytes for array in arrays.values()))
        if self._rows is None:
            return arrays
        places = pa.array(self._places())
        return {name: array.take(places) for name, array in arrays.items()}

    def _read_base(self, names: Sequence[str]) -> Arrays:
        missing = [name for name in names if name not in self._base]
        if missing:
            self._base.update(self._read(missing))
        return {name: self._base[name] for name in names}

    def _settle(self) -> None:
        """Drop the rows that the part's mask or its pending mutations delete."""
        if self._settled:
            return
        self._settled = True
        mask = self._source.mask(self.ranges, self.ahead)
        if mask is not None:
            self.keep(mask)
        steps = self._steps
        if steps is not None and steps.deletes and self._alive:
            alive = steps.apply(self._read_base(steps.for_deletes()), self._alive, ())[1]
            if alive is not None:
                self.keep(alive)

    def needs(self, names: Sequence[str]) -> list[FileRange]:
        """The bytes that `fetch` has to get from the store."""
        missing = [name for name in names if name not in self._arrays]
        steps = self._steps
        if steps is not None:
            missing = [n for n in steps.base(missing, deletes=not self._settled) if n not in self._base]
        ranges = self._source.needs(missing, self.ranges) if missing and self._alive else []
        return ranges if self.ahead is None else [part for part in ranges if not self.ahead.covers(part)]

    @property
    def under(self) -> ReadWindow | None:
        """The bytes of the part's files that are in memory."""
        return self.ahead if self.ahead is not None else self._source.reader.held

    @property
    def source(self) -> PartSource:
        """The part."""
        return self._source

    def filter(self, step: FilterStep, types: Mapping[str, DataType]) -> None:
        """Drop the rows that fail the step's conditions; each condition is evaluated on the rows that passed before."""
        self.fetch(step.columns)
        for condition in step.conditions:
            if not self.count:
                return
            mask = EvaluationContext.of_block(block_of(self._arrays, self.count), types).mask(condition)
            self.keep(mask)

    def batch(self, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
        """The surviving rows with exactly these columns."""
        arrays = self.fetch(names)
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=schema)

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Drop the rows where `mask`, one flag for each surviving row, is False."""
        if mask.all():
            return
        kept = np.flatnonzero(mask)
        if self._rows is None:
            starts = self._source.row_starts
            rows = [np.arange(starts[begin], starts[end]) for begin, end in self.ranges]
            self._rows = np.concatenate(rows)[kept]
        else:
            self._rows = self._rows[kept]
        places = pa.array(kept)
        self._arrays = {name: array.take(places) for name, array in self._arrays.items()}
        self._base = {name: array.take(places) for name, array in self._base.items()}
        granules = np.unique(np.searchsorted(self._source.row_starts, self._rows, "right") - 1)
        self.ranges = join(granules)

    def _places(self) -> NDArray[np.int64]:
        """Positions of the surviving rows among the rows of the ranges."""
        assert self._rows is not None
        starts = self._source.row_starts
        begins = np.array([starts[begin] for begin, _ in self.ranges], dtype=np.int64)
        lengths = np.array([starts[end] - starts[begin] for begin, end in self.ranges], dtype=np.int64)
        before = np.concatenate(([0], np.cumsum(lengths)[:-1])) if len(lengths) else np.zeros(0, np.int64)
        which = np.searchsorted(begins, self._rows, "right") - 1
        return np.asarray(self._rows - begins[which] + before[which])


def fetch_ahead(rows: Sequence[RowSelection], names: Sequence[str]) -> None:
    """Fetch the bytes of columns of several parts from a far store in one round."""
    wanted = [(each, ranges) for each in rows if (ranges := each.needs(names))]
    windows = fetch_windows([(each.source.reader, ranges, each.under) for each, ranges in wanted])
    for (each, _), window in zip(wanted, windows, strict=True):
        each.ahead = window
