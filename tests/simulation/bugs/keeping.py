"""Mistakes about what is kept: history, fence, grace, tags, leases, holds, clones, dropped tables."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from unittest import mock

from mergelake.core.base.errors import MergelakeError, NotFoundError
from mergelake.core.model.settings import TableSettings
from mergelake.jobs.gc import collect, holds as collect_holds, plan as collect_plan
from mergelake.jobs.gc.plan import Periods
from mergelake.jobs.gc.reached import Reached
from mergelake.log.model import conflict, fold, retention
from mergelake.log.model.conflict import Reject
from mergelake.log.model.operations import AddReference, RenewLease
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.retention import partial_versions, pins, reachable
from mergelake.log.model.retired import Retired
from mergelake.log.model.state import State
from mergelake.table.partitions import clone, gc_notes as collect_notes
from mergelake.table.write import insert
from mergelake.table.write.insert import discard_parts
from tests.simulation import admins
from tests.simulation.bugs.registry import both, bug


@bug
def the_fence_is_ignored():
    """Whoever began before a collection may still commit."""
    real = fold.Draft._collect

    def careless(self, op):
        fence = self._fence
        real(self, op)
        self._fence = fence

    return mock.patch.object(fold.Draft, "_collect", careless)


@bug
def a_collector_has_no_second_round():
    """What is found unused is deleted as soon as the next round begins, and no fence is put before it."""
    real = collect.plan_round

    def careless(state, notes, now_ms, periods, history):
        plan = real(state, notes, now_ms, periods, history)
        return dataclasses.replace(plan, due=(*plan.due, *plan.waiting), waiting=(), base_version=0)

    return mock.patch.object(collect, "plan_round", careless)


@bug
def a_collector_forgets_what_tags_pin():
    return both(*(mock.patch.object(room, "pins", return_value=()) for room in (fold, collect_plan)))


@bug
def a_collector_forgets_what_clones_hold():
    def without(state):
        return dataclasses.replace(state, holds={})

    look, newer = Reached.look, Reached.newer
    return both(
        mock.patch.object(Reached, "look", lambda self, state: look(self, without(state))),
        mock.patch.object(Reached, "newer", lambda self, state: newer(self, without(state))),
        mock.patch.object(collect_plan, "reachable", lambda state: reachable(without(state))),
    )


@bug
def a_lease_may_be_of_a_version_that_is_gone():
    real = conflict.check

    def careless(state, op, *before):
        found = real(state, op, *before)
        return None if isinstance(op, RenewLease) and not state.dropped else found

    return mock.patch.object(conflict, "check", careless)


@bug
def a_tag_may_be_of_a_version_that_is_gone():
    real = conflict._check_tag

    def careless(state, op):
        found = real(state, op)
        return None if isinstance(found, Reject) and "no longer kept" in found.reason else found

    return mock.patch.object(conflict, "_check_tag", careless)


@bug
def a_clone_begins_before_it_holds():
    def begin(holder, plan, open_table):
        return [(open_table(owner), directories) for owner, directories in plan.holds.items()]

    def hold(holder, owners):
        for handle, directories in owners:
            handle.log.commit(lambda _, directories=directories: (AddReference(holder, directories),))
        clone.check_holds(holder, [handle for handle, _ in owners])

    return both(mock.patch.object(admins, "take_holds", begin), mock.patch.object(admins, "check_holds", hold))


@bug
def a_retired_part_forgets_where_its_files_lie():
    return mock.patch.object(fold, "refers", return_value=())


@bug
def a_shared_object_is_forgotten_with_its_first_part():
    real = retention.refers

    def careless(manifest):
        places = [extent for file in manifest.file_table().values() for extent in file.extents]
        return real(manifest) if places[0].offset == 0 or places[0].key.startswith("/") else ()

    return mock.patch.object(retention, "refers", careless)


@bug
def a_known_part_takes_the_object_along_that_it_shares():
    def careless(store, directory, manifests, keep=()):
        discard_parts(store, directory, manifests)

    return mock.patch.object(insert, "discard_parts", careless)


@bug
def history_forgets_one_version_too_many():
    honest = Retired.still_shown

    def careless(retired, history, pinned, partial=None):
        return honest(retired, history + 1, pinned, partial)

    return mock.patch.object(Retired, "still_shown", careless)


@bug
def a_journal_misses_what_was_touched():
    """Who looks at what changed since his last round takes new parts for unused ones."""
    honest = Partitions.touched_since

    def careless(self, older):
        found = honest(self, older)
        return found and frozenset(sorted(found)[1:])

    return mock.patch.object(Partitions, "touched_since", careless)


@bug
def what_retired_is_not_reached():
    """A collector that goes by differences forgets what older versions show."""
    honest = Retired.since
    return mock.patch.object(Retired, "since", lambda self, older: ([], honest(self, older)[1]))


@bug
def a_collector_forgets_what_leases_pin():
    def careless(history, tags, leases, dropped=False):
        return pins(history, tags, {}, dropped)

    return both(*(mock.patch.object(room, "pins", careless) for room in (fold, collect_plan)))


@bug
def a_collector_forgets_what_frozen_partitions_hold():
    def careless(tags, tagged_partitions, leases):
        return {version: frozenset() for version in partial_versions(tags, tagged_partitions, leases)}

    return both(*(mock.patch.object(room, "partial_versions", careless) for room in (fold, collect_plan)))


@bug
def detached_parts_are_forgotten_as_soon_as_they_are_given_up():
    """Versions before the detachment may still be read."""

    def careless(self, ids):
        self._detached = tuple(part for part in self._detached if part.manifest.id not in ids)

    return mock.patch.object(fold.Draft, "_take_from_detached", careless)


@bug
def what_history_forgets_may_come_back():
    """The fence does not go on with history: a part that nobody remembers is new again."""
    real = fold.Draft._collect

    def careless(self, op):
        fence = max(self._fence, op.base_version)
        real(self, op)
        self._fence = fence

    return mock.patch.object(fold.Draft, "_collect", careless)


@bug
def what_history_costs_counts_more_than_the_grace_period():
    def careless(state, periods, before):
        limit = periods.retention_bytes
        return max(before(periods.retention_ms), state.retired.oldest_within(limit, ()))

    return mock.patch.object(collect, "oldest_to_keep", careless)


@bug
def half_a_grace_period_is_enough():
    real = Periods.due_ms
    return mock.patch.object(
        Periods, "due_ms", lambda self, note: note.stored_ms + (real(self, note) - note.stored_ms) // 2
    )


@bug
def notes_are_dated_by_their_writers():
    real = Periods.due_ms
    return mock.patch.object(
        Periods, "due_ms", lambda self, note: real(self, dataclasses.replace(note, stored_ms=note.time_ms))
    )


@bug
def retention_may_be_shorter_than_grace():
    def careless(state):
        settings = TableSettings(state.schemas[state.schema_version].settings)
        retention, grace = settings.integer("history_retention_seconds"), settings.integer("gc_grace_seconds")
        return Periods(retention * 1000, grace * 1000, max(settings.integer("checkpoint_interval"), 1))

    return mock.patch.object(Periods, "of", staticmethod(careless))


@bug
def the_fence_lies_one_too_low():
    real = collect_notes.Notes.write

    def careless(self, fence, time_ms, kind, note):
        return real(self, fence - (kind == "objects"), time_ms, kind, note)

    return mock.patch.object(collect_notes.Notes, "write", careless)


@bug
def the_head_is_read_before_the_listing():
    """Who wrote what was listed may have known a newer version."""
    real = collect._note_unused

    def careless(handle, known, notes, state, *rest):
        old = SimpleNamespace(
            store=handle.store, directory=handle.directory, clock=handle.clock, log=handle.log, refresh=lambda: state
        )
        real(old, known, notes, state, *rest)

    return mock.patch.object(collect, "_note_unused", careless)


@bug
def no_lease_is_ever_over():
    return both(*(mock.patch.object(room, "silent_nodes", return_value=[]) for room in (collect, collect_plan)))


@bug
def a_lease_is_over_as_soon_as_it_ends():
    """Not a grace period later."""
    real = collect_plan.silent_nodes

    def careless(state, over_ms, old):
        return real(state, over_ms + Periods.of(state).grace_ms, old)

    return both(*(mock.patch.object(room, "silent_nodes", careless) for room in (collect, collect_plan)))


@bug
def a_hold_goes_when_its_holder_cannot_be_opened():
    real = collect_holds.look_at_holders

    def careless(handle, state, missed, dry_run, open_table):
        def opened(holder):
            try:
                return open_table(holder)
            except NotFoundError:
                raise
            except MergelakeError:
                return SimpleNamespace(log=SimpleNamespace(state=State()))

        return real(handle, state, missed, dry_run, opened)

    return mock.patch.object(collect, "look_at_holders", careless)


@bug
def a_holder_that_did_not_begin_is_not_kept_from_it():
    return mock.patch.object(collect_holds, "_buried", return_value=True)


@bug
def holds_are_never_released():
    return mock.patch.object(collect_holds, "refers_to", return_value=True)


@bug
def a_dropped_table_goes_though_clones_need_it():
    return mock.patch.object(collect, "is_gone", lambda state: state.dropped)


@bug
def what_clickhouse_is_shown_is_collected():
    return mock.patch.object(collect, "_shown", return_value=((), ()))
