"""Gathers a column in the order of the merge: one batch per source in memory, one batch out.

For each span of the recorded order, the rows that it takes from each source are one Arrow array (mostly a slice of the
source's current batch), and a kernel copies values from the arrays of all sources to their places:

- fixed width: one load and one store a row;
- strings: one memcpy a row, after a pass over the lengths;
- LowCardinality: the dictionaries are unified first, then codes move like any number;
- Nullable: the validity bits move beside the values;
- nested types: Arrow's own concatenate and take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import InternalError
from mergelake.core.jit.intrinsics import copy, kernel, peek32
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import DataType
from mergelake.jobs.merge.order import RowOrder, count_rows

memcpy: Any = copy
STRING_BYTES_MAX = (1 << 31) - 1
"""Bytes of one Arrow array of strings: its offsets are 32 bits."""
_DICTIONARY_MAX = 1 << 20  # entries of a unified dictionary, before those that are out of use are swept out


def gather_column(
    data_type: DataType,
    sources: Sequence[Iterator[pa.Array]],
    order: RowOrder,
    span_rows: int = 65536,
    *,
    every: bool = False,
) -> Iterator[pa.Array]:
    """The rows that stay, in order, as arrays of at most `span_rows` rows (none empty), in storage form.

    `sources[i]` yields the column of source i, batch by batch, as many rows as `order` has of it. With `every`, rows
    that are left out are gathered too.
    """
    kind = storage_type(data_type)
    unified = _Dictionary(kind, len(sources)) if pa.types.is_dictionary(kind) else None
    runs = [_Run(batches, unified, at) for at, batches in enumerate(sources)]
    moved = kind if unified is None else pa.int32()
    for entries in order.spans(span_rows):
        if every:
            entries = entries & (order.dropped - 1)
            counts = count_rows(entries, len(runs), order.dropped)
        else:
            counts = order.counts(entries, len(runs))
        kept = int(counts[-1])
        pieces = [run.take(int(count)) for run, count in zip(runs, counts[:-1], strict=True)]
        if not kept:
            continue
        for gathered in _gather(moved, pieces, entries, order.dropped, kept):
            yield gathered if unified is None else unified.wrap(gathered)
        if unified is not None:
            unified.sweep(runs)
    for run in runs:
        run.finish()


class _Run:
    """One source's column: batches in, exact numbers of rows out."""

    def __init__(self, batches: Iterator[pa.Array], unified: _Dictionary | None, source: int) -> None:
        self._batches = batches
        self._unified = unified
        self._source = source
        self.rest: pa.Array | None = None

    def take(self, rows: int) -> pa.Array | None:
        """The next `rows` rows; None for none."""
        pieces = []
        while rows:
            if self.rest is None:
                array = next(self._batches, None)
                if array is None:
                    raise InternalError("A source of a merge has fewer rows than its key columns")
                self.rest = array if self._unified is None else self._unified.codes(array, self._source)
            piece = self.rest.slice(0, rows)
            self.rest = self.rest.slice(rows) if len(self.rest) > rows else None
            rows -= len(piece)
            pieces.append(piece)
        if not pieces:
            return None
        # A copy is made only across the end of a batch.
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def finish(self) -> None:
        """Check that all rows were taken, and let the reader close."""
        if self.rest is not None or next(self._batches, None) is not None:
            raise InternalError("A source of a merge has more rows than its key columns")


