"""Aggregate states by the functions of ClickHouse, whole columns at a time.

A statement casts the bytes of states to the type of the column, merges those of each group in their order
(`-MergeState`, in one thread), or makes them of values (`-State`), and casts the results back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import InternalError, error
from mergelake.core.base.text import quote_string
from mergelake.core.convert.storage import to_storage
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_schema
from mergelake.format.serializations.ragged import arrow_offsets
from mergelake.query.embedded import engine
from mergelake.query.embedded.arrow_bridge import exact_expression, to_public, without_nothing

_ROWS_MAX, _BYTES_MAX = 65536, 8 << 20
"""Rows and bytes of one statement, unless a single group has more: in memory, states are larger than here."""
_SETTINGS = "max_threads = 1, max_bytes_before_external_group_by = 0, max_bytes_ratio_before_external_group_by = 0"


class EmbeddedFunctions:
    """`engines.rules.states.StateFunctions`; SUPPORT_IS_DISABLED without the extra `sql`."""

    def merge(self, data_type: t.AggregateFunction, states: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
        """The states of each group, merged."""
        edges = arrow_offsets(states)
        kind = quote_string(str(data_type))
        sql = f"{_called(data_type, 'MergeState')}(CAST(states, {kind}))"
        return _grouped(data_type, sql, pa.table({"states": states}), begins, edges[begins])

    def make(
        self, data_type: t.AggregateFunction, arguments: Sequence[pa.Array], begins: NDArray[np.int64]
    ) -> pa.Array:
        """The states of the rows of each group."""
        kinds = {f"a{at}": kind for at, kind in enumerate(data_type.arguments)}
        schema = storage_schema(kinds)
        given = pa.table([array.cast(field.type) for array, field in zip(arguments, schema, strict=True)], schema)
        # Cast, so that a type that ClickHouse gives another name is an error.
        exact = ", ".join(exact_expression(name, kind) for name, kind in kinds.items())
        sql = f"CAST({_called(data_type, 'State')}({exact}), {quote_string(str(data_type))})"
        return _grouped(data_type, sql, given, begins, begins * (given.nbytes // given.num_rows))

    def finish(
        self, expression: str, states: Mapping[str, tuple[t.AggregateFunction, pa.Array]], result: t.DataType
    ) -> pa.Array:
        """The values of an expression over the results of states."""
        _check_available("Aggregate functions")
        values = ", ".join(
            f"finalizeAggregation(CAST({name}, {quote_string(str(kind))})) AS {name}"
            for name, (kind, _) in states.items()
        )
        sql = (
            f"SELECT CAST({expression}, {quote_string(str(result))}) AS value FROM (SELECT {values} FROM Python(given))"
        )
        given = pa.table({name: array for name, (_, array) in states.items()})
        answer = engine.run(without_nothing(sql, ["value"], [str(result)]), {"given": given}).table()
        return to_storage(to_public(answer, [result]).column(0), result)


EMBEDDED = EmbeddedFunctions()


def _check_available(what: str) -> None:
    if not engine.available():
        raise error(
            "SUPPORT_IS_DISABLED",
            f"{what} are computed by ClickHouse, and the package chdb is not installed",
            "pip install 'mergelake[sql]'",
        )


def _called(data_type: t.AggregateFunction, combinator: str) -> str:
    """The function with a combinator and its parameters."""
    name, bracket, parameters = data_type.function.partition("(")
    return f"{name}{combinator}{bracket}{parameters}"


def _grouped(
    data_type: t.AggregateFunction,
    expression: str,
    columns: pa.Table,
    begins: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> pa.Array:
    """The state that an expression gives for each group, as bytes; `sizes` are bytes of the rows before each group."""
    _check_available(f"States of {data_type}")
    sql = f"SELECT CAST({expression}, 'String') FROM Python(given) GROUP BY number ORDER BY number SETTINGS {_SETTINGS}"
    found = []
    for first, last in _slices(begins, sizes):
        starts = begins[first:last]
        end = int(begins[last]) if last < len(begins) else columns.num_rows
        number = np.repeat(np.arange(len(starts), dtype=np.uint64), np.diff(starts, append=end))
        piece = columns.slice(int(starts[0]), end - int(starts[0])).append_column("number", pa.array(number))
        result = engine.run(sql, {"given": piece}).table().column(0)
        if len(result) != len(starts):
            raise InternalError(f"{len(starts)} groups of states of {data_type} became {len(result)}")
        found += [chunk.cast(pa.binary()) for chunk in result.chunks]
    return pa.concat_arrays(found)


def _slices(begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of groups, each for one statement."""
    first = 0
    while first < len(begins):
        by_rows = np.searchsorted(begins, begins[first] + _ROWS_MAX)
        by_bytes = np.searchsorted(sizes, sizes[first] + _BYTES_MAX)
        last = max(first + 1, int(min(by_rows, by_bytes)))
        yield first, last
        first = last
