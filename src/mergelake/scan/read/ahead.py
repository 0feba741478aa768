"""Reading the items of a plan from a far store: bytes are requested long before they are decoded.

1. Parts are opened in groups (`parts.read.ahead`), the next group while the data of the previous one is read.
2. Their items are cut into *jobs* whose size depends on the columns read. Marks tell which bytes a job needs first.
3. Several jobs run at a time, up to a number of requests and bytes (`parts.read.flight.Limits`). A job fetches in one
   round, then decodes and filters in one of `workers` slots; while it waits for a later round it lends its slot to
   another.
4. With conditions, the columns of the first condition are fetched first, the others only for granules with surviving
   rows, in one round for all pieces of a job. Further columns are fetched in the same round where they are so few
   bytes that another round trip would take longer.

A read with a limit begins with few jobs and doubles their number as long as rows are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.parts.read.ahead import SMALL_BYTES, open_parts
from mergelake.parts.read.flight import CoreSlots, Limits
from mergelake.scan.prune.predicate import all_types
from mergelake.scan.prune.prune import MarkRange
from mergelake.scan.read.filter import TOGETHER_BYTES, RowSelection, fetch_ahead
from mergelake.scan.read.pieces import batch_schema, cut_pieces
from mergelake.scan.read.plan import ScanItem, ScanPlan, column_bytes
from mergelake.scan.read.prewhere import FilterStep
from mergelake.scan.read.run import ReadRun
from mergelake.scan.read.source import PartSource
from mergelake.scan.read.steps import plan_steps
from mergelake.scan.read.together import begin_rows, can_join
from mergelake.store.metering.meter import Pool

COLUMN_BYTES = 4 << 20
"""Approximate decoded bytes of a column in one job: a request is for a column of a job."""
JOB_BYTES = (8 << 20, 32 << 20)
"""Minimum and maximum of the decoded bytes of a job; smaller parts share one."""
OPEN_PARTS = 512
"""Maximum number of parts that are opened at once."""
FIRST_PARTS = 4
"""Parts that are opened first where a limit may end the read."""
SMALL_PARTS_BYTES = 64 << 20
"""Bytes of parts that are fetched whole, opened at once."""


@dataclass(frozen=True, slots=True)
class Job:
    """Ranges of some parts that are read together."""

    pieces: tuple[tuple[ScanItem, PartSource, tuple[MarkRange, ...]], ...]
    bytes: int
    """Approximate memory that it holds until its batches are consumed."""


class _Ahead:
    """State of one read."""

    def __init__(self, run: ReadRun) -> None:
        plan = run.plan
        self._shared, self._plan = run, plan
        self._steps: tuple[FilterStep, ...] = plan_steps(plan)
        self._schema, self._types = batch_schema(plan), all_types(plan.schema)
        self._slots = CoreSlots(run.workers)
        self._joins = can_join(plan)
        self._ended = False
        early = [name for step in self._steps for name in step.columns]
        self._names = tuple(dict.fromkeys([*early, *plan.columns]))
        self._job_bytes = min(max(COLUMN_BYTES * len(self._names), JOB_BYTES[0]), JOB_BYTES[1])
        self.limits = Limits.of(run.store)

    @property
    def first_jobs(self) -> int:
        """Number of jobs to begin with under a limit: without conditions one job has enough rows."""
        return 2 if self._steps else 1

    def open(self, items: Sequence[ScanItem]) -> list[Job]:
        """Open the parts of `items` together and cut the items into jobs."""
        sources = [self._shared.source(item) for item in items]
        readers = [source.reader for source in sources]
        named = dict.fromkeys(name for source in sources for name in source.stored_columns(self._names))
        open_parts(readers, list(named))
        jobs: list[Job] = []
        pending: list[tuple[ScanItem, PartSource, tuple[MarkRange, ...]]] = []
        held = 0
        for item, source in zip(items, sources, strict=True):
            granule = self._granule_bytes(source)
            for piece in cut_pieces(item, self._granules(item, granule)):
                size = granule * sum(end - begin for begin, end in piece.ranges)
                if pending and (held + size > self._job_bytes or self._plan.request.limit is not None):
                    jobs.append(Job(tuple(pending), held))
                    pending, held = [], 0
                pending.append((item, source, piece.ranges))
                held += size
        if pending:
            jobs.append(Job(tuple(pending), held))
        return jobs

    def end(self) -> None:
        """Stop: running jobs return without decoding more."""
        self._ended = True

    def run(self, job: Job) -> list[pa.RecordBatch]:
        """The rows of a job that pass."""
        self._shared.check()
        for item, _, ranges in job.pieces:
            self._shared.stats.add(parts=int(ranges[0][0] == item.ranges[0][0]))
        if self._joins:
            with suppress(CorruptDataError, NotFoundError):  # reading the parts one by one raises it with its place
                return self._read(begin_rows(self._shared, job.pieces))
        return self._read([RowSelection(source, ranges, self._shared.stats) for _, source, ranges in job.pieces])

    def _read(self, rows: list[RowSelection]) -> list[pa.RecordBatch]:
        self._fetch(rows, self._names_from(0, rows))
        self._shared.check()
        with self._slots.computing():
            for number, step in enumerate(self._steps):
                self._fetch(rows, self._names_from(number, rows))
                for each in rows:
                    if self._ended:
                        return []
                    each.filter(step, self._types)
                rows = [each for each in rows if each.count]
            self._fetch(rows, self._plan.columns)
            return [] if self._ended else [e.batch(self._plan.columns, self._schema) for e in rows if e.count]

    def _fetch(self, rows: Sequence[RowSelection], names: Sequence[str]) -> None:
        """Fetch the bytes of columns of all pieces in one round."""
        fetch_ahead([each for each in rows if not each.source.reader.complete], names)

    def _names_from(self, number: int, rows: Sequence[RowSelection]) -> Sequence[str]:
        """The columns to fetch before step `number`: its own, and those of the following steps while they are small."""
        names: list[str] = []
        first = size = 0
        for columns in (*(step.columns for step in self._steps[number:]), self._names):
            new = [name for name in columns if name not in names]
            size += sum(part.end - part.start for each in rows for part in each.needs(new))
            if not names:
                first = size
            elif size - first > max(TOGETHER_BYTES, first // 4):
                break
            names += new
        return names

    def _granules(self, item: ScanItem, granule_bytes: int) -> int:
        """Number of granules of an item to read at a time."""
        granules = max(1, self._job_bytes // granule_bytes)
        limit, manifest = self._plan.request.limit, item.manifest
        if limit is None or self._steps:
            return granules
        return max(1, min(granules, 1 + limit * manifest.marks // max(1, manifest.rows)))

    def _granule_bytes(self, source: PartSource) -> int:
        """Estimated bytes of a granule of the columns: compressed and decoded together."""
        manifest = source.reader.manifest
        sizes = column_bytes(source.reader, self._plan.schema)
        every, wanted = sum(sizes.values()), sum(sizes.get(name, 0) for name in self._names)
        share = wanted / every if every and manifest.part_type != "Compact" else 1.0
        plain = int(share * manifest.bytes_uncompressed) + wanted
        return max(1, plain // max(1, manifest.marks))


def read_ahead(run: ReadRun, *, ordered: bool) -> Iterator[pa.RecordBatch]:
    """The rows that pass; in the order of the plan's items if `ordered`."""
    read, plan = _Ahead(run), run.plan
    groups = _groups(plan)
    queue = deque(read.open(next(groups, [])))
    following = next(groups, None)
    if following is None and len(queue) == 1:
        yield from read.run(queue[0])
        return
    jobs_max = read.limits.requests if plan.request.limit is None else read.first_jobs
    waiting: dict[Future[list[pa.RecordBatch]], int] = {}
    opening: Future[list[Job]] | None = None
    with Pool(read.limits.requests, "mergelake-scan") as pool:
        try:
            while queue or waiting or opening is not None or following is not None:
                while queue and len(waiting) < jobs_max:
                    if waiting and sum(waiting.values()) + queue[0].bytes > read.limits.bytes:
                        break
                    job = queue.popleft()
                    waiting[pool.submit(read.run, job)] = job.bytes
                due = plan.request.limit is None or not waiting
                if following is not None and due and not queue and opening is None:
                    opening = pool.submit(read.open, following)
                    following = next(groups, None)
                coming = [opening] if opening is not None and not queue else []
                ready = wait([*waiting, *coming], return_when=FIRST_COMPLETED).done
                if opening is not None and opening in ready:
                    queue.extend(opening.result())
                    opening = None
                    continue
                done = next(future for future in waiting if ordered or future in ready)
                batches = done.result()
                del waiting[done]
                jobs_max = min(2 * jobs_max, read.limits.requests)
                yield from batches
        finally:
            read.end()
            pool.shutdown(wait=True, cancel_futures=True)


def _groups(plan: ScanPlan) -> Iterator[Sequence[ScanItem]]:
    """Items whose parts are opened together: groups of growing size under a limit, as large as allowed otherwise."""
    limit = plan.request.limit
    parts_max = OPEN_PARTS if limit is None else FIRST_PARTS
    group: list[ScanItem] = []
    small = 0
    for item in plan.items:
        if group and (len(group) == parts_max or small > SMALL_PARTS_BYTES):
            yield group
            group, small = [], 0
            parts_max = min(2 * parts_max, OPEN_PARTS)
        group.append(item)
        if item.manifest.bytes_on_disk <= SMALL_BYTES:
            small += item.manifest.bytes_on_disk
    if group:
        yield group
