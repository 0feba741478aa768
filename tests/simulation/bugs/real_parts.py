"""Mistakes of the code that writes and reads real parts: what mutations do to their rows."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import pyarrow as pa

from mergelake.api.python import reading
from mergelake.jobs.merge import source
from mergelake.jobs.merge.source import SourceReader
from mergelake.jobs.mutate import commit as results, execute
from mergelake.parts.write.rewrite import ColumnRewriter
from mergelake.scan.prune.narrowed import NarrowedSteps
from mergelake.scan.read.filter import RowSelection
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.pending.bound import Steps
from tests.simulation.bugs.registry import both, bug


@bug
def a_reader_applies_mutations_that_came_after_its_version():
    real = reading.snapshot_to_read

    def careless(handle, *arguments, **options):
        found = real(handle, *arguments, **options)
        return dataclasses.replace(found, mutations=Snapshot.of(handle.log.state).mutations)

    return mock.patch.object(reading, "snapshot_to_read", careless)


@bug
def a_merge_of_real_parts_does_not_apply_mutations():
    """And says that it did."""

    def careless(store, directory, schema, manifest, lacks):
        return SourceReader(store, directory, schema, manifest)

    return mock.patch("mergelake.jobs.merge.execute.SourceReader", careless)


@bug
def a_rewritten_part_keeps_the_indexes_of_columns_that_changed():
    return mock.patch.object(ColumnRewriter, "indexes", ())


@bug
def a_rewritten_part_has_no_mask():
    """Rows that a lightweight DELETE hides are there again."""
    return mock.patch.object(ColumnRewriter, "write_mask", return_value=None)


@bug
def a_mask_hides_rows_that_stay():
    """It is written the other way round."""
    real = execute._mask
    return mock.patch.object(
        execute, "_mask", lambda matches, rows: (pa.array(1 - array.to_numpy()) for array in real(matches, rows))
    )


@bug
def skip_indexes_exclude_rows_that_readers_update():
    return mock.patch("mergelake.scan.read.plan.bind_steps", return_value=None)


@bug
def a_condition_sees_rows_as_their_part_has_them():
    """Pending updates are applied to what it leaves."""
    real = RowSelection.filter

    def careless(self, step, types):
        self._settle()
        steps, self._steps = self._steps, None
        real(self, step, types)
        self._steps, self._arrays = steps, {}

    return mock.patch.object(RowSelection, "filter", careless)


@bug
def assignments_see_the_values_of_those_before_them():
    """After `SET v = u, u = v` both are equal."""
    real = Steps._updated

    def careless(self, step, needed, held, matched):
        out = {}
        for name in needed:
            out |= real(self, step, [name], {**held, **out}, matched)
        return out

    return mock.patch.object(Steps, "_updated", careless)


@bug
def readers_do_not_apply_deletes():
    return mock.patch.object(Steps, "deletes", False)


@bug
def readers_leave_out_mutations_of_the_last_mark():
    real = NarrowedSteps._find

    def careless(self):
        return [None if marks is None else np.append(marks[:-1], False) for marks in real(self)]

    return mock.patch.object(NarrowedSteps, "_find", careless)


@bug
def a_rewrite_looks_at_the_last_mark_only():
    """For rows that its mutations match."""
    real = execute.matching_ranges

    def careless(store, tasks):
        found = real(store, tasks).items()
        return {part_id: tuple((end - 1, end) for _, end in ranges[-1:]) for part_id, ranges in found}

    return mock.patch.object(execute, "matching_ranges", careless)


@bug
def who_applies_mutations_passes_over_volatile_parts():
    return mock.patch.object(results, "_cancel_volatile", return_value=None)


@bug
def a_part_does_not_say_where_its_files_lie():
    """A collector deletes the old directory of a part that was rewritten by reference."""
    places = ("log.model.fold", "log.model.retention", "jobs.gc.reached")
    return both(*(mock.patch(f"mergelake.{place}.refers", return_value=()) for place in places))


@bug
def who_writes_a_part_anew_forgets_its_mask():
    """Rows that were hidden are there again."""
    real = source.find_matches

    def careless(steps, batches, rows, ranges=None, hidden=None):
        return real(steps, batches, rows, ranges)

    return mock.patch.object(source, "find_matches", careless)


@bug
def a_merge_keeps_rows_that_add_up_to_nothing():
    return mock.patch("mergelake.engines.rules.summing.is_zero", lambda array: np.zeros(len(array), np.bool_))


@bug
def rows_are_combined_before_a_mutation_changes_them():
    """A merge need not apply the mutations that its sources lack."""
    return both(
        mock.patch("mergelake.log.model.conflict.precedes_merges", return_value=False),
        mock.patch("mergelake.jobs.merge.execute.SourceReader", lambda *given: SourceReader(*given[:4])),
    )
