"""Merges aggregate states by the functions of ClickHouse, whole columns at a time.

A statement casts the bytes of states to the type of the column, merges those of each group in their order
(`-MergeState`, in one thread) and casts the results back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core import types as t
from mergelake.core.errors import InternalError, error
from mergelake.core.text import quote_string
from mergelake.format.ragged import arrow_offsets
from mergelake.query.embedded import engine

_ROWS_MAX, _BYTES_MAX = 65536, 8 << 20
"""Rows and bytes of one statement, unless a single group has more: in memory, states are larger than here."""
_SETTINGS = "max_threads = 1, max_bytes_before_external_group_by = 0, max_bytes_ratio_before_external_group_by = 0"


def merge_states(data_type: t.AggregateFunction, states: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
    """`order.states.StateMerger` of all functions; SUPPORT_IS_DISABLED without the extra `sql`."""
    if not engine.available():
        raise error(
            "SUPPORT_IS_DISABLED",
            f"States of {data_type} are merged by ClickHouse, and the package chdb is not installed",
            "pip install 'mergelake[sql]'",
        )
    name, bracket, parameters = data_type.function.partition("(")
    kind = quote_string(str(data_type))
    sql = (
        f"SELECT CAST({name}MergeState{bracket}{parameters}(CAST(states, {kind})), 'String') FROM Python(given) "
        f"GROUP BY number ORDER BY number SETTINGS {_SETTINGS}"
    )
    merged = []
    for first, last in _slices(states, begins):
        starts = begins[first:last]
        end = int(begins[last]) if last < len(begins) else len(states)
        piece = states.slice(int(starts[0]), end - int(starts[0]))
        number = np.repeat(np.arange(len(starts), dtype=np.uint64), np.diff(starts, append=end))
        given = pa.table({"number": number, "states": piece})
        result = engine.run(sql, {"given": given}).table().column(0)
        if len(result) != len(starts):
            raise InternalError(f"{len(starts)} groups of states of {data_type} became {len(result)}")
        merged += [chunk.cast(pa.binary()) for chunk in result.chunks]
    return pa.concat_arrays(merged)


def _slices(states: pa.Array, begins: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of groups, each for one statement."""
    edges = arrow_offsets(states)
    starts = edges[begins]
    first = 0
    while first < len(begins):
        by_rows = np.searchsorted(begins, begins[first] + _ROWS_MAX)
        by_bytes = np.searchsorted(starts, starts[first] + _BYTES_MAX)
        last = max(first + 1, int(min(by_rows, by_bytes)))
        yield first, last
        first = last
