"""Evaluation of a condition on many hyperrectangles of key values at once.

The rows between two marks have keys that, as tuples, lie between the keys at these marks. Such a range of tuples is
not a box: a condition on the second column alone could not be evaluated on it. It is a union of hyperrectangles ::

    [x1 y1 .. x2 y2]  =  (x1 .. x2) x everything   +   [x1] x [y1 .. )   +   [x2] x ( .. y2]

recursively for longer keys, and just [x1] x [y1 .. y2] while the leading columns are equal. A range may hold matching
rows if one of its hyperrectangles may. The decomposition depends only on the number of equal leading columns, so all
ranges with the same number are evaluated together, in a few array operations per hyperrectangle.

Source: ClickHouse, `KeyCondition.cpp`: `forAnySparseHyperrectangle`, `checkInHyperrectangle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import InternalError
from mergelake.core.types.types import DataType, Float as FloatType, inner_type, is_nullable
from mergelake.scan.prune.condition import (
    And,
    Condition,
    Constant,
    FunctionChain,
    InRange,
    InSet,
    IsNull,
    Not,
    Or,
    Probe,
    UnknownCondition,
    cells_of,
    has_chain,
    used_columns,
)
from mergelake.scan.prune.ordered import Cells, Ordered, Value, ordered

Rows = NDArray[np.int64]
Bools = NDArray[np.bool_]
Mask = tuple[Bools, Bools]
"""(can be true, can be false), one flag for each box."""


@dataclass(frozen=True, slots=True)
class Span:
    """Intervals of one key column, one for each box. Ends are rows of the key table; None is infinity."""

    low: Rows | None
    low_open: bool
    high: Rows | None
    high_open: bool


Hyperrectangle = dict[int, Span]
"""Intervals by key column; a missing column is unbounded."""


@dataclass(slots=True)
class KeyTable:
    """Keys at the marks of one part (or several), with comparable forms that are derived on first use.

    `columns` are storage arrays, one value a mark. `bounds` holds for some columns the minimum of each part, then the
    maximum of each (from the partition's minima and maxima). `part_of` has the part's number of each mark, None if
    there is only one part.
    """

    columns: Sequence[pa.Array]
    types: Sequence[DataType]
    descending: Sequence[bool] = ()
    bounds: Mapping[int, pa.Array] = field(default_factory=dict)
    part_of: Rows | None = None
    _ordered: dict[int, Ordered] = field(default_factory=dict)
    _values: dict[int, pa.Array] = field(default_factory=dict)

    @property
    def marks(self) -> int:
        """Number of marks, the final one included."""
        return len(self.columns[0]) if self.columns else 0

    def is_descending(self, column: int) -> bool:
        """Whether the column is sorted in descending order."""
        return column < len(self.descending) and self.descending[column]

    def values(self, column: int) -> pa.Array:
        """Values at the marks, then the bounds if there are any."""
        if column not in self._values:
            array = self.columns[column]
            if column in self.bounds:
                if pa.types.is_dictionary(array.type):
                    array = array.dictionary_decode()
                array = pa.concat_arrays([array, self.bounds[column].cast(array.type)])
            self._values[column] = array
        return self._values[column]

    def ordered(self, column: int) -> Ordered:
        """The result of `values` in comparable form."""
        if column not in self._ordered:
            self._ordered[column] = ordered(self.values(column), self.types[column])
        return self._ordered[column]

    def everything(self, column: int, rows: Rows) -> Span:
        """The intervals of all values of the column in the parts of these marks."""
        if column not in self.bounds:
            return Span(None, False, None, False)
        parts = np.zeros(len(rows), dtype=np.int64) if self.part_of is None else self.part_of[rows]
        count = len(self.bounds[column]) // 2
        return Span(self.marks + parts, False, self.marks + count + parts, False)


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Cells (`scan.prune.ordered`) of a column's values among the constants of one atom."""

    at: Cells
    above: Cells
    """Cells of the next greater values: where an interval that is open below begins."""
    below: Cells
    top: int
    """The greatest cell, where an unbounded interval ends."""
    shrunk: bool


class KeyConditionEvaluator:
    """Evaluates a condition on the keys of one part (or several).

    `single_point`: each key is a single value, so functions of it need not be monotonic.
    """

    def __init__(self, condition: Condition, keys: KeyTable, *, single_point: bool = False) -> None:
        self._condition = condition
        self._keys = keys
        self._single_point = single_point
        self._used = used_columns(condition)
        self._prefix = self._used[-1] + 1 if self._used else 0
        self._shrink = not has_chain(condition)
        self._cuts: dict[tuple[int, int], _Cuts] = {}
        self._chains: dict[tuple[int, FunctionChain], list[Ordered]] = {}

    def ranges(self, begin: Rows, end: Rows) -> Mask:
        """For each range of rows of the key table: can the condition be true, can it be false.

        Keys in the range lie between those at `begin` and at `end`, both included.
        """
        can_be_true, can_be_false = np.zeros(len(begin), dtype=bool), np.zeros(len(begin), dtype=bool)
        equal = np.zeros(len(begin), dtype=np.int64)
        alive = np.ones(len(begin), dtype=bool)
        for column in range(self._prefix):
            alive = alive & self._keys.ordered(column).same(begin, end)
            equal += alive
        for prefix in range(self._prefix + 1):
            rows = np.flatnonzero(equal == prefix)
            if len(rows):
                can_be_true[rows], can_be_false[rows] = self._split(begin[rows], end[rows], prefix)
        return can_be_true, can_be_false

    def box(self, spans: Hyperrectangle, count: int) -> Mask:
        """Evaluate the condition on `count` hyperrectangles."""
        return self._evaluate(self._condition, spans, count)

    # --- the hyperrectangles of a range

    def _split(self, begin: Rows, end: Rows, prefix: int) -> Mask:
        """Evaluate ranges whose ends have `prefix` equal leading columns, as the union of their hyperrectangles."""
        count = len(begin)
        box = {c: Span(begin, False, begin, False) for c in range(prefix)}
        if prefix == self._prefix:
            return self.box(box, count)
        if prefix + 1 == len(self._keys.columns):
            return self.box({**box, prefix: self._between(begin, end, prefix, is_open=False)}, count)
        unbounded = {c: self._keys.everything(c, begin) for c in range(prefix + 1, self._prefix)}
        out = self.box({**box, prefix: self._between(begin, end, prefix, is_open=True), **unbounded}, count)
        for is_left, rows in ((True, begin), (False, end)):
            edge = {**box, prefix: Span(rows, False, rows, False)}
            out = _either(out, self._edge(rows, edge, prefix + 1, is_left))
        return out

    def _edge(self, rows: Rows, box: Hyperrectangle, column: int, is_left: bool) -> Mask:
        """Evaluate the boxes of those keys that share `column` leading values with one end of the range."""
        count = len(rows)
        if column == self._prefix:
            return self.box(box, count)
        if column + 1 == len(self._keys.columns):
            return self.box({**box, column: self._beyond(rows, column, is_left, is_open=False)}, count)
        unbounded = {c: self._keys.everything(c, rows) for c in range(column + 1, self._prefix)}
        out = self.box({**box, column: self._beyond(rows, column, is_left, is_open=True), **unbounded}, count)
        return _either(out, self._edge(rows, {**box, column: Span(rows, False, rows, False)}, column + 1, is_left))

    def _between(self, begin: Rows, end: Rows, column: int, *, is_open: bool) -> Span:
        low, high = (end, begin) if self._keys.is_descending(column) else (begin, end)
        return Span(low, is_open, high, is_open)

    def _beyond(self, rows: Rows, column: int, is_left: bool, *, is_open: bool) -> Span:
        every_value = self._keys.everything(column, rows)
        if is_left != self._keys.is_descending(column):
            return Span(rows, is_open, every_value.high, False)
        return Span(every_value.low, False, rows, is_open)

    # --- the condition on hyperrectangles

    def _evaluate(self, node: Condition, box: Hyperrectangle, count: int) -> Mask:
        match node:
            case UnknownCondition():
                return np.ones(count, dtype=bool), np.ones(count, dtype=bool)
            case Constant(value):
                return np.full(count, value), np.full(count, not value)
            case And(left, right):
                a, b = self._evaluate(left, box, count), self._evaluate(right, box, count)
                return a[0] & b[0], a[1] | b[1]
            case Or(left, right):
                a, b = self._evaluate(left, box, count), self._evaluate(right, box, count)
                return a[0] | b[0], a[1] & b[1]
            case Not(child):
                can_be_true, can_be_false = self._evaluate(child, box, count)
                return can_be_false, can_be_true
            case InRange():
                mask = self._in_range(node, box, count)
            case InSet():
                mask = self._in_set(node, box, count)
            case IsNull():
                return self._is_null(node, box, count)
            case Probe():
                raise InternalError("a key has no answer to what a skip index is asked")
        if node.relaxed:
            mask = mask[0], np.ones(count, dtype=bool)
        return (mask[1], mask[0]) if node.negated else mask

    def _in_range(self, atom: InRange, box: Hyperrectangle, count: int) -> Mask:
        cuts = sorted({v for v in (atom.low, atom.high) if v is not None})
        low, high, monotonic = self._cells(atom, 0, atom.column, atom.chain, cuts, atom.shrink, box, count)
        first = 0 if atom.low is None else 2 * cuts.index(atom.low) + (1 if atom.low_included else 2)
        last = 2 * len(cuts) if atom.high is None else 2 * cuts.index(atom.high) + (1 if atom.high_included else 0)
        can_be_true = ~monotonic | ((low <= last) & (high >= first))
        can_be_false = ~monotonic | ~((low >= first) & (high <= last))
        return can_be_true, can_be_false

    def _is_null(self, atom: IsNull, box: Hyperrectangle, count: int) -> Mask:
        key = (id(atom), 0)
        if key not in self._cuts:
            null = np.asarray(self._keys.values(atom.column).is_null()).astype(np.int64)
            nullable = is_nullable(self._keys.types[atom.column])
            self._cuts[key] = _Cuts(null, null, null, int(nullable), False)
        cuts, span = self._cuts[key], box.get(atom.column, _EVERYTHING)
        low = _cells_of(cuts.at, span.low, 0, count)
        high = _cells_of(cuts.at, span.high, cuts.top, count)
        can_null, can_value = high == 1, low == 0
        return (can_value, can_null) if atom.negated else (can_null, can_value)

    def _in_set(self, atom: InSet, box: Hyperrectangle, count: int) -> Mask:
        """Compare the tuples of both ends of each box with the sorted set.

        Each column's cells are digits of one number, so tuples compare as integers.
        """
        low = np.zeros(count, dtype=np.int64)
        high = np.zeros(count, dtype=np.int64)
        monotonic = np.ones(count, dtype=bool)
        low_included = high_included = True
        for j, (column, cuts) in enumerate(zip(atom.columns, atom.cuts, strict=True)):
            span = box.get(column, _EVERYTHING)
            closed = bool(atom.chains[j]) or (self._shrink and atom.shrink[j])
            low_included &= closed or not span.low_open
            high_included &= closed or not span.high_open
            cells = self._cells(atom, j, column, atom.chains[j], cuts, atom.shrink[j], box, count, raw=not closed)
            width = cells_of(cuts)
            low, high, monotonic = low * width + cells[0], high * width + cells[1], monotonic & cells[2]
        rows = atom.digits
        first, last = np.searchsorted(rows, low), np.searchsorted(rows, high)
        padded = np.append(rows, -1)
        at_first, at_last = padded[first] == low, padded[last] == high
        # The result of ClickHouse's `MergeTreeSetIndex::checkInRange`, which does two binary searches.
        inside = (first + 1 < last) | ((first + 1 == last) & (low_included | ~at_first)) | (high_included & at_last)
        inside &= low <= high
        point = (low == high) & at_first & low_included & high_included & ~np.bool_(atom.relaxed)
        return ~monotonic | inside, ~monotonic | ~point

    def _cells(
        self,
        atom: InRange | InSet,
        j: int,
        column: int,
        chain: FunctionChain,
        cuts: Sequence[Value],
        shrink: bool,
        box: Hyperrectangle,
        count: int,
        *,
        raw: bool = False,
    ) -> tuple[Cells, Cells, Bools]:
        """First and last cell of each interval, and whether the chain maps the interval to an interval.

        `raw`: ignore that ends are open.
        """
        key = (id(atom), j)
        if key not in self._cuts:
            self._cuts[key] = self._cut(column, chain, cuts, shrink)
        cut, span = self._cuts[key], box.get(column, _EVERYTHING)
        monotonic, rising = self._monotonic(column, chain, span, count)
        if not rising:
            span = Span(span.high, span.high_open, span.low, span.low_open)
        if raw or chain:
            span = Span(span.low, False, span.high, False)
        low = _cells_of(cut.above if span.low_open else cut.at, span.low, 0, count)
        high = _cells_of(cut.below if span.high_open else cut.at, span.high, cut.top, count)
        return low, high, monotonic

    def _cut(self, column: int, chain: FunctionChain, cuts: Sequence[Value], shrink: bool) -> _Cuts:
        source = self._applied(column, chain)[-1]
        data_type = chain[-1].type if chain else self._keys.types[column]
        at = source.cells(cuts)
        top = 2 * len(cuts) + int(_may_miss(data_type))
        if shrink and self._shrink:
            return _Cuts(at, source.cells(cuts, 1), source.cells(cuts, -1), top, True)
        return _Cuts(at, at + (at & 1), at - (at & 1), top, False)

    def _applied(self, column: int, chain: FunctionChain) -> list[Ordered]:
        """Values of the column before and after each step of the chain."""
        key = (column, chain)
        if key not in self._chains:
            array, out = self._keys.values(column), [self._keys.ordered(column)]
            for step in chain:
                array = step.apply(array)
                out.append(ordered(array, step.type))
            self._chains[key] = out
        return self._chains[key]

    def _monotonic(self, column: int, chain: FunctionChain, span: Span, count: int) -> tuple[Bools, bool]:
        """For each interval whether the chain is monotonic on it, and whether the whole chain is rising."""
        monotonic, rising = np.ones(count, dtype=bool), True
        for i, step in enumerate(chain):
            rising = rising == step.rising
            source, result = self._applied(column, chain)[i : i + 2]
            everywhere = step.monotonic in ("always", "anywhere")
            # NULL and NaN are greatest both before and after a function, so they break the order of a falling one.
            sound = step.rising or not _may_miss(chain[i - 1].type if i else self._keys.types[column])
            if self._single_point or (everywhere and sound):
                continue
            if span.low is None or span.high is None:
                return np.zeros(count, dtype=bool), True
            low, high = np.broadcast_to(span.low, count), np.broadcast_to(span.high, count)
            # Beyond an end that is NULL any value may lie, also one for which `plus` wraps around.
            unknown = step.monotonic == "checked" and is_nullable(chain[i - 1].type if i else self._keys.types[column])
            if (unknown or not sound) and source.missing is not None:
                monotonic &= ~source.missing[low] & ~source.missing[high]
            if everywhere:
                continue
            if step.monotonic == "checked":
                ends = (low, high) if step.rising else (high, low)
                monotonic &= source.less(low, high) == result.less(*ends)
                continue
            assert step.segment is not None
            assert step.segment_type is not None
            array = self._keys.values(column)
            for earlier in chain[:i]:
                array = earlier.apply(array)
            monotonic &= ordered(step.segment(array), step.segment_type).same(low, high)
        return monotonic, rising or self._single_point


def _may_miss(data_type: DataType) -> bool:
    """Whether a value may be NULL or NaN."""
    return is_nullable(data_type) or isinstance(inner_type(data_type), FloatType)


_EVERYTHING = Span(None, False, None, False)


def _cells_of(cells: Cells, rows: Rows | None, otherwise: int, count: int) -> Cells:
    return np.full(count, otherwise, dtype=np.int64) if rows is None else np.broadcast_to(cells[rows], count)


def _either(a: Mask, b: Mask) -> Mask:
    return a[0] | b[0], a[1] | b[1]