class _Dictionary:
    """One dictionary for all sources: converts dictionary arrays to codes of this dictionary, and back."""

    def __init__(self, kind: pa.DictionaryType, sources: int) -> None:
        self._kind = kind
        self._values = pa.array([], kind.value_type)
        self._last: list[tuple[pa.Array, NDArray[np.int32]] | None] = [None] * sources

    def codes(self, array: pa.DictionaryArray, source: int) -> pa.Array:
        """The rows of one batch as int32 codes; NULL rows are NULL."""
        last = self._last[source]
        if last is None or not last[0].equals(array.dictionary):
            positions = pc.index_in(array.dictionary, self._values)
            new = array.dictionary.filter(positions.is_null())
            if len(new):
                self._values = pa.concat_arrays([self._values, new.unique()])
                positions = pc.index_in(array.dictionary, self._values)
            last = self._last[source] = (array.dictionary, positions.to_numpy(zero_copy_only=False).astype(np.int32))
        return pa.array(last[1]).take(array.indices) if len(last[1]) else array.indices

    def wrap(self, codes: pa.Array) -> pa.DictionaryArray:
        """Gathered codes as a dictionary array, whose dictionary has few unused values."""
        values = self._values
        if len(values) > 4 * len(codes):
            used, at = np.unique(np.asarray(codes.fill_null(0)), return_inverse=True)
            missing = np.asarray(codes.is_null()) if codes.null_count else None
            codes, values = pa.array(at.astype(np.int32), mask=missing), values.take(pa.array(used))
        return pa.DictionaryArray.from_arrays(codes, values)

    def sweep(self, runs: Sequence[_Run]) -> None:
        """Remove values that no remaining row uses, once there are more than `_DICTIONARY_MAX`."""
        if len(self._values) <= _DICTIONARY_MAX:
            return
        waiting = [run.rest for run in runs if run.rest is not None]
        used = pc.unique(pa.chunked_array(waiting, pa.int32())).drop_null() if waiting else pa.array([], pa.int32())
        for run in runs:
            if run.rest is not None:
                run.rest = pc.index_in(run.rest, used, skip_nulls=True)
        self._values = self._values.take(used)
        self._last = [None] * len(self._last)


def _gather(
    kind: pa.DataType, pieces: Sequence[pa.Array | None], entries: NDArray[Any], dropped: int, kept: int
) -> Iterator[pa.Array]:
    """The rows of one span: one array, or several if strings do not fit into one."""
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        yield _gather_any(kind, pieces, entries, dropped, kept)
        return
    if not pa.types.is_binary(kind):
        yield _gather_fixed(kind, pieces, entries, dropped, kept)
        return
    strings = _gather_strings(kind, pieces, entries, dropped, kept)
    if strings is not None:
        yield strings
        return
    middle = len(entries) // 2
    counts = count_rows(entries[:middle], len(pieces), dropped)
    first = [p if p is None else p.slice(0, int(n)) for p, n in zip(pieces, counts[:-1], strict=True)]
    second = [p if p is None else p.slice(int(n)) for p, n in zip(pieces, counts[:-1], strict=True)]
    if counts[-1]:
        yield from _gather(kind, first, entries[:middle], dropped, int(counts[-1]))
    if kept > counts[-1]:
        yield from _gather(kind, second, entries[middle:], dropped, kept - int(counts[-1]))


def _gather_fixed(
    kind: pa.DataType, pieces: Sequence[pa.Array | None], entries: NDArray[Any], dropped: int, kept: int
) -> pa.Array:
    width = kind.bit_width // 8
    base = np.zeros(len(pieces), np.int64)
    for at, piece in enumerate(pieces):
        if piece is not None:
            base[at] = piece.buffers()[1].address + width * piece.offset
    out = pa.allocate_buffer(kept * width)
    _copy_fixed(base, width, entries, dropped, out.address)
    validity, nulls = _gather_validity(pieces, entries, dropped, kept)
    return pa.Array.from_buffers(kind, kept, [validity, out], nulls)


