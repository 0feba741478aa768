"""Tasks as documents: planned here, executed by any process that has the document and the bucket, committed once.

::

    plan_work(table)  ──►  TASK.json  ──►  work(TASK.json)  ──►  RESULT.json  ──►  commit_work(TASK.json, RESULT.json)

An executor reads the sources and writes the objects of one part. It needs neither the table's log nor the planner. What
is not committed is invisible, and collected like every other object that nobody refers to; a document that is executed
late, or twice, does no harm. A commit is decided by the log, as for every merge: it is refused if a source was replaced
meanwhile, and a part that is in the log is not committed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mergelake.api.python.environment import state_functions
from mergelake.api.python.warehouse import Warehouse
from mergelake.core.base.errors import ConflictError, error
from mergelake.core.model.manifest import PartManifest
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.slices import slice_tasks, with_split
from mergelake.jobs.merge.task_json import decode_result, decode_task, encode_result, encode_task
from mergelake.jobs.mutate.commit import commit_results
from mergelake.jobs.mutate.plan import due_parts, mutation_task
from mergelake.jobs.mutate.work import execute_task
from mergelake.log.model.state import known_ids
from mergelake.log.model.volatile import pending
from mergelake.table.handle.handle import TableHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mergelake.api.python.table import Table


def plan_work(
    table: Table, *, partition_id: str | None = None, final: bool = False, mutations: bool = False
) -> list[bytes]:
    """Tasks of a table as JSON documents: the merges of `OPTIMIZE`, or the rewrites for pending mutations.

    Parameters
    ----------
    table
        The table; it is refreshed.
    partition_id
        Only of this partition.
    final
        Merge all parts of each partition. Without it and without a partition: the one merge that the table's selector
        ranks highest.
    mutations
        Plan no merges, but a task for each part that lacks a mutation.

    Returns
    -------
    list[bytes]
        One document for each task, without credentials, in any order of execution. Of a merge that is cut into slices
        (`min_bytes_to_split_merge`) there is one for each slice, and last the merge itself: it assembles the part from
        the slices that were written, writes the others, and is the one to commit.
    """
    table.refresh()
    handle = table.handle
    handle.base_version()
    state = handle.log.state
    if not mutations:
        merges = plan_optimize(handle, partition_id=partition_id, final=final)
        split = [with_split(handle.store, task, state.fence) for task in merges]
        tasks = [each for task in split for each in (*(slice_tasks(task) if task.split else ()), task)]
    elif final:
        raise error("BAD_ARGUMENTS", "final is for merges, and mutations are to be planned", "Give one of them")
    else:
        due = [part for part in due_parts(state) if partition_id in (None, part.info.partition_id)]
        tasks = [mutation_task(handle.directory, state.schema, part, state) for part in due]
    return [encode_task(handle.store.url, task) for task in tasks]


def work(task: bytes | str, storage_options: Mapping[str, str] | None = None, *, threads: int | None = None) -> bytes:
    """Execute a task, a document of `plan_work`, and return its result as a JSON document. Nothing is committed.

    Parameters
    ----------
    task
        The document.
    storage_options
        How the warehouse is reached, as for `connect`: the document has its URL and no credentials.
    threads
        How many threads may work (default: the number of cores, up to 8).

    Raises
    ------
    InvalidInputError
        UNKNOWN_FORMAT_VERSION for a document of another version.
    NotFoundError
        NO_SUCH_DATA_PART if the objects of a source are gone.
    CorruptDataError
        For a document that is not whole, and for a damaged source.
    """
    planned = decode_task(_bytes(task))
    warehouse = Warehouse(planned.url, storage_options, threads=threads)
    return encode_result(planned.digest, _executed(warehouse, planned.task))


def commit_work(task: bytes | str, result: bytes | str, storage_options: Mapping[str, str] | None = None) -> int:
    """Commit the result of a task and return the table's version; if it was committed before, nothing changes.

    Raises ConflictError if a source was replaced or dropped meanwhile: the result's objects are deleted then, and the
    table is unchanged. BAD_ARGUMENTS for the result of another task.
    """
    planned = decode_task(_bytes(task))
    _require_whole(planned.task)
    part = decode_result(_bytes(result), planned)
    warehouse = Warehouse(planned.url, storage_options)
    return _commit(warehouse.catalog.open_id(planned.task.directory), planned.task, part)


def work_and_commit(
    task: bytes | str, storage_options: Mapping[str, str] | None = None, *, threads: int | None = None
) -> tuple[bytes, int]:
    """`work`, then `commit_work`: the result and the version.

    ConflictError before anything is written if a source is no longer active.
    """
    planned = decode_task(_bytes(task))
    _require_whole(planned.task)
    warehouse = Warehouse(planned.url, storage_options, threads=threads)
    handle = warehouse.catalog.open_id(planned.task.directory)
    sources = planned.task.source_ids
    active = handle.log.state.partitions.find(planned.task.result.partition_id, sources, 0)
    if len(active) < len(sources):
        message = f"{len(sources) - len(active)} sources of {planned.task.result} are no longer active"
        raise ConflictError(message, hint="They were merged or dropped: plan the task anew")
    part = _executed(warehouse, planned.task)
    return encode_result(planned.digest, part), _commit(handle, planned.task, part)


def commits(task: bytes | str) -> bool:
    """Whether the result of a task can be committed: that of a slice of a merge cannot."""
    return decode_task(_bytes(task)).task.slice is None


def work_on_spark(
    spark: SparkSession, tasks: Sequence[bytes | str], storage_options: Mapping[str, str] | None = None
) -> list[bytes]:
    """Execute tasks in Spark, one Spark task for each, and return their results in order. Nothing is committed.

    Merges in slices are executed when all others are done. If one fails, what the others wrote is deleted, but for
    slices, and its error is raised.
    """
    from mergelake.api.spark.merge import run_works

    planned = [decode_task(_bytes(task)) for task in tasks]
    stores = [Warehouse(each.url, storage_options).store.spec for each in planned]
    parts: dict[str, PartManifest | None] = {}
    for last in (False, True):
        chosen = [at for at, each in enumerate(planned) if _assembles(each.task) is last]
        done = run_works(spark, [(stores[at], planned[at].task) for at in chosen], state_functions())
        parts |= {planned[at].digest: part for at, part in zip(chosen, done, strict=True)}
    return [encode_result(each.digest, parts[each.digest]) for each in planned]


def _assembles(task: MergeTask) -> bool:
    """Whether it is a whole merge in slices."""
    return task.split is not None and task.slice is None


def _require_whole(task: MergeTask) -> None:
    if task.slice is not None:
        message = f"Slice {task.slice} of {task.result} cannot be committed alone"
        raise error("BAD_ARGUMENTS", message, "The task of the merge itself assembles the part")


def _executed(warehouse: Warehouse, task: MergeTask) -> PartManifest | None:
    return execute_task(
        warehouse.store,
        task,
        warehouse.ids,
        warehouse.clock,
        threads=warehouse.env.threads,
        states=warehouse.env.states,
    )


def _commit(handle: TableHandle, task: MergeTask, part: PartManifest | None) -> int:
    if _is_committed(handle, task, part):
        return handle.log.state.version
    if task.kind == "mutation":
        if commit_results(handle, [(task, part)]) or _is_committed(handle, task, part):
            return handle.log.state.version
        message = f"The part of {task.result} was replaced, or lacks other mutations now"
        raise ConflictError(message, hint="Plan the task anew")
    assert part is not None, "decode_result refuses a merge without one"
    try:
        return commit_merge(handle, task, part).version
    except ConflictError:
        if _is_committed(handle, task, part):  # another process has committed the same result
            return handle.log.state.version
        raise


def _is_committed(handle: TableHandle, task: MergeTask, part: PartManifest | None) -> bool:
    """Whether the log has the result of a task, as of its newest entry."""
    state = handle.refresh()
    if part is not None:
        return bool(known_ids(state, [part]))
    active = state.partitions.find(task.result.partition_id, task.source_ids, 0)
    return any(not set(task.mutations) & set(pending(state.mutations, each.info)) for each in active)


def _bytes(document: bytes | str) -> bytes:
    return document.encode() if isinstance(document, str) else bytes(document)
