"""A merge from decision to commit: execute, then Publish, which retires the sources.

What the outcome of the commit means for the written objects:

=============  ==============================================================================
committed      they are the table's
known refusal  a source is gone (somebody else merged or dropped it): delete our own objects
not known      the entry may be in the log: delete nothing; what is unreferenced is swept later
=============  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mergelake.core.manifest import PartManifest
from mergelake.core.names import PartInfo
from mergelake.log.operations import CancelVolatile, LogOp, Publish
from mergelake.log.state import State
from mergelake.merge.execute import execute_merge
from mergelake.merge.plan import MergeTask
from mergelake.table.handle import TableHandle
from mergelake.table.insert import COMMIT_REFUSED, discard_refused

Runner = Callable[[MergeTask], PartManifest]
"""Carries a merge out, here or elsewhere, and returns the manifest of what it wrote."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """A merge that is in the log."""

    version: int
    info: PartInfo
    """The new part."""
    manifest: PartManifest
    sources: tuple[PartInfo, ...]
    """What it replaced."""

    @property
    def name(self) -> str:
        """ClickHouse's name of the new part."""
        return str(self.info)


def merge_parts(handle: TableHandle, task: MergeTask, runner: Runner | None = None) -> MergeOutcome:
    """Execute `task` (by `runner`, else in this process) and commit the result.

    Raises ConflictError where a source was replaced or dropped meanwhile: the result's objects are deleted, nothing
    else has happened. UnavailableError means that it is not known whether the merge was committed.
    """
    run = runner or (lambda merge: execute_merge(handle.store, merge, handle.ids, handle.clock))
    return commit_merge(handle, task, run(task))


def commit_merge(handle: TableHandle, task: MergeTask, manifest: PartManifest) -> MergeOutcome:
    """Commit the result of a merge that was executed; raises as `merge_parts` does."""

    def build(state: State) -> Sequence[LogOp]:
        publish = Publish(manifest, task.source_ids)
        live = state.volatile.get(task.result.partition_id, ())
        # A user who asks for a merge wants to see it done: what nodes meant to do with its sources gives way.
        meant = tuple(part.id for part in live if part.info.intersects(task.result)) if task.kind == "optimize" else ()
        return (CancelVolatile(meant, "OPTIMIZE"), publish) if meant else (publish,)

    try:
        committed = handle.log.commit(build)
    except COMMIT_REFUSED:
        discard_refused(handle, [manifest])
        raise
    sources = tuple(source.info for source in task.sources)
    return MergeOutcome(committed.version, task.result, manifest, sources)