def _gather_strings(
    kind: pa.DataType, pieces: Sequence[pa.Array | None], entries: NDArray[Any], dropped: int, kept: int
) -> pa.Array | None:
    """The strings of one span; None if they have too many bytes for the offsets of one array."""
    starts = np.zeros(len(pieces), np.int64)
    data = np.zeros(len(pieces), np.int64)
    for at, piece in enumerate(pieces):
        if piece is not None:
            _, offsets, values = piece.buffers()
            starts[at] = offsets.address + 4 * piece.offset
            data[at] = values.address if values is not None else 0
    out_offsets = np.empty(kept + 1, np.int32)
    total = _measure(starts.copy(), entries, dropped, out_offsets)
    if total > STRING_BYTES_MAX:
        return None
    out = pa.allocate_buffer(total)
    _copy_strings(starts, data, entries, dropped, out.address)
    validity, nulls = _gather_validity(pieces, entries, dropped, kept)
    return pa.Array.from_buffers(kind, kept, [validity, pa.py_buffer(out_offsets), out], nulls)


def _gather_validity(
    pieces: Sequence[pa.Array | None], entries: NDArray[Any], dropped: int, kept: int
) -> tuple[pa.Buffer | None, int]:
    """The validity bits of the result, None if no source has a NULL, and the number of NULLs."""
    if not any(piece is not None and piece.null_count for piece in pieces):
        return None, 0
    valid = [None if p is None else np.asarray(p.is_valid()).view(np.uint8) for p in pieces]
    flags = np.empty(kept, np.uint8)
    base = np.array([0 if array is None else array.ctypes.data for array in valid], np.int64)
    _copy_fixed(base, 1, entries, dropped, flags.ctypes.data)
    return pa.py_buffer(np.packbits(flags, bitorder="little")), kept - int(flags.sum())


def _gather_any(
    kind: pa.DataType, pieces: Sequence[pa.Array | None], entries: NDArray[Any], dropped: int, kept: int
) -> pa.Array:
    first = np.zeros(len(pieces), np.int64)
    np.cumsum([0 if piece is None else len(piece) for piece in pieces[:-1]], out=first[1:])
    indices = np.empty(kept, np.int64)
    _locate(first, entries, dropped, indices)
    rows = pa.concat_arrays([piece for piece in pieces if piece is not None])
    return rows.take(pa.array(indices))


@kernel
def _locate(cursor: NDArray[np.int64], entries: Any, dropped: int, out: NDArray[np.int64]) -> None:
    row = 0
    for i in range(len(entries)):
        entry = entries[i]
        source = entry & (dropped - 1)
        if entry < dropped:
            out[row] = cursor[source]
            row += 1
        cursor[source] += 1


@kernel
def _copy_fixed(cursor: NDArray[np.int64], width: int, entries: Any, dropped: int, out: int) -> None:
    for i in range(len(entries)):
        entry = entries[i]
        source = entry & (dropped - 1)
        at = cursor[source]
        cursor[source] += width
        if entry >= dropped:
            continue
        # A copy of constant length compiles to one load and one store.
        if width == 8:
            memcpy(out, at, 8)
        elif width == 4:
            memcpy(out, at, 4)
        elif width == 2:
            memcpy(out, at, 2)
        elif width == 1:
            memcpy(out, at, 1)
        else:
            memcpy(out, at, width)
        out += width


@kernel
def _measure(cursor: NDArray[np.int64], entries: Any, dropped: int, out: NDArray[np.int32]) -> int:
    """Fill the offsets of the result from those of the sources (addresses of int32 offsets); returns the bytes."""
    total = 0
    row = 0
    for i in range(len(entries)):
        entry = entries[i]
        source = entry & (dropped - 1)
        at = cursor[source]
        cursor[source] += 4
        if entry < dropped:
            out[row] = total
            row += 1
            total += peek32(at + 4) - peek32(at)
    out[row] = total
    return total


@kernel
def _copy_strings(cursor: NDArray[np.int64], data: NDArray[np.int64], entries: Any, dropped: int, out: int) -> None:
    for i in range(len(entries)):
        entry = entries[i]
        source = entry & (dropped - 1)
        at = cursor[source]
        cursor[source] += 4
        if entry < dropped:
            start = peek32(at)
            length = peek32(at + 4) - start
            memcpy(out, data[source] + start, length)
            out += length
