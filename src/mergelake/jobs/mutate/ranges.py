"""The marks of parts in which rows may match the conditions of mutations, by the indexes of the parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import PendingMutation
from mergelake.scan.prune.prune import MarkRange, join
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.store.interface.protocol import Store
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.pending.commands import IndexCommand, RowCommand, parse_commands


def matching_ranges(store: Store, tasks: Sequence[MergeTask]) -> dict[str, tuple[MarkRange, ...]]:
    """For the part of each task (by id) the mark ranges outside of which no row matches a command that it lacks.

    All marks where a command is about an index.

    The tasks are of one table and schema. No mutation changes a column of a key, so the partition and the primary index
    exclude marks; skip indexes do where no mutation changes their columns.
    """
    sources = {task.source_ids[0]: task.sources[0] for task in tasks}
    marks = {part_id: np.zeros(source.manifest.marks, np.bool_) for part_id, source in sources.items()}
    lacking: dict[RowCommand, list[MergeSource]] = {}
    for source in sources.values():
        for mutation in source.lacks:
            for command in parse_commands(mutation.commands):
                if command.partition_id not in (None, source.info.partition_id):
                    continue
                if isinstance(command, IndexCommand):
                    marks[source.manifest.id][:] = True
                else:
                    lacking.setdefault(command, []).append(source)
    for command, some in lacking.items():
        schema = tasks[0].schema
        request = ScanRequest((schema.stored[0].name,), command.where)
        plan = plan_scan(store, tasks[0].directory, _snapshot(tasks[0], some), request, count_steps=False)
        for item in plan.items:
            for begin, end in item.ranges:
                marks[item.manifest.id][begin:end] = True
    return {part_id: join(np.flatnonzero(may_match)) for part_id, may_match in marks.items()}


def _snapshot(task: MergeTask, sources: Sequence[MergeSource]) -> Snapshot:
    partitions: dict[str, list[ActivePart]] = {}
    mutations: dict[int, PendingMutation] = {}
    for source in sorted(sources, key=lambda source: source.info):
        part = ActivePart(source.info, source.manifest, 0, 0)
        partitions.setdefault(source.info.partition_id, []).append(part)
        mutations |= {mutation.version: mutation for mutation in source.lacks}
    pending = tuple(mutations[version] for version in sorted(mutations))
    return Snapshot(task.base_version, 0, task.schema, Partitions.of(partitions), {}, pending)
