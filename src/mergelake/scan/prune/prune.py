"""Selection of the marks of a part that may hold matching rows, and of parts by the partition key.

The granule between two marks is read if the condition can be true in the hyperrectangles between their keys
(`scan.prune.hyperrectangles`). ClickHouse has two search algorithms, which EXPLAIN names:

* *generic exclusion search*: split the marks in eight, drop ranges that cannot match, recurse into the others. A range
  can match if a granule in it can, so the result is the same as that of testing every granule, which is what is done
  here, for all granules at once;
* *binary search* where the matching keys are contiguous: find the first and the last granule.

Numbers of parts, marks and ranges are equal to ClickHouse's.

Source: ClickHouse, `MergeTreeDataSelectExecutor::markRangesFromPKRange`, `PartitionPruner.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.types.types import DataType
from mergelake.scan.prune.condition import Condition, is_continuous, is_useless
from mergelake.scan.prune.hyperrectangles import Hyperrectangle, KeyConditionEvaluator, KeyTable, Span

MarkRange = tuple[int, int]
"""Half-open, in marks."""

BINARY_SEARCH = "binary search"
EXCLUSION_SEARCH = "generic exclusion search"
_PROBES = 128


def search_algorithm(condition: Condition, key_columns: int) -> str:
    """The algorithm by which ClickHouse would search the primary index; empty if it does not search."""
    if is_useless(condition):
        return ""
    return BINARY_SEARCH if is_continuous(condition, key_columns) else EXCLUSION_SEARCH


def mark_ranges(keys: KeyTable, condition: Condition, marks: int | None = None) -> tuple[MarkRange, ...]:
    """Mark ranges that may hold matching rows, in order, adjacent ones joined.

    Ranges are half-open, in marks, and cover every matching row; empty when no row can match. `keys` holds the key at
    each mark of one part, the final mark included. `marks` is the number of granules, needed only for a table without
    a key.
    """
    granules = keys.marks - 1 if keys.columns else (marks or 0)
    if granules <= 0:
        return ()
    if is_useless(condition) or not keys.columns:
        return ((0, granules),)
    evaluator = KeyConditionEvaluator(condition, keys)
    if is_continuous(condition, len(keys.columns)):
        return _binary_search(evaluator, granules)
    begin = np.arange(granules)
    return join(np.flatnonzero(evaluator.ranges(begin, begin + 1)[0]))


def mark_ranges_of_parts(
    indexes: Sequence[Sequence[pa.Array]],
    condition: Condition,
    types: Sequence[DataType],
    descending: Sequence[bool],
    bounds: Mapping[int, pa.Array],
) -> list[tuple[MarkRange, ...]]:
    """`mark_ranges` of many parts at once: `indexes[p]` are the key columns at the marks of part p.

    Thousands of small parts cost little more than one with as many marks. Every granule is tested, so contradictory
    conditions select fewer granules than a binary search in each part would. `bounds` as in `KeyTable`.
    """
    marks = np.array([len(index[0]) for index in indexes], dtype=np.int64)
    columns = [pa.concat_arrays([index[c] for index in indexes]) for c in range(len(types))]
    keys = KeyTable(columns, types, descending, bounds, np.repeat(np.arange(len(indexes)), marks))
    ends = np.cumsum(marks)
    begin = np.delete(np.arange(int(ends[-1])), ends - 1)
    fits = np.zeros(int(ends[-1]), dtype=bool)
    fits[begin] = KeyConditionEvaluator(condition, keys).ranges(begin, begin + 1)[0]
    hits = np.flatnonzero(fits)
    cuts = np.searchsorted(hits, ends)
    out: list[tuple[MarkRange, ...]] = []
    at = 0
    for first, stop in zip((ends - marks).tolist(), cuts.tolist(), strict=True):
        out.append(join(hits[at:stop] - first))
        at = stop
    return out


def join(granules: NDArray[np.int64]) -> tuple[MarkRange, ...]:
    """Ascending granule numbers as half-open ranges, adjacent ones joined.

    >>> join(np.array([0, 1, 4]))
    ((0, 2), (4, 5))
    """
    if len(granules) <= 1:
        return tuple((first, first + 1) for first in granules.tolist())
    breaks = np.flatnonzero(np.diff(granules) != 1)
    begins = granules[np.concatenate(([0], breaks + 1))]
    ends = granules[np.concatenate((breaks, [len(granules) - 1]))] + 1
    return tuple(zip(begins.tolist(), ends.tolist(), strict=True))


def _binary_search(evaluator: KeyConditionEvaluator, granules: int) -> tuple[MarkRange, ...]:
    """The one range between the first and the last granule that can match.

    Whether [0, m) can match is monotonic in m, so each round probes many values of m.
    """

    def until(ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        return evaluator.ranges(np.zeros(len(ends), dtype=np.int64), ends)[0]

    first = _boundary(until, 0, granules + 1) - 1
    if first == granules:
        return ()

    def after(begins: NDArray[np.int64]) -> NDArray[np.bool_]:
        return ~evaluator.ranges(begins, np.full(len(begins), granules))[0]

    return ((first, _boundary(after, first, granules)),)


def _boundary(holds: Callable[[NDArray[np.int64]], NDArray[np.bool_]], below: int, above: int) -> int:
    """The least m in (below, above) for which `holds` is true, else `above`; `holds` must be monotonic."""
    while below + 1 < above:
        step = max(1, (above - below) // _PROBES)
        probes = np.arange(below + step, above, step)
        hits = np.flatnonzero(holds(probes))
        if len(hits):
            above = int(probes[hits[0]])
            below = above - step
        else:
            below = int(probes[-1])
    return above


def parts_by_minmax(
    condition: Condition, low: Sequence[pa.Array], high: Sequence[pa.Array], types: Sequence[DataType]
) -> NDArray[np.bool_]:
    """For each part whether the condition on the partition's source columns can be true.

    `low[c]` and `high[c]` hold the minimum and the maximum of column c, one value a part.
    """
    count = len(low[0])
    if is_useless(condition):
        return np.ones(count, dtype=bool)
    joined = [pa.concat_arrays([a, b]) for a, b in zip(low, high, strict=True)]
    rows = np.arange(count)
    box: Hyperrectangle = {c: Span(rows, False, rows + count, False) for c in range(len(low))}
    return KeyConditionEvaluator(condition, KeyTable(joined, types)).box(box, count)[0]


def parts_by_partition(
    condition: Condition, values: Sequence[pa.Array], types: Sequence[DataType]
) -> NDArray[np.bool_]:
    """For each part whether the condition on the partition key can be true; `values[k]` is the part's k-th value."""
    count = len(values[0])
    if is_useless(condition):
        return np.ones(count, dtype=bool)
    rows = np.arange(count)
    box: Hyperrectangle = {c: Span(rows, False, rows, False) for c in range(len(values))}
    return KeyConditionEvaluator(condition, KeyTable(list(values), types), single_point=True).box(box, count)[0]
