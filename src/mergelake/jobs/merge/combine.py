"""The columns of a merge whose engine makes one row of several: gathered with all rows, and combined in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from mergelake.core.types.types import DataType
from mergelake.engines.rules.combining import GroupStream
from mergelake.engines.rules.mode import Judge, Mask, Rule
from mergelake.jobs.merge.gather import gather_column
from mergelake.jobs.merge.order import ByteLog, RowOrder


def combine_column(
    data_type: DataType,
    sources: Sequence[Iterator[pa.Array]],
    order: RowOrder,
    rule: Rule,
    span_rows: int = 65536,
    removed: Mask | None = None,
) -> Iterator[pa.Array]:
    """The values of a column, one for each row that stays, in order; none of the arrays is empty.

    A row that is left out belongs to the last one before it that stays. `removed` says of each of those that stay
    whether its value is left out, too. Other arguments as of `gather_column`.
    """
    first = 0
    for values in _combined(data_type, sources, order, rule, span_rows):
        kept = values
        if removed is not None:
            gone = removed[first : first + len(values)]
            first += len(values)
            kept = values.filter(pa.array(~gone)) if gone.any() else values
        if len(kept):
            yield kept


def removed_rows(columns: Iterable[tuple[Iterator[pa.Array], Judge]]) -> Mask | None:
    """Of each combined row whether all values are nothing; `columns` are combined ones. None: no row is removed."""
    removed: Mask | None = None
    for arrays, judge in columns:
        pieces = [judge(array) for array in arrays]
        found = np.concatenate(pieces) if pieces else np.zeros(0, np.bool_)
        removed = found if removed is None else removed & found
    return removed if removed is not None and removed.any() else None


def without_removed(order: RowOrder, removed: Mask, span_rows: int = 1 << 20, *, combines: bool = False) -> RowOrder:
    """The order in which the removed ones of the rows that stay are left out.

    `combines`: a row that is left out may belong to one that stays, with which it is combined.
    """
    combined, all_removed = None, None
    if combines:
        combined, all_removed = order.combined or order, removed
        if order.removed is not None:
            all_removed = order.removed.copy()
            all_removed[~order.removed] = removed
    log, first = ByteLog(), 0
    for span in order.spans(span_rows):
        stay = np.flatnonzero(span < order.dropped)
        entries = span.copy()
        entries[stay[removed[first : first + len(stay)]]] |= order.dropped
        first += len(stay)
        log.append(entries)
    rows = order.rows - int(removed.sum())
    return RowOrder(log.view(order.entries.dtype), order.dropped, rows, combined, all_removed)


def _combined(
    data_type: DataType, sources: Sequence[Iterator[pa.Array]], order: RowOrder, rule: Rule, span_rows: int
) -> Iterator[pa.Array]:
    stream, at = GroupStream(rule), 0
    for values in gather_column(data_type, sources, order, span_rows, every=True):
        begins = order.entries[at : at + len(values)] < order.dropped
        at += len(values)
        yield stream.push(values, begins)
    last = stream.finish()
    if last is not None:
        yield last


def aligned(columns: Sequence[Iterator[pa.Array]]) -> Iterator[tuple[pa.Array, ...]]:
    """Columns of as many rows, each in its own pieces, as pieces that are the same for all."""
    rest: list[pa.Array | None] = [None] * len(columns)
    while True:
        for at, column in enumerate(columns):
            if rest[at] is None:
                rest[at] = next(column, None)
        held = [array for array in rest if array is not None]
        if len(held) < len(columns):
            return
        rows = min(map(len, held))
        yield tuple(array.slice(0, rows) for array in held)
        rest = [array.slice(rows) if len(array) > rows else None for array in held]
