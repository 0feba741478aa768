"""Rows -> parts -> one log entry.

1. `write_blocks` cuts the rows into blocks and each block by partition, sorts, and writes one part for each
   block and partition. It commits nothing: Spark tasks call it too and return the manifests. Small parts share
   objects (`parts.write.objects`).
2. `commit_parts` appends one entry with all parts of the insert. Readers see all of them or none.

A small insert into an open table costs two PUTs, no GET and no LIST, for any number of parts. A failure before the
commit deletes the written objects; if the outcome of a commit is unknown, nothing is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.cancel import check
from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import ConflictError, InvalidInputError, MergelakeError, NotFoundError, error
from mergelake.core.base.ids import IdSource, seed_of
from mergelake.core.base.progress import OnProgress, Progress
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.engines.order.keys import Block, TableKeys, table_keys
from mergelake.engines.rules.modes import check_rows, collapse_block, mode_of, working_mode
from mergelake.engines.rules.states import StateFunctions
from mergelake.format.files.partition import WHOLE_TABLE, Partition, partition_keys
from mergelake.log.model.operations import AddParts, AlterMetadata, LogOp
from mergelake.log.model.retention import directory_of, reachable
from mergelake.log.model.state import State
from mergelake.parts.write.objects import PartObjects, shared_size
from mergelake.parts.write.part_spec import PartTarget
from mergelake.store.interface.protocol import Store
from mergelake.store.metering.meter import Pool
from mergelake.table.definition.refit import commit_judged
from mergelake.table.handle.handle import TableHandle
from mergelake.table.rows.blocks import BlockCompleter, block_limits, cut_blocks
from mergelake.table.rows.constraints import ConstraintChecks
from mergelake.table.write.deduplication import NO_IDENTITY, InsertIdentity, remembered
from mergelake.table.write.pieces import Piece, in_order, write_piece, write_pieces

NamePart = Callable[[Partition, int], str]
"""Returns the id (and so the directory) of a part, from its partition and level. Called once per part, in order."""
_logger = logging.getLogger("mergelake.table")
COMMIT_REFUSED = (InvalidInputError, ConflictError, NotFoundError)
"""Exceptions of `Log.commit` after which the entry is certainly not in the log."""
_ROWS_WORTH_THREADS = 50_000
_FEW_ROWS = 1024
"""Average rows of a partition below which all partitions are sorted together."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The result of an insert."""

    version: int
    """The table's version with the insert in it."""
    rows: int
    """Rows added; 0 for a duplicate."""
    parts: tuple[str, ...]
    """ClickHouse names of the new parts."""
    bytes: int
    """Bytes on disk of the new parts."""
    duplicate: bool = False
    """Whether an insert with the same token (or rows) was committed before: a success without new rows."""


def insert_target(store: Store, directory: str, schema: TableSchema, ids: IdSource, clock: Clock) -> PartTarget:
    """The target of parts of inserts into a table."""
    key_types = [key.type for key in table_keys(schema).primary]
    return PartTarget(store, directory, schema, TableSettings(schema.settings), key_types, ids, clock)


def write_blocks(
    target: PartTarget,
    blocks: Iterable[Block],
    *,
    threads: int = 1,
    name_part: NamePart | None = None,
    base_version: int = 0,
    on_progress: OnProgress | None = None,
    states: StateFunctions | None = None,
) -> list[PartManifest]:
    """Write rows as parts of a table, without committing them.

    `blocks` are batches of storage-form columns, all with the same columns, any number of rows; columns that
    are missing get their defaults. `threads` write columns and parts at the same time. Each sorted piece is merged by
    its engine first where `optimize_on_insert` is on, and has level 1 then. `name_part` gives parts ids of the
    caller's choice. `base_version` is `TableHandle.base_version()` from before the call: without it the parts cannot be
    committed to a table that was ever collected. `on_progress` hears of each block that is written. `states` are
    aggregate functions, for what the engine merges, and for projections, which are left out of the parts where they
    need some and have none.

    Raises SUPPORT_IS_DISABLED if the engine has to merge states and cannot, TOO_MANY_PARTS for a block with too many
    partitions, VIOLATED_CONSTRAINT, QUERY_WAS_CANCELLED in a cancelled statement, and the errors of completing a block,
    after deleting the written objects.
    """
    settings = target.settings
    share_max, object_max = map(settings.integer, ("max_bytes_to_share_object", "max_shared_object_bytes"))
    objects = PartObjects(target.store, target.directory, target.ids, share_max=share_max, object_max=object_max)
    writer = _BlockWriter(replace(target, objects=objects), threads, name_part, base_version, states)
    written: list[PartManifest] = []
    rows = size = 0
    try:
        for block in cut_blocks(blocks, *block_limits(settings)):
            check()
            made = writer.write(block)
            written += made
            rows, size = rows + block.num_rows, size + sum(part.bytes_on_disk for part in made)
            if on_progress is not None:
                on_progress(Progress("written", rows, 0, size))
        return objects.finish(written)
    except BaseException:
        objects.abort()
        writer.discard([part for part in written if part.storage == "full"])
        raise


