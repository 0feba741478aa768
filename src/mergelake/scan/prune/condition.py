"""Conditions on a key: a tree of atoms that is evaluated on hyperrectangles of key values.

A *hyperrectangle* (box) gives each key column an interval of values. For a box a condition answers two questions at
once, like ClickHouse's `BoolMask`: can it be true for some row in the box, and can it be false for some row. Both
answers err towards "yes" only. So a granule whose box cannot be true is skipped without losing a row, and NOT swaps
the two answers. `scan.prune.hyperrectangles` evaluates a condition on many boxes at a time.

Atoms compare one key column (or a monotonic function of it) with a range, or several columns with a set of tuples.
Everything else in a predicate is `UnknownCondition`: both answers are yes.

Source: ClickHouse, `src/Storages/MergeTree/KeyCondition.cpp`, `MergeTreeSetIndex::checkInRange`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.types.types import UINT8, DataType
from mergelake.scan.prune.ordered import Value


@dataclass(frozen=True, slots=True)
class MonotonicFunction:
    """One function in the chain from a key column to the value that the predicate compares."""

    apply: Callable[[pa.Array], pa.Array]
    """Values to values, both in storage form."""
    type: DataType
    """Of the result."""
    before: str
    """Text before the argument: `plus(`."""
    after: str
    """Text after it: `, 1)`."""
    monotonic: Literal["always", "anywhere", "checked", "segment"] = "always"
    """Where the function is monotonic. `always`: on all values. `anywhere`: likewise, but ClickHouse does not declare
    it, so it does not search by bisection. `checked`: on an interval whose ends are mapped in order (reversed if it
    falls). `segment`: on an interval whose two ends `segment` maps to the same value."""
    rising: bool = True
    """False: greater arguments give smaller results."""
    segment: Callable[[pa.Array], pa.Array] | None = None
    segment_type: DataType | None = None


FunctionChain = tuple[MonotonicFunction, ...]


@dataclass(frozen=True, slots=True)
class UnknownCondition:
    """Implies nothing for the key."""


@dataclass(frozen=True, slots=True)
class Constant:
    """True or false for every row."""

    value: bool


@dataclass(frozen=True, slots=True)
class InRange:
    """A key column, after its chain, lies between two values (not, if `negated`). None is infinity."""

    column: int
    chain: FunctionChain
    low: Value | None
    low_included: bool
    high: Value | None
    high_included: bool
    negated: bool = False
    relaxed: bool = False
    """The range is wider than the predicate's, so the predicate can be false inside it."""
    shrink: bool = False
    """The compared values are native integers: an open interval may be shrunk by one to a closed one."""
    type: DataType = UINT8
    """Of the compared values; for EXPLAIN."""


@dataclass(frozen=True, slots=True)
class InSet:
    """Key columns, each after its chain, form one of a set of tuples (none, if `negated`)."""

    columns: tuple[int, ...]
    """Ascending."""
    chains: tuple[FunctionChain, ...]
    rows: tuple[tuple[Value, ...], ...]
    """Sorted, distinct."""
    negated: bool = False
    relaxed: bool = False
    """The set is wider than the predicate's: tuple elements are no key columns, or values were mapped to the key."""
    shrink: tuple[bool, ...] = ()
    cuts: tuple[tuple[Value, ...], ...] = field(init=False, compare=False, repr=False)
    """By column the distinct values, ascending."""
    digits: NDArray[np.int64] = field(init=False, compare=False, repr=False)
    """A number for each row, ascending: the cells of its values (`scan.prune.ordered`) among the cuts are digits."""

    def __post_init__(self) -> None:
        digits = np.zeros(len(self.rows), np.int64)
        cuts: list[tuple[Value, ...]] = []
        for column in zip(*self.rows, strict=True):
            ascending = column if len(self.columns) == 1 else tuple(sorted(set(column)))
            cell = {value: 2 * i + 1 for i, value in enumerate(ascending)}
            digits = digits * cells_of(ascending) + np.array([cell[value] for value in column], np.int64)
            cuts.append(ascending)
        object.__setattr__(self, "cuts", tuple(cuts) or ((),) * len(self.columns))
        object.__setattr__(self, "digits", np.sort(digits))


