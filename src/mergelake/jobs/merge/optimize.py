"""OPTIMIZE: select merges of a table, run them, commit them in groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import groupby

from mergelake.core.base.cancel import check, current
from mergelake.core.base.errors import MergelakeError, UnavailableError, error
from mergelake.core.base.progress import OnProgress, Progress
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.engines.rules.replacing import ENGINE as REPLACING
from mergelake.engines.ttl.ttl import has_ttl, table_ttl
from mergelake.jobs.merge.commit import commit_merges
from mergelake.jobs.merge.deduplicate import deduplicated_columns
from mergelake.jobs.merge.plan import MergeTask, plan_merge
from mergelake.jobs.merge.select import merge_bytes_limit, select_optimize
from mergelake.jobs.merge.together import execute_together, groups, is_simple
from mergelake.jobs.merge.ttl_drop import drop_expired
from mergelake.jobs.merge.ttl_select import TtlMerge, select_ttl_merge
from mergelake.log.model.immutable import immutable_partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import VolatilePart
from mergelake.log.model.volatile import covered, lacking, outermost
from mergelake.parts.read.fetch import is_remote
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot

RunMerges = Callable[
    [TableHandle, Sequence[MergeTask], "threading.Event | None", Callable[[int], None]], Sequence[PartManifest]
]
"""Writes the parts of merges, in order. The flag, when it is set, ends it; the last is called with rows merged."""
_CLEANUP = "allow_experimental_replacing_merge_with_cleanup"
_SMALL_BYTES = 8 << 20
"""Bytes before compression up to which merges are executed side by side: their memory is bounded by this."""
_FAR_WORKERS = 8
"""Small merges of a far store at a time: they wait for requests most of the time."""


def plan_optimize(
    handle: TableHandle,
    *,
    partition_id: str | None = None,
    final: bool = False,
    skip_merged: bool = False,
    throw_if_noop: bool = False,
    deduplicate: Sequence[str] | bool = False,
    cleanup: bool = False,
) -> list[MergeTask]:
    """The merges that `select_optimize` chooses from the state known here; other arguments as of `optimize`.

    Raises as `deduplicated_columns` and `check_cleanup` do.
    """
    snapshot = handle.snapshot()
    columns = None
    if deduplicate is not False:
        columns = deduplicated_columns(snapshot.schema, None if isinstance(deduplicate, bool) else deduplicate)
    if cleanup:
        check_cleanup(snapshot.schema, whole=final and partition_id is None)
    now_ms = handle.clock.now_ms()
    # Whole parts of an immutable partition may expire, but no row of it does.
    kept = frozenset(immutable_partitions(handle.log.state)) if has_ttl(snapshot.schema) else frozenset[str]()
    live = handle.log.state.volatile
    asked = _ttl_merge(snapshot, live, now_ms // 1000, kept) if partition_id is None and not final else None
    if asked is not None:
        merge = plan_merge(
            handle.directory,
            snapshot.schema,
            asked.parts,
            asked.kind,
            snapshot.version,
            snapshot.mutations,
            now_ms,
        )
        return [replace(merge, deduplicate=columns)]
    chosen = select_optimize(
        snapshot.parts,
        snapshot.settings,
        now_ms,
        partition_id=partition_id,
        final=final,
        skip_merged=skip_merged,
        throw_if_noop=throw_if_noop,
    )
    plan = partial(
        plan_merge,
        handle.directory,
        snapshot.schema,
        kind="optimize",
        base_version=snapshot.version,
        mutations=snapshot.mutations,
    )
    tasks = [plan(parts=parts, time_ms=0 if parts[0].info.partition_id in kept else now_ms) for parts in chosen]
    return [replace(task, deduplicate=columns, cleanup=cleanup and final) for task in tasks]


def _ttl_merge(
    snapshot: Snapshot, volatile: Mapping[str, Sequence[VolatilePart]], now: int, kept: Collection[str]
) -> TtlMerge[ActivePart] | None:
    """The merge that the TTL of the table asks for first, in any partition but those that are `kept` as they are.

    Parts under a Live volatile part wait until it is in the store.
    """
    schema = snapshot.schema
    if not has_ttl(schema):
        return None
    ttl, found = table_ttl(schema), list[TtlMerge[ActivePart]]()
    limit = merge_bytes_limit(snapshot.settings)
    for _, group in groupby(snapshot.parts, key=lambda part: part.info.partition_id):
        parts = list(group)
        if parts[0].info.partition_id in kept:
            continue
        live = outermost(volatile.get(parts[0].info.partition_id, ()))
        busy = {p.manifest.id for p in parts if lacking(snapshot.mutations, p.info) or covered(live, p.info)}
        merge = select_ttl_merge(parts, ttl, snapshot.settings, now, bytes_max=limit, busy=busy)
        if merge is not None:
            found.append(merge)
    kinds = ("ttl_drop", "ttl_delete", "ttl_recompress")
    return min(found, key=lambda merge: (kinds.index(merge.kind), merge.due), default=None)


def check_cleanup(schema: TableSchema, *, whole: bool) -> None:
    """Whether rows that are marked deleted may be removed; `whole`: from all partitions.

    Raises CANNOT_ASSIGN_OPTIMIZE for another engine, SUPPORT_IS_DISABLED without the setting of the table.
    """
    if whole and schema.engine != REPLACING:
        message = "Cannot OPTIMIZE with CLEANUP table: only ReplacingMergeTree can be CLEANUP"
        raise error("CANNOT_ASSIGN_OPTIMIZE", message, "Leave CLEANUP out")
    if not TableSettings(schema.settings).integer(_CLEANUP):
        hint = f"An older row of a key that comes later is shown again: if none does, set {_CLEANUP} = 1"
        raise error("SUPPORT_IS_DISABLED", "Experimental merges with CLEANUP are not allowed", hint)


def optimize(
    handle: TableHandle,
    run: RunMerges,
    *,
    partition_id: str | None,
    final: bool,
    skip_merged: bool,
    throw_if_noop: bool,
    one_job: bool,
    threads: int = 1,
    on_progress: OnProgress | None = None,
    deduplicate: Sequence[str] | bool = False,
    cleanup: bool = False,
) -> int:
    """Run the merges of `plan_optimize`; returns how many.

    `deduplicate`: of the rows of each merge that are equal in these columns (True: in all) only the first stays.
    `cleanup`, with `final`: rows that are marked deleted do not stay.

    Small merges are executed together (`jobs.merge.together`), or side by side by about `threads` threads, and a group
    of them shares an entry of the log. Each of the others is committed before the next begins, while its sources are
    fresh; with `one_job` all that are not executed together are run by one call of `run`. One that fails does not undo
    the others: the first error is raised at the end.
    """
    dropped = 0
    if has_ttl(handle.log.state.schema):
        # Without FINAL, as nodes do; with it, only where nothing else is in the partition that the engine would judge.
        names = None if partition_id is None else [partition_id]
        dropped = len(drop_expired(handle, names, whole=final or partition_id is not None).parts)
    tasks = plan_optimize(
        handle,
        partition_id=partition_id,
        final=final,
        skip_merged=skip_merged,
        throw_if_noop=throw_if_noop and not dropped,
        deduplicate=deduplicate,
        cleanup=cleanup,
    )
    return run_tasks(handle, run, tasks, one_job=one_job, threads=threads, on_progress=on_progress)


def rewrite(handle: TableHandle, run: RunMerges, names: Sequence[str], *, one_job: bool, threads: int = 1) -> int:
    """Write parts anew, each by a merge of its own, with the table's columns as they are now; returns how many.

    `names` of parts that are no longer active are left out. Errors as of `optimize`.
    """
    snapshot, wanted = handle.snapshot(), frozenset(names)
    plan = partial(plan_merge, handle.directory, snapshot.schema, kind="optimize", base_version=snapshot.version)
    tasks = [plan(parts=(part,), mutations=snapshot.mutations) for part in snapshot.parts if part.name in wanted]
    return run_tasks(handle, run, tasks, one_job=one_job, threads=threads, on_progress=None)


def run_tasks(
    handle: TableHandle,
    run: RunMerges,
    tasks: list[MergeTask],
    *,
    one_job: bool,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> int:
    """Execute and commit merges, as `optimize` says; returns how many."""
    work = _Work(handle, run, on_progress, sum(task.rows for task in tasks))
    simple, left = _parted(tasks, is_simple) if len(tasks) > 1 else ([], tasks)
    for group in groups(simple):
        left += work.together(group)
    if one_job:
        work.in_turn(left)
    else:
        small, large = _parted(left, lambda task: task.plain_bytes <= _SMALL_BYTES)
        workers = max(threads, _FAR_WORKERS) if is_remote(handle.store) else threads
        for group in groups(small):
            work.side_by_side(group, workers)
        for task in large:
            work.in_turn([task])
    if work.failures:
        raise work.failures[0]
    return len(tasks)


def _parted(tasks: list[MergeTask], wanted: Callable[[MergeTask], bool]) -> tuple[list[MergeTask], list[MergeTask]]:
    """The wanted tasks, and the others."""
    parted: dict[bool, list[MergeTask]] = {True: [], False: []}
    for task in tasks:
        parted[wanted(task)].append(task)
    return parted[True], parted[False]


class _Work:
    """The merges of one statement: executed, and committed group by group."""

    def __init__(self, handle: TableHandle, run: RunMerges, on_progress: OnProgress | None, rows: int) -> None:
        self.failures: list[Exception] = []
        self._handle, self._run, self._on_progress = handle, run, on_progress
        self._rows, self._rows_done = rows, 0
        statement = current()
        self._flag = statement.flag if statement is not None else None

    def together(self, group: list[MergeTask]) -> list[MergeTask]:
        """Execute simple merges together; returns those that have to be executed by themselves."""
        begun = self._begun(group)
        try:
            manifests = execute_together(self._handle.store, begun, self._handle.ids, self._handle.clock)
        except UnavailableError as problem:
            check()
            self.failures.append(problem)
            return []
        except MergelakeError:  # of one of them: the others do not fail alone
            check()
            return group
        self._commit([(task, part) for task, part in zip(begun, manifests, strict=True) if part is not None])
        return [task for task, part in zip(group, manifests, strict=True) if part is None]

    def side_by_side(self, group: list[MergeTask], workers: int) -> None:
        """Execute merges by `workers` threads."""
        if len(group) == 1:
            self.in_turn(group)
            return
        begun = self._begun(group)
        results: list[tuple[MergeTask, PartManifest]] = []
        with ThreadPoolExecutor(workers, thread_name_prefix="mergelake-optimize") as pool:
            futures = [pool.submit(partial(copy_context().run, self._execute, task)) for task in begun]
        for task, future in zip(begun, futures, strict=True):
            failure = future.exception()
            if failure is None:
                results.append((task, future.result()))
            elif isinstance(failure, MergelakeError):
                self.failures.append(failure)
            else:
                raise failure
        self._commit(results)
        check()

    def in_turn(self, batch: list[MergeTask]) -> None:
        """Execute merges by one call."""
        if not batch:
            return
        begun = self._begun(batch)
        try:
            manifests = self._run(self._handle, begun, self._flag, self._report)
        except MergelakeError as problem:
            check()
            self.failures.append(problem)
            return
        self._commit(list(zip(begun, manifests, strict=True)))

    def _execute(self, task: MergeTask) -> PartManifest:
        return self._run(self._handle, [task], self._flag, lambda rows: None)[0]

    def _begun(self, tasks: list[MergeTask]) -> list[MergeTask]:
        check()
        base_version = self._handle.base_version()
        return [replace(task, base_version=base_version) for task in tasks]

    def _commit(self, results: list[tuple[MergeTask, PartManifest]]) -> None:
        self._rows_done += sum(task.rows for task, _ in results)
        self._report(0)
        self.failures += [failure for failure in commit_merges(self._handle, results) if failure is not None]

    def _report(self, rows: int) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress("merged", self._rows_done + rows, self._rows))
