"""Mistakes about the log's own objects: checkpoints, tags, cutting, reading back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

from mergelake.jobs.gc import collect, log_objects as collect_log
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.volatile import covered
from mergelake.log.reading import checkpointing, tail, truncate
from mergelake.log.storage import checkpoint, tags
from tests.simulation.bugs.registry import both, bug


@bug
def a_checkpoint_lacks_the_parts_under_volatile_ones():
    def thin(state):
        parts = {
            name: tuple(part for part in held if not covered(state.volatile.get(name, ()), part.info))
            for name, held in state.partitions.items()
        }
        return dataclasses.replace(
            state, partitions=Partitions.of({name: held for name, held in parts.items() if held})
        )

    return _checkpoints(thin)


@bug
def a_checkpoint_lacks_live_volatile_parts():
    return _checkpoints(lambda state: dataclasses.replace(state, volatile={}))


@bug
def a_checkpoint_lacks_the_deduplication_window():
    return _checkpoints(lambda state: dataclasses.replace(state, tokens={}))


@bug
def the_log_is_cut_behind_what_is_kept():
    """The newest checkpoint is taken for the base, whatever history needs."""
    retire, cut = truncate.retire_checkpoints, truncate.truncate
    return both(
        mock.patch.object(
            truncate, "retire_checkpoints", lambda store, reader, before, *rest: retire(store, reader, 10**9, *rest)
        ),
        mock.patch.object(truncate, "truncate", lambda store, reader, base, history: cut(store, reader, base, 10**9)),
    )


@bug
def the_log_is_cut_at_once():
    """Checkpoints are retired and entries deleted in one go."""

    def careless(handle, notes, plan, state):
        base = handle.log.retire_checkpoints(state.history)
        return handle.log.truncate(base) if base else 0

    return mock.patch.object(collect, "shorten_log", careless)


@bug
def tags_are_written_down_after_the_cut():
    keep, shorten = collect_log._keep_tags, collect_log.shorten_log

    def careless(handle, notes, plan, state):
        cut = shorten(handle, notes, plan, state)
        keep(handle, state)
        return cut

    return both(
        mock.patch.object(collect_log, "_keep_tags", return_value=None),
        mock.patch.object(collect, "shorten_log", careless),
    )


@bug
def a_tagged_state_is_a_checkpoint():
    def careless(prefix, version):
        return f"{prefix}/checkpoints/{version:020d}.arrow"

    return both(*(mock.patch.object(room, "tag_key", careless) for room in (tags, collect_log)))


@bug
def the_log_is_never_cut():
    return mock.patch.object(collect_log, "_has_entry", return_value=False)


@bug
def a_checkpoint_is_not_read_back():
    """Those before the newest one are emptied, whether or not that one can be read."""

    def careless(store, reader, before, head, history):
        standing = [version for version, size in reader.checkpoints() if size and version <= before]
        if not standing:
            return 0
        base = standing.pop()
        if reader.hint() < base:
            store.put(reader.hint_key, json.dumps({"version": base}).encode())
        for version in standing:
            store.put(reader.checkpoint_key(version), b"")
        return base

    return mock.patch.object(truncate, "retire_checkpoints", careless)


@bug
def the_log_is_cut_at_any_checkpoint():
    """Also at one that a collector which sleeps wants to empty."""
    real = truncate.retire_checkpoints

    def careless(store, reader, *state):
        with mock.patch.object(truncate, "is_kept", return_value=True):
            base = real(store, reader, *state)
        real(store, reader, *state)
        return base

    return mock.patch.object(truncate, "retire_checkpoints", careless)


@bug
def checkpoints_within_history_are_not_needed():
    """All that are not kept at the head go, wherever the log is cut."""
    real = truncate.retire_checkpoints

    def careless(store, reader, before, head, history):
        base = real(store, reader, before, head, history)
        for version, size in reader.checkpoints():
            if size and version < reader.hint() and not truncate.is_kept(version, size, head):
                store.put(reader.checkpoint_key(version), b"")
        return base

    return mock.patch.object(truncate, "retire_checkpoints", careless)


@bug
def a_checkpoint_is_written_over_an_emptied_one():
    """A writer that slept brings back a checkpoint behind which entries are gone."""
    real = checkpointing.Checkpointing._write

    def careless(self, newest):
        state = newest.state
        self._store.put(self._reader.checkpoint_key(state.version), self._machine.encode(state))
        real(self, newest)

    return mock.patch.object(checkpointing.Checkpointing, "_write", careless)


@bug
def an_old_version_begins_behind_itself():
    def careless(self, version):
        state = self._nearest([v for v, size in self.checkpoints() if size and v <= version + 1])
        return self._machine.fold(state, self.entries(state.version + 1, version))

    return mock.patch.object(tail.LogReader, "state_at", careless)


@bug
def a_time_is_answered_by_the_version_after_it():
    real = tail.LogReader.version_at

    def careless(self, newest, timestamp_ms):
        return min(real(self, newest, timestamp_ms) + 1, newest.version)

    return mock.patch.object(tail.LogReader, "version_at", careless)


@bug
def a_version_is_not_yet_there_at_its_own_time():
    real = tail.LogReader.version_at
    return mock.patch.object(
        tail.LogReader, "version_at", lambda self, newest, timestamp_ms: real(self, newest, timestamp_ms - 1)
    )


def _checkpoints(change: Callable[[object], object]) -> AbstractContextManager[object]:
    real = checkpoint.encode_checkpoint
    return mock.patch.object(checkpoint, "encode_checkpoint", lambda state, layout=None: real(change(state)))
