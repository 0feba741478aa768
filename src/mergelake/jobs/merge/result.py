"""What the ways to execute a merge have in common: properties of its result, its threads and its progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from mergelake.engines.order.keys import TableKeys
from mergelake.format.files.extremes import merge_extremes
from mergelake.format.files.partition import Partition
from mergelake.jobs.merge.plan import MergeTask
from mergelake.store.metering.meter import Pool

Progress = Callable[[int, int], None]
"""Called with (rows done, rows in all), from any thread, never decreasing."""

THREAD_BYTES = 256 << 10
"""Average bytes of a column, or of a stream, above which threads pay off."""


def result_partition(task: MergeTask) -> Partition:
    """The partition of the result."""
    first = task.sources[0].manifest
    return Partition(first.partition_id, bytes.fromhex(first.partition))


def result_minmax(task: MergeTask, keys: TableKeys) -> dict[str, tuple[bytes, bytes]]:
    """Extremes of the columns that the partition key reads, for a result with rows: those of the sources."""
    filled = [source.manifest for source in task.sources if source.manifest.rows]
    return {
        source.text: merge_extremes(
            [(bytes.fromhex(m.minmax[source.text][0]), bytes.fromhex(m.minmax[source.text][1])) for m in filled],
            source.type,
        )
        for source in keys.partition_sources
    }


def side_by_side(threads: int, calls: Iterable[Callable[[], None]]) -> None:
    """Make all calls, by so many threads; after a failure, which is raised, none begins."""
    with Pool(threads, thread_name_prefix="mergelake-merge") as pool:
        work = [pool.submit(call) for call in calls]
        try:
            for done in work:
                done.result()
        except BaseException:
            for waiting in work:
                waiting.cancel()
            raise


class Meter:
    """Reports progress: converts the bytes read to rows."""

    def __init__(self, on_progress: Progress | None, rows: int, units: float) -> None:
        self._on_progress = on_progress
        self._rows = rows
        self._units = max(units, 1.0)
        self._done = 0.0
        self._lock = threading.Lock()

    def add(self, units: float) -> None:
        """Note `units` bytes more."""
        if self._on_progress is None:
            return
        with self._lock:
            self._done += units
            self._on_progress(min(self._rows, int(self._rows * self._done / self._units)), self._rows)
