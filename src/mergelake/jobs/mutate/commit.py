"""Commits the results of mutations, and brings pending mutations to their end.

A result counts if its part is still active and lacks the same mutations; others are discarded (a merge had them, or
the part was dropped) and looked at anew. The entry after which no part lacks a mutation says so (`FinishMutations`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mergelake.core.base.errors import (
    CorruptDataError,
    InvalidInputError,
    MergelakeError,
    NotFoundError,
    UnsupportedError,
    error,
)
from mergelake.core.model.manifest import PartManifest
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.mutate.plan import batches, due_parts, mutation_task, without
from mergelake.log.model.operations import CancelVolatile, LogOp, MarkMutated, MutationFailed, Publish
from mergelake.log.model.state import PendingMutation, State
from mergelake.log.model.volatile import outermost, pending, unfinished
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.mutations import finished_by, open_mutations
from mergelake.table.write.insert import COMMIT_REFUSED, discard_refused

Results = Sequence[tuple[MergeTask, PartManifest | None]]
"""Tasks of mutations and the parts that they wrote; None: no row changes."""
Run = Callable[[Sequence[MergeTask]], Sequence[PartManifest | None]]
"""Executes tasks of mutations somewhere; commits nothing."""


def commit_results(handle: TableHandle, results: Results) -> int:
    """Commit what still counts in one entry; returns for how many parts. Other parts that were written are deleted."""
    valid: list[tuple[MergeTask, PartManifest | None]] = []

    def build(state: State) -> Sequence[LogOp]:
        valid[:] = [result for result in results if _counts(result[0], state)]
        return [*_ops(valid), *finished_by(state, {task.source_ids[0]: task.mutations[-1] for task, _ in valid})]

    written = [manifest for _, manifest in results if manifest is not None]
    try:
        handle.log.commit(build)
    except COMMIT_REFUSED:
        discard_refused(handle, written)
        raise
    kept = {manifest.id for _, manifest in valid if manifest is not None}
    discard_refused(handle, [manifest for manifest in written if manifest.id not in kept])
    return len(valid)


def _counts(task: MergeTask, state: State) -> bool:
    """Whether the part of a task is active under no volatile part, and the task applies what it lacks first."""
    (source,) = task.sources
    partition_id = source.info.partition_id
    live = state.volatile.get(partition_id, ())
    parts = state.partitions.get(partition_id, ())
    part = next((part for part in parts if part.manifest.id == source.manifest.id), None)
    if part is None or any(volatile.info.intersects(part.info) for volatile in live):
        return False
    return pending(state.mutations, part.info)[: len(task.mutations)] == task.mutations


def _ops(results: Results) -> list[LogOp]:
    ops: list[LogOp] = []
    unchanged: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for task, manifest in results:
        (source,) = task.sources
        if manifest is None:
            unchanged.setdefault((source.info.partition_id, task.mutations), []).append(source.manifest.id)
        else:
            ops.append(Publish(manifest, task.source_ids, "mutation", mutations=task.mutations))
    return [*ops, *(MarkMutated(partition, tuple(ids), versions) for (partition, versions), ids in unchanged.items())]


def note_finished(handle: TableHandle) -> None:
    """Commit that mutations are finished, if no part lacks them."""
    if open_mutations(handle.log.state):
        handle.log.commit(lambda state: finished_by(state, {}))


def note_failure(handle: TableHandle, task: MergeTask, failure: MergelakeError) -> None:
    """Commit why the mutations of a task fail, unless that is known: `system.mutations` shows it."""
    (source,) = task.sources
    noted = MutationFailed(task.mutations, str(source.info), failure.name, failure.message)

    def build(state: State) -> Sequence[LogOp]:
        known = {m.version: m for m in state.mutations}
        same = all(
            m is None or m.killed or (m.failure is not None and m.failure.reason == noted.reason)
            for m in map(known.get, task.mutations)
        )
        return () if same or state.dropped else (noted,)

    handle.log.commit(build)


def apply_mutations(handle: TableHandle, run: Run, *, until: int | None = None) -> None:
    """Rewrite all parts that lack mutations (up to version `until`), and return when none does.

    Intentions of nodes to merge such parts are cancelled: what a user waits for comes first. Raises UNFINISHED if a
    mutation fails on some part: others have it then, and it stays pending until it is killed.
    """
    failed: dict[str, MergelakeError] = {}
    while True:
        state = handle.refresh()
        _cancel_volatile(handle, state)
        parts = [
            part
            for part in without(list(due_parts(handle.log.state)), failed)
            if until is None or pending(handle.log.state.mutations, part.info)[0] <= until
        ]
        if not parts:
            break
        for batch in batches(parts):
            handle.base_version()  # the state is fresh enough for parts that are begun now
            state = handle.log.state
            left = [part for part in batch if pending(state.mutations, part.info)]  # others were killed meanwhile
            tasks = [mutation_task(handle.directory, state.schema, part, state) for part in left]
            outcome = run_tasks(handle, run, tasks)
            failed |= {task.source_ids[0]: failure for task, failure in outcome.failed}
    note_finished(handle)
    if failed:
        failure = next(iter(failed.values()))
        names = ", ".join(m.name for m in unfinished(handle.log.state)[:3])
        message = f"Mutation {names} is not finished: {failure.name}: {failure.message}"
        raise error("UNFINISHED", message, "KILL MUTATION gives it up")


@dataclass(slots=True)
class TaskOutcome:
    """What became of some tasks."""

    done: int = 0
    """Parts for which the result was committed."""
    failed: list[tuple[MergeTask, MergelakeError]] = field(default_factory=list)


def run_tasks(handle: TableHandle, run: Run, tasks: Sequence[MergeTask]) -> TaskOutcome:
    """Execute and commit tasks; one that fails is noted in the log, and does not hold up the others.

    Raises what concerns no single task: a store that does not answer, a statement that is cancelled.
    """
    if not tasks:
        return TaskOutcome()
    try:
        results = [*zip(tasks, run(tasks), strict=True)]
    except (InvalidInputError, CorruptDataError, NotFoundError, UnsupportedError) as failure:
        if failure.name in ("ABORTED", "QUERY_WAS_CANCELLED"):
            raise
        outcome = TaskOutcome()
        if len(tasks) == 1:
            if _counts(tasks[0], handle.refresh()):
                note_failure(handle, tasks[0], failure)
                outcome.failed.append((tasks[0], failure))
            return outcome
        for task in tasks:
            one = run_tasks(handle, run, [task])
            outcome.done += one.done
            outcome.failed += one.failed
        return outcome
    return TaskOutcome(commit_results(handle, results))


def _cancel_volatile(handle: TableHandle, state: State) -> None:
    """Cancel the volatile parts over parts that lack mutations."""

    def build(now: State) -> Sequence[LogOp]:
        ids = [
            outer.id
            for live in now.volatile.values()
            for outer in outermost(live)
            if any(
                pending(now.mutations, part.info)
                for part in now.partitions.get(outer.info.partition_id, ())
                if part.info.intersects(outer.info)
            )
        ]
        return (CancelVolatile(tuple(ids), "mutations are applied"),) if ids else ()

    if state.volatile and open_mutations(state):
        handle.log.commit(build)


def named(mutations: Sequence[PendingMutation], name: str) -> PendingMutation | None:
    """The mutation with this id, or with this name (`mutation_<version>.txt`)."""
    return next((m for m in mutations if name in (m.id, m.name)), None)
