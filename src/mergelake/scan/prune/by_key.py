"""Pruning the parts of a large table by the primary key, on columns, before a Python object is made for any part.

The first and last keys of the parts in a segment of a checkpoint are decoded once and cached with the segment. So are
the first and the last key of each group of `GROUP_ROWS` of its rows. A condition is evaluated on the groups of
all segments first, then on the rows of the groups that may match. Where neighbouring rows have similar keys, the cost
of a look-up is proportional to its result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.types.types import DataType
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.storage.segment import OpenSegment
from mergelake.log.storage.stored import Everything, as_rows, everything
from mergelake.scan.prune.condition import Condition
from mergelake.scan.prune.hyperrectangles import KeyConditionEvaluator, KeyTable
from mergelake.scan.prune.keys import ScanKeys, decode_keys
from mergelake.scan.prune.ordered import ordered

Rows = NDArray[np.int64]
GROUP_ROWS = 128


@dataclass(frozen=True, slots=True)
class _Ends:
    """First keys, then last keys, of those rows of a segment whose last key is known."""

    table: KeyTable
    number: Rows
    """By row of the segment: its position among these; -1 if its last key is not known."""
    group: Rows
    """Numbers of the groups in which the last keys of all rows are known."""
    first: Rows
    """For each of these groups: the row of the table with its first key in key order."""
    last: Rows
    """For each of these groups: the row of the table with its last key in key order."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of several segments."""

    table: KeyTable
    """First keys, then last keys, of the groups in which all are known."""
    place: Rows
    """For each of these: its number among all groups."""
    starts: Rows
    """By segment: the number of its first group; at the end the number of groups."""


def parts_by_key(
    partitions: Partitions, names: Collection[str], condition: Condition, keys: ScanKeys
) -> list[ActivePart]:
    """The parts of some partitions that `condition` on the primary key does not exclude by their first and last key.

    Sorted by partition and block. The few parts that are not in a segment are all returned.
    """
    if len(names) < len(partitions):
        segments, others = as_rows(partitions, names)
        parts = list(others)
        for segment, rows in segments:
            parts += _active_parts(segment, rows[_judged(segment, rows, condition, keys)])
    else:
        every = partitions.remembered(everything, partial(everything, partitions))
        parts = every.others(partitions)
        for segment, rows in _grouped(partitions, every, condition, keys) if every.segments else ():
            remaining = rows[_judged(segment, rows, condition, keys)]
            parts += _active_parts(segment, every.active(partitions, segment, remaining))
    return sorted(parts, key=lambda part: part.info)


def _active_parts(segment: OpenSegment, rows: Rows) -> list[ActivePart]:
    return segment.parts(np.sort(rows)) if len(rows) else []


def _judged(segment: OpenSegment, rows: Rows, condition: Condition, keys: ScanKeys) -> NDArray[np.bool_]:
    """For each of `rows` whether the condition may match."""
    ends = _ends(segment, keys)
    number = ends.number[rows]
    with_ends = np.flatnonzero(number >= 0)
    first, half = number[with_ends], ends.table.marks // 2
    if 2 * len(first) < half:  # deriving comparable forms costs as much as there are keys
        table, begin, end = _rows_of(ends.table, np.concatenate([first, first + half])), *_halves(len(first))
    else:
        table, begin, end = ends.table, first, first + half
    may_match = np.ones(len(rows), np.bool_)
    may_match[with_ends] = KeyConditionEvaluator(condition, table).ranges(begin, end)[0]
    return may_match


def _grouped(
    partitions: Partitions, every: Everything, condition: Condition, keys: ScanKeys
) -> Iterator[tuple[OpenSegment, Rows]]:
    """Each segment with its rows in groups that may match; rows of parts that are no longer active are included."""
    key = (_groups, keys.primary.types, keys.descending)
    groups = partitions.remembered(key, partial(_groups, every.segments, keys))
    may_match = np.ones(groups.starts[-1], np.bool_)
    may_match[groups.place] = KeyConditionEvaluator(condition, groups.table).ranges(*_halves(len(groups.place)))[0]
    for segment, start, end in zip(every.segments, groups.starts, groups.starts[1:], strict=False):
        if may_match[start:end].any():
            yield segment, np.flatnonzero(np.repeat(may_match[start:end], GROUP_ROWS)[: segment.ref.rows])


