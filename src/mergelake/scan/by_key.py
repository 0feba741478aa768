"""Which parts of a large table a condition on the key leaves: from columns, before an object is made for any of them.

The first and last keys of the parts in a segment of a checkpoint are decoded once, and kept with the segment.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.log.part_map import Partitions
from mergelake.log.segment import OpenSegment
from mergelake.log.state import ActivePart
from mergelake.log.stored import as_rows
from mergelake.scan.boxes import Checker, KeyTable
from mergelake.scan.condition import Condition
from mergelake.scan.keys import ScanKeys, decode_keys


@dataclass(frozen=True, slots=True)
class _Ends:
    """Of the rows of a segment whose last key is known: first keys, then last keys."""

    table: KeyTable
    number: NDArray[np.int64]
    """By row: its place among them; -1 if its last key is not known."""


def parts_by_key(
    partitions: Partitions, names: Collection[str], condition: Condition, keys: ScanKeys
) -> list[ActivePart]:
    """The parts of some partitions that `condition`, on the primary key, does not exclude by their first and last key.

    Sorted by partition and block. Parts that lie in no segment are all there: they are few.
    """
    if len(names) == len(partitions):
        segments, others = partitions.remembered(as_rows, lambda: as_rows(partitions, names))
    else:
        segments, others = as_rows(partitions, names)
    found = list(others)
    for segment, rows in segments:
        ends = _ends(segment, keys)
        number = ends.number[rows]
        known = np.flatnonzero(number >= 0)
        first, half = number[known], ends.table.marks // 2
        alive = Checker(condition, ends.table).ranges(first, first + half)[0]
        kept = np.concatenate([rows[number < 0], rows[known[alive]]])
        if len(kept):
            found += segment.parts(np.sort(kept))
    return sorted(found, key=lambda part: part.info)


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
        kept = segment.derived[types, keys.descending] = _Ends(table, number)
    return kept
