"""Writes a view of one part down: applies the mutations that it lacks, at the least cost.

=========================================  ==========================================================
rows that match                            what is written
=========================================  ==========================================================
none                                       nothing: the part is only marked (`MarkMutated`)
updated, or deleted by lightweight DELETE  the changed columns, their indexes, projections and the mask; other files of
                                           a Wide part are those of the old one, by reference
deleted, or the part is Compact or small   the whole part, by the code of merges
=========================================  ==========================================================

Nothing is committed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from mergelake.core.base.clock import Clock
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.core.model.ttl import TtlInfo
from mergelake.engines.order.keys import table_keys
from mergelake.engines.projections.projections import table_projections
from mergelake.engines.rules.states import StateFunctions
from mergelake.engines.ttl.ttl import has_ttl, packed_infos, table_ttl
from mergelake.expr.bound import BoundColumn
from mergelake.format.indexes.skip_files import PACKED
from mergelake.jobs.merge.execute import execute_merge, merge_projection
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.projections import Merge, Rebuilder, inputs_of
from mergelake.jobs.merge.result import Progress
from mergelake.jobs.merge.source import SourceReader, defaults_that_read, deletes_lightly
from mergelake.jobs.merge.ttl import changes_times, part_infos
from mergelake.jobs.merge.view import Matches
from mergelake.jobs.mutate.indexes import IndexChanges
from mergelake.jobs.mutate.ranges import matching_ranges
from mergelake.parts.write.part_spec import PartTarget, PartTtl
from mergelake.parts.write.rewrite import ColumnRewriter, can_rewrite_columns, converted
from mergelake.scan.prune.prune import MarkRange
from mergelake.store.interface.protocol import Store
from mergelake.table.definition.define_projections import lightweight_mode
from mergelake.table.pending.bound import Steps
from mergelake.table.pending.commands import are_of_ttl

BATCH_ROWS = 65536
Ranges: TypeAlias = tuple[MarkRange, ...]
"""Ranges of marks of a part, ascending."""


def execute_mutations(
    store: Store, tasks: Sequence[MergeTask], execute: Callable[[MergeTask, Ranges], PartManifest | None]
) -> list[PartManifest | None]:
    """The results of tasks of one table, in order; `execute` is called for those whose parts may have matching rows.

    The indexes of all parts are looked at together.
    """
    ranges = matching_ranges(store, tasks)
    found = [(task, ranges[task.source_ids[0]]) for task in tasks]
    return [execute(task, marks) if marks or finds_times(task) else None for task, marks in found]


def execute_mutation(
    store: Store,
    task: MergeTask,
    ids: IdSource,
    clock: Clock,
    on_progress: Progress | None = None,
    threads: int = 1,
    ranges: Ranges | None = None,
    disk: Store | None = None,
    states: StateFunctions | None = None,
) -> PartManifest | None:
    """Write the part that `task` (of kind `mutation`) describes; None if no row of it changes.

    `ranges` are the marks with rows that may match (None: all). New objects go to `disk`, if it is given; those of the
    old part stay where they are. `states` are aggregate functions for projections. Raises the errors of the commands
    for rows that match them, CorruptDataError for a damaged part, and SUPPORT_IS_DISABLED where it has no `states` and
    needs some.
    """
    (source,) = task.sources
    settings = TableSettings(task.schema.settings)
    window = settings.integer("merge_max_chunk_bytes")
    reader = SourceReader(store, task.directory, task.schema, source.manifest, source.lacks)
    matches = reader.find_matches(BATCH_ROWS, window, ranges)
    indexes = IndexChanges.of(task)
    modern = settings.text("part_profile") == "modern"
    keys = [key.type for key in table_keys(task.schema).primary]
    finds = finds_times(task)
    if matches is None or not matches.steps.steps or _keeps_all(matches.steps, source.manifest, task.schema):
        if not (indexes.any or finds):
            return None
        matches = None
    names = converted(source.manifest, task.schema)
    if matches is not None:
        names |= matches.steps.touched | defaults_that_read(matches.steps.touched, source.manifest, task.schema)
    whole = (
        (matches is not None and matches.deletes and not deletes_lightly(source.lacks))
        or (matches is not None and _changes_times(task))
        or not can_rewrite_columns(source.manifest, reader.reader, task.schema, modern, names)
        or (indexes.any and PACKED in reader.reader.files)
    )
    if whole:
        local = replace(task, local=disk is not None, schema=indexes.schema_of(task.schema))
        return execute_merge(store, local, ids, clock, on_progress, threads, disk, states)
    target = PartTarget(disk or store, task.directory, task.schema, settings, keys, ids, clock)
    rewriter = ColumnRewriter(target, source.manifest, reader.reader)
    try:
        _rewrite(rewriter, reader, names, matches, indexes, window)
        if matches is not None:
            merge = partial(merge_projection, store, threads, disk or store, states)
            _rewrite_projections(rewriter, reader, matches, task, merge, states)
        manifest = rewriter.finish(_times(reader, task, window) if finds else None)
        return replace(manifest, base_version=task.base_version)
    except BaseException:
        rewriter.abort()
        raise


def _changes_times(task: MergeTask) -> bool:
    """Whether rows expire at other times by what is assigned to them."""
    return has_ttl(task.schema) and changes_times(task.sources[0].lacks, table_ttl(task.schema), task.schema)


def _keeps_all(steps: Steps, part: PartManifest, schema: TableSchema) -> bool:
    """Whether each column that gets a new value gets its own, as the part has it: MATERIALIZE COLUMN."""
    for step in steps.steps:
        for name, value in step.sets.items():
            column = schema.column(name)
            own = isinstance(value, BoundColumn) and value.name == name and column.id in part.columns
            if not own or column.changed_since(part.schema_version):
                return False
        if not step.sets:
            return False
    return True


def finds_times(task: MergeTask) -> bool:
    """Whether the times at which rows expire are found for the part: MATERIALIZE TTL asks for it, and they are unknown.

    Then a part is written even if no row of it changes.
    """
    (source,) = task.sources
    if not source.manifest.rows or not any(are_of_ttl(mutation.commands) for mutation in source.lacks):
        return False
    ttl = table_ttl(task.schema)
    return len(part_infos(source.manifest, ttl)) < len(ttl.elements)


def _times(reader: SourceReader, task: MergeTask, window: int) -> PartTtl:
    """When the rows of the part expire."""
    ttl = table_ttl(task.schema)
    infos = {element.key: TtlInfo() for element in ttl.elements}
    for batch in reader.read(sorted(ttl.reads), BATCH_ROWS, window):
        for element in ttl.elements:
            infos[element.key] = element.with_times(infos[element.key], batch)
    return PartTtl(packed_infos(infos), ttl.file(infos))


def _rewrite(
    rewriter: ColumnRewriter,
    reader: SourceReader,
    names: frozenset[str],
    matches: Matches | None,
    indexes: IndexChanges,
    window: int,
) -> None:
    for name in sorted(names):
        batches = reader.read_with_deleted([name], BATCH_ROWS, window)
        rewriter.write_column(name, (batch.column(0) for batch in batches))
    for index in rewriter.indexes:
        if index.name in indexes.cleared:
            rewriter.drop_index(index.name)
        elif index.name in indexes.built or (index.name in indexes.kept and not names.isdisjoint(index.columns)):
            rewriter.write_index(index, reader.read_with_deleted(list(index.columns), BATCH_ROWS, window))
    if matches is not None and matches.deletes:
        rewriter.write_mask(_mask(matches, reader.manifest.rows))


def _rewrite_projections(
    rewriter: ColumnRewriter,
    reader: SourceReader,
    matches: Matches,
    task: MergeTask,
    merge: Merge,
    states: StateFunctions | None,
) -> None:
    """Write projections anew whose rows change; leave out what the table has not, or not any more."""
    settings, old = TableSettings(task.schema.settings), reader.manifest
    window = settings.integer("merge_max_chunk_bytes")
    present = {each.name: each for each in table_projections(task.schema)}
    for name, facts in old.projections.items():
        projection = present.get(name)
        if projection is None or facts.digest != projection.digest:
            rewriter.leave_out_projection(name)
        elif matches.deletes or matches.steps.touched & projection.inputs.keys():
            rewriter.leave_out_projection(name)
            if matches.deletes and lightweight_mode(task.schema) == "drop":
                continue
            if projection.offsets and (matches.deletes or old.masked):
                continue  # places count rows that are masked, and these are not read
            names = inputs_of(projection, [column.name for column in task.schema.stored])
            with Rebuilder(rewriter.part, projection, window, merge, states) as rebuilder:
                for batch in reader.read(names, BATCH_ROWS, window):
                    rebuilder.push(batch)
                rebuilder.finish()


def _mask(matches: Matches, rows: int) -> Iterator[pa.Array]:
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        alive = matches.alive(first, count)
        yield pa.array(np.ones(count, np.uint8) if alive is None else alive.astype(np.uint8))
