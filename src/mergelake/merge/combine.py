"""The columns of a merge whose engine makes one row of several: gathered with all rows, and combined in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from mergelake.core.types import DataType
from mergelake.merge.gather import gather_column
from mergelake.merge.order import RowOrder
from mergelake.order.combining import GroupStream
from mergelake.order.mode import Rule


def combine_column(
    data_type: DataType, sources: Sequence[Iterator[pa.Array]], order: RowOrder, rule: Rule, span_rows: int = 65536
) -> Iterator[pa.Array]:
    """The values of a column, one for each row that stays, in order; none of the arrays is empty.

    A row that is left out belongs to the last one before it that stays. Arguments as of `gather_column`.
    """
    stream, at = GroupStream(rule), 0
    for values in gather_column(data_type, sources, order, span_rows, every=True):
        begins = order.entries[at : at + len(values)] < order.dropped
        at += len(values)
        combined = stream.push(values, begins)
        if len(combined):
            yield combined
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
