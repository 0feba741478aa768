"""Merges and mutations as Spark tasks: a task executes one and returns the manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heapreplace
from typing import TYPE_CHECKING

from mergelake.api.spark.tasks import run_tasks, task_outcomes, tasks_at_once, unwrap, unwrap_all
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import RandomIds
from mergelake.core.model.manifest import PartFile, PartManifest
from mergelake.engines.rules.states import StateFunctions
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.slices import assembled, slice_tasks, streams_of, with_split, written_slices
from mergelake.jobs.mutate.execute import Ranges, execute_mutation, finds_times
from mergelake.jobs.mutate.ranges import matching_ranges
from mergelake.jobs.mutate.work import execute_task
from mergelake.parts.write.assemble import SliceStream, assemble_stream
from mergelake.store import StoreSpec
from mergelake.store.interface.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_merges(
    spark: SparkSession, store: Store, tasks: Sequence[MergeTask], fence: int, states: StateFunctions | None = None
) -> list[PartManifest]:
    """Execute merges in Spark, one task each; the caller commits the manifests.

    A large merge is cut into slices (`jobs.merge.slices`), a task for each, and further tasks assemble the streams of
    its part. If a merge fails, the parts of the others are deleted and its error is raised; slices stay, and the same
    merge goes on with them. `fence` is that of the state in which the merges were planned. `states` merges aggregate
    states; it is pickled by its name.
    """
    spec, ids = store.spec, RandomIds()
    planned = [with_split(store, task, fence) for task in tasks]
    slices = [written_slices(store, task) if task.split is not None else {} for task in planned]
    units = [
        (number, unit)
        for number, task in enumerate(planned)
        for unit in (slice_tasks(task) if task.split is not None else [task])
        if unit.slice not in slices[number]
    ]
    whole: dict[int, PartManifest] = {}
    parts = run_works(spark, [(spec, unit) for _, unit in units], states)
    for (number, unit), part in zip(units, parts, strict=True):
        assert part is not None, "only mutations change no row"
        if unit.slice is None:
            whole[number] = part
        else:
            slices[number][unit.slice] = part
    pieces = {at: [part for _, part in sorted(slices[at].items())] for at in range(len(planned)) if at not in whole}
    new_ids = {number: ids.new_id() for number in pieces}
    streams = {number: streams_of(planned[number], each, new_ids[number]) for number, each in pieces.items()}
    uncut = [number for number, each in streams.items() if each is None]
    works = [(spec, replace(planned[number], split=None)) for number in uncut]
    whole |= {
        number: part for number, part in zip(uncut, run_works(spark, works, states), strict=True) if part is not None
    }
    found = [stream for each in streams.values() for stream in each or ()]
    groups = _balanced(found, 2 * tasks_at_once(spark)) if found else []

    def assemble(group: list[SliceStream]) -> list[tuple[PartFile, PartFile]]:
        return [assemble_stream(spec.open(), stream) for stream in group]

    files: dict[str, list[PartFile]] = {part_id: [] for part_id in new_ids.values()}
    for group, pairs in zip(groups, run_tasks(spark, assemble, groups), strict=True):
        for stream, pair in zip(group, pairs, strict=True):
            files[stream.part_id] += pair
    for number, each in pieces.items():
        if number not in whole:
            part_id = new_ids[number]
            whole[number] = assembled(store, planned[number], each, part_id, files[part_id], ids, SystemClock(), states)
    return [whole[number] for number in range(len(tasks))]


def _balanced(streams: Sequence[SliceStream], groups: int) -> list[list[SliceStream]]:
    """Groups of about as many bytes; none is empty."""
    heap: list[tuple[int, int, list[SliceStream]]] = [(0, at, []) for at in range(min(groups, len(streams)))]
    for stream in sorted(streams, key=lambda stream: -stream.size):
        size, at, group = heap[0]
        heapreplace(heap, (size + stream.size, at, [*group, stream]))
    return [group for _, _, group in heap]


def run_works(
    spark: SparkSession, works: Sequence[tuple[StoreSpec, MergeTask]], states: StateFunctions | None = None
) -> list[PartManifest | None]:
    """Execute tasks of any kind and tables in Spark, one task each; None for a mutation that changes no row.

    If one fails, the parts of the others are deleted and its error is raised; slices stay. `states` as in `run_merges`.
    """

    def execute(item: tuple[StoreSpec, MergeTask]) -> PartManifest | None:
        store, task = item
        return execute_task(store.open(), task, RandomIds(), SystemClock(), states=states)

    done: list[PartManifest | None] = []
    failed: MergelakeError | None = None
    for outcome in task_outcomes(spark, execute, works):
        try:
            done.append(unwrap(outcome))
        except MergelakeError as problem:
            done.append(None)
            failed = failed or problem
    if failed is not None:
        for (store, task), manifest in zip(works, done, strict=True):
            if task.slice is None:
                _discarding(store, [task])([manifest])
        raise failed
    return done


def run_mutations(
    spark: SparkSession, store: Store, tasks: Sequence[MergeTask], states: StateFunctions | None = None
) -> list[PartManifest | None]:
    """Execute mutations of parts in Spark, one task for each part that may have matching rows; None for others.

    `states` as in `run_merges`.
    """
    ranges = matching_ranges(store, tasks)
    spec = store.spec
    work = [(task, ranges[task.source_ids[0]]) for task in tasks if ranges[task.source_ids[0]] or finds_times(task)]

    def execute(item: tuple[MergeTask, Ranges]) -> PartManifest | None:
        task, marks = item
        return execute_mutation(spec.open(), task, RandomIds(), SystemClock(), ranges=marks, states=states)

    done = unwrap_all(task_outcomes(spark, execute, work), _discarding(spec, [task for task, _ in work]))
    results = {task.source_ids[0]: manifest for (task, _), manifest in zip(work, done, strict=True)}
    return [results.get(task.source_ids[0]) for task in tasks]


def _discarding(store: StoreSpec, tasks: Sequence[MergeTask]) -> Callable[[Sequence[PartManifest | None]], None]:
    """Deletes the objects that parts of failed jobs have of their own: those of older parts are in use."""

    def discard(manifests: Sequence[PartManifest | None]) -> None:
        for task, part in zip(tasks, manifests, strict=False):
            own = [key for key in part.object_keys() if key.startswith(f"{part.id}/")] if part is not None else []
            if own:
                store.open().delete([f"{task.directory}/{key}" for key in own])

    return discard
