"""Mistakes about rows: merges, volatile parts, mutations, drops, rollback."""

from __future__ import annotations

import dataclasses
import hashlib
from unittest import mock

from mergelake.log.model import conflict, fold
from tests.simulation import actors
from tests.simulation.bugs.registry import allowed, both, bug


@bug
def a_direct_merge_skips_the_barrier():
    return mock.patch.object(conflict, "covered", return_value=False)


@bug
def an_intention_takes_what_lies_under_another():
    """A volatile part is made of any parts, also of those under a Live one that is not theirs."""

    def careless(parts, volatile):
        return list(parts)

    return both(mock.patch.object(conflict, "top_level", careless), mock.patch.object(fold, "top_level", careless))


@bug
def keys_are_deterministic():
    """The name of a part follows from its rows: two nodes that make the same merge write the same object."""

    def write(self, partition_id, rows, base_version=None):
        digest = hashlib.blake2b(repr((partition_id, rows)).encode(), digest_size=16).hexdigest()
        with mock.patch.object(self.process.ids, "new_id", return_value=digest):
            return real(self, partition_id, rows, base_version)

    real = actors.Actor.write
    return mock.patch.object(actors.Actor, "write", write)


@bug
def publish_does_not_compare_what_it_replaces():
    """What is listed and no longer active is passed over."""

    def careless(parts, ids):
        return [at for at, part in enumerate(parts) if part.manifest.id in ids] or None

    return both(
        mock.patch.object(conflict, "positions", careless),
        mock.patch.object(fold, "positions", careless),
        mock.patch.object(conflict, "leaves", return_value=mock.ANY),
    )


@bug
def a_cancelled_volatile_part_leaves_its_dependents():
    def careless(self, ids):
        for info in [self._live(volatile_id).info for volatile_id in ids]:
            self._remove_volatile(info.partition_id, lambda part, gone=info: part.info == gone)

    return mock.patch.object(fold.Draft, "_cancel", careless)


@bug
def a_drop_leaves_volatile_parts():
    def careless(self, op):
        held = self._volatile
        self._volatile = {}
        real(self, op)
        self._volatile = held

    real = fold.Draft._drop_range
    return mock.patch.object(fold.Draft, "_drop_range", careless)


@bug
def a_published_volatile_part_stays_live_within():
    """What was built on the way stays Live, inside the part that took its place."""

    def careless(self, partition_id, goes):
        gone = [part for part in self._volatile.get(partition_id, ()) if goes(part)]
        outer = max(gone, key=lambda part: part.info.max_block - part.info.min_block, default=None)
        real(self, partition_id, lambda part: part is outer)

    real = fold.Draft._remove_volatile
    return mock.patch.object(fold.Draft, "_remove_volatile", careless)


@bug
def parts_that_lack_different_mutations_are_merged():
    return mock.patch.object(conflict, "_check_mutations", return_value=None)


@bug
def a_merge_skips_the_part_between():
    """Sources need not be neighbours."""
    real = conflict.positions

    def careless(parts, ids):
        found = real(parts, ids)
        return found and list(range(found[0], found[0] + len(found)))

    return both(mock.patch.object(conflict, "positions", careless), mock.patch.object(fold, "positions", careless))


@bug
def a_rollback_does_not_know_forgotten_inserts_again():
    return mock.patch("mergelake.table.partitions.rollback._lost", return_value=None)


@bug
def detached_parts_are_attached_twice():
    return mock.patch.object(conflict, "_check_detached", return_value=None)


@bug
def a_drop_cuts_through_a_part():
    real = conflict._check_drop
    return mock.patch.object(
        conflict, "_check_drop", lambda state, op, at: real(state, dataclasses.replace(op, max_block=None), at)
    )


@bug
def mutations_are_forgotten_before_they_are_done():
    """The last few are remembered, done or not."""
    real = fold.Draft._mutate

    def careless(self, op):
        real(self, op)
        self._mutations = self._mutations[-fold.FINISHED_MUTATIONS_TO_KEEP - 1 :]

    return mock.patch.object(fold.Draft, "_mutate", careless)


@bug
def a_volatile_part_is_taken_from_anybody():
    """Two nodes take it from a third, and both get it."""
    return allowed("check", "is built by")


@bug
def a_merge_has_the_level_of_its_sources():
    real = fold.merged_name
    return mock.patch.object(
        fold,
        "merged_name",
        lambda infos, holes=(): dataclasses.replace(real(infos, holes), level=max(i.level for i in infos)),
    )


@bug
def what_is_brought_back_need_not_be_kept():
    """Rollback, attach and clone refer to directories that may be deleted at any moment."""
    return mock.patch.object(conflict, "_check_reachable", return_value=None)
