"""Mistakes about mutations: which rows they concern, when they are applied, and when they are over."""

from __future__ import annotations

import dataclasses
import functools
from contextlib import AbstractContextManager
from unittest import mock

from mergelake.core.model.names import PartInfo
from mergelake.jobs.gc.reached import Reached
from mergelake.jobs.merge import plan as merge_plan, volatile
from mergelake.jobs.mutate import commit as results, plan as mutate_plan
from mergelake.jobs.node import plan, worker
from mergelake.log.commit import commit
from mergelake.log.model import fold, retired, volatile as elements
from mergelake.log.model.operations import AddParts, FinishMutations, MarkMutated, Mutation, Publish
from mergelake.log.model.state import State
from mergelake.log.reading import tail
from mergelake.store.interface.protocol import OutcomeUnknown, Stored
from mergelake.table.handle import snapshot
from mergelake.table.partitions import mutations, parts
from tests.simulation import admins
from tests.simulation.bugs.registry import allowed, both, bug

_LACKING = (elements, fold, merge_plan, mutate_plan, volatile, snapshot)
"""Modules that ask what a part lacks."""


def _lacking(careless) -> AbstractContextManager[object]:
    return both(*(mock.patch.object(module, "lacking", careless) for module in _LACKING))


@bug
def a_mutation_concerns_rows_that_came_after_it():
    """A part that was never mutated lacks all of them."""
    return mock.patch.object(PartInfo, "data_version", property(lambda self: self.mutation))


@bug
def a_mutation_misses_the_part_that_was_inserted_just_before():
    real = elements.lacking
    return _lacking(lambda known, info: tuple(m for m in real(known, info) if m.version > info.data_version + 1))


@bug
def a_mutation_of_one_partition_concerns_all():
    real = elements.lacking

    def careless(known, info):
        return real([dataclasses.replace(m, partition_ids=None) for m in known], info)

    return _lacking(careless)


@bug
def a_killed_mutation_is_still_applied():
    real = elements.lacking

    def careless(known, info):
        return real([dataclasses.replace(m, killed=False) for m in known], info)

    return _lacking(careless)


@bug
def a_result_may_have_a_mutation_that_was_killed_meanwhile():
    """Those that a Publish names need not be pending."""
    return allowed("_check_mutations", "are not ones that the sources lack")


@bug
def mutations_are_written_down_with_a_gap():
    """Those that a Publish names need not be the next ones of each source."""
    return allowed("_check_mutations", "lack different mutations")


@bug
def parts_are_marked_with_a_gap():
    return allowed("_check_mark", "are not the next ones")


@bug
def a_part_under_a_volatile_one_is_marked():
    return allowed("_check_mark", "lies under a Live volatile part")


@bug
def a_part_is_marked_though_mutations_change_rows_of_it():
    real = results._ops
    return mock.patch.object(results, "_ops", lambda found: real([(task, None) for task, _ in found]))


@bug
def a_mark_does_not_remember_the_old_name():
    """History and tags show the part under it, and nothing tells that its objects are needed for them."""
    real = fold.Draft._mark_mutated

    def careless(self, op):
        with mock.patch.object(fold.Draft, "_remember", return_value=None):
            real(self, op)

    return mock.patch.object(fold.Draft, "_mark_mutated", careless)


@bug
def a_marked_part_is_looked_for_in_the_entry_that_marked_it():
    """If its file table in a segment is damaged."""

    def careless(self, part_id, added):
        for version in [version for version, size in self.checkpoints() if size and version >= added]:
            yield from self._files_at(version, part_id)
        for op in getattr(self.try_entry(added), "ops", ()):
            parts = op.parts if isinstance(op, AddParts) else (op.part,) if isinstance(op, Publish) else ()
            yield from (manifest.files for manifest in parts if manifest.id == part_id)

    return mock.patch.object(tail.LogReader, "_files_elsewhere", careless)


@bug
def retired_parts_are_told_apart_by_their_ids():
    """A part that was marked retires under each name that it had."""
    return mock.patch.object(retired, "_key", lambda part: part.id)


@bug
def a_merge_ignores_what_one_source_lacks():
    real = merge_plan.plan_merge

    def careless(*arguments, **options):
        task = real(*arguments, **options)
        return dataclasses.replace(task, sources=(*task.sources[:-1], dataclasses.replace(task.sources[-1], lacks=())))

    return mock.patch.object(worker, "plan_merge", careless)


@bug
def a_merge_collapses_rows_before_a_mutation_deletes_some():
    return allowed("_check_mutations", "lack a mutation that changes its outcome")


@bug
def a_volatile_part_stays_live_though_rows_that_it_collapses_are_deleted():
    real = fold.Draft._mutate

    def careless(self, op):
        with mock.patch.object(self, "_volatile", {}, create=True):
            real(self, op)

    return mock.patch.object(fold.Draft, "_mutate", careless)


@bug
def a_volatile_part_stays_live_though_a_mutation_of_it_is_killed():
    return mock.patch.object(fold, "_applies", return_value=False)


@bug
def a_merge_has_the_last_mutation_that_it_applies():
    """Though a source has a later one, which was killed since."""
    real = fold.Draft._publish

    def careless(self, op):
        real(self, op)
        parts = self._parts(op.part.partition_id)
        at = next(at for at, part in enumerate(parts) if part.manifest.id == op.part.id)
        last = op.mutations[-1] if op.mutations else parts[at].info.mutation
        part = dataclasses.replace(parts[at], info=dataclasses.replace(parts[at].info, mutation=last))
        self._gained[self._gained.index(parts[at])] = parts[at] = part

    return mock.patch.object(fold.Draft, "_publish", careless)