class _BlockWriter:
    def __init__(
        self,
        target: PartTarget,
        threads: int,
        name_part: NamePart | None,
        base_version: int,
        states: StateFunctions | None,
    ) -> None:
        self._target, self._threads, self._name_part, self._base_version = target, threads, name_part, base_version
        self._states = states
        self._schema, self._settings = target.schema, target.settings
        self._keys = table_keys(target.schema)
        self._mode = mode_of(target.schema)
        self._collapses = self._mode is not None and self._settings.integer("optimize_on_insert") > 0
        if self._collapses:
            self._mode = working_mode(target.schema, states)
        self._completer: BlockCompleter | None = None
        self._checks: ConstraintChecks | None = None

    def write(self, block: pa.Table) -> list[PartManifest]:
        """One part for each partition of the block."""
        if self._completer is None:
            now_ms, seed = self._target.clock.now_ms(), seed_of(self._target.ids)
            self._completer = BlockCompleter(self._schema, block.column_names, now_ms, seed)
            self._checks = ConstraintChecks.of(self._schema, now_ms, seed)
        assert self._checks is not None
        completed = self._completer.complete(block)
        self._checks.check(completed)
        pieces = list(self._pieces(completed))
        threads = self._threads if block.num_rows >= _ROWS_WORTH_THREADS else 1
        if threads > 1 and len(pieces) > 1:
            return self._write_together(pieces)
        written: list[PartManifest] = []
        try:
            for manifest in write_pieces(self._target, self._keys, pieces, threads, self._states):
                written.append(manifest)  # noqa: PERF402  those before a failure are discarded
        except BaseException:
            self.discard(written)
            raise
        return written

    def _write_together(self, pieces: list[Piece]) -> list[PartManifest]:
        with Pool(self._threads, thread_name_prefix="mergelake-part") as pool:
            futures = [pool.submit(write_piece, self._target, self._keys, piece, 1, self._states) for piece in pieces]
        failed = next((future.exception() for future in futures if future.exception()), None)
        if failed is not None:
            done = [future.result() for future in futures if not future.exception()]
            self.discard(done)
            raise failed
        return [future.result() for future in futures]

    def _pieces(self, block: pa.Table) -> Iterator[Piece]:
        for piece, partition in self._sorted(block):
            if self._mode is not None:
                check_rows(piece, self._mode)
            if self._collapses:
                piece = collapse_block(piece, self._schema, self._keys, self._mode)
            if piece.num_rows:  # a piece that collapses to nothing gives no part
                level = int(self._collapses)
                part_id = self._name_part and self._name_part(partition, level)
                yield Piece(piece, partition, level, part_id, self._base_version)

    def _sorted(self, block: pa.Table) -> Iterator[tuple[pa.Table, Partition]]:
        """The rows of each partition in the order of the key, partitions by first appearance."""
        codes, partitions = _by_partition(block, self._keys, self._settings)
        if codes is None:
            yield in_order(block, self._keys), partitions[0]
            return
        counts = np.bincount(codes, minlength=len(partitions))
        ends = np.cumsum(counts)
        if block.num_rows < _FEW_ROWS * len(partitions):  # one sort for all: fewer calls
            ordered = in_order(block, self._keys, codes)
            for partition, end, count in zip(partitions, ends.tolist(), counts.tolist(), strict=True):
                yield ordered.slice(end - count, count), partition
            return
        by_code = np.argsort(codes, kind="stable")
        for partition, rows in zip(partitions, np.split(by_code, ends[:-1]), strict=True):
            yield in_order(block.take(pa.array(rows)), self._keys), partition

    def discard(self, parts: Iterable[PartManifest]) -> None:
        """Delete the objects of written parts that will not be committed."""
        discard_parts(self._target.store, self._target.directory, parts)


