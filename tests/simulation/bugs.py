"""Deliberate mistakes, each of which the simulation must find: patches of the real code, by name."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias
from unittest import mock

from mergelake.core.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from mergelake.log import checkpoint, commit, conflict, fold, truncate
from mergelake.log.retention import reachable
from mergelake.log.volatile import covered
from mergelake.store.protocol import Stored, Unknown
from mergelake.table import collect, collect_plan
from tests.simulation import actors

Patch: TypeAlias = Callable[[], AbstractContextManager[object]]
BUGS: dict[str, Patch] = {}


def bug(make: Patch) -> Patch:
    BUGS[make.__name__] = make
    return make


@bug
def a_direct_merge_skips_the_barrier():
    return mock.patch.object(conflict, "covered", return_value=False)


@bug
def an_intention_takes_what_lies_under_another():
    """A volatile part is made of any parts, also of those under a Live one that is not theirs."""

    def careless(parts, volatile):
        return list(parts)

    return _both(mock.patch.object(conflict, "top_level", careless), mock.patch.object(fold, "top_level", careless))


@bug
def objects_are_deleted_although_the_outcome_is_unknown():
    refused = (InvalidInputError, ConflictError, NotFoundError, UnavailableError)
    return mock.patch("mergelake.table.insert.COMMIT_REFUSED", refused)


@bug
def keys_are_deterministic():
    """The name of a part follows from its rows: two nodes that make the same merge write the same object."""

    def write(self, partition_id, rows, born=None):
        digest = hashlib.blake2b(repr((partition_id, rows)).encode(), digest_size=16).hexdigest()
        with mock.patch.object(self.process.ids, "new_id", return_value=digest):
            return real(self, partition_id, rows, born)

    real = actors.Actor.write
    return mock.patch.object(actors.Actor, "write", write)


@bug
def a_checkpoint_lacks_the_parts_under_volatile_ones():
    def thin(state):
        parts = {
            name: tuple(part for part in held if not covered(state.volatile.get(name, ()), part.info))
            for name, held in state.partitions.items()
        }
        return dataclasses.replace(state, partitions={name: held for name, held in parts.items() if held})

    return _checkpoints(thin)


@bug
def a_checkpoint_lacks_live_volatile_parts():
    return _checkpoints(lambda state: dataclasses.replace(state, volatile={}))


@bug
def a_checkpoint_lacks_the_deduplication_window():
    return _checkpoints(lambda state: dataclasses.replace(state, tokens={}))


@bug
def publish_does_not_compare_what_it_replaces():
    """What is listed and no longer active is passed over."""

    def careless(parts, ids):
        return [at for at, part in enumerate(parts) if part.manifest.id in ids] or None

    return _both(
        mock.patch.object(conflict, "positions", careless),
        mock.patch.object(fold, "positions", careless),
        mock.patch.object(conflict, "leaves", return_value=mock.ANY),
    )


@bug
def a_lost_reply_is_taken_for_a_failure():
    """The writer asks again until it hears an answer, and believes in the last one only."""

    def careless(self, entry):
        outcome = Unknown()
        while isinstance(outcome, Unknown):
            outcome = self._create(entry.version, commit.encode_entry(entry))
        return None if isinstance(outcome, Stored) else self._reader.try_entry(entry.version)

    return mock.patch.object(commit.Log, "_append", careless)


@bug
def a_lost_reply_is_taken_for_success():
    real = commit.Log._create

    def careless(self, version, data):
        outcome = real(self, version, data)
        return Stored() if isinstance(outcome, Unknown) else outcome

    return mock.patch.object(commit.Log, "_create", careless)


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
def a_drop_does_not_forget_tokens():
    return mock.patch.object(fold.Draft, "_forget", return_value=None)


@bug
def a_rollback_does_not_know_forgotten_inserts_again():
    return mock.patch("mergelake.table.rollback._lost", return_value=None)


@bug
def a_token_is_not_compared():
    real = conflict._check_add

    def careless(state, op):
        return real(dataclasses.replace(state, tokens={}), op)

    return _both(
        mock.patch.object(conflict, "_check_add", careless),
        mock.patch("mergelake.table.insert.remembered", return_value=None),
    )


@bug
def a_merge_skips_the_part_between():
    """Sources need not be neighbours."""
    real = conflict.positions

    def careless(parts, ids):
        found = real(parts, ids)
        return found and list(range(found[0], found[0] + len(found)))

    return _both(mock.patch.object(conflict, "positions", careless), mock.patch.object(fold, "positions", careless))


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
def old_knowledge_of_the_head_is_believed():
    return mock.patch.object(commit.Log, "_trusted", return_value=True)


@bug
def a_collector_has_no_second_round():
    """What is found unused is deleted as soon as the next round begins, and no fence is put before it."""
    real = collect.plan_round

    def careless(state, notes, now_ms, periods, history):
        plan = real(state, notes, now_ms, periods, history)
        return dataclasses.replace(plan, due=(*plan.due, *plan.waiting), waiting=(), born=0)

    return mock.patch.object(collect, "plan_round", careless)


@bug
def a_collector_forgets_what_tags_pin():
    return _both(*(mock.patch.object(room, "pins", return_value=()) for room in (fold, collect_plan)))


@bug
def a_collector_forgets_what_clones_hold():
    def careless(state):
        return reachable(dataclasses.replace(state, holds={}))

    return _both(*(mock.patch.object(room, "reachable", careless) for room in (collect, collect_plan)))


@bug
def the_log_is_cut_behind_what_is_kept():
    """The newest checkpoint is taken for the base, whatever history needs."""
    retire, cut = truncate.retire_checkpoints, truncate.truncate
    return _both(
        mock.patch.object(truncate, "retire_checkpoints", lambda store, reader, before: retire(store, reader, 10**9)),
        mock.patch.object(truncate, "truncate", lambda store, reader, base, history: cut(store, reader, base, 10**9)),
    )


@bug
def the_log_is_cut_at_once():
    """Checkpoints are retired and entries deleted in one go."""

    def careless(handle, notes, plan, state):
        base = handle.log.retire_checkpoints(state.history)
        return handle.log.truncate(base) if base else 0

    return mock.patch.object(collect, "shorten_log", careless)


def _checkpoints(change: Callable[[object], object]) -> AbstractContextManager[object]:
    real = checkpoint.encode_checkpoint
    return mock.patch.object(checkpoint, "encode_checkpoint", lambda state: real(change(state)))


@contextlib.contextmanager
def _both(*patches: AbstractContextManager[object]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield
