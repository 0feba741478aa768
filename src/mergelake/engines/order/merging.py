"""Merges sorted runs to the order of the result's rows, streaming: no run is ever in memory as a whole.

Each run (a part, read in order) yields its key columns batch by batch; the output are steps with the run of each of the
next rows. Rows with equal keys keep the order of the runs, then their own. The next batch of a run is read when the
last one is used up, so memory is one batch per run.

The heads of the runs are kept in a sorted queue. The usual case costs one comparison a row: the run that gave the
last row gives the next one as well. Otherwise its head is put back by binary search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.jit.intrinsics import kernel, load8
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import DataType
from mergelake.engines.order.normalized_keys import NormalizedKeys, normalized_keys, number_words


@dataclass(frozen=True, slots=True)
class MergeStep:
    """The next rows of the result, in order; arrays of equal length."""

    runs: NDArray[np.uint16]
    """The run of each row; the rows of a run follow in its own order."""
    repeats: NDArray[np.bool_]
    """Whether the row's key equals that of the row before it, in this step or an earlier one."""
    ranks: NDArray[np.uint64]
    """The row's version, as a comparable number; zeros without a version."""


def merge_runs(
    runs: Sequence[Iterator[Sequence[pa.Array]]],
    types: Sequence[DataType],
    desc: Sequence[bool] = (),
    version_type: DataType | None = None,
) -> Iterator[MergeStep]:
    """Merge sorted `runs`; each yields batches of arrays in storage form: the key columns, then the version if any.

    At most 32767 runs. `types` and `desc` describe the key columns; no key columns means that all keys are equal.
    """
    merger = _Merger(len(runs), types, desc, version_type)
    for run, batches in enumerate(runs):
        merger.feed(run, next(batches, None))
    while merger.live:
        step, exhausted = merger.step()
        # The arrays of a step belong to the caller: the next batch of the run is read only afterwards.
        yield step
        merger.feed(exhausted, next(runs[exhausted], None))


class _Merger:
    """Buffers of all runs, one slot each, and one more for the key of the last row of the output."""

    def __init__(
        self, runs: int, types: Sequence[DataType], desc: Sequence[bool], version_type: DataType | None
    ) -> None:
        self._runs = runs
        self._types = types
        self._desc = desc
        self._version_type = version_type
        self._alive: list[object] = [None] * (runs + 1)
        self._positions = np.zeros(runs + 1, np.int64)
        self._lengths = np.zeros(runs + 1, np.int64)
        self._queue = np.zeros(runs, np.int64)
        self.live = 0
        self._started = False
        empty = self._encode([])
        self._width = empty.words.shape[1]
        self._string_words = np.array([column.word for column in empty.strings], np.int64)
        self._string_desc = np.array([column.descending for column in empty.strings], np.bool_)
        self._data = np.zeros((runs + 1, len(empty.strings)), np.int64)
        self._capacity = 0
        self._words = np.zeros((runs + 1, 0, self._width), np.uint64)
        self._ranks = np.zeros((runs + 1, 0), np.uint64)
        self._places = np.zeros((runs + 1, 0, len(empty.strings), 2), np.int64)
        self._grow(1)

    def _encode(self, arrays: Sequence[pa.Array]) -> NormalizedKeys:
        if not arrays:
            arrays = [pa.array([], storage_type(data_type)) for data_type in self._types]
        return normalized_keys(arrays, self._types, self._desc)

    def _grow(self, capacity: int) -> None:
        slots, strings = self._runs + 1, len(self._string_words)
        words = np.zeros((slots, capacity, self._width), np.uint64)
        ranks = np.zeros((slots, capacity), np.uint64)
        places = np.zeros((slots, capacity, strings, 2), np.int64)
        words[:, : self._capacity] = self._words
        ranks[:, : self._capacity] = self._ranks
        places[:, : self._capacity] = self._places
        self._words, self._ranks, self._places, self._capacity = words, ranks, places, capacity

    def feed(self, run: int, arrays: Sequence[pa.Array] | None) -> None:
        """Set the next batch of `run`; None is its end."""
        if arrays is None:
            self._alive[run] = None
            return
        rows = len(arrays[0])
        versions = None
        if self._version_type is not None:
            *arrays, versions = arrays
        if rows > self._capacity:
            self._grow(rows)
        key = self._encode(arrays)
        if arrays:
            self._words[run, :rows] = key.words
        if versions is not None and self._version_type is not None:
            self._ranks[run, :rows] = number_words(versions, self._version_type)
        for at, column in enumerate(key.strings):
            self._places[run, :rows, at, 0] = column.starts
            self._places[run, :rows, at, 1] = column.ends
            self._data[run, at] = column.data.ctypes.data
        self._alive[run] = key
        self._positions[run], self._lengths[run] = 0, rows
        self.live = _enqueue(
            run, self._queue, self.live, self._positions, self._words, self._places, self._data,
            self._string_words, self._string_desc,
        )  # fmt: skip

    def step(self) -> tuple[MergeStep, int]:
        """Rows until a run is used up, and which run."""
        room = int((self._lengths - self._positions)[self._queue[: self.live]].sum())
        runs = np.empty(room, np.uint16)
        repeats = np.empty(room, np.bool_)
        ranks = np.empty(room, np.uint64)
        count = _merge(
            runs, repeats, ranks, self._queue, self.live, self._positions, self._lengths, self._words, self._ranks,
            self._places, self._data, self._string_words, self._string_desc, self._started,
        )  # fmt: skip
        exhausted = int(runs[count - 1])
        self._remember(exhausted, int(self._positions[exhausted]) - 1)
        self.live -= 1
        self._queue[: self.live] = self._queue[1 : self.live + 1]
        return MergeStep(runs[:count], repeats[:count], ranks[:count]), exhausted

    def _remember(self, run: int, row: int) -> None:
        """Keep the key of the last row given out: its batch is about to go."""
        spare = self._runs
        self._words[spare, 0] = self._words[run, row]
        key = self._alive[run]
        if isinstance(key, NormalizedKeys) and key.strings:
            kept = []
            for at, column in enumerate(key.strings):
                value = column.data[column.starts[row] : column.ends[row]].copy()
                self._data[spare, at] = value.ctypes.data
                self._places[spare, 0, at] = (0, len(value))
                kept.append(value)
            self._alive[spare] = kept
        self._started = True


@kernel
def _compare(
    run_a: int,
    row_a: int,
    run_b: int,
    row_b: int,
    words: NDArray[np.uint64],
    places: NDArray[np.int64],
    data: NDArray[np.int64],
    string_words: NDArray[np.int64],
    string_desc: NDArray[np.bool_],
) -> int:
    string = 0
    for word in range(words.shape[2]):
        a, b = words[run_a, row_a, word], words[run_b, row_b, word]
        if a != b:
            return -1 if a < b else 1
        if string < len(string_words) and string_words[string] == word:
            order = _compare_tails(run_a, row_a, run_b, row_b, string, places, data)
            if order != 0:
                return -order if string_desc[string] else order
            string += 1
    return 0


@kernel
def _compare_tails(
    run_a: int, row_a: int, run_b: int, row_b: int, string: int, places: NDArray[np.int64], data: NDArray[np.int64]
) -> int:
    start_a, start_b = places[run_a, row_a, string, 0], places[run_b, row_b, string, 0]
    length_a, length_b = places[run_a, row_a, string, 1] - start_a, places[run_b, row_b, string, 1] - start_b
    at_a, at_b = data[run_a, string] + start_a, data[run_b, string] + start_b
    for i in range(min(8, length_a, length_b), min(length_a, length_b)):
        a, b = load8(at_a + i), load8(at_b + i)
        if a != b:
            return -1 if a < b else 1
    if length_a == length_b:
        return 0
    return -1 if length_a < length_b else 1


@kernel
def _place(
    run: int,
    queue: NDArray[np.int64],
    low: int,
    high: int,
    positions: NDArray[np.int64],
    words: NDArray[np.uint64],
    places: NDArray[np.int64],
    data: NDArray[np.int64],
    string_words: NDArray[np.int64],
    string_desc: NDArray[np.bool_],
) -> int:
    """Where `run` belongs among queue[low:high]; equal heads stand in the order of the runs."""
    while low < high:
        middle = (low + high) // 2
        other = queue[middle]
        order = _compare(other, positions[other], run, positions[run], words, places, data, string_words, string_desc)
        if order < 0 or (order == 0 and other < run):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _enqueue(
    run: int,
    queue: NDArray[np.int64],
    live: int,
    positions: NDArray[np.int64],
    words: NDArray[np.uint64],
    places: NDArray[np.int64],
    data: NDArray[np.int64],
    string_words: NDArray[np.int64],
    string_desc: NDArray[np.bool_],
) -> int:
    at = _place(run, queue, 0, live, positions, words, places, data, string_words, string_desc)
    for i in range(live, at, -1):
        queue[i] = queue[i - 1]
    queue[at] = run
    return live + 1


@kernel
def _merge(
    out_runs: NDArray[np.uint16],
    out_repeats: NDArray[np.bool_],
    out_ranks: NDArray[np.uint64],
    queue: NDArray[np.int64],
    live: int,
    positions: NDArray[np.int64],
    lengths: NDArray[np.int64],
    words: NDArray[np.uint64],
    ranks: NDArray[np.uint64],
    places: NDArray[np.int64],
    data: NDArray[np.int64],
    string_words: NDArray[np.int64],
    string_desc: NDArray[np.bool_],
    started: bool,
) -> int:
    previous_run, previous_row = len(positions) - 1, 0
    count = 0
    while True:
        run = queue[0]
        row = positions[run]
        out_runs[count] = run
        out_ranks[count] = ranks[run, row]
        order = _compare(previous_run, previous_row, run, row, words, places, data, string_words, string_desc)
        out_repeats[count] = (started or count > 0) and order == 0
        previous_run, previous_row = run, row
        count += 1
        positions[run] += 1
        if positions[run] == lengths[run]:
            return count
        if live > 1:
            other = queue[1]
            order = _compare(
                run, positions[run], other, positions[other], words, places, data, string_words, string_desc
            )
            if order > 0 or (order == 0 and run > other):
                at = _place(run, queue, 2, live, positions, words, places, data, string_words, string_desc)
                for i in range(at - 1):
                    queue[i] = queue[i + 1]
                queue[at - 1] = run