@bug
def a_volatile_part_is_built_without_its_mutations():
    return _built(lambda state, part: 0)


@bug
def a_volatile_part_is_built_with_mutations_that_came_later():
    return _built(lambda state, part: state.block_counter)


@bug
def a_volatile_part_is_published_without_its_mutations():
    """Its bytes have them, and the log is not told."""
    return mock.patch.object(worker, "pending", return_value=())


@bug
def local_bytes_are_known_by_their_names():
    """A part of the same name may lack a mutation that was killed."""
    return mock.patch.object(volatile, "same_content", return_value=True)


@bug
def mutations_are_finished_though_a_part_lacks_them():
    return allowed("_check_finish", "that is said to be finished")


@bug
def mutations_are_finished_with_their_first_part():
    def careless(state, done):
        ids = tuple(m.id for m in mutations.open_mutations(state) if m.version in done.values())
        return (FinishMutations(ids),) if ids else ()

    places = ("jobs.mutate.commit", "jobs.merge.commit", "jobs.node.worker")
    return both(
        *(mock.patch(f"mergelake.{place}.finished_by", careless) for place in places),
        allowed("_check_finish", "that is said to be finished"),
    )


@bug
def nobody_says_that_mutations_are_over():
    """Of those whose last parts were dropped."""
    return mock.patch.object(plan, "_are_over", return_value=False)


@bug
def a_mutation_is_logged_again_by_who_was_not_told():
    """`v = v + 1` adds two."""

    def careless(self, entry):
        outcome = OutcomeUnknown()
        while isinstance(outcome, OutcomeUnknown):
            outcome = self._create(entry.version, commit.encode_entry(entry))
        return None if isinstance(outcome, Stored) else self._reader.try_entry(entry.version)

    return both(mock.patch.object(commit.Log, "_append", careless), allowed("check", "is known already"))


@bug
def a_mutation_may_be_logged_twice():
    return allowed("check", "is known already")


@bug
def rows_may_change_between_a_read_and_what_follows_from_it():
    return allowed("check", "were added, changed or removed")


@bug
def a_mutation_is_no_change_of_rows():
    changes = tuple(kind for kind in fold._CHANGES if kind is not Mutation)
    return mock.patch.object(fold, "_CHANGES", changes)


@bug
def a_result_takes_the_place_of_whatever_has_its_rows_now():
    """Also of a merged part, which has more rows."""
    current: list[State] = []
    counts, ops = results._counts, results._ops

    def careless_counts(task, state):
        current[:] = [state]
        return counts(task, state) or _now(task, state) is not None

    def careless_ops(found):
        out = []
        for task, manifest in found:
            now = _now(task, current[0])
            if manifest is None or now is None:
                out += ops([(task, manifest)])
            else:
                out.append(Publish(manifest, (now.manifest.id,), "mutation", mutations=task.mutations))
        return out

    return both(
        mock.patch.object(results, "_counts", careless_counts), mock.patch.object(results, "_ops", careless_ops)
    )


@bug
def a_mark_takes_whatever_has_its_rows_now():
    """Also a merged part, with rows that do match."""
    current: list[State] = []
    counts, ops = results._counts, results._ops

    def careless_counts(task, state):
        current[:] = [state]
        return counts(task, state) or _now(task, state) is not None

    def careless_ops(found):
        out = []
        for task, manifest in found:
            now = _now(task, current[0])
            if manifest is not None or now is None:
                out += ops([(task, manifest)])
            else:
                out.append(MarkMutated(task.result.partition_id, (now.manifest.id,), task.mutations))
        return out

    return both(
        mock.patch.object(results, "_counts", careless_counts), mock.patch.object(results, "_ops", careless_ops)
    )


@bug
def a_collector_does_not_follow_references_of_parts():
    """The old directory goes, and the part that was made from it still refers to its files."""

    def careless(self, manifests):
        yield from (manifest.id for manifest in manifests)

    return mock.patch.object(Reached, "_led", careless)


def _now(task, state):
    """The active part that has the blocks of a task."""
    info = task.result
    held = state.partitions.get(info.partition_id, ())
    return next((p for p in held if elements.inside(info, p.info)), None)


def _built(last) -> AbstractContextManager[object]:
    """Volatile parts are built with the mutations up to `last(state, part)`."""
    real = volatile.build_task

    @functools.wraps(real)
    def careless(directory, state, part, local):
        task = real(directory, state, part, local)
        due = [m for m in state.mutations if m.version <= last(state, part)]
        sources = (dataclasses.replace(each, lacks=elements.lacking(due, each.info)) for each in task.sources)
        return dataclasses.replace(task, sources=tuple(sources))

    return mock.patch.object(worker, "build_task", careless)


@bug
def an_attached_part_has_lost_the_mutations_that_it_lacked():
    real = parts.with_lacks

    def careless(added, ids, *more):
        return real([(part, ()) for part, _ in added], ids, *more)

    return both(*(mock.patch.object(room, "with_lacks", careless) for room in (parts, admins)))


@bug
def a_mutation_of_attached_parts_concerns_those_that_have_it():
    real = elements.lacking
    return _lacking(lambda known, info: real([dataclasses.replace(m, since=0) for m in known], info))
