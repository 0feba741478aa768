"""OPTIMIZE: select merges of a table, run them, commit each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mergelake.core.cancel import check, current
from mergelake.core.errors import MergelakeError
from mergelake.core.manifest import PartManifest
from mergelake.core.progress import OnProgress, Progress
from mergelake.merge.commit import commit_merge
from mergelake.merge.plan import MergeTask, plan_merge
from mergelake.merge.select import select_optimize
from mergelake.table.handle import TableHandle

RunMerges = Callable[
    [TableHandle, Sequence[MergeTask], "threading.Event | None", Callable[[int], None]], Sequence[PartManifest]
]
"""Writes the parts of merges, in order. The flag, when it is set, ends it; the last is called with rows merged."""


def plan_optimize(
    handle: TableHandle,
    *,
    partition_id: str | None = None,
    final: bool = False,
    skip_merged: bool = False,
    throw_if_noop: bool = False,
) -> list[MergeTask]:
    """The merges that `select_optimize` chooses from the state known here."""
    snapshot = handle.snapshot()
    chosen = select_optimize(
        snapshot.parts,
        snapshot.settings,
        handle.clock.now_ms(),
        partition_id=partition_id,
        final=final,
        skip_merged=skip_merged,
        throw_if_noop=throw_if_noop,
    )
    plan = partial(plan_merge, handle.directory, snapshot.schema, kind="optimize", base_version=snapshot.version)
    return [plan(parts=parts, mutations=snapshot.mutations) for parts in chosen]


def optimize(
    handle: TableHandle,
    run: RunMerges,
    *,
    partition_id: str | None,
    final: bool,
    skip_merged: bool,
    throw_if_noop: bool,
    one_job: bool,
    on_progress: OnProgress | None = None,
) -> int:
    """Run the merges of `plan_optimize`; returns how many.

    Each merge is committed on its own: one that fails does not undo the others, and the first error is raised at the
    end. With `one_job` all are run by one call of `run`; otherwise each is committed before the next begins, while its
    sources are fresh.
    """
    tasks = plan_optimize(
        handle, partition_id=partition_id, final=final, skip_merged=skip_merged, throw_if_noop=throw_if_noop
    )
    failures: list[MergelakeError] = []
    statement = current()
    rows, rows_before = sum(task.rows for task in tasks), 0

    def merged(done: int) -> None:
        if on_progress is not None:
            on_progress(Progress("merged", rows_before + done, rows))

    for batch in [tasks] if one_job else [[task] for task in tasks]:
        base_version = handle.base_version()
        begun = [replace(task, base_version=base_version) for task in batch]
        try:
            check()
            manifests = run(handle, begun, statement.flag if statement is not None else None, merged)
        except MergelakeError as problem:
            check()
            failures.append(problem)
            continue
        rows_before += sum(task.rows for task in begun)
        merged(0)
        for task, manifest in zip(begun, manifests, strict=True):
            try:
                commit_merge(handle, task, manifest)
            except MergelakeError as problem:
                failures.append(problem)
    if failures:
        raise failures[0]
    return len(tasks)
