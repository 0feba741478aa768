"""Executes a merge and commits it by Publish, which retires the sources.

The written objects depend on the outcome of the commit:

=============  ==============================================================================
committed      they belong to the table
refused        a source is gone (merged or dropped by another writer): they are deleted
unknown        the entry may be in the log: they stay; collection deletes them if unreferenced
=============  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import MergeTask
from mergelake.log.commit.group import Request
from mergelake.log.model.operations import CancelVolatile, LogOp, Publish
from mergelake.log.model.retention import refers
from mergelake.log.model.state import State
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.mutations import finished_by
from mergelake.table.write.insert import COMMIT_REFUSED, discard_refused

Runner = Callable[[MergeTask], PartManifest]
"""Executes a merge, here or elsewhere, and returns the manifest of the written part."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """A merge that is in the log."""

    version: int
    info: PartInfo
    """The new part."""
    manifest: PartManifest
    sources: tuple[PartInfo, ...]
    """The parts that it replaced."""

    @property
    def name(self) -> str:
        """ClickHouse's name of the new part."""
        return str(self.info)


def merge_parts(handle: TableHandle, task: MergeTask, runner: Runner | None = None) -> MergeOutcome:
    """Execute `task` (by `runner`, else in this process) and commit the result.

    Raises ConflictError if a source was replaced or dropped meanwhile: the result's objects are deleted, and the table
    is unchanged. UnavailableError means that the outcome of the commit is unknown.
    """
    run = runner or (lambda merge: execute_merge(handle.store, merge, handle.ids, handle.clock))
    return commit_merge(handle, task, run(task))


def commit_merge(handle: TableHandle, task: MergeTask, manifest: PartManifest) -> MergeOutcome:
    """Commit the result of an executed merge; raises as `merge_parts` does."""
    try:
        committed = handle.log.commit(partial(_operations, task, manifest))
    except COMMIT_REFUSED:
        discard_refused(handle, [manifest])
        raise
    sources = tuple(source.info for source in task.sources)
    return MergeOutcome(committed.version, task.result, manifest, sources)


def commit_merges(handle: TableHandle, results: Sequence[tuple[MergeTask, PartManifest]]) -> list[Exception | None]:
    """Commit the results of executed merges, many in one entry of the log; why each failed, None where it did not.

    Each is checked for itself, so a conflict of one does not keep the others out.
    """
    requests = [Request(partial(_operations, task, manifest)) for task, manifest in results]
    handle.log.commit_all(requests)
    failures = [request.failure for request in requests]
    refused = [
        part for (_, part), failure in zip(results, failures, strict=True) if isinstance(failure, COMMIT_REFUSED)
    ]
    if refused:
        discard_refused(handle, refused)
    return failures


def _operations(task: MergeTask, manifest: PartManifest, state: State) -> Sequence[LogOp]:
    kind = "optimize" if task.kind == "optimize" else "ttl" if task.kind.startswith("ttl_") else "direct"
    # A merge writes all of its bytes: what lies outside of the part's directory was begun by its slices.
    publish = Publish(manifest, task.source_ids, kind, mutations=task.mutations, begun=refers(manifest))
    live = state.volatile.get(task.result.partition_id, ())
    # A merge requested by a user has priority: nodes' intentions to merge its sources are cancelled.
    cancelled = tuple(part.id for part in live if part.info.intersects(task.result)) if task.kind == "optimize" else ()
    ops: list[LogOp] = [CancelVolatile(cancelled, "OPTIMIZE"), publish] if cancelled else [publish]
    if task.mutations:
        ops += finished_by(state, dict.fromkeys(task.source_ids, task.mutations[-1]))
    return ops
