"""Mistakes with retired parts that lie in segments of checkpoints."""

from __future__ import annotations

from unittest import mock

from mergelake.log.model.retired import Retired
from mergelake.log.storage import stored_runs
from mergelake.log.storage.layout import SegmentLayout
from mergelake.log.storage.stored_runs import StoredRun
from tests.simulation.bugs.registry import bug


@bug
def segments_of_retired_parts_are_swept_though_checkpoints_name_them():
    return mock.patch.object(SegmentLayout, "names", property(lambda self: frozenset(self.members)))


@bug
def a_stored_run_is_taken_though_parts_of_it_are_forgotten():
    def careless(self, stored):
        there = {run.name for run in self.runs}
        after = real(self, stored)
        runs = list(after.runs)
        for run in stored:
            facts = run.facts
            inside = [
                at
                for at, each in enumerate(runs)
                if not each.name and facts.noted_first <= each.facts.noted_first <= facts.noted_last
            ]
            if run.name not in there and inside:
                runs[inside[0] : inside[-1] + 1] = [run]
        return Retired.of(runs)

    real = Retired.held_as
    return mock.patch.object(Retired, "held_as", careless)


@bug
def parts_in_stored_runs_are_not_known_any_more():
    """A retry of what had landed and was merged away comes in twice."""
    return mock.patch.object(StoredRun, "find", return_value=[])


@bug
def stored_runs_are_looked_into_as_if_a_part_were_begun_when_it_is_committed():
    real = Retired.find
    return mock.patch.object(Retired, "find", lambda self, part_ids, base_version=0: real(self, part_ids, 1 << 60))


@bug
def of_a_stored_run_all_goes_with_its_first_part():
    def careless(self, history, pinned, partial=None):
        left = [run for run in self.runs if not run.name or run.facts.first > history]
        return real(Retired.of(left), history, pinned, partial)

    real = Retired.still_shown
    return mock.patch.object(Retired, "still_shown", careless)


@bug
def a_new_run_lacks_what_stood_in_the_small_ones_beside_it():
    def careless(runs, parts_max):
        young = [run for run in runs if not run.name]
        return [*(run for run in runs if run.name and run.facts.parts >= parts_max // 2), *real(young, parts_max)]

    real = stored_runs.spilled
    return mock.patch.object(stored_runs, "spilled", careless)
