"""Merges as Spark tasks: a task executes one merge and returns the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mergelake.core.clock import SystemClock
from mergelake.core.ids import RandomIds
from mergelake.core.manifest import PartManifest
from mergelake.merge.execute import execute_merge
from mergelake.merge.plan import MergeTask
from mergelake.spark.tasks import task_outcomes, unwrap_all
from mergelake.store import StoreSpec
from mergelake.table.insert import discard_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_merges(spark: SparkSession, store: StoreSpec, tasks: Sequence[MergeTask]) -> list[PartManifest]:
    """Execute merges in Spark, one task each; the caller commits the manifests.

    If one fails, the parts of the others are deleted and its error is raised.
    """

    def execute(task: MergeTask) -> PartManifest:
        return execute_merge(store.open(), task, RandomIds(), SystemClock())

    def discard(manifests: list[PartManifest]) -> None:
        for task, part in zip(tasks, manifests, strict=False):
            discard_parts(store.open(), task.directory, [part])

    return unwrap_all(task_outcomes(spark, execute, tasks), discard)
