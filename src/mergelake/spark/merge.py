"""Merges and mutations as Spark tasks: a task executes one and returns the manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mergelake.core.clock import SystemClock
from mergelake.core.errors import MergelakeError
from mergelake.core.ids import RandomIds
from mergelake.core.manifest import PartManifest
from mergelake.merge.execute import execute_merge
from mergelake.merge.plan import MergeTask
from mergelake.mutate.execute import Ranges, execute_mutation
from mergelake.mutate.ranges import matching_ranges
from mergelake.mutate.work import execute_task
from mergelake.order.states import StateMerger
from mergelake.spark.tasks import task_outcomes, unwrap, unwrap_all
from mergelake.store import StoreSpec
from mergelake.store.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_merges(
    spark: SparkSession, store: StoreSpec, tasks: Sequence[MergeTask], states: StateMerger | None = None
) -> list[PartManifest]:
    """Execute merges in Spark, one task each; the caller commits the manifests.

    If one fails, the parts of the others are deleted and its error is raised. `states` merges aggregate states; it is
    pickled by its name.
    """

    def execute(task: MergeTask) -> PartManifest:
        return execute_merge(store.open(), task, RandomIds(), SystemClock(), states=states)

    return unwrap_all(task_outcomes(spark, execute, tasks), _discarding(store, tasks))


def run_works(
    spark: SparkSession, works: Sequence[tuple[StoreSpec, MergeTask]], states: StateMerger | None = None
) -> list[PartManifest | None]:
    """Execute tasks of any kind and tables in Spark, one task each; None for a mutation that changes no row.

    `states` as in `run_merges`.
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
            _discarding(store, [task])([manifest])
        raise failed
    return done


def run_mutations(spark: SparkSession, store: Store, tasks: Sequence[MergeTask]) -> list[PartManifest | None]:
    """Execute mutations of parts in Spark, one task for each part that may have matching rows; None for others."""
    ranges = matching_ranges(store, tasks)
    spec = store.spec
    work = [(task, ranges[task.source_ids[0]]) for task in tasks if ranges[task.source_ids[0]]]

    def execute(item: tuple[MergeTask, Ranges]) -> PartManifest | None:
        task, marks = item
        return execute_mutation(spec.open(), task, RandomIds(), SystemClock(), ranges=marks)

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
