"""When faults stop, mutations come to their end, and inserts are not refused meanwhile."""

from __future__ import annotations

import pytest

from tests.simulation.liveness import TICKS_ALONE, TICKS_EXTRA, Rewriting, Ticking, end_of_mutations
from tests.simulation.stages import EVERY_STAGE, MUTATIONS, seeds_of

FIRST_STAGE = EVERY_STAGE.index(MUTATIONS[0])
DIRECT = (FIRST_STAGE + 1, FIRST_STAGE + 5)
"""Stages without volatile parts."""


@pytest.mark.parametrize("seed", [seed for number in DIRECT for seed in seeds_of(number, 5)])
def test_slots_rewrite_parts_until_no_mutation_is_left(seed):
    end = end_of_mutations(seed, Rewriting)
    assert end.ticks <= end.ticks_max(TICKS_ALONE)
    assert not end.refused


@pytest.mark.parametrize("seed", [seed for n, _ in enumerate(MUTATIONS, FIRST_STAGE) for seed in seeds_of(n, 3)])
def test_mutations_end_beside_merges_and_what_dead_nodes_left_behind(seed):
    end = end_of_mutations(seed, Ticking)
    assert end.ticks <= end.ticks_max(TICKS_EXTRA)
    assert not end.refused


def test_some_of_these_histories_leave_much_to_do():
    ends = [end_of_mutations(seed, Ticking) for seed in seeds_of(FIRST_STAGE + 5, 3)]
    assert sum(end.lacking for end in ends) > 20
