"""The projections of a merge's result.

Where all sources have a projection, by its present definition, and all of their rows go into the result as they are,
the result's one is merged from theirs: each is a part, with a schema of its own. Otherwise it is made anew, from the
rows of the result, in pieces that fit into memory (`Rebuilder`); several pieces are merged as parts are, from a
temporary directory.

A merge that removes rows of equal keys obeys `deduplicate_merge_projection_mode`: with `drop` its result has none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np
import pyarrow as pa

from mergelake.core.model.names import PartInfo
from mergelake.engines.projections.projections import OFFSET, BoundProjection, table_projections
from mergelake.engines.rules.states import StateFunctions
from mergelake.engines.ttl.ttl_groups import check_functions
from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.jobs.merge.ttl import plan_expiry
from mergelake.parts.write.projected import projection_manifest
from mergelake.parts.write.writer import PartWriter, write_part, write_projection
from mergelake.store.interface.protocol import Store
from mergelake.store.objects.directory import DirectoryStore
from mergelake.table.definition.define_projections import projection_mode
from mergelake.table.pending.bound import bind_steps
from mergelake.table.write.pieces import projection_rows

Merge = Callable[[PartWriter, BoundProjection, MergeTask, Store | None], None]
"""Writes a projection of a part by merging; the store holds the sources, None for that of the part's own merge."""


@dataclass(frozen=True, slots=True)
class ProjectionWork:
    """How one projection of a result is written."""

    projection: BoundProjection
    task: MergeTask | None = None
    """The merge of the sources' projections; None: it is made of the result's rows."""


def projection_work(task: MergeTask) -> list[ProjectionWork]:
    """How the projections of a merge's result are written; none for a slice, whose part gets them when it is assembled.

    Pure.
    """
    schema = task.schema
    if not schema.projections or task.slice is not None:
        return []
    removes = task.kind != "mutation" and (schema.engine != "MergeTree" or task.cleanup)
    removes = removes or task.deduplicate is not None
    if removes and projection_mode(schema) == "drop":
        return []
    expiry = plan_expiry(task)
    removes = removes or (expiry is not None and expiry.removes)
    return [ProjectionWork(each, None if removes else _merged(task, each)) for each in table_projections(schema)]


def check_states(task: MergeTask, functions: StateFunctions | None) -> None:
    """SUPPORT_IS_DISABLED if projections or the TTL of a result need `functions`, and they are None."""
    if functions is not None:
        return
    for work in projection_work(task):
        work.projection.check(None)
    expiry = plan_expiry(task)
    if expiry is not None and any(map(expiry.is_due, expiry.ttl.groups)):
        check_functions(task.schema, None)


def _merged(task: MergeTask, projection: BoundProjection) -> MergeTask | None:
    """The merge of a projection's parts; None if a source has none that fits."""
    filled = [source for source in task.sources if source.manifest.rows]
    if projection.offsets or not filled or not all(_has(source, task, projection) for source in filled):
        return None
    sources = tuple(
        MergeSource(
            source.info, projection_manifest(source.manifest, projection.name, projection.schema.stored), source.local
        )
        for source in filled
    )
    return MergeTask(
        task.directory, projection.schema, sources, task.result, base_version=task.base_version, local=task.local
    )


def _has(source: MergeSource, task: MergeTask, projection: BoundProjection) -> bool:
    """Whether a source has the projection of the rows that go into the result."""
    part = source.manifest
    facts = part.projections.get(projection.name)
    if facts is None or facts.digest != projection.digest or part.masked:
        return False
    steps = bind_steps(source.lacks, task.schema, part.partition_id)
    return steps is None or not (steps.deletes or steps.touched & projection.inputs.keys())


class Rebuilder:
    """Writes a projection of a part from the part's rows, which come in blocks of any size."""

    def __init__(
        self,
        part: PartWriter,
        projection: BoundProjection,
        budget: int,
        merge: Merge,
        functions: StateFunctions | None,
    ) -> None:
        """`budget` are the bytes of rows that are held at a time; `merge` merges pieces, `functions` make states."""
        self._part, self._projection, self._budget, self._merge = part, projection, budget, merge
        self._functions = functions
        self._held: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._pieces: list[MergeSource] = []

    def __enter__(self) -> Rebuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def push(self, block: pa.RecordBatch) -> None:
        """Take the next rows of the part: at least the columns `BoundProjection.inputs`."""
        if self._projection.offsets:
            places = np.arange(self._rows, self._rows + block.num_rows, dtype=np.uint64)
            block = block.append_column(OFFSET.name, pa.array(places))
        self._held.append(block)
        self._rows += block.num_rows
        self._bytes += block.nbytes
        if self._bytes >= self._budget:
            self._spill()

    def finish(self) -> None:
        """Write the projection."""
        if self._folder is None:
            if self._held:
                write_projection(self._part, projection_rows(self._projection, self._taken(), self._functions))
            return
        if self._held:
            self._spill()
        schema = self._projection.schema
        first, last = self._pieces[0].info, self._pieces[-1].info
        result = PartInfo(first.partition_id, first.min_block, last.max_block, 1)
        task = MergeTask("pieces", schema, tuple(self._pieces), result)
        self._merge(self._part, self._projection, task, DirectoryStore(self._folder.name))

    def _taken(self) -> pa.Table:
        held, self._held, self._bytes = self._held, [], 0
        return pa.Table.from_batches(held)

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mergelake-projection-")
        rows = projection_rows(self._projection, self._taken(), self._functions)
        target = replace(
            self._part.target,
            store=DirectoryStore(self._folder.name),
            directory="pieces",
            schema=rows.schema,
            key_types=rows.key_types,
            objects=None,
        )
        at = len(self._pieces) + 1
        manifest = write_part(target, rows.rows, part_id=f"{at:032x}")
        self._pieces.append(MergeSource(PartInfo(manifest.partition_id, at, at, 0), manifest))


def inputs_of(projection: BoundProjection, names: Sequence[str]) -> list[str]:
    """The columns to read for a projection; the first of `names` if it only counts rows."""
    return list(projection.inputs) or list(names[:1])
