"""Before a read returns rows: what it needs of volatile parts is fetched from their nodes, and pinned.

1. Of each such item the small files are read, and the ranges of data files that the read will request
   (`PartSource.needs`): `VolatileStore` verifies and keeps them.
2. If that fails, the sources of the volatile part take its place: they are pruned by the same request.

So no row of a volatile part is returned before all of its bytes are here: a node that dies in the middle of a scan
cannot make rows appear twice or not at all, and the read needs no way back. Under a limit and without conditions, no
more is fetched than the limit lets the read return.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mergelake.log.model.part_map import Partitions
from mergelake.parts.read.ahead import SMALL_BYTES, open_parts, small_files_of
from mergelake.parts.read.fetch import FileRange, fetch
from mergelake.parts.read.layout import object_key
from mergelake.parts.read.reader import ROW_EXISTS
from mergelake.parts.read.window import merge_ranges
from mergelake.scan.prune.keys import scan_keys
from mergelake.scan.prune.prune import MarkRange
from mergelake.scan.read.layers import columns_of_layers
from mergelake.scan.read.plan import ScanItem, plan_scan
from mergelake.scan.read.run import ReadRun
from mergelake.scan.read.steps import plan_steps
from mergelake.store.metering.meter import Pool
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.handle.volatile_choice import MergedPart
from mergelake.table.volatile.volatile_reads import OwnerGone
from mergelake.table.volatile.volatile_store import VolatileStore

_AT_ONCE = 8
"""Volatile parts that are fetched at a time."""


def settled_items(run: ReadRun, store: VolatileStore) -> tuple[ScanItem, ...]:
    """The items of a plan, in order, with all bytes of volatile parts in `store`, or with their sources in place.

    `run.store` is `store`, which needs no node any more from then on.
    """
    items = _within_limit(run)
    names = _columns(run)

    def settle(item: ScanItem) -> Sequence[ScanItem]:
        if item.merged is None:
            return (item,)
        try:
            _hold(run, item, names)
        except OwnerGone:
            return _sources(run, item, item.merged)
        store.complete(item.merged)
        return (item,)

    merged = sum(item.merged is not None for item in items)
    if merged > 1 and run.workers > 1:
        with Pool(min(_AT_ONCE, merged), "mergelake-hold") as pool:
            settled = [each for group in pool.map(settle, items) for each in group]
    else:
        settled = [each for item in items for each in settle(item)]
    return tuple(settled)


def _columns(run: ReadRun) -> tuple[str, ...]:
    """The columns that the read looks at."""
    plan = run.plan
    if plan.request.final or (plan.request.ordered and plan.schema.order_by):
        return columns_of_layers(run)
    return tuple(dict.fromkeys([*(name for step in plan_steps(plan) for name in step.columns), *plan.columns]))


def _within_limit(run: ReadRun) -> tuple[ScanItem, ...]:
    """The items, without marks that the limit keeps the read from reaching."""
    plan = run.plan
    request = plan.request
    if request.limit is None or request.final or request.ordered or plan_steps(plan):
        return plan.items
    items: list[ScanItem] = []
    left = request.limit
    for item in plan.items:
        if left <= 0:
            break
        if item.merged is None or item.lacks or item.manifest.masked:
            items.append(item)
            left -= 0 if item.lacks or item.manifest.masked else item.rows_estimate
            continue
        try:
            sizes = run.source(item).row_starts
        except OwnerGone:
            items.append(item)  # its sources have these rows, or more
            left -= item.rows_estimate
            continue
        kept: list[MarkRange] = []
        for begin, end in item.ranges:
            enough = int(np.searchsorted(sizes, sizes[begin] + left))  # the first mark behind so many rows
            stop = min(end, max(enough, begin + 1))
            if left > 0:
                kept.append((begin, stop))
                left -= int(sizes[stop] - sizes[begin])
        items.append(replace(item, ranges=tuple(kept)))
    return tuple(items)


def _hold(run: ReadRun, item: ScanItem, names: Sequence[str]) -> None:
    """Fetch all that reading the item will need. Raises OwnerGone."""
    source = run.source(item)
    reader, files = source.reader, source.reader.files
    key = scan_keys(run.plan.schema).primary.types
    if item.manifest.bytes_on_disk <= SMALL_BYTES:
        whole = item.manifest.files.in_one_object()
        if whole is not None:  # as `parts.read.joined` reads it
            run.store.get_range(object_key(run.directory, whole[0]), whole[0].offset, whole[0].length)
        ranges = [FileRange(name, 0, file.size) for name, file in files.items()]
    else:
        stored = source.stored_columns(names)
        open_parts([reader], stored, key=key)
        reader.warm(stored)
        needed = small_files_of(reader, [*stored, ROW_EXISTS] if reader.masked else stored)
        ranges = [*source.needs(stored, item.ranges), *(FileRange(name, 0, files[name].size) for name in needed)]
    fetch(run.store, run.directory, files, merge_ranges(ranges))


def _sources(run: ReadRun, item: ScanItem, merged: MergedPart) -> tuple[ScanItem, ...]:
    """The sources of a volatile part, pruned as the plan was."""
    plan = run.plan
    snapshot = Snapshot(
        plan.version,
        0,
        plan.schema,
        Partitions.of({item.info.partition_id: merged.sources}),
        mutations=merged.mutations,
    )
    request = replace(plan.pruned_by or plan.request, columns=plan.columns)
    return plan_scan(run.store, run.directory, snapshot, request, run.caches, count_steps=False).items
