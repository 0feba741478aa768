"""Evaluation of AND, OR and NOT on many granules of a skip index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mergelake.scan.prune.condition import And, Condition, Constant, Not, Or, UnknownCondition
from mergelake.scan.prune.hyperrectangles import Mask

Bools = NDArray[np.bool_]


@dataclass(slots=True)
class Judgement:
    """Results of a condition, one flag for each granule."""

    can_be_true: Bools
    can_be_false: Bools
    leaves: list[Bools | None] = field(default_factory=list)
    """For each leaf, in order, whether it can be true; None where that is unknown."""


def judge(condition: Condition, count: int, leaf_mask: Callable[[Condition], Mask]) -> Judgement:
    """Evaluate the condition on `count` granules; `leaf_mask` evaluates leaves other than Unknown and Constant."""
    leaves: list[Bools | None] = []

    def walk(node: Condition) -> Mask:
        match node:
            case UnknownCondition():
                leaves.append(None)
                return np.ones(count, np.bool_), np.ones(count, np.bool_)
            case Constant(value):
                leaves.append(np.full(count, value))
                return np.full(count, value), np.full(count, not value)
            case And(left, right):
                a, b = walk(left), walk(right)
                return a[0] & b[0], a[1] | b[1]
            case Or(left, right):
                a, b = walk(left), walk(right)
                return a[0] | b[0], a[1] & b[1]
            case Not(child):
                can_be_true, can_be_false = walk(child)
                return can_be_false, can_be_true
            case _:
                mask = leaf_mask(node)
                leaves.append(mask[0])
                return mask

    can_be_true, can_be_false = walk(condition)
    return Judgement(can_be_true, can_be_false, leaves)


def merge_leaves(shape: Condition, leaves: NDArray[np.bool_]) -> Bools:
    """Evaluate the condition from the combined results of several indexes: `leaves` is (leaves, granules).

    NOT may always be true, because only "can be true" is known of its argument.
    """
    rows: Iterator[Bools] = iter(leaves)

    def walk(node: Condition) -> Bools:
        match node:
            case Constant(value):
                return np.full(len(next(rows)), value)
            case And(left, right):
                a, b = walk(left), walk(right)
                return a & b
            case Or(left, right):
                a, b = walk(left), walk(right)
                return a | b
            case Not(child):
                return np.ones_like(walk(child))
            case _:
                return next(rows)

    return walk(shape)


def says_nothing(condition: Condition) -> bool:
    """Whether an index with this condition is useless: all of its comparisons are unknown.

    An index under an OR with something unknown excludes nothing by itself, but ClickHouse uses it, because several
    indexes combined may.
    """
    match condition:
        case UnknownCondition():
            return True
        case Constant(value):
            return value
        case Or(Constant(True), _) | Or(_, Constant(True)):
            return True
        case Or(Constant(False), other) | Or(other, Constant(False)):
            return says_nothing(other)
        case And(left, right) | Or(left, right):
            return says_nothing(left) and says_nothing(right)
        case Not(child):
            return says_nothing(child)
        case _:
            return False


def is_conjunction(shape: Condition) -> bool:
    """Whether the condition has no OR."""
    match shape:
        case And(left, right):
            return is_conjunction(left) and is_conjunction(right)
        case Not(child):
            return is_conjunction(child)
        case _:
            return not isinstance(shape, Or)
