"""One merge over many tasks: slices of it are written apart, and the part is assembled from them.

::

    with_split ─► slice_tasks ─► execute_slice of each ─► streams_of ─► assemble_stream of each ─► assembled
                                   (anywhere)                             (anywhere)

Each slice reads of every source the granules that may hold its range of keys, and writes a part of its own into a new
directory. When all of it is stored, a record of it is put into the directory `<Split.id>` of the table: whoever
executes the same merge again finds the records and writes only what is missing. Nothing refers to slices before the
commit. A slice counts as begun at the version at which its merge was planned, and the part as begun with its oldest
slice, so collection treats them like the objects of every part in the making: it deletes none that may still be
committed, and all others after the grace period.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.core.base.ids import IdSource
from mergelake.core.base.json_load import typed
from mergelake.core.model.manifest import PartFile, PartManifest
from mergelake.core.model.manifest_json import Count, ManifestJson
from mergelake.core.model.settings import TableSettings
from mergelake.core.model.stored_form import stored
from mergelake.engines.order.keys import table_keys
from mergelake.engines.rules.states import StateFunctions
from mergelake.jobs.merge.execute import execute_merge, write_merged_projections
from mergelake.jobs.merge.plan import MergeTask, Split
from mergelake.jobs.merge.projections import projection_work
from mergelake.jobs.merge.result import Progress, result_minmax, result_partition
from mergelake.jobs.merge.split import split_id, split_keys
from mergelake.jobs.merge.ttl import joins_rows, plan_expiry, slices_ttl
from mergelake.log.storage.encoding import is_sealed, sealed
from mergelake.parts.read.ahead import open_parts
from mergelake.parts.read.default_codec import part_codec
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.assemble import (
    SliceStream,
    assemble_part,
    assemble_stream,
    can_assemble,
    is_aligned,
    slice_streams,
)
from mergelake.parts.write.part_spec import NO_TTL, PartSpec, PartTarget
from mergelake.store.interface.protocol import Store
from mergelake.store.metering.meter import Pool

SLICES_MAX = 10_000
"""Most slices of a merge: each is a task that holds the manifests of all sources."""
_FORMAT = 1
_AT_ONCE = 8


def with_split(store: Store, task: MergeTask, fence: int) -> MergeTask:
    """The same task, with its slices if it is large enough (`min_bytes_to_split_merge`) and can be cut.

    `fence` is that of the table's state at which it was planned. From a bucket, one round of requests reads the primary
    indexes.
    """
    settings = TableSettings(task.schema.settings)
    least, slice_bytes = map(settings.integer, ("min_bytes_to_split_merge", "merge_slice_bytes"))
    keys = table_keys(task.schema)
    local = task.local or any(source.local for source in task.sources)
    if (
        not (least and slice_bytes)
        or task.bytes_on_disk < least
        or task.kind == "mutation"
        or local
        or not keys.primary
    ):
        return task
    # Projections that are not merged are made of all rows.
    if joins_rows(plan_expiry(task)) or any(work.task is None for work in projection_work(task)):
        return task
    if task.deduplicate is not None or not can_assemble(task.schema):  # equal rows may lie in several slices
        return task
    columns = {column.name: column for column in task.schema.stored}
    types = [key.type for key in keys.primary]
    filled = [source.manifest for source in task.sources if source.manifest.rows]
    readers = [PartReader(store, task.directory, manifest, columns) for manifest in filled]
    open_parts(readers, [], key=types)
    marks, weights = [], []
    for reader in readers:
        rows = reader.granule_rows
        marks.append([array.slice(0, len(rows)) for array in reader.primary_index(types)])
        weights.append(np.maximum(rows * reader.manifest.bytes_on_disk // reader.manifest.rows, 1))
    slices = min(-(-task.bytes_on_disk // slice_bytes), SLICES_MAX)
    cut = split_keys(marks, weights, types, keys.descending[: len(types)], slices)
    return replace(task, split=Split(split_id(task, cut), tuple(cut), fence)) if cut else task


def slice_tasks(task: MergeTask) -> list[MergeTask]:
    """The tasks that write the slices of a task with a split, in order."""
    assert task.split is not None
    return [replace(task, slice=number) for number in range(task.split.slices)]


def execute_slice(
    store: Store,
    task: MergeTask,
    ids: IdSource,
    clock: Clock,
    on_progress: Progress | None = None,
    threads: int = 2,
    states: StateFunctions | None = None,
) -> PartManifest:
    """Write one slice, then its record; returns its manifest. Errors: those of `execute_merge`."""
    assert task.split is not None
    part = execute_merge(store, task, ids, clock, on_progress, threads, states=states)
    record = sealed({"format": _FORMAT, "slice": task.slice, "part": ManifestJson.of(part)})
    store.put(f"{task.directory}/{task.split.id}/{task.slice}-{part.id}.json", record)
    return part


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int = stored("format")
    slice: Count = stored("slice")
    part: ManifestJson = stored("part")
    digest: str = stored("digest")


_RECORD = msgspec.json.Decoder(_Record)


def written_slices(store: Store, task: MergeTask) -> dict[int, PartManifest]:
    """The slices of a task that were written before, by number: a LIST, and a GET for each.

    Those that were begun before the fence are left out, and records that cannot be read.
    """
    assert task.split is not None
    keys = [meta.key for meta in store.list(f"{task.directory}/{task.split.id}")]
    with Pool(_AT_ONCE, thread_name_prefix="mergelake-slices") as pool:
        found = [record for record in pool.map(lambda key: _record(store, key), keys) if record is not None]
    return {
        number: part for number, part in found if part.base_version >= task.split.fence and number < task.split.slices
    }


def _record(store: Store, key: str) -> tuple[int, PartManifest] | None:
    try:
        data = store.get(key)
        if not is_sealed(data, "The record of a slice", key):
            return None
        record = typed(_RECORD, data)
    except (CorruptDataError, NotFoundError, ValueError):
        return None  # collected meanwhile, or of another version: the slice is written again
    return (record.slice, record.part.manifest()) if record.format == _FORMAT else None


def streams_of(task: MergeTask, slices: Sequence[PartManifest], part_id: str) -> list[SliceStream] | None:
    """The streams to assemble; None if slices do not fit together, and the merge has to be executed whole."""
    if not is_aligned(task.schema, slices):
        return None
    return slice_streams(task.directory, part_id, task.schema, slices)


def assembled(
    store: Store,
    task: MergeTask,
    slices: Sequence[PartManifest],
    part_id: str,
    files: Sequence[PartFile],
    ids: IdSource,
    clock: Clock,
    states: StateFunctions | None,
) -> PartManifest:
    """The part of a merge, from all of its slices and the files of `assemble_stream` of `streams_of`."""
    keys, settings = table_keys(task.schema), TableSettings(task.schema.settings)
    key_types = [key.type for key in keys.primary]
    target = PartTarget(store, task.directory, task.schema, settings, key_types, ids, clock)
    first = PartReader(store, task.directory, slices[0], {column.name: column for column in task.schema.stored})
    rows = sum(piece.rows for piece in slices)
    expiry = plan_expiry(task)
    filled = [piece for piece in slices if piece.rows]
    held = {number for piece in filled[:1] for number in piece.columns}
    spec = PartSpec(
        settings.integer("index_granularity"),
        result_partition(task),
        result_minmax(task, keys) if rows else {},
        task.result.level,
        part_id,
        codec=part_codec(first),
        ttl=slices_ttl(expiry, filled) if expiry is not None else NO_TTL,
        without=frozenset(c.name for c in task.schema.stored if filled and c.id not in held),
    )
    projections = partial(write_merged_projections, work=projection_work(task), store=store, states=states)
    return assemble_part(target, spec, slices, files, projections)


def execute_split(
    store: Store,
    task: MergeTask,
    ids: IdSource,
    clock: Clock,
    on_progress: Progress | None = None,
    threads: int = 2,
    states: StateFunctions | None = None,
) -> PartManifest:
    """Execute a task with a split in this process: the slices that are missing, one after the other, then the part."""
    split = task.split
    assert split is not None
    done = written_slices(store, task)
    for piece in slice_tasks(task):
        assert piece.slice is not None
        if piece.slice not in done:
            before = task.rows * piece.slice // split.slices

            def heard(rows: int, of: int, before: int = before) -> None:
                if on_progress is not None:
                    on_progress(before + rows * task.rows // (max(of, 1) * split.slices), task.rows)

            done[piece.slice] = execute_slice(store, piece, ids, clock, heard, threads, states)
    slices = [part for _, part in sorted(done.items())]
    part_id = ids.new_id()
    streams = streams_of(task, slices, part_id)
    if streams is None:
        return execute_merge(store, replace(task, split=None), ids, clock, on_progress, threads, states=states)
    with Pool(max(1, threads), thread_name_prefix="mergelake-assemble") as pool:
        files = [file for pair in pool.map(lambda stream: assemble_stream(store, stream), streams) for file in pair]
    return assembled(store, task, slices, part_id, files, ids, clock, states)
