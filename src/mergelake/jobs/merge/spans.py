"""The rows of each source that belong to a slice of a merge.

Parts are sorted, so these are consecutive rows. The primary index gives the granule in which a key begins to be
reached; of that granule the key's columns are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mergelake.engines.order.keys import TableKeys
from mergelake.format.serializations.values import decode_values
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.source import SourceReader
from mergelake.jobs.merge.split import Key, rows_before
from mergelake.store.metering.meter import Pool

_AT_ONCE = 16


def restrict_to_slice(task: MergeTask, sources: Sequence[SourceReader], keys: TableKeys) -> None:
    """Let each source read the rows of the slice that `task` writes, and no others."""
    assert task.split is not None
    assert task.slice is not None
    types = [key.type for key in keys.primary]
    bounds = task.split.keys[max(task.slice - 1, 0) : task.slice + 1]
    decoded = decode_values(b"".join(bounds), types, len(bounds))

    def restrict(source: SourceReader) -> None:
        if not source.rows:
            return
        rows = [0] * (task.slice == 0) + _first_rows(source, decoded, keys)
        source.restrict(rows[0], rows[1] if len(rows) > 1 else source.rows)

    with Pool(_AT_ONCE, thread_name_prefix="mergelake-slice") as pool:
        list(pool.map(restrict, sources))


def _first_rows(source: SourceReader, bounds: Key, keys: TableKeys) -> list[int]:
    """For each of the sorted keys `bounds` the first row of the source that does not come before it."""
    types, descending = [key.type for key in keys.primary], keys.descending[: keys.primary_length]
    granules = source.reader.granule_rows
    starts = np.concatenate(([0], np.cumsum(granules)))
    index = [array.slice(0, len(granules)) for array in source.reader.primary_index(types)]
    names = list(dict.fromkeys(name for key in keys.primary for name in key.columns))
    found: list[int] = []
    for at, before in enumerate(rows_before(index, bounds, types, descending).tolist()):
        if not before:
            found.append(0)
            continue
        bound = [array.slice(at, 1) for array in bounds]
        blocks = source.read_granules(names, before - 1, before)
        passed = (
            int(rows_before([key.evaluate(block) for key in keys.primary], bound, types, descending)[0])
            for block in blocks
        )
        found.append(int(starts[before - 1]) + sum(passed))
    return found