def _by_partition(
    block: pa.Table, keys: TableKeys, settings: TableSettings
) -> tuple[NDArray[np.int64] | None, list[Partition]]:
    """The index of each row's partition, None if there is only one; and the partitions by first appearance."""
    if not keys.partition:
        return None, [WHOLE_TABLE]
    columns = [key.evaluate(block) for key in keys.partition]
    codes, partitions = partition_keys(columns, [key.type for key in keys.partition])
    limit = settings.integer("max_partitions_per_insert_block")
    if limit and len(partitions) > limit:
        raise error(
            "TOO_MANY_PARTS",
            f"Too many partitions for a single INSERT block ({len(partitions)} partitions, limit is {limit})",
            "Partition by something coarser, or raise max_partitions_per_insert_block",
        )
    return (None if len(partitions) == 1 else codes), partitions


def discard_parts(store: Store, directory: str, manifests: Iterable[PartManifest], keep: Collection[str] = ()) -> None:
    """Delete the objects of parts that were never committed (ids are never reused, so no others are affected).

    Shared objects are deleted too, unless their directory is in `keep`, because another part in it is needed.
    """
    keys = {
        f"{directory}/{key}"
        for manifest in manifests
        for key in manifest.object_keys()
        if key.startswith(f"{manifest.id}/") or (shared_size(key) is not None and directory_of(key) not in keep)
    }
    if not keys:
        return
    try:
        store.delete(sorted(keys))
    except MergelakeError as problem:  # collection deletes them later; the error before matters more
        _logger.warning("objects of parts that were not committed stay: %s", problem)


def discard_refused(handle: TableHandle, manifests: Sequence[PartManifest]) -> None:
    """Delete the objects of parts whose commit was refused, except for parts that an earlier attempt committed.

    Objects shared with a part of the table stay. The state may have forgotten that commit: parts begun before the fence
    are left to collection, which removes their published names first, and respects the holds of clones.
    """
    state = handle.log.state
    reached = reachable(state)
    discardable = [part for part in manifests if part.id not in reached and part.base_version >= state.fence]
    discard_parts(handle.store, handle.directory, discardable, keep=reached)


def commit_parts(
    handle: TableHandle,
    manifests: Sequence[PartManifest],
    identity: InsertIdentity = NO_IDENTITY,
    before: Callable[[State], Sequence[LogOp]] | None = None,
) -> Commit:
    """Append one entry with all these parts; a repetition of a remembered insert adds nothing.

    `before` returns operations that come before the parts, and is repeated with them for each position of the log; a
    repetition of the insert omits them, too.

    The objects of duplicates and of refused parts are deleted (see `discard_refused`); if the outcome is unknown they
    stay.
    """
    if not manifests and not identity.token and before is None:
        return Commit(handle.log.state.version, 0, (), 0)
    additions = identity.additions(manifests) if manifests or identity.token else []
    new: list[AddParts] = []

    def build(state: State) -> Sequence[LogOp]:
        new[:] = [op for op in additions if remembered(state, op.dedup_token, op.dedup_hash) is None]
        first = () if before is None or (additions and not new) else before(state)
        version = next((op.schema.version for op in first if isinstance(op, AlterMetadata)), state.schema_version)
        new[:] = [replace(op, schema_version=version) for op in new]
        return (*first, *new)

    try:
        # If parts are left out as duplicates, which depends on the state, the commit is not passed on.
        committed = commit_judged(handle, build, passes_on=lambda: len(new) == len(additions))
    except COMMIT_REFUSED:
        discard_refused(handle, manifests)
        raise
    added = [part for op in new for part in op.parts]
    ids = {part.id for part in added}
    if len(added) < len(manifests):
        discard_refused(handle, [part for part in manifests if part.id not in ids])
    if committed.entry is None and additions:
        return duplicate_of(committed.state, additions[0].dedup_token, additions[0].dedup_hash)
    partitions, base_version = (
        dict.fromkeys(part.partition_id for part in added),
        min((part.base_version for part in added), default=0),
    )
    new_parts = [part for p in partitions for part in committed.state.partitions.find(p, ids, base_version)]
    infos = sorted((part.info for part in new_parts), key=lambda info: info.min_block)
    return Commit(
        committed.version,
        sum(part.rows for part in added),
        tuple(map(str, infos)),
        sum(part.bytes_on_disk for part in added),
    )


def duplicate_of(state: State, token: str, rows_hash: str = "") -> Commit:
    """The result of an insert that was committed before."""
    return Commit(remembered(state, token, rows_hash) or state.version, 0, (), 0, duplicate=True)
