"""Cutting a read into batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mergelake.core.base.errors import InternalError
from mergelake.parts.read.steps import ReadStep, join_ranges, plan_steps, plan_windows


def test_neighbouring_granules_make_batches_of_about_the_wanted_rows() -> None:
    granules = np.array([10] * 9 + [3])
    assert plan_steps(granules, [(0, 10)], 40) == [
        ReadStep(((0, 4),), 40),
        ReadStep(((4, 8),), 40),
        ReadStep(((8, 10),), 13),
    ]
    assert plan_steps(granules, [(0, 1), (3, 4), (9, 10)], 40) == [ReadStep(((0, 1), (3, 4), (9, 10)), 23)]
    assert plan_steps(granules, [(0, 2)], 1) == [ReadStep(((0, 1),), 10), ReadStep(((1, 2),), 10)]
    assert plan_steps(granules, [], 40) == []


def test_ranges_outside_the_part_are_refused() -> None:
    for ranges in ([(0, 11)], [(3, 5), (4, 6)], [(5, 4)]):
        with pytest.raises(InternalError):
            plan_steps(np.array([10] * 10), ranges, 40)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=40),
    st.integers(1, 200),
    st.lists(st.integers(0, 40), max_size=10),
)
def test_steps_hold_each_wanted_granule_once_and_in_order(rows: list[int], batch: int, cuts: list[int]) -> None:
    bounds = sorted({min(cut, len(rows)) for cut in cuts})
    ranges = list(zip(bounds[::2], bounds[1::2], strict=False))
    steps = plan_steps(np.array(rows), ranges, batch)
    wanted = [g for first, end in ranges for g in range(first, end)]
    assert [g for step in steps for first, end in step.ranges for g in range(first, end)] == wanted
    for step in steps:
        count = sum(rows[g] for first, end in step.ranges for g in range(first, end))
        assert step.rows == count
        assert count <= batch or sum(end - first for first, end in step.ranges) == 1


def test_windows_are_bounded() -> None:
    assert plan_windows([], 8) == []
    assert plan_windows([100], 8) == [(0, 1)]
    assert join_ranges([(0, 1), (1, 3), (4, 5)]) == ((0, 3), (4, 5))
