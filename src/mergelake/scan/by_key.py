"""Which parts of a large table a condition on the key leaves: from columns, before an object is made for any of them.

The first and last keys of the parts in a segment of a checkpoint are decoded once, and kept with the segment; and so
are, for each `GROUP_ROWS` of its rows, the first and the last key of all of them. A condition is asked of the groups
of all segments, and then of the rows of those that it leaves: a look-up costs what it finds, where neighbours have
similar keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.types import DataType
from mergelake.log.part_map import Partitions
from mergelake.log.segment import OpenSegment
from mergelake.log.state import ActivePart
from mergelake.log.stored import Everything, as_rows, everything
from mergelake.scan.condition import Condition
from mergelake.scan.hyperrectangles import KeyConditionEvaluator, KeyTable
from mergelake.scan.keys import ScanKeys, decode_keys
from mergelake.scan.ordered import ordered

Rows = NDArray[np.int64]
GROUP_ROWS = 128


@dataclass(frozen=True, slots=True)
class _Ends:
    """Of the rows of a segment whose last key is known: first keys, then last keys."""

    table: KeyTable
    number: Rows
    """By row: its place among them; -1 if its last key is not known."""
    group: Rows
    """Numbers of the groups of which all last keys are known."""
    first: Rows
    """Of each of these: where in the table its first key stands,"""
    last: Rows
    """and its last one."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of several segments."""

    table: KeyTable
    """First keys of the groups of which they are known, then last keys."""
    place: Rows
    """Of each of these: its number among all groups."""
    starts: Rows
    """By segment: the number of its first group, and at the end how many groups there are."""


def parts_by_key(
    partitions: Partitions, names: Collection[str], condition: Condition, keys: ScanKeys
) -> list[ActivePart]:
    """The parts of some partitions that `condition`, on the primary key, does not exclude by their first and last key.

    Sorted by partition and block. Parts that lie in no segment are all there: they are few.
    """
    if len(names) < len(partitions):
        segments, others = as_rows(partitions, names)
        found = list(others)
        for segment, rows in segments:
            found += _made(segment, rows[_judged(segment, rows, condition, keys)])
    else:
        every = partitions.remembered(everything, partial(everything, partitions))
        found = every.others(partitions)
        for segment, rows in _grouped(partitions, every, condition, keys) if every.segments else ():
            left = rows[_judged(segment, rows, condition, keys)]
            found += _made(segment, every.active(partitions, segment, left))
    return sorted(found, key=lambda part: part.info)


def _made(segment: OpenSegment, rows: Rows) -> list[ActivePart]:
    return segment.parts(np.sort(rows)) if len(rows) else []


def _judged(segment: OpenSegment, rows: Rows, condition: Condition, keys: ScanKeys) -> NDArray[np.bool_]:
    """Which of some rows the condition leaves."""
    ends = _ends(segment, keys)
    number = ends.number[rows]
    known = np.flatnonzero(number >= 0)
    first, half = number[known], ends.table.marks // 2
    if 2 * len(first) < half:  # what is derived from the keys costs as much as they are
        table, begin, end = _taken(ends.table, np.concatenate([first, first + half])), *_halves(len(first))
    else:
        table, begin, end = ends.table, first, first + half
    left = np.ones(len(rows), np.bool_)
    left[known] = KeyConditionEvaluator(condition, table).ranges(begin, end)[0]
    return left


def _grouped(
    partitions: Partitions, every: Everything, condition: Condition, keys: ScanKeys
) -> Iterator[tuple[OpenSegment, Rows]]:
    """Segments and the rows in their groups that the condition leaves; parts that are not active any more, too."""
    key = (_groups, keys.primary.types, keys.descending)
    groups = partitions.remembered(key, partial(_groups, every.segments, keys))
    left = np.ones(groups.starts[-1], np.bool_)
    left[groups.place] = KeyConditionEvaluator(condition, groups.table).ranges(*_halves(len(groups.place)))[0]
    for segment, start, end in zip(every.segments, groups.starts, groups.starts[1:], strict=False):
        if left[start:end].any():
            yield segment, np.flatnonzero(np.repeat(left[start:end], GROUP_ROWS)[: segment.ref.rows])


def _groups(segments: Sequence[OpenSegment], keys: ScanKeys) -> _Groups:
    found = [_ends(segment, keys) for segment in segments]
    counts = [-(-segment.ref.rows // GROUP_ROWS) for segment in segments]
    starts = np.cumsum([0, *counts], dtype=np.int64)
    ends_of = [*((ends.table, ends.first) for ends in found), *((ends.table, ends.last) for ends in found)]
    taken = [_taken(table, rows).columns for table, rows in ends_of]
    columns = [pa.concat_arrays(column) for column in zip(*taken, strict=True)]
    place = [ends.group + start for ends, start in zip(found, starts, strict=False)]
    table = KeyTable(columns, keys.primary.types, keys.descending)
    return _Groups(table, np.concatenate([*place, np.zeros(0, np.int64)]), starts)


def _ends(segment: OpenSegment, keys: ScanKeys) -> _Ends:
    types = keys.primary.types
    kept: _Ends | None = segment.derived.get((types, keys.descending))
    if kept is None:
        low, high = (segment.rows[name].to_pylist() for name in ("key_low", "key_high"))
        known = np.array([bool(text) for text in high], np.bool_)
        low = [text for text, end in zip(low, high, strict=True) if end]
        first, last = decode_keys(low, types), decode_keys([end for end in high if end], types)
        table = KeyTable([pa.concat_arrays([a, b]) for a, b in zip(first, last, strict=True)], types, keys.descending)
        number = np.where(known, np.cumsum(known) - 1, -1)
        kept = segment.derived[types, keys.descending] = _Ends(table, number, *_in_groups(table, known))
    return kept


def _in_groups(table: KeyTable, known: NDArray[np.bool_]) -> tuple[Rows, Rows, Rows]:
    """Numbers of the groups whose keys are all known, and where in the table the first and the last one stand."""
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
    """The rows of a table in the order of the key; None if that is not one that can be relied on."""
    ranks: list[Rows] = []
    for column, (values, data_type) in enumerate(zip(table.columns, table.types, strict=True)):
        rank, missing = _rank(values, data_type)
        if missing and table.is_descending(column):
            return None
        ranks.append(-rank if table.is_descending(column) else rank)
    return np.lexsort(ranks[::-1])


def _rank(column: pa.Array, data_type: DataType) -> tuple[Rows, bool]:
    """The place of each value in the order of its type; and whether there is NULL or NaN, the greatest of all."""
    found = ordered(column, data_type)
    if isinstance(found.values, pa.Array):
        rank = pc.rank(found.values, tiebreaker="dense").to_numpy().astype(np.int64)
    else:
        rank = np.unique(found.values, return_inverse=True)[1].astype(np.int64)
    if found.missing is not None:
        rank[found.missing] = len(rank) + 1
    return rank, found.missing is not None and bool(found.missing.any())


def _taken(table: KeyTable, rows: Rows) -> KeyTable:
    return KeyTable([column.take(pa.array(rows)) for column in table.columns], table.types, table.descending)


def _halves(count: int) -> tuple[Rows, Rows]:
    """The rows of the first half of a table, and those of the second."""
    return np.arange(count), np.arange(count, 2 * count)
