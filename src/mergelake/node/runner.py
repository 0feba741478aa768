"""A node: a long-running process (or thread) that keeps tables merged.

Each tick it refreshes its tables, asks `plan.tick` what to start, and hands the work to a few threads; each
merge is executed by the given runner (in Spark, or right here) and committed by a Publish whose precondition is
checked at its position in the log. So nodes need not know of each other, and one that dies leaves nothing but
objects that nobody refers to. A merge that fails is not tried again before a back-off, and never stops the others.

To add a node, start another one on the same URL. To stop one, set the event: it starts nothing new, finishes what
runs (or, given a time for that, abandons what takes longer: the sources are still there), and leaves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from mergelake.core.clock import Clock
from mergelake.core.errors import ConflictError, MergelakeError
from mergelake.core.manifest import PartManifest
from mergelake.core.settings import TableSettings
from mergelake.merge.commit import MergeOutcome, commit_merge
from mergelake.merge.plan import MergeTask, plan_merge
from mergelake.merge.select import Slots
from mergelake.node.plan import MergeWork, TableView, tick
from mergelake.table.handle import TableHandle

_logger = logging.getLogger("mergelake.node")
BACKOFF_FIRST_S, BACKOFF_MAX_S = 1.0, 60.0

MergeRunner = Callable[[TableHandle, MergeTask], PartManifest]
"""Executes a merge somewhere and returns the manifest of the part that it wrote; commits nothing."""


@dataclass(slots=True)
class NodeStatus:
    """Counts since the node started; for people and tests."""

    ticks: int = 0
    merges_started: int = 0
    merges_done: int = 0
    merges_lost: int = 0
    """Another writer had replaced or dropped the sources, or the table, first."""
    merges_abandoned: int = 0
    """Under way when the node had to leave; due again for whoever looks next."""
    merges_failed: int = 0
    rows_merged: int = 0
    bytes_merged: int = 0
    last_error: str = ""


@dataclass(slots=True)
class _Backoff:
    wait_s: float = BACKOFF_FIRST_S
    until_s: float = 0.0


class Node:
    """The background loop over a set of tables."""

    def __init__(
        self,
        name: str,
        tables: Callable[[], Mapping[str, TableHandle]],
        run_merge: MergeRunner,
        *,
        clock: Clock,
        slots: Slots | None = None,
        poll_s: float = 1.0,
    ) -> None:
        """`tables` gives the handles of the tables to look after, by name; it is asked at each tick.

        `slots` bounds how many merges run at once (default: 2, the last of them small), `poll_s` how often the
        node looks when there is nothing to do.
        """
        self.name = name
        self.status = NodeStatus()
        self.abandon = threading.Event()
        """Set when the node waits no longer: a runner that sees it ends its merge with an error."""
        self._tables = tables
        self._run_merge = run_merge
        self._clock = clock
        self._slots = slots or Slots(total=2, lower_at_free=1, whole_partition_at_free=1)
        self._poll_s = poll_s
        self._running: dict[str, tuple[MergeWork, Future[None]]] = {}
        self._backoff: dict[str, _Backoff] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self._slots.total, thread_name_prefix=f"merge-{name}")

    def run(self, stop: threading.Event, grace_s: float | None = None) -> None:
        """Until `stop` is set: start what is due, sleep, look again; then `drain(grace_s)`."""
        try:
            while not stop.is_set():
                started = self.step()
                stop.wait(0.02 if started else self._poll_s)
        finally:
            self.drain(grace_s)

    def step(self) -> int:
        """One tick; returns how many merges it started."""
        self.status.ticks += 1
        try:
            tables = self._tables()
        except MergelakeError as failure:  # a store that is silent for a while must not end the node
            self.status.last_error = str(failure)
            _logger.warning("the tables cannot be looked up now: %s", failure)
            return 0
        handles: dict[str, TableHandle] = {}
        for handle in tables.values():
            try:
                handle.refresh()
            except MergelakeError as failure:
                self._failed(handle.directory, failure)
            else:
                handles[handle.directory] = handle
        works = self._due(handles)
        for work in works:
            self._start(handles[work.table_id], work)
        return len(works)

    def idle(self) -> bool:
        """Whether nothing runs, and nothing would be started on what is known here."""
        with self._lock:
            if self._running:
                return False
        return not self._due({handle.directory: handle for handle in self._tables().values()})

    def _due(self, handles: Mapping[str, TableHandle]) -> list[MergeWork]:
        views = []
        for table_id, handle in handles.items():
            state = handle.log.state
            if not state.dropped and not self._waits(table_id):
                settings = TableSettings(state.schema.settings)
                views.append(TableView(table_id, tuple(state.parts()), settings))
        with self._lock:
            running = {key: work.part_ids for key, (work, _) in self._running.items()}
        return tick(views, self._clock.now_ms(), running, self._slots)

    def drain(self, grace_s: float | None = None) -> None:
        """Wait for what runs, start nothing more; after `grace_s` seconds abandon it (None: never)."""
        if grace_s is not None:
            with self._lock:
                running = [future for _, future in self._running.values()]
            wait(running, timeout=grace_s)
            self.abandon.set()
        self._pool.shutdown(wait=True)

    def _start(self, handle: TableHandle, work: MergeWork) -> None:
        key = min(work.part_ids)
        self.status.merges_started += 1
        with self._lock:
            future = self._pool.submit(self._merge, key, handle, work)
            self._running[key] = (work, future)

    def _merge(self, key: str, handle: TableHandle, work: MergeWork) -> None:
        try:
            task = plan_merge(handle.directory, handle.schema, work.sources)
            merged = commit_merge(handle, task, self._run_merge(handle, task))
            self._done(handle.directory, task, merged)
        except ConflictError:
            self.status.merges_lost += 1
        except Exception as failure:  # noqa: BLE001  one bad merge must not end the node
            if handle.log.state.dropped:
                self.status.merges_lost += 1
            elif self.abandon.is_set():
                self.status.merges_abandoned += 1
            else:
                self._failed(handle.directory, failure)
        finally:
            with self._lock:
                self._running.pop(key, None)

    def _done(self, table_id: str, task: MergeTask, merged: MergeOutcome) -> None:
        with self._lock:
            self.status.merges_done += 1
            self.status.rows_merged += task.rows
            self.status.bytes_merged += task.bytes_on_disk
            self._backoff.pop(table_id, None)
        _logger.info("merged %s parts into %s", len(task.sources), merged.name)

    def _waits(self, table_id: str) -> bool:
        back = self._backoff.get(table_id)
        return back is not None and self._clock.monotonic_s() < back.until_s

    def _failed(self, table_id: str, failure: Exception) -> None:
        with self._lock:
            self.status.merges_failed += 1
            self.status.last_error = str(failure)
            back = self._backoff.setdefault(table_id, _Backoff())
            back.until_s = self._clock.monotonic_s() + back.wait_s
            back.wait_s = min(back.wait_s * 2, BACKOFF_MAX_S)
        _logger.warning("merge failed, next try in %.0f s: %s", back.wait_s / 2, failure)