def _groups(segments: Sequence[OpenSegment], keys: ScanKeys) -> _Groups:
    segment_ends = [_ends(segment, keys) for segment in segments]
    counts = [-(-segment.ref.rows // GROUP_ROWS) for segment in segments]
    starts = np.cumsum([0, *counts], dtype=np.int64)
    ends_of = [
        *((ends.table, ends.first) for ends in segment_ends),
        *((ends.table, ends.last) for ends in segment_ends),
    ]
    end_columns = [_rows_of(table, rows).columns for table, rows in ends_of]
    columns = [pa.concat_arrays(column) for column in zip(*end_columns, strict=True)]
    place = [ends.group + start for ends, start in zip(segment_ends, starts, strict=False)]
    table = KeyTable(columns, keys.primary.types, keys.descending)
    return _Groups(table, np.concatenate([*place, np.zeros(0, np.int64)]), starts)


def _ends(segment: OpenSegment, keys: ScanKeys) -> _Ends:
    types = keys.primary.types
    derived: _Ends | None = segment.derived.get((types, keys.descending))
    if derived is None:
        low, high = (segment.rows[name].to_pylist() for name in ("key_low", "key_high"))
        known = np.array([bool(text) for text in high], np.bool_)
        low = [text for text, end in zip(low, high, strict=True) if end]
        first, last = decode_keys(low, types), decode_keys([end for end in high if end], types)
        table = KeyTable([pa.concat_arrays([a, b]) for a, b in zip(first, last, strict=True)], types, keys.descending)
        number = np.where(known, np.cumsum(known) - 1, -1)
        derived = segment.derived[types, keys.descending] = _Ends(table, number, *_in_groups(table, known))
    return derived


def _in_groups(table: KeyTable, known: NDArray[np.bool_]) -> tuple[Rows, Rows, Rows]:
    """Numbers of the groups whose keys are all known, and the rows of the table with their first and last key."""
    starts = np.arange(0, len(known), GROUP_ROWS)
    group = np.flatnonzero(np.logical_and.reduceat(known, starts)) if len(known) else starts
    order = _in_order(table) if len(group) else None
    if order is None:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    half = table.marks // 2
    first, last = np.full(len(known), len(order)), np.full(len(known), -1)
    first[known], last[known] = place[:half], place[half:]
    return group, order[np.minimum.reduceat(first, starts)[group]], order[np.maximum.reduceat(last, starts)[group]]


def _in_order(table: KeyTable) -> Rows | None:
    """The rows of a table in key order; None if a descending column has NULL or NaN."""
    ranks: list[Rows] = []
    for column, (values, data_type) in enumerate(zip(table.columns, table.types, strict=True)):
        rank, missing = _rank(values, data_type)
        if missing and table.is_descending(column):
            return None
        ranks.append(-rank if table.is_descending(column) else rank)
    return np.lexsort(ranks[::-1])


def _rank(column: pa.Array, data_type: DataType) -> tuple[Rows, bool]:
    """Rank of each value in the order of its type, and whether there is NULL or NaN, which are greatest."""
    ordering = ordered(column, data_type)
    if isinstance(ordering.values, pa.Array):
        rank = pc.rank(ordering.values, tiebreaker="dense").to_numpy().astype(np.int64)
    else:
        rank = np.unique(ordering.values, return_inverse=True)[1].astype(np.int64)
    if ordering.missing is not None:
        rank[ordering.missing] = len(rank) + 1
    return rank, ordering.missing is not None and bool(ordering.missing.any())


def _rows_of(table: KeyTable, rows: Rows) -> KeyTable:
    return KeyTable([column.take(pa.array(rows)) for column in table.columns], table.types, table.descending)


def _halves(count: int) -> tuple[Rows, Rows]:
    """The rows of the first half of a table, and those of the second."""
    return np.arange(count), np.arange(count, 2 * count)
