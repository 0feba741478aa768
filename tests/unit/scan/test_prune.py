"""Mark ranges of hand-made indexes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.types.types import STRING, Int, Nullable
from mergelake.scan.prune.condition import (
    And,
    Condition,
    Constant,
    InRange,
    InSet,
    IsNull,
    Not,
    Or,
    UnknownCondition,
    is_continuous,
    is_useless,
)
from mergelake.scan.prune.hyperrectangles import KeyConditionEvaluator, KeyTable
from mergelake.scan.prune.prune import BINARY_SEARCH, EXCLUSION_SEARCH, join, mark_ranges, search_algorithm
from tests.helpers.work import bytecodes

INT = Int(32, signed=True)


def at(column: int, value: int, *, negated: bool = False) -> InRange:
    return InRange(column, (), value, True, value, True, negated=negated, shrink=True)


def between(column: int, low: int | None, high: int | None) -> InRange:
    return InRange(column, (), low, low is not None, high, high is not None, shrink=True)


def keys(*columns: list[int | None], nullable: bool = False, descending: tuple[bool, ...] = ()) -> KeyTable:
    kind = Nullable(INT) if nullable else INT
    return KeyTable([pa.array(column, pa.int32()) for column in columns], [kind] * len(columns), descending)


def test_learning_example_reads_one_mark_for_b_equals_5() -> None:
    # M-058: the part 3_3_3_0 of the example has b = 4 … 10 in granules of three
    assert mark_ranges(keys([4, 7, 10, 10]), at(0, 5)) == ((0, 1),)


def test_a_value_between_two_marks_is_looked_for_in_one_granule() -> None:
    index = keys([0, 10, 20, 30])
    assert mark_ranges(index, at(0, 15)) == ((1, 2),)
    assert mark_ranges(index, at(0, 31)) == ()
    assert mark_ranges(index, at(0, -1)) == ()


def test_a_value_that_is_a_mark_may_also_end_the_granule_before() -> None:
    assert mark_ranges(keys([0, 10, 20, 30]), at(0, 10)) == ((0, 2),)


def test_neighbouring_granules_are_joined_to_one_range() -> None:
    condition = Or(between(0, 0, 3), between(0, 25, 28))
    assert mark_ranges(keys([0, 10, 20, 30]), condition) == ((0, 1), (2, 3))
    assert join(np.array([0, 1, 2, 5, 7, 8])) == ((0, 3), (5, 6), (7, 9))


def test_second_column_counts_where_the_first_is_constant() -> None:
    index = keys([1, 1, 1, 2], [0, 10, 20, 5])
    assert mark_ranges(index, at(1, 12)) == ((1, 3),)
    assert mark_ranges(index, And(at(0, 1), at(1, 12))) == ((1, 2),)


def test_not_equal_drops_granules_of_that_value_only() -> None:
    assert mark_ranges(keys([1, 5, 5, 5, 9]), at(0, 5, negated=True)) == ((0, 1), (3, 4))


def test_set_of_values_reads_the_granules_that_may_hold_one() -> None:
    condition = InSet((0,), ((),), ((5,), (25,)), shrink=(True,))
    assert mark_ranges(keys([0, 10, 20, 30]), condition) == ((0, 1), (2, 3))
    assert mark_ranges(keys([5, 5, 5, 7]), InSet((0,), ((),), ((5,),), negated=True, shrink=(True,))) == ((2, 3),)


def test_null_is_greatest_and_only_is_null_finds_it() -> None:
    index = keys([1, 5, None, None], nullable=True)
    assert mark_ranges(index, IsNull(0)) == ((1, 3),)
    assert mark_ranges(index, IsNull(0, negated=True)) == ((0, 2),)
    assert mark_ranges(index, between(0, 6, None)) == ((1, 2),)


def test_descending_keys_are_searched_downwards() -> None:
    index = keys([30, 20, 10, 0], descending=(True,))
    assert mark_ranges(index, at(0, 15)) == ((1, 2),)
    assert mark_ranges(index, between(0, None, 9)) == ((2, 3),)


def test_unknown_and_true_read_everything_and_false_nothing() -> None:
    index = keys([0, 10, 20])
    assert mark_ranges(index, UnknownCondition()) == ((0, 2),)
    assert mark_ranges(index, Constant(True)) == ((0, 2),)
    assert mark_ranges(index, Constant(False)) == ()
    assert mark_ranges(index, Not(UnknownCondition())) == ((0, 2),)
    assert mark_ranges(KeyTable([], []), UnknownCondition(), marks=7) == ((0, 7),)


def test_relaxed_atom_never_excludes_what_is_inside_its_range() -> None:
    relaxed = InRange(0, (), 0, True, 100, True, relaxed=True, shrink=True)
    assert mark_ranges(keys([0, 10, 20]), Not(relaxed)) == ((0, 2),)
    assert mark_ranges(keys([200, 210, 220]), relaxed) == ()


def test_bounds_of_the_part_narrow_what_lies_between_marks() -> None:
    # After (1, 7) the second column may be anything, but the part has only 3 … 9.
    columns, kinds = [pa.array([1, 2], pa.int32()), pa.array([7, 3], pa.int32())], [INT, INT]
    assert mark_ranges(KeyTable(columns, kinds), at(1, 50)) == ((0, 1),)
    assert mark_ranges(KeyTable(columns, kinds, (), {1: pa.array([3, 9], pa.int32())}), at(1, 50)) == ()


@pytest.mark.parametrize(
    ("condition", "continuous"),
    [
        (at(0, 1), True),
        (between(0, 1, 5), True),
        (And(at(0, 1), between(1, 3, None)), True),
        (And(between(0, 1, 5), UnknownCondition()), True),
        (at(1, 1), False),
        (And(between(0, 1, 5), between(1, 1, 5)), False),
        (Or(at(0, 1), at(0, 2)), False),
        (at(0, 1, negated=True), False),
        (InSet((0,), ((),), ((1,),)), True),
        (InSet((0,), ((),), ((1,), (2,))), False),
    ],
)
def test_binary_search_is_for_one_run_of_keys(condition: Condition, continuous: bool) -> None:
    assert is_continuous(condition, 2) is continuous
    assert search_algorithm(condition, 2) == (BINARY_SEARCH if continuous else EXCLUSION_SEARCH)


def test_condition_that_says_nothing_uses_no_index() -> None:
    assert is_useless(Or(at(0, 1), UnknownCondition()))
    assert not is_useless(And(at(0, 1), UnknownCondition()))
    assert search_algorithm(UnknownCondition(), 1) == ""


def test_strings_are_compared_by_bytes() -> None:
    index = KeyTable([pa.array([b"", b"ab", b"b", b"\xff"], pa.binary())], [STRING])
    atom = InRange(0, (), b"ab", True, b"ac", False, type=STRING)
    assert mark_ranges(index, atom) == ((0, 2),)


def test_ten_thousand_marks_are_searched_with_little_more_work_than_a_hundred() -> None:
    def search(marks: int) -> int:
        index = pa.array(np.sort(np.random.default_rng(1).integers(0, 1000, marks)).astype(np.int32))
        table = KeyTable([index, pa.array(np.zeros(marks, np.int32))], [INT, INT])
        mark_ranges(table, at(0, 500))
        return bytecodes(lambda: mark_ranges(table, at(0, 500)))

    assert search(10_001) < 3 * search(101)


def test_three_valued_answers_of_a_granule() -> None:
    evaluator = KeyConditionEvaluator(between(0, 3, 8), keys([0, 4, 6, 9]))
    can_be_true, can_be_false = evaluator.ranges(np.arange(3), np.arange(3) + 1)
    assert can_be_true.tolist() == [True, True, True]
    assert can_be_false.tolist() == [True, False, True]
