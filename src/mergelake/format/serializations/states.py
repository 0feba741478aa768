"""States of aggregate functions: where one ends and the next begins.

A column of type AggregateFunction holds the states of its rows one behind the other, without lengths; where one ends
depends on the function. `state_programs` has a program for each known function, by which `kernels_states` walks over
its states. Those of other functions cannot be cut apart: their columns are copied whole with their part and refused
elsewhere.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.format.kernels.kernels_states import DEPTH, walk_states
from mergelake.format.kernels.memory import Region, region
from mergelake.format.serializations.ragged import arrow_offsets
from mergelake.format.serializations.serialization import (
    Bounds,
    Serialization,
    Sink,
    StreamSource,
    as_numpy,
    coerced,
    refuse_nulls,
)
from mergelake.format.serializations.state_programs import state_program


class States(Serialization):
    """States as binary values, one a row, in their form on disk."""

    arrow = pa.binary()

    def __init__(self, stream: str, data_type: t.AggregateFunction) -> None:
        self.stream = stream
        self.own_streams = (stream,)
        self.data_type = data_type

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`, whose every value must be exactly one state."""
        refuse_nulls(array, nulls=nulls)
        array = coerced(array, self.arrow)
        body, edges = check_states(array, self.data_type)
        out.put(self.stream, body, edges[bounds])

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        cursor = source.stream(self.stream)
        steps = _steps(self.data_type)
        rest = cursor.rest()
        # Every state takes a byte at least; a row count that lies must not make us allocate.
        if rows > rest.size:
            raise cursor.corrupt("The stream ends early", f"{rows} states", f"{rest.size} bytes")
        edges = np.empty(rows + 1, np.int32)
        used = walk_states(as_numpy(rest, np.uint8), steps, rows, edges, np.zeros(DEPTH, np.int64))
        if used < 0:
            raise cursor.corrupt(f"A state of {self.data_type} leaves the stream")
        return pa.Array.from_buffers(self.arrow, rows, [None, pa.py_buffer(edges), cursor.take(used).buffer()])


def check_states(states: pa.Array, data_type: t.AggregateFunction) -> tuple[Region, NDArray[np.int64]]:
    """The bytes of a binary array, and where each value begins and the last ends.

    Raises INCORRECT_DATA unless each value is exactly one state of the type.
    """
    edges = arrow_offsets(states)
    data = states.buffers()[2]
    body = region(data if data is not None else b"").part(int(edges[0]), int(edges[-1]))
    edges -= edges[0]
    walked = np.empty(len(edges), np.int32)
    end = walk_states(as_numpy(body, np.uint8), _steps(data_type), len(states), walked, np.zeros(DEPTH, np.int64))
    if end != body.size or not np.array_equal(walked, edges):
        row = int(np.argmax(walked != edges)) - 1 if end >= 0 else 0
        raise error("INCORRECT_DATA", f"Value {max(row, 0)} is not one state of type {data_type}")
    return body, edges


def _steps(data_type: t.AggregateFunction) -> NDArray[np.int64]:
    program = state_program(data_type)
    if program is None:
        raise unknown_state(data_type)
    return np.array(program.steps, np.int64).reshape(-1, 3)


def unknown_state(data_type: t.DataType) -> Exception:
    """The refusal of a column whose states cannot be cut apart."""
    return error(
        "NOT_IMPLEMENTED",
        f"States of {data_type} have no lengths, and where they end is not known here",
        "Leave the column out of the query, or read the part with ClickHouse",
    )
