"""Executes a task of any kind (a merge, a slice of one, a mutation) from what it says alone, without the log."""

from __future__ import annotations

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import NotFoundError, error
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import Extent, PartManifest
from mergelake.engines.rules.states import StateFunctions
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.result import Progress
from mergelake.jobs.merge.slices import execute_slice, execute_split
from mergelake.jobs.mutate.execute import execute_mutation, finds_times
from mergelake.jobs.mutate.ranges import matching_ranges
from mergelake.parts.read.fetch import is_remote
from mergelake.parts.read.layout import object_key
from mergelake.store.interface.protocol import Store


def execute_task(
    store: Store,
    task: MergeTask,
    ids: IdSource,
    clock: Clock,
    on_progress: Progress | None = None,
    threads: int = 2,
    states: StateFunctions | None = None,
) -> PartManifest | None:
    """Write the part that `task` describes; None if it is a mutation that changes no row. Nothing is committed.

    A merge in slices takes those that were written before, and writes the others. `states` merges aggregate states.
    NO_SUCH_DATA_PART, before anything is written, if the objects of a source are gone. Other errors are those of
    `execute_merge` and `execute_mutation`.
    """
    try:
        if not is_remote(store):  # from a bucket the parts are opened first anyway
            for key in _first_objects(task):
                store.head(key)
        if task.slice is not None:
            return execute_slice(store, task, ids, clock, on_progress, threads, states)
        if task.split is not None:
            return execute_split(store, task, ids, clock, on_progress, threads, states)
        if task.kind != "mutation":
            return execute_merge(store, task, ids, clock, on_progress, threads, states=states)
        ranges = matching_ranges(store, [task])[task.source_ids[0]]
        if not ranges and not finds_times(task):
            return None
        return execute_mutation(store, task, ids, clock, on_progress, threads, ranges, states=states)
    except NotFoundError as missing:
        message = f"A source of {task.result} is gone: {missing.message}"
        raise error("NO_SUCH_DATA_PART", message, "It was merged or dropped: plan the task anew") from missing


def _first_objects(task: MergeTask) -> list[str]:
    """One object of each source."""
    firsts = [source.manifest.files.object_keys()[:1] for source in task.sources]
    return [object_key(task.directory, Extent(key, 0, 0)) for keys in firsts for key in keys]
