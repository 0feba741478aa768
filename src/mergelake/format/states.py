"""States of aggregate functions: where one ends and the next begins.

A column of type AggregateFunction holds the states of its rows one behind the other, without lengths; only who knows
the function can cut them apart. `state_program` turns a type into a short program that walks over one state::

    count                              a varuint
    sum                                the sum, of fixed width
    avg                                the sum, then the count as a varuint
    min max any anyLast of fixed width u8 (0: none), then the value if there is one
    … of String                        i32 length with the final zero (-1: none), then that many bytes
    argMin argMax                      the state of any(a), then the state of min or max(b)
    uniq                               u8, varuint n, n u32
    uniqExact                          varuint n, n values (of strings and several arguments: 16-byte hashes)
    groupArray groupUniqArray          varuint n, n values (plain numbers), or n times varuint length and bytes
    var… stddev…                       three f64 (of Float32 three f32)
    f(Nullable(T))                     u8 whether a value came (0: nothing follows), then f(T); lists have no such byte
    fIf                                as f without its last argument

States of other functions cannot be cut: their columns are copied whole with their part and refused elsewhere.

Source: ClickHouse, `src/AggregateFunctions/` (`serialize` of each); every line is tested against ClickHouse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core import types as t
from mergelake.core.arrow import storage_type
from mergelake.core.errors import error
from mergelake.core.jit import kernel
from mergelake.format.memory import region
from mergelake.format.node import Bounds, Node, Sink, Source, as_numpy, coerced, refuse_nulls

i64: Any = np.int64  # int() would keep an unsigned number unsigned in numba

Program = tuple[tuple[int, int], ...]
"""Steps (what, operand) over one state."""

FIXED, VARUINT, OPTIONAL, TEXT, LIST, TEXTS, UNIQ, FLAG = range(8)

_EMPTY = {VARUINT: b"\0", OPTIONAL: b"\0", TEXT: b"\xff\xff\xff\xff", LIST: b"\0", TEXTS: b"\0", UNIQ: b"\0\0"}
_SINGLE = ("min", "max", "any", "anyLast", "any_value", "first_value", "last_value")
_LISTS = ("groupArray", "groupUniqArray")
_MOMENTS = ("varPop", "varSamp", "stddevPop", "stddevSamp", "VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP")


def state_program(data_type: t.AggregateFunction) -> Program | None:
    """The steps over one state of `data_type`; None for a function that we cannot walk over."""
    name = data_type.function.partition("(")[0]
    arguments = tuple(map(_plain, data_type.arguments))
    if name.endswith("If") and arguments:
        name, arguments = name[:-2], arguments[:-1]
    if name == "count" and data_type.version is None:
        return ((VARUINT, 0),)
    if data_type.version is not None or not arguments:
        return None
    bare = tuple(a.inner if isinstance(a, t.Nullable) else a for a in arguments)
    if any(isinstance(a, t.Nothing) for a in bare):
        return None
    steps = _steps(name, bare)
    if steps is None or bare == arguments or name in _LISTS:
        return steps
    return ((FLAG, 1 if name.startswith("uniq") else 0), *steps)


def empty_state(program: Program) -> bytes:
    """The state over no rows."""
    out = b""
    for step, operand in program:
        if step == FLAG:
            out += bytes([operand])
            if not operand:
                return out
            continue
        out += bytes(operand) if step == FIXED else _EMPTY[step]
    return out


def _plain(data_type: t.DataType) -> t.DataType:
    match data_type:
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return _plain(inner)
        case _:
            return data_type


def _steps(name: str, arguments: tuple[t.DataType, ...]) -> Program | None:
    if name in ("argMin", "argMax") and len(arguments) == 2:
        left, right = _single(arguments[0]), _single(arguments[1])
        return None if left is None or right is None else left + right
    if name == "uniqExact":
        width = _width(arguments[0]) if len(arguments) == 1 else 0
        return ((LIST, width if width and isinstance(arguments[0], _RAW_KEYS) else 16),)
    if name == "uniq":
        return ((UNIQ, 0),)
    if len(arguments) != 1:
        return None
    (kind,) = arguments
    if name in _SINGLE:
        return _single(kind)
    if name == "sum":
        width = _sum_width(kind)
        return ((FIXED, width),) if width else None
    if name == "avg":
        width = _sum_width(kind)
        return ((FIXED, width), (VARUINT, 0)) if width else None
    if name in _LISTS:
        if isinstance(kind, _RAW_ELEMENTS):
            return ((LIST, _width(kind)),)
        return ((TEXTS, 0),) if isinstance(kind, t.String) or _width(kind) else None
    if name in _MOMENTS and _sum_width(kind):
        return ((FIXED, 12 if kind == t.Float(32) else 24),)
    return None


def _single(kind: t.DataType) -> Program | None:
    """The steps over a state that holds one value."""
    if isinstance(kind, t.String):
        return ((TEXT, 0),)
    width = _width(kind)
    return ((OPTIONAL, width),) if width else None


def _sum_width(kind: t.DataType) -> int:
    """Bytes of a sum of such values; 0 if they cannot be summed."""
    match kind:
        case t.Int(bits):
            return max(bits, 64) // 8
        case t.Float() | t.Bool():
            return 8
        case t.Decimal():
            return 32 if kind.bits == 256 else 16
        case _:
            return 0


def _width(kind: t.DataType) -> int:
    """Bytes of a value of fixed width, else 0."""
    if isinstance(kind, (t.String, t.Array, t.Map, t.Tuple, t.Nullable, t.AggregateFunction, t.Nothing)):
        return 0
    return int(storage_type(kind).bit_width) // 8


_RAW_ELEMENTS = (t.Int, t.Float, t.BFloat16, t.Bool, t.Date, t.DateTime, t.Enum, t.IPv4)
"""What the lists of groupArray hold as it is; other types stand in them with their length."""
_RAW_KEYS = (*_RAW_ELEMENTS, t.Date32, t.UUID, t.IPv6)
"""What the sets of uniqExact hold as it is; of other types they hold a hash."""


class States(Node):
    """States as binary values, one a row, just as they lie."""

    arrow = pa.binary()

    def __init__(self, stream: str, data_type: t.AggregateFunction) -> None:
        self.stream = stream
        self.data_type = data_type
        self._program = state_program(data_type)

    def streams(self) -> Iterator[str]:
        """Names of the streams, in the order of a Compact part."""
        yield self.stream

    def _steps(self) -> NDArray[np.int64]:
        if self._program is None:
            raise unknown_state(self.data_type)
        return np.array(self._program, np.int64)

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`, whose every value must be exactly one state."""
        refuse_nulls(array, nulls=nulls)
        array = coerced(array, self.arrow)
        edges = np.zeros(1, np.int64)
        if len(array):
            buffer = np.frombuffer(array.buffers()[1], np.int32)
            edges = buffer[array.offset : array.offset + len(array) + 1].astype(np.int64)
        data = array.buffers()[2]
        body = region(data if data is not None else b"").part(int(edges[0]), int(edges[-1]))
        edges -= edges[0]
        found = np.empty(len(edges), np.int32)
        end = _walk(as_numpy(body, np.uint8), self._steps(), len(array), found)
        if end != body.size or not np.array_equal(found, edges):
            row = int(np.argmax(found != edges)) - 1 if end >= 0 else 0
            raise error("INCORRECT_DATA", f"Value {max(row, 0)} is not one state of type {self.data_type}")
        out.put(self.stream, body, edges[bounds])

    def decode(self, source: Source, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        cursor = source.stream(self.stream)
        steps = self._steps()
        rest = cursor.rest()
        # Every state takes a byte at least; a row count that lies must not make us allocate.
        if rows > rest.size:
            raise cursor.corrupt("The stream ends early", f"{rows} states", f"{rest.size} bytes")
        edges = np.empty(rows + 1, np.int32)
        used = _walk(as_numpy(rest, np.uint8), steps, rows, edges)
        if used < 0:
            raise cursor.corrupt(f"A state of {self.data_type} leaves the stream")
        return pa.Array.from_buffers(self.arrow, rows, [None, pa.py_buffer(edges), cursor.take(used).buffer()])


def unknown_state(data_type: t.DataType) -> Exception:
    """The refusal of a column whose states cannot be cut apart."""
    return error(
        "NOT_IMPLEMENTED",
        f"States of {data_type} have no lengths, and where they end is not known here",
        "Leave the column out of the query, or read the part with ClickHouse",
    )


@kernel()
def _varuint(source: Any, at: int) -> tuple[int, int]:
    """The varuint at `at` and the position behind it, which is -1 for one that ends too early or is too large."""
    value: Any = 0
    shift = 0
    while at < len(source) and shift <= 56:
        byte = i64(source[at])
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift == 63 and at < len(source):
            # The tenth byte of a 64-bit count: only its place matters.
            return i64(0x7FFFFFFFFFFFFFFF), at + 1
    return 0, -1


@kernel()
def _walk(source: Any, steps: Any, rows: int, edges: Any) -> Any:
    """Fill `edges` with where each of `rows` states starts, and the end; returns the end, -1 if a state is broken."""
    size = len(source)
    at: Any = 0
    for row in range(rows):
        edges[row] = at
        for i in range(len(steps)):
            step = steps[i, 0]
            width = steps[i, 1]
            if step == 0:
                at += width
            elif step == 1:
                _, at = _varuint(source, at)
                if at < 0:
                    return -1
            elif step == 2 or step == 7:
                if at >= size or source[at] > 1:
                    return -1
                at += 1
                if step == 2:
                    at += width * i64(source[at - 1])
                elif source[at - 1] == 0:
                    break
            elif step == 3:
                if size - at < 4:
                    return -1
                length = i64(0)
                for b in range(4):
                    length |= i64(source[at + b]) << (8 * b)
                at += 4
                if length <= 0x7FFFFFFF:
                    at += length
                elif length != 0xFFFFFFFF:
                    return -1
            else:
                if step == 6:
                    at += 1
                    width = 4
                if at > size:
                    return -1
                count, at = _varuint(source, at)
                if at < 0 or count > size:
                    return -1
                if step == 5:
                    for _ in range(count):
                        length, at = _varuint(source, at)
                        if at < 0 or length > size - at:
                            return -1
                        at += length
                else:
                    at += count * width
            if at > size:
                return -1
        if at > 0x7FFFFFFF:
            return -1
    edges[rows] = at
    return at
