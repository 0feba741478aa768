"""Merges: the rows of the table are read if needed, parts are written, one entry commits all.

A merge that is *blind* (`request.Merge.is_blind`) reads nothing and never conflicts. Any other is computed from the
rows of one version, and committed on the condition that no row has changed since (`RowsUnchanged`); otherwise it reads
again. Parts that were written are used again if the rows that were read are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.base.cancel import check
from mergelake.core.base.errors import ConflictError
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.arrow import storage_type
from mergelake.engines.order.keys import Block
from mergelake.engines.rules.modes import mode_of
from mergelake.engines.rules.states import StateFunctions
from mergelake.jobs.mutate.validate import check_unfinished
from mergelake.jobs.upsert.keys import Keys, check_size, condition_of, first_repeated, partitions_with
from mergelake.jobs.upsert.pairs import Changes, changes_of, kept_of_source, repeated
from mergelake.jobs.upsert.request import Merge
from mergelake.log.model.operations import LogOp, Mutation, RowsUnchanged
from mergelake.log.model.state import State
from mergelake.parts.read.cache import PartCache
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.scan.read.read import read_items
from mergelake.scan.read.source import joined
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.pending.bound import check_command
from mergelake.table.pending.commands import Delete, commands_text
from mergelake.table.write.deduplication import InsertIdentity, remembered
from mergelake.table.write.insert import Commit, commit_parts, discard_parts, duplicate_of, insert_target, write_blocks

ATTEMPTS_MIN, PATIENCE_S = 20, 120.0
"""A merge is given up once so many attempts have met changed rows, and so much time has passed: beside busy writers
twenty attempts can take a second."""


@dataclass(frozen=True, slots=True)
class Workers:
    """What reading and writing use."""

    caches: PartCache | None = None
    threads: int = 1
    states: StateFunctions | None = None
    """Merges aggregate states."""


class _RowsChanged(Exception):
    """Rows of the table have changed since they were read."""


def one_block(blocks: Iterable[Block], schema: TableSchema, names: Sequence[str]) -> pa.Table:
    """Blocks of storage-form columns as one. SET_SIZE_LIMIT_EXCEEDED as soon as they have too many rows."""
    held: list[Block] = []
    rows = 0
    for block in blocks:
        rows += block.num_rows
        check_size(rows)
        held.append(block)
    return _concatenated(held, schema, names)


def merge_rows(handle: TableHandle, merge: Merge, source: pa.Table, token: str, using: Workers) -> Commit:
    """Merge a source, whose columns `merge.given` are in storage form, and commit it.

    Raises the errors of an insert, SET_SIZE_LIMIT_EXCEEDED, BAD_ARGUMENTS for a key that is given twice, and
    ConflictError if other writers changed rows all the time; the table is as it was then.
    """
    check_size(source.num_rows)
    if merge.is_blind:
        keys = checked_keys(merge, [source])
        rows = [] if merge.request.when_matched == "delete" else [kept_of_source(merge, source)]
        deletion = Deletion.of(handle, merge, keys)
        return deletion.commit(_write(handle, merge, rows, using), token)
    return _Attempts(handle, merge, source, token, using).run()


def checked_keys(merge: Merge, blocks: Sequence[Block]) -> Keys:
    """The keys of a source's blocks, which must not repeat if its rows replace those of the table."""
    keys = Keys.of(_concatenated(blocks, merge.schema, merge.request.on), merge.on)
    twice = first_repeated(keys) if merge.request.when_matched == "replace" else None
    if twice is not None:
        raise repeated(keys, *twice)
    return keys


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of some keys, to be committed with parts."""

    handle: TableHandle
    schema: TableSchema
    id: str
    commands: tuple[Delete, ...]
    """None or one."""
    partition_ids: tuple[str, ...] | None
    since: int | None = None
    """The version from whose rows it was computed; None if it does not depend on them."""

    @staticmethod
    def of(handle: TableHandle, merge: Merge, keys: Keys, since: int | None = None) -> Deletion:
        """The deletion of these keys, checked."""
        condition = condition_of(keys)
        commands = () if condition is None else (Delete(condition, lightweight=True),)
        check_unfinished(handle.log.state)
        for command in commands:
            check_command(command, merge.schema)
        partition_ids = partitions_with(keys, merge.schema)
        return Deletion(handle, merge.schema, handle.ids.new_id(), commands, partition_ids, since)

    def commit(self, manifests: Sequence[PartManifest], token: str) -> Commit:
        """Commit it, and the parts; one that is remembered by its token does nothing."""
        changes = bool(self.commands or manifests or token)
        return commit_parts(self.handle, manifests, InsertIdentity(token), self._operations if changes else None)

    def _operations(self, state: State) -> Sequence[LogOp]:
        if self.since is not None and state.rows_version > self.since:
            raise _RowsChanged
        if self.commands:
            check_unfinished(state)
        if state.schema.columns != self.schema.columns:
            raise _altered()
        mutation = []
        if self.commands:
            text = commands_text(self.commands)
            mutation.append(Mutation(self.id, text, self.partition_ids, schema_version=state.schema_version))
        return [*([] if self.since is None else [RowsUnchanged(self.since)]), *mutation]


@dataclass(slots=True)
class _Attempts:
    """A merge that reads the table: attempt after attempt until no row has changed meanwhile."""

    handle: TableHandle
    merge: Merge
    source: pa.Table
    token: str
    using: Workers
    _read: pa.Table | None = None
    """The rows of the table from which `_changes` were computed."""
    _changes: Changes | None = None
    _written: list[PartManifest] | None = None

    def run(self) -> Commit:
        condition = condition_of(Keys.of(self.source, self.merge.on))
        clock, attempts = self.handle.clock, 0
        until = clock.monotonic_s() + PATIENCE_S
        while attempts < ATTEMPTS_MIN or clock.monotonic_s() < until:
            attempts += 1
            state = self.handle.refresh()
            if self.token and remembered(state, self.token) is not None:
                self._discard()
                return duplicate_of(state, self.token)
            try:
                check()
                deletion = self._prepare(state, condition)
            except BaseException:
                self._discard()
                raise
            try:
                return self._commit(deletion)
            except _RowsChanged:
                continue
            except ConflictError:  # the parts were deleted
                self._written = None
        self._discard()
        raise ConflictError(
            f"The rows of the table changed during each of {attempts} attempts to merge",
            hint="Merge when fewer others write; when_matched='replace' reads nothing, and never conflicts",
        )

    def _prepare(self, state: State, condition: str | None) -> Deletion:
        handle, merge = self.handle, self.merge
        if state.schema.columns != merge.schema.columns:
            raise _altered()
        target = self._target(state, condition)
        if self._changes is None or not target.equals(self._read):
            self._discard()
            self._read = target
            self._changes = changes_of(merge, self.source, target, handle.ids, handle.clock.now_ms())
        if self._written is None:
            self._written = _write(handle, merge, self._changes.added, self.using)
        return Deletion.of(handle, merge, self._changes.deleted, state.version)

    def _commit(self, deletion: Deletion) -> Commit:
        assert self._written is not None
        return deletion.commit(self._written, self.token)

    def _target(self, state: State, condition: str | None) -> pa.Table:
        """The rows of the table with the source's keys."""
        handle, schema = self.handle, state.schema
        names = tuple(column.name for column in schema.stored)
        if condition is None:
            return _concatenated([], schema, names)
        final = mode_of(schema) is not None
        request = ScanRequest(names, condition, final=final)
        plan = plan_scan(
            handle.store, handle.directory, Snapshot.of(state), request, self.using.caches, count_steps=False
        )
        batches = read_items(
            handle.store,
            handle.directory,
            plan,
            caches=self.using.caches,
            threads=self.using.threads,
            ordered=True,
            states=self.using.states,
        )
        return _concatenated(list(batches), schema, names)

    def _discard(self) -> None:
        if self._written:
            discard_parts(self.handle.store, self.handle.directory, self._written)
        self._written = None


def _altered() -> ConflictError:
    return ConflictError("The table was altered meanwhile", hint="Merge again")


def _write(handle: TableHandle, merge: Merge, blocks: Iterable[pa.Table], using: Workers) -> list[PartManifest]:
    """Write rows as parts, without committing them."""
    target = insert_target(handle.store, handle.directory, merge.schema, handle.ids, handle.clock)
    return write_blocks(
        target,
        (block for block in blocks if block.num_rows),
        threads=using.threads,
        base_version=handle.base_version(),
        states=using.states,
    )


def _concatenated(blocks: Sequence[Block], schema: TableSchema, names: Sequence[str]) -> pa.Table:
    """The columns `names` of blocks in storage form, each in one chunk."""
    tables = [pa.Table.from_batches([b]) if isinstance(b, pa.RecordBatch) else b for b in blocks]
    columns = {
        name: [chunk for table in tables for chunk in table.column(name).chunks] or [_empty(schema, name)]
        for name in names
    }
    return pa.table({name: joined(chunks) for name, chunks in columns.items()})


def _empty(schema: TableSchema, name: str) -> pa.Array:
    return pa.array([], storage_type(schema.column(name).type))
