"""Reading the items of a plan: pieces of parts are read and filtered by a few threads in bounded memory.

Items are cut into pieces (`scan.read.pieces`). A few pieces are read at a time, so the next ones are fetched while the
caller processes the last; from a far store many more (`scan.read.ahead`). Batches are returned as pieces are finished,
or in the order of the items if `ordered`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from mergelake.core.base.cancel import CancelToken
from mergelake.core.base.errors import CorruptDataError, NotFoundError, error
from mergelake.engines.rules.states import StateFunctions
from mergelake.parts.read.cache import PartCache, of_tasks
from mergelake.parts.read.fetch import is_remote
from mergelake.scan.read.ahead import read_ahead
from mergelake.scan.read.filter import RowSelection
from mergelake.scan.read.hold import settled_items
from mergelake.scan.read.layers import read_layers
from mergelake.scan.read.pieces import Piece, all_pieces, batch_schema, read_rows
from mergelake.scan.read.plan import ScanItem, ScanPlan
from mergelake.scan.read.run import ReadRun
from mergelake.scan.read.source import PartSource
from mergelake.scan.read.stats import ScanStats
from mergelake.scan.read.steps import plan_steps
from mergelake.scan.read.together import begin_rows, grouped
from mergelake.store.interface.protocol import Store
from mergelake.store.metering.meter import Pool
from mergelake.table.volatile.volatile_store import VolatileStore, volatile_store


def read_items(
    store: Store,
    directory: str,
    plan: ScanPlan,
    items: Sequence[ScanItem] | None = None,
    *,
    caches: PartCache | None = None,
    threads: int | None = None,
    ordered: bool = False,
    stats: ScanStats | None = None,
    cancel: CancelToken | None = None,
    states: StateFunctions | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of `items` (all of the plan if None) that pass the plan's conditions, in storage form.

    Batches hold exactly `plan.columns`, in that order, and at least one row. `threads` is the number of cores
    unless given. No more rows than the request's limit are returned. FINAL and ordered reads need all items of the
    plan: rows of one key may be in any of them. Once `cancel` is set, QUERY_WAS_CANCELLED is raised after the pieces
    that are being read. `states` merges aggregate states; FINAL raises SUPPORT_IS_DISABLED where it has to and cannot.
    """
    if not plan.columns:
        raise error("EMPTY_LIST_OF_COLUMNS_PASSED", "A scan needs at least one column", "Ask for a virtual column")
    stats = stats if stats is not None else ScanStats()
    chosen = plan.items if items is None else tuple(items)
    workers = threads or os.cpu_count() or 1
    if caches is None:
        caches = of_tasks() if is_remote(store) else PartCache()
    ordered = ordered or plan.request.ordered
    store = volatile_store(store, directory, [item.merged for item in chosen if item.merged is not None])
    run = ReadRun(store, directory, plan.with_items(chosen), caches, workers, stats, cancel, states)
    if isinstance(store, VolatileStore):
        run = replace(run, plan=plan.with_items(settled_items(run, store)))
    if plan.request.final or (plan.request.ordered and plan.schema.order_by):
        batches = read_layers(run)
    elif run.is_far:
        batches = read_ahead(run, ordered=ordered)
    else:
        batches = _read_pieces(run, ordered=ordered)
    for batch in _limited(batches, plan.request.limit):
        stats.add(rows_out=batch.num_rows)
        yield batch


def _read_pieces(run: ReadRun, *, ordered: bool) -> Iterator[pa.RecordBatch]:
    plan = run.plan
    steps, schema = plan_steps(plan), batch_schema(plan)
    pieces = all_pieces(plan.items, plan.request.limit if not steps else None)
    groups = grouped(pieces, plan)
    sources: dict[str, PartSource] = {}

    def source_of(item: ScanItem) -> PartSource:
        source = sources.get(item.manifest.id)
        return source if source is not None else sources.setdefault(item.manifest.id, run.source(item))

    def read(group: Sequence[Piece]) -> list[pa.RecordBatch]:
        run.check()
        run.stats.add(parts=sum(piece.ranges[0][0] == piece.item.ranges[0][0] for piece in group))
        if len(group) > 1:
            with suppress(CorruptDataError, NotFoundError):  # reading the parts one by one raises it with its place
                opened = [(piece.item, run.source(piece.item), piece.ranges) for piece in group]
                return read_rows(begin_rows(run, opened), plan, steps, schema)
        rows = (RowSelection(source_of(piece.item), piece.ranges, run.stats) for piece in group)
        return read_rows(rows, plan, steps, schema)

    ahead = list(islice(groups, 2))
    if len(ahead) < 2 or run.workers == 1:
        for group in (*ahead, *groups):
            yield from read(group)
        return
    pool = Pool(run.workers, "mergelake-scan")
    waiting: list[Future[list[pa.RecordBatch]]] = [pool.submit(read, group) for group in ahead]
    try:
        while waiting:
            while len(waiting) <= run.workers:
                following = next(groups, None)
                if following is None:
                    break
                waiting.append(pool.submit(read, following))
            if ordered:
                done = waiting[0]
            else:
                ready = wait(waiting, return_when=FIRST_COMPLETED).done
                done = next(future for future in waiting if future in ready)
            waiting.remove(done)
            yield from done.result()
    finally:
        for future in waiting:
            future.cancel()
        pool.shutdown(wait=True, cancel_futures=True)


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    if left == 0:
        return
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return
