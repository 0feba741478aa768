"""Reading the items of a plan from a far store: bytes are on their way long before they are decoded.

1. Parts are opened many at a time (`parts.ahead`), the next ones while the data of these is read.
2. Their pieces, as large as suits the columns that are read, become *jobs*; what a job needs first is known from marks.
3. Jobs are under way, up to a number of requests and of bytes (`parts.flight.Limits`). Each fetches, in one round, then
   decodes and filters in one of as many slots as there are workers; a later round of its own lends the slot.
4. With conditions the columns of the first come first, and the others for the granules with survivors, in one round for
   all pieces of a job; those of the next conditions, or all, come along where they are so few bytes that a round trip
   takes longer.

A read that ends after some rows begins with few jobs, and doubles them as they bring less than was hoped for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.errors import CorruptDataError, NotFoundError
from mergelake.parts.ahead import SMALL_BYTES, open_parts
from mergelake.parts.flight import Limits, Slots
from mergelake.scan.filter import TOGETHER_BYTES, RowSelection, fetch_ahead
from mergelake.scan.pieces import batch_schema, cut_pieces
from mergelake.scan.plan import ScanItem, ScanPlan, column_bytes
from mergelake.scan.predicate import all_types
from mergelake.scan.prewhere import FilterStep
from mergelake.scan.prune import MarkRange
from mergelake.scan.run import ReadRun
from mergelake.scan.source import PartSource
from mergelake.scan.steps import plan_steps
from mergelake.scan.together import begin_rows, can_join

COLUMN_BYTES = 4 << 20
"""Decoded bytes of a column in one job, about: a request is for a column of a job."""
JOB_BYTES = (8 << 20, 32 << 20)
"""Decoded bytes of a job, at least and at most; parts that are smaller share one."""
OPEN_PARTS = 512
"""Most parts that are opened at once."""
FIRST_PARTS = 4
"""Parts that are opened first where a limit may end the read."""
SMALL_PARTS_BYTES = 64 << 20
"""Bytes of parts that are fetched whole, opened at once."""


@dataclass(frozen=True, slots=True)
class Job:
    """Ranges of some parts that are read together."""

    pieces: tuple[tuple[ScanItem, PartSource, tuple[MarkRange, ...]], ...]
    bytes: int
    """What it holds, about, until its batches are taken."""


class _Ahead:
    """One read."""

    def __init__(self, run: ReadRun) -> None:
        plan = run.plan
        self._shared, self._plan = run, plan
        self._steps: tuple[FilterStep, ...] = plan_steps(plan)
        self._schema, self._types = batch_schema(plan), all_types(plan.schema)
        self._slots = Slots(run.workers)
        self._joins = can_join(plan)
        self._ended = False
        early = [name for step in self._steps for name in step.columns]
        self._names = tuple(dict.fromkeys([*early, *plan.columns]))
        self._job_bytes = min(max(COLUMN_BYTES * len(self._names), JOB_BYTES[0]), JOB_BYTES[1])
        self.limits = Limits.of(run.store)

    @property
    def first_jobs(self) -> int:
        """Jobs that are begun at first where a limit may end the read: without conditions one has enough rows."""
        return 2 if self._steps else 1

    def open(self, items: Sequence[ScanItem]) -> list[Job]:
        """The jobs of some items, which are opened together."""
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
        """Nobody waits for more: jobs under way do not decode any more."""
        self._ended = True

    def run(self, job: Job) -> list[pa.RecordBatch]:
        """The rows of a job that pass."""
        self._shared.check()
        for item, _, ranges in job.pieces:
            self._shared.stats.add(parts=int(ranges[0][0] == item.ranges[0][0]))
        if self._joins:
            with suppress(CorruptDataError, NotFoundError):  # they are told by who reads the parts one by one
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
            return [] if self._ended else [each.batch(self._plan.columns, self._schema) for each in rows]

    def _fetch(self, rows: Sequence[RowSelection], names: Sequence[str]) -> None:
        """Get the bytes of columns of all pieces in one round."""
        fetch_ahead([each for each in rows if not each.source.reader.complete], names)

    def _names_from(self, number: int, rows: Sequence[RowSelection]) -> Sequence[str]:
        """The columns to fetch before a step judges, those of the next ones too where they are few bytes."""
        found: list[str] = []
        first = size = 0
        for columns in (*(step.columns for step in self._steps[number:]), self._names):
            new = [name for name in columns if name not in found]
            size += sum(part.end - part.start for each in rows for part in each.needs(new))
            if not found:
                first = size
            elif size - first > max(TOGETHER_BYTES, first // 4):
                break
            found += new
        return found

    def _granules(self, item: ScanItem, granule_bytes: int) -> int:
        """How many granules of an item are read at a time."""
        found = max(1, self._job_bytes // granule_bytes)
        limit, manifest = self._plan.request.limit, item.manifest
        if limit is None or self._steps:
            return found
        return max(1, min(found, 1 + limit * manifest.marks // max(1, manifest.rows)))

    def _granule_bytes(self, source: PartSource) -> int:
        """Bytes that a granule of the columns takes: as stored, and as arrays."""
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
    most = read.limits.requests if plan.request.limit is None else read.first_jobs
    waiting: dict[Future[list[pa.RecordBatch]], int] = {}
    opening: Future[list[Job]] | None = None
    with ThreadPoolExecutor(read.limits.requests, "mergelake-scan") as pool:
        try:
            while queue or waiting or opening is not None or following is not None:
                while queue and len(waiting) < most:
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
                most = min(2 * most, read.limits.requests)
                yield from batches
        finally:
            read.end()
            pool.shutdown(wait=True, cancel_futures=True)


def _groups(plan: ScanPlan) -> Iterator[Sequence[ScanItem]]:
    """Items that are opened together: as many as may be, and few at first where a limit may end the read."""
    limit = plan.request.limit
    most = OPEN_PARTS if limit is None else FIRST_PARTS
    group: list[ScanItem] = []
    small = 0
    for item in plan.items:
        if group and (len(group) == most or small > SMALL_PARTS_BYTES):
            yield group
            group, small = [], 0
            most = min(2 * most, OPEN_PARTS)
        group.append(item)
        if item.manifest.bytes_on_disk <= SMALL_BYTES:
            small += item.manifest.bytes_on_disk
    if group:
        yield group
