"""The marks of a part in which rows may match the conditions of mutations, by its indexes."""

from __future__ import annotations

import numpy as np

from mergelake.log.part_map import Partitions
from mergelake.log.state import ActivePart
from mergelake.merge.plan import MergeSource, MergeTask
from mergelake.scan.plan import plan_scan
from mergelake.scan.prune import MarkRange, join
from mergelake.scan.request import ScanRequest
from mergelake.store.protocol import Store
from mergelake.table.handle import Snapshot
from mergelake.views.commands import parse_commands


def matching_ranges(store: Store, task: MergeTask) -> tuple[MarkRange, ...]:
    """Mark ranges, ascending, outside of which no row of the task's part matches a command that it lacks.

    No mutation changes a column of a key, so the partition and the primary index exclude marks; skip indexes do where
    no mutation changes their columns.
    """
    (source,) = task.sources
    snapshot = _snapshot(task, source)
    marks = np.zeros(source.manifest.marks, np.bool_)
    column = task.schema.stored[0].name
    for mutation in source.lacks:
        for command in parse_commands(mutation.commands):
            if command.partition_id not in (None, source.info.partition_id):
                continue
            request = ScanRequest((column,), command.where)
            plan = plan_scan(store, task.directory, snapshot, request, count_steps=False)
            for item in plan.items:
                for begin, end in item.ranges:
                    marks[begin:end] = True
    return join(np.flatnonzero(marks))


def _snapshot(task: MergeTask, source: MergeSource) -> Snapshot:
    part = ActivePart(source.info, source.manifest, 0, 0)
    partitions = Partitions.of({source.info.partition_id: (part,)})
    return Snapshot(task.base_version, 0, task.schema, partitions, {}, source.lacks)
