"""Mistakes of readers that take volatile parts from nodes. They are found in worlds of real parts."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

from mergelake.scan.read import plan
from mergelake.table.handle import volatile_choice
from mergelake.table.handle.snapshot import Snapshot, with_merged
from mergelake.table.volatile import volatile_snapshot
from tests.simulation.bugs.registry import bug


@bug
def older_versions_are_read_with_the_volatile_parts_of_the_newest_one():
    real = volatile_snapshot.choose

    def careless(handle, state, reads, mode):
        newest = handle.log.state
        merged, found = real(newest, reads.ready(handle.directory, newest, newest.leases, mode))
        known = [part for part in merged if part.info.partition_id in state.partitions]
        return with_merged(Snapshot.of(state), known, found)

    return mock.patch.object(volatile_snapshot, "snapshot_to_read", careless)


@bug
def a_volatile_part_is_read_although_its_sources_were_retired_since():
    """Who learned that it is ready does not look whether it is still Live."""
    real = volatile_snapshot.choose
    ready: dict = {}

    def careless(state, answers):
        merged, found = real(state, answers)
        ready.update({part.id: part for part in merged})
        blocks = {(part.info.partition_id, n) for part in merged for n in _blocks(part)}
        again = [
            part
            for part in ready.values()
            if part.info.partition_id in state.partitions
            and not blocks.intersection((part.info.partition_id, n) for n in _blocks(part))
        ]
        return (*merged, *again[-1:]), found

    return mock.patch.object(volatile_snapshot, "choose", careless)


def _blocks(part):
    return range(part.info.min_block, part.info.max_block + 1)


@bug
def mutations_that_came_after_a_volatile_part_was_ready_are_not_applied_to_it():
    real = plan._IndexSearch._item

    def careless(self, part):
        item = real(self, part)
        return item if item.merged is None else replace(item, lacks=())

    return mock.patch.object(plan._IndexSearch, "_item", careless)


@bug
def sources_that_are_read_after_all_lack_no_mutations():
    real = volatile_choice._merged

    def careless(*arguments):
        found = real(*arguments)
        return None if found is None else replace(found, mutations=())

    return mock.patch.object(volatile_choice, "_merged", careless)


@bug
def a_read_begins_before_it_has_all_bytes_of_volatile_parts():
    def careless(run, store):
        for item in run.plan.items:
            if item.merged is not None:
                store.complete(item.merged)
        return run.plan.items

    return mock.patch("mergelake.scan.read.read.settled_items", careless)
