"""Columns of aggregate states (`AggregateFunction`), as rules that merge the states of groups of rows.

Merging is ClickHouse's business: `StateFunctions`, which run its functions, are passed in by those who have them. The
states of the simple functions are merged here, byte for byte as ClickHouse does, so that tables of these need none:

===============================================  =====================================================
`count`, `avg`, `sum`, `sumWithOverflow`         what is in the state is added: integers wrap around, floats one
                                                 after the other from 0.0
`min`, `max`                                     the state with the least or greatest value
`any`, `anyLast`                                 the first or last state that has a value
`groupBitAnd`, `groupBitOr`, `groupBitXor`       the bits of all states
===============================================  =====================================================

With `-If` the states are the same.
Over Nullable arguments a byte before the state says whether there was a value.

Source: ClickHouse, `src/AggregateFunctions/` (`merge` and `serialize` of each).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.jit.intrinsics import kernel
from mergelake.core.model.schema import Column
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.engines.rules.aggregates import extreme_rows, first_of, float_sum
from mergelake.engines.rules.mode import Rule
from mergelake.engines.rules.sums import total
from mergelake.format.serializations import ragged
from mergelake.format.serializations.ragged import VarBinaryColumn
from mergelake.format.serializations.state_programs import plain_arguments
from mergelake.format.serializations.states import check_states

Groups = NDArray[np.int64]
"""The row at which each group begins."""


class StateMerger(Protocol):
    """Merges states of one or any aggregate function."""

    def __call__(self, data_type: t.AggregateFunction, states: pa.Array, begins: Groups) -> pa.Array:
        """One state for each group: those of its rows merged in their order; binary arrays.

        `begins` ascends from 0. The states were checked to be such of the type.
        """


class StateFunctions(Protocol):
    """All aggregate functions, of which states are made, merged and finished. Can be pickled."""

    def merge(self, data_type: t.AggregateFunction, states: pa.Array, begins: Groups) -> pa.Array:
        """A `StateMerger` of any function."""

    def make(self, data_type: t.AggregateFunction, arguments: Sequence[pa.Array], begins: Groups) -> pa.Array:
        """The state of the rows of each group, in their order, as a binary array.

        `arguments` are those of the function in storage form, one at least; `begins` ascends from 0.
        """

    def finish(
        self, expression: str, states: Mapping[str, tuple[t.AggregateFunction, pa.Array]], result: t.DataType
    ) -> pa.Array:
        """The values of an expression over the results of states, one for each row, in storage form.

        `states` has type and states by the name that the expression uses; the values are cast to the type `result`.
        """


@dataclass(frozen=True, slots=True)
class StateRule:
    """The `Rule` of a column of states."""

    column: str
    data_type: t.AggregateFunction
    merge: StateMerger | None = None
    """None: groups of several rows cannot be merged."""

    def __call__(self, values: pa.Array, begins: Groups) -> pa.Array:
        """The merged state of each group; the state of a single row stays as it is."""
        lengths = np.diff(begins, append=len(values))
        several = lengths > 1
        if not several.any():
            return values.take(pa.array(begins))
        if self.merge is None:
            raise self.refusal()
        rows = np.repeat(several, lengths)
        states = values if rows.all() else values.filter(pa.array(rows))
        check_states(states, self.data_type)
        merged = self.merge(self.data_type, states, _starts(lengths[several]))
        if several.all():
            return merged
        places = np.where(several, np.cumsum(several) - 1 + len(values), begins)
        return pa.concat_arrays([values, merged]).take(pa.array(places))

    def refusal(self) -> MergelakeError:
        """The error of a process that cannot merge these states."""
        return error(
            "SUPPORT_IS_DISABLED",
            f"States of column {self.column}, {self.data_type}, are merged by ClickHouse, which is not here",
            "pip install 'mergelake[sql]'",
        )


@dataclass(frozen=True, slots=True)
class StateMaker:
    """The `Rule` of a column of states that are made of the arguments, which are its values (`joined`)."""

    data_type: t.AggregateFunction
    functions: StateFunctions

    @staticmethod
    def joined(arguments: Sequence[pa.Array]) -> pa.Array:
        """The arguments of the rows as one array of structs."""
        return pa.StructArray.from_arrays(list(arguments), [str(at) for at in range(len(arguments))])

    def __call__(self, values: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
        """The state of each group. NOT_IMPLEMENTED for states that ClickHouse writes in a form not known here."""
        if not len(values):
            return pa.array([], pa.binary())
        states = self.functions.make(self.data_type, values.flatten(), begins)
        try:
            check_states(states, self.data_type)
        except MergelakeError as unknown:
            raise error("NOT_IMPLEMENTED", f"States of {self.data_type} are not supported: {unknown.message}") from None
        return states


def state_rule(column: Column) -> Rule:
    """The rule of a column of states, not bound to a `StateFunctions` yet where it needs one."""
    kind = column.type
    assert isinstance(kind, t.AggregateFunction), kind
    return StateRule(column.name, kind, _own_merger(kind))


def bound(rules: Mapping[str, Rule], functions: StateFunctions | None) -> Mapping[str, Rule]:
    """The rules, those for states with `functions` where they need them. SUPPORT_IS_DISABLED if these are None then."""
    found: dict[str, Rule] = {}
    for name, rule in rules.items():
        if isinstance(rule, StateRule) and rule.merge is None:
            if functions is None:
                raise rule.refusal()
            rule = StateRule(rule.column, rule.data_type, functions.merge)
        found[name] = rule
    return found


# --- states that are merged here

_Merge = Callable[[pa.Array, Groups], pa.Array]


@dataclass(frozen=True, slots=True)
class _Own:
    """A `StateMerger` of one type."""

    merge: _Merge
    flagged: bool
    """Whether a byte before the state says that there was a value."""

    def __call__(self, data_type: t.AggregateFunction, states: pa.Array, begins: Groups) -> pa.Array:
        if not self.flagged:
            return self.merge(states, begins)
        cells = _cells(states)
        present = cells.data[cells.offsets[:-1]] != 0
        found = np.logical_or.reduceat(present, begins)
        if not found.any():
            return states.take(pa.array(begins))
        lengths = np.add.reduceat(present.astype(np.int64), begins)[found]
        rows = np.flatnonzero(present)
        bodies = _slices(cells, cells.offsets[rows] + 1, cells.offsets[rows + 1])
        merged = _cells(self.merge(_array(bodies), _starts(lengths)))
        places = np.where(found, np.cumsum(found) - 1, -1)
        flags = ragged.fixed(found.astype(np.uint8).reshape(-1, 1))
        return _array(ragged.join([flags, ragged.pick(merged, places)]))


def _own_merger(data_type: t.AggregateFunction) -> _Own | None:
    """How states of a simple function are merged here; None for others."""
    arguments = plain_arguments(data_type)
    name = without_if(data_type.function)
    if name != data_type.function:
        # A condition that may be NULL puts a byte before the state, and counts of values differ from count().
        if not arguments or isinstance(arguments[-1], t.Nullable) or (name == "count" and len(arguments) > 1):
            return None
        arguments = arguments[:-1]
    make = _FUNCTIONS.get(name)
    if make is None or data_type.version or len(arguments) > 1:
        return None
    if name == "count":
        return _Own(_counts, flagged=False)
    if not arguments:
        return None
    (kind,) = arguments
    nullable = isinstance(kind, t.Nullable)
    merge = make(name, kind.inner if isinstance(kind, t.Nullable) else kind)
    return None if merge is None else _Own(merge, nullable)


def without_if(function: str) -> str:
    """The function whose states those of `function` are: `sum` of `sumIf`, whose last argument chooses rows."""
    base = function.removesuffix("If")
    return base if base in _FUNCTIONS else function


def _starts(lengths: NDArray[np.int64]) -> Groups:
    """Where groups of these lengths begin."""
    return np.cumsum(lengths) - lengths


def _cells(states: pa.Array) -> VarBinaryColumn:
    offsets = ragged.arrow_offsets(states)
    data = np.frombuffer(states.buffers()[2] or b"", np.uint8)
    return VarBinaryColumn(data[offsets[0] : offsets[-1]], offsets - offsets[0])


def _slices(cells: VarBinaryColumn, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> VarBinaryColumn:
    """The bytes between these places, a row each."""
    offsets = ragged.offsets_of(ends - starts)
    out = np.empty(int(offsets[-1]), np.uint8)
    ragged.gather(cells.data, starts, offsets, out)
    return VarBinaryColumn(out, offsets)


def _array(cells: VarBinaryColumn) -> pa.Array:
    offsets = pa.py_buffer(cells.offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(cells), [None, offsets, pa.py_buffer(cells.data)])


def _matrix(states: pa.Array, width: int) -> NDArray[np.uint8]:
    """States of equal width as (rows, width)."""
    return _cells(states).data.reshape(len(states), width)


def _rows(matrix: NDArray[np.uint8]) -> pa.Array:
    return _array(ragged.fixed(matrix))


def _sum_of(kind: t.DataType, *, widens: bool) -> tuple[pa.DataType, int] | None:
    """Arrow type and bytes of what a sum of such values is kept in; None for values that are not summed here."""
    match kind:
        case t.Int(bits):
            bits = max(bits, 64) if widens else bits
            return (pa.binary(bits // 8) if bits > 64 else getattr(pa, f"uint{bits}")()), bits // 8
        case t.Float(bits):
            return (pa.float64(), 8) if widens or bits == 64 else (pa.float32(), 4)
        case t.Bool() if widens:
            return pa.uint64(), 8
        case t.Decimal() if widens:
            width = 32 if kind.bits == 256 else 16
            return pa.binary(width), width
    return None


def _added(heads: NDArray[np.uint8], arrow: pa.DataType, begins: Groups) -> NDArray[np.uint8]:
    """Sums of (rows, width) bytes, which are values of the Arrow type."""
    values = pa.Array.from_buffers(arrow, len(heads), [None, pa.py_buffer(np.ascontiguousarray(heads))])
    sums = float_sum(values, begins) if pa.types.is_floating(arrow) else total(values, begins)
    raw = np.frombuffer(sums.buffers()[1], np.uint8)
    return raw[: len(begins) * heads.shape[1]].reshape(len(begins), heads.shape[1])


def _make_sum(name: str, kind: t.DataType) -> _Merge | None:
    form = _sum_of(kind, widens=name == "sum")
    if form is None:
        return None
    arrow, width = form
    return lambda states, begins: _rows(_added(_matrix(states, width), arrow, begins))


def _make_avg(name: str, kind: t.DataType) -> _Merge | None:
    form = _sum_of(kind, widens=True)
    if form is None:
        return None
    arrow, width = form

    def merge(states: pa.Array, begins: Groups) -> pa.Array:
        cells = _cells(states)
        heads = cells.data[cells.offsets[:-1, None] + np.arange(width)]
        sums = ragged.fixed(_added(heads, arrow, begins))
        return _array(ragged.join([sums, _added_counts(cells, width, begins)]))

    return merge


def _counts(states: pa.Array, begins: Groups) -> pa.Array:
    return _array(_added_counts(_cells(states), 0, begins))


def _added_counts(cells: VarBinaryColumn, skip: int, begins: Groups) -> VarBinaryColumn:
    """Sums of the varuints that follow the first `skip` bytes of each row."""
    counts = np.empty(len(cells), np.int64)
    _read_varuints(cells.data, cells.offsets[:-1] + skip, counts)
    sums = np.add.reduceat(counts, begins)
    if sums.min() < 0 or counts.min() < 0:
        raise error("INCORRECT_DATA", "Counts of aggregate states are larger than a table can have rows")
    return ragged.varuints(sums)


@kernel
def _read_varuints(source: Any, starts: Any, out: Any) -> None:
    """Read the varuint at each of `starts`; the caller has checked that it ends."""
    for row in range(len(starts)):
        value = 0
        shift = 0
        at = starts[row]
        while source[at] >= 128:
            value |= (source[at] & 127) << shift
            shift += 7
            at += 1
        out[row] = value | (source[at] << shift)


def _make_bits(name: str, kind: t.DataType) -> _Merge | None:
    if not isinstance(kind, t.Int | t.Bool):
        return None
    width = kind.bits // 8 if isinstance(kind, t.Int) else 1
    combine = {"groupBitAnd": np.bitwise_and, "groupBitOr": np.bitwise_or, "groupBitXor": np.bitwise_xor}[name]
    return lambda states, begins: _rows(combine.reduceat(_matrix(states, width), begins, axis=0))


def _make_row(name: str, kind: t.DataType) -> _Merge | None:
    if isinstance(kind, t.Variant | t.Dynamic | t.Json | t.AggregateFunction):
        return None

    def merge(states: pa.Array, begins: Groups) -> pa.Array:
        present = _present(_cells(states), kind)
        if name == "any":
            return states.take(pa.array(first_of(present, begins)))
        last = np.maximum.reduceat(np.where(present, np.arange(len(states)), -1), begins)
        return states.take(pa.array(np.where(last < 0, begins, last)))

    return merge


def _present(cells: VarBinaryColumn, kind: t.DataType) -> NDArray[np.bool_]:
    """Which states hold a value: a text begins with its length, -1 for none, others with a byte."""
    starts = cells.offsets[:-1]
    if isinstance(kind, t.String):
        present: NDArray[np.bool_] = cells.data[starts + 3] != 0xFF
        return present
    return np.asarray(cells.data[starts] != 0)


def _make_extreme(name: str, kind: t.DataType) -> _Merge | None:
    if not isinstance(kind, _ORDERED):
        return None
    arrow = storage_type(kind)
    rows_of = extreme_rows(kind, greatest=name == "max")

    def merge(states: pa.Array, begins: Groups) -> pa.Array:
        cells = _cells(states)
        present = _present(cells, kind)
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
        if isinstance(kind, t.String):
            texts = _slices(cells, cells.offsets[:-1] + 4, cells.offsets[1:])
            buffers = [validity, *_array(texts).buffers()[1:]]
        else:
            raw = np.zeros((len(states), arrow.bit_width // 8), np.uint8)
            raw[present] = cells.data[cells.offsets[:-1][present, None] + 1 + np.arange(raw.shape[1])]
            buffers = [validity, pa.py_buffer(raw)]
        values = pa.Array.from_buffers(arrow, len(states), buffers)
        return states.take(pa.array(rows_of(values, begins)))

    return merge


_ORDERED = (t.Int, t.Float, t.Decimal, t.Date, t.Date32, t.DateTime, t.DateTime64, t.String, t.UUID, t.IPv4, t.IPv6)
_FUNCTIONS: Mapping[str, Callable[[str, t.DataType], _Merge | None]] = {
    "count": lambda name, kind: _counts,
    "sum": _make_sum,
    "sumWithOverflow": _make_sum,
    "avg": _make_avg,
    "min": _make_extreme,
    "max": _make_extreme,
    "any": _make_row,
    "anyLast": _make_row,
    "groupBitAnd": _make_bits,
    "groupBitOr": _make_bits,
    "groupBitXor": _make_bits,
}