def cells_of(cuts: Sequence[Value]) -> int:
    """The number of cells among some cuts."""
    return 2 * len(cuts) + 2


@dataclass(frozen=True, slots=True)
class IsNull:
    """A key column is (or is not) NULL."""

    column: int
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that only a skip index can answer (`skip_bloom`, `skip_text`, `skip_set`)."""

    question: Hashable
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """Negation that could not be pushed into an atom."""

    child: Condition


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction; `left` was written first."""

    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction; `left` was written first."""

    left: Condition
    right: Condition


Atom = InRange | InSet | IsNull
Condition = UnknownCondition | Constant | InRange | InSet | IsNull | Probe | Not | And | Or


def atoms(condition: Condition) -> Iterator[Condition]:
    """The leaves, in order."""
    match condition:
        case And(left, right) | Or(left, right):
            yield from atoms(left)
            yield from atoms(right)
        case Not(child):
            yield from atoms(child)
        case _:
            yield condition


def used_columns(condition: Condition) -> tuple[int, ...]:
    """Numbers of the key columns that the condition compares, ascending."""
    used: set[int] = set()
    for atom in atoms(condition):
        if isinstance(atom, (InRange, IsNull)):
            used.add(atom.column)
        elif isinstance(atom, InSet):
            used.update(atom.columns)
    return tuple(sorted(used))


def has_chain(condition: Condition) -> bool:
    """Whether an atom compares a function of a key column; then open intervals are not shrunk."""
    for atom in atoms(condition):
        if isinstance(atom, InRange) and atom.chain:
            return True
        if isinstance(atom, InSet) and any(atom.chains):
            return True
    return False


def is_useless(condition: Condition) -> bool:
    """Whether nothing can be skipped by it: true or unknown in every branch that counts.

    Like in ClickHouse, whose numbers EXPLAIN reproduces, a negated constant counts as the constant itself.
    """
    match condition:
        case UnknownCondition():
            return True
        case Constant(value):
            return value
        case And(left, right):
            return is_useless(left) and is_useless(right)
        case Or(left, right):
            return is_useless(left) or is_useless(right)
        case Not(child):
            return is_useless(child)
        case _:
            return False


def is_never(condition: Condition) -> bool:
    """Whether no row can match, for any key."""
    match condition:
        case Constant(value):
            return not value
        case And(left, right):
            return is_never(left) or is_never(right)
        case Or(left, right):
            return is_never(left) and is_never(right)
        case _:
            return False


def is_continuous(condition: Condition, key_columns: int) -> bool:
    """Whether matching keys are contiguous, so that binary search finds both ends of the range.

    True for a conjunction that fixes leading key columns to points and bounds at most one more.
    Source: ClickHouse, `KeyCondition::matchesExactContinuousRange`.
    """
    point, bounded, free = 0, 1, 2
    restrictions = [free] * key_columns
    if not _is_conjunction(condition):
        return False
    for atom in atoms(condition):
        if isinstance(atom, (UnknownCondition, Constant)):
            if isinstance(atom, Constant) and not atom.value:
                return False
            continue
        if isinstance(atom, InSet) and not atom.negated and len(atom.rows) == 1:
            for column, chain in zip(atom.columns, atom.chains, strict=True):
                if any(step.monotonic != "always" for step in chain):
                    return False
                restrictions[column] = min(restrictions[column], bounded if chain else point)
        elif isinstance(atom, InRange) and not atom.negated:
            if any(step.monotonic != "always" for step in atom.chain):
                return False
            exact = not atom.chain and atom.low is not None and atom.low == atom.high
            restrictions[atom.column] = min(restrictions[atom.column], point if exact else bounded)
        else:
            return False
    if restrictions[0] == free:
        return False
    return all(b >= a and not (a == b == bounded) for a, b in pairwise(restrictions))


def _is_conjunction(condition: Condition) -> bool:
    if isinstance(condition, And):
        return _is_conjunction(condition.left) and _is_conjunction(condition.right)
    return not isinstance(condition, (Or, Not))
