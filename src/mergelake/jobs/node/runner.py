"""A node: a long-running process (or thread) that keeps tables merged.

In each tick it refreshes its tables, plans by `plan.tick`, does short work at once and passes long work to a few
threads; the work itself is in `worker`. Every commit's precondition is checked at its position in the log. So nodes
need not know of each other, and one that dies leaves only unreferenced objects, and volatile parts that another one
adopts. Failed work is retried after a back-off, and does not affect other work.

To add a node, start another one on the same URL. To stop one, set the event: it starts nothing new, uploads the parts
on its disk and finishes the running work (after a given time it gives up the rest: the sources still exist), and
leaves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import TableSchema
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.node.actions import Action, Build, Merge, Mutate, NodeView, TableView, Upload
from mergelake.jobs.node.candidates import Memory
from mergelake.jobs.node.disk import LocalDisk, sweep
from mergelake.jobs.node.listening import Listening
from mergelake.jobs.node.memory import release_memory
from mergelake.jobs.node.plan import tick
from mergelake.jobs.node.report import STATUS_SERVICE, NodeReport, Requests, encode_report, table_report
from mergelake.jobs.node.status import NodeStatus, event_of, resident_bytes
from mergelake.jobs.node.throttle import Throttle
from mergelake.jobs.node.worker import BuildRunner, JoinedRunner, MergeRunner, MutationRunner, TableWorker
from mergelake.store.interface.protocol import Store
from mergelake.table.handle.handle import TableHandle

_logger = logging.getLogger("mergelake.node")
_SLICE_S = 0.05
"""Seconds after which a sleeping node checks whether it is woken or stopped."""
ROLES = ("merge", "mutate", "upload", "gc")
TOGETHER_MAX = 64
"""Merges of small parts of a table that are executed together."""
DOWN_FIRST_S, DOWN_MAX_S = 0.1, 30.0
"""Pauses between two attempts to reach a store that does not answer."""
IDLE_S = 5.0
"""Seconds for which an empty plan is valid, if its input does not change."""
SILENT_S = 60.0
"""Seconds without a tick after which a node counts as stuck."""
GC_PERIOD_S = 3600.0
"""Seconds between two rounds of collection of a node."""
CACHE_BYTES = 4 << 30
"""Bytes of published parts that stay on the disk, to be read from there when they are merged again."""


class Node:
    """The background loop over a set of tables."""

    def __init__(
        self,
        name: str,
        tables: Callable[[], Mapping[str, TableHandle]],
        run_merge: MergeRunner,
        *,
        clock: Clock,
        slots: MergeSlots | None = None,
        poll_s: float = 1.0,
        roles: tuple[str, ...] = ROLES,
        disk: Store | None = None,
        build: BuildRunner | None = None,
        disk_free: Callable[[], int | None] = lambda: None,
        collect: Callable[[], int] | None = None,
        listening: Listening | None = None,
        run_mutations: MutationRunner | None = None,
        check_merges: Callable[[TableSchema], None] = lambda schema: None,
        upload_rate: Throttle | None = None,
        disk_bytes_max: int | None = None,
        run_joined: JoinedRunner | None = None,
    ) -> None:
        """`tables` returns the handles of the tables to merge, by name; it is called in each tick.

        `slots` limits how many merges run at once (default: 2, the last of them small), `poll_s` is the pause between
        two ticks of an idle node. `disk` is for volatile parts, and belongs to this node alone; `build` builds their
        bytes, and `disk_free` returns its free bytes. `collect` runs a round of collection, and returns how many
        objects it deleted. `listening` takes commits of others, until the node has left. `run_mutations` rewrites parts
        for mutations. `check_merges` raises an error if parts of such a table cannot be merged in this process: they
        are left to other nodes. `upload_rate` bounds the bytes a second of uploads, `disk_bytes_max` what it keeps on
        its disk.
        """
        self.name = name
        self.status = NodeStatus()
        self.abandon = threading.Event()
        """Set when the node does not wait any longer: running merges then end with an error."""
        self._tables = tables
        self._run_merge = run_merge
        self._run_mutations = run_mutations
        self._check_merges = check_merges
        self._build = build
        self._clock = clock
        self._slots = slots or MergeSlots(total=2, lower_at_free=1, whole_partition_at_free=1)
        self._poll_s = poll_s
        self._roles = roles
        self._disk = disk
        self._disk_free, self._disk_bytes_max = disk_free, disk_bytes_max
        self._upload_rate, self._run_joined = upload_rate, run_joined
        self._swept = disk is None
        self._idle: tuple[bool, list[TableView]] = (False, [])
        self._idle_until_s = 0.0
        self._memories: dict[str, Memory] = {}
        self._planning = threading.Lock()
        """Guards the memories, as any thread may call `idle`."""
        self._down_s = 0.0
        self._started_ms, self._ticked_s, self._draining = clock.now_ms(), clock.monotonic_s(), False
        self._collect = collect if "gc" in roles else None
        self._collect_at_s = clock.monotonic_s() + GC_PERIOD_S
        self._listening = listening
        self._workers: dict[str, TableWorker] = {}
        self._woken = threading.Event()
        if listening is not None:
            listening.serve(STATUS_SERVICE, lambda payload: encode_report(self.report()))
        self._pool = ThreadPoolExecutor(2 * self._slots.total, thread_name_prefix=f"merge-{name}")

    @property
    def address(self) -> str:
        """`HOST:PORT` where it takes commits of others; empty: nowhere."""
        return self._listening.address if self._listening else ""

    @property
    def retained_bytes(self) -> int:
        """Bytes of the retired parts of its tables that older versions and tags still show."""
        return sum(worker.handle.log.state.retired.bytes_on_disk for worker in self._workers.values())

    def report(self) -> NodeReport:
        """What it is at, as of now; any thread may call it, and it makes no request."""
        states = [(worker, worker.handle.log.state) for worker in [*self._workers.values()]]
        workers = [worker for worker, state in states if not state.dropped]
        work = [worker.work() for worker in workers]
        counters = [worker.handle.store.counters for worker in workers[:1]]  # all tables are in one store
        held = self._disk_held(workers)
        free = self._free(held) if self._disk is not None else None
        return NodeReport(
            node=self.name,
            now_ms=self._clock.now_ms(),
            started_ms=self._started_ms,
            roles=list(self._roles),
            slots=self._slots.total,
            healthy=not self._down_s and self._clock.monotonic_s() - self._ticked_s <= max(SILENT_S, 10 * self._poll_s),
            draining=self._draining,
            disk=self._disk is not None,
            disk_free_bytes=free,
            disk_parts_bytes=held,
            memory_bytes=resident_bytes(),
            counters=self.status.counters(),
            last_error=self.status.last_error,
            requests=Requests(**{name: getattr(c, name) for c in counters for name in Requests.__struct_fields__}),
            running=[each for running, _, _ in work for each in running],
            volatile=[each for _, volatile, _ in work for each in volatile],
            back_offs=[each for _, _, back_offs in work for each in back_offs],
            tables=[table_report(worker.name, state) for worker, state in states if not state.dropped],
        )

    def watch(self, handle: TableHandle, task: MergeTask) -> Callable[[int], None]:
        """A function that is told how many rows of a running merge are done."""
        worker = self._workers.get(handle.directory)
        return worker.watch(task) if worker is not None else lambda rows: None

    def _disk_held(self, workers: Iterable[TableWorker]) -> int:
        return sum(worker.disk_bytes for worker in workers) if self._disk is not None else 0

    def _free(self, held: int) -> int | None:
        """Free bytes of the disk, for this node, which holds so many."""
        free = self._disk_free()
        if self._disk_bytes_max is None:
            return free
        left = max(0, self._disk_bytes_max - held)
        return left if free is None else min(free, left)

    def run(self, stop: threading.Event, grace_s: float | None = None) -> None:
        """Run ticks until `stop` is set; then `drain(grace_s)`."""
        try:
            released = 0
            while not stop.is_set():
                started = self.step()
                if not started and released != self.status.merges_done and not self._busy():
                    released = self.status.merges_done
                    release_memory()
                self._pause(stop, self._down_s or (0.02 if started else self._poll_s))
        finally:
            self.drain(grace_s)

    def _pause(self, stop: threading.Event, left_s: float) -> None:
        """Sleep, at most until a log notifies of a new entry."""
        self._woken.clear()
        for worker in self._workers.values():
            worker.handle.log.when_changed(self._woken.set)
        while left_s > 0 and not stop.wait(min(left_s, _SLICE_S)) and not self._woken.is_set():
            left_s -= _SLICE_S

    def step(self) -> int:
        """One tick; returns how many actions it took."""
        return self._step(draining=False)

    def idle(self) -> bool:
        """Whether no work runs, and none would be started on the states known here."""
        if self._busy():
            return False
        return not self._due(self._workers.values(), draining=False)

    def drain(self, grace_s: float | None = None) -> None:
        """Start no new merge, publish the parts on the disk, and wait for running work, at most `grace_s` seconds."""
        self._draining = True
        end_s = None if grace_s is None else self._clock.monotonic_s() + grace_s
        while self._step(draining=True) or self._unfinished():
            if end_s is not None and self._clock.monotonic_s() >= end_s:
                break
            self.abandon.wait(0.02)
        self.abandon.set()
        self._pool.shutdown(wait=True)
        for worker in self._workers.values():
            try:
                worker.leave()
            except MergelakeError as failure:
                _logger.warning("left without saying so, the lease will run out: %s", failure)
        if self._listening is not None:
            self._listening.close()

    def _busy(self) -> bool:
        return any(worker.busy for worker in self._workers.values())

    def _unfinished(self) -> bool:
        """Whether to wait for work. Volatile parts of a table in a pause are left to other nodes."""
        return any(worker.busy or (worker.owns() and not worker.waits) for worker in self._workers.values())

    def _step(self, *, draining: bool) -> int:
        self.status.add(ticks=1)
        self._ticked_s = self._clock.monotonic_s()
        try:
            tables = self._tables()
            self._forget_others({handle.directory for handle in tables.values()})
        except MergelakeError as failure:  # a store that is silent for a while must not end the node
            self._is_down(failure)
            return 0
        self._is_up()
        known: list[TableWorker] = []
        for name, handle in tables.items():
            try:
                worker = self._worker(handle)
                worker.name = name
            except Exception as failure:  # noqa: BLE001  one bad table must not end the node
                self._cannot("the node's disk cannot be read", failure)
                continue
            if worker.waits and worker.unreadable:
                continue
            try:
                worker.handle.refresh()
                worker.view()
            except Exception as failure:  # noqa: BLE001
                worker.unreadable = True
                worker.record_failure(failure)
            else:
                worker.unreadable = False
                known.append(worker)
        if self._collect is not None and self._clock.monotonic_s() >= self._collect_at_s and not draining:
            self._collect_at_s = self._clock.monotonic_s() + GC_PERIOD_S
            self._pool.submit(self._collect_round, self._collect)
        actions = self._due(known, draining=draining)
        joined: dict[str, list[Merge]] = {}
        for action in actions:
            worker = self._workers[action.table_id]
            if isinstance(action, Merge) and action.joins:
                worker.start(action)
                joined.setdefault(action.table_id, []).append(action)
            elif isinstance(action, (Merge, Mutate, Build, Upload)):
                worker.start(action)
                self._pool.submit(worker.finish, action)
            else:
                worker.perform(action)
        for table_id, merges in joined.items():
            self._pool.submit(self._workers[table_id].finish_together, merges)
        return len(actions)

    def _due(self, workers: Iterable[TableWorker], *, draining: bool) -> list[Action]:
        node = NodeView(
            self.name,
            self._clock.now_ms(),
            self._slots,
            disk=self._disk is not None,
            disk_free_bytes=self._free(self._disk_held(self._workers.values())),
            cache_bytes=CACHE_BYTES,
            merges="merge" in self._roles,
            uploads="upload" in self._roles,
            together=TOGETHER_MAX if self._run_joined is not None else 1,
            mutates="mutate" in self._roles and self._run_mutations is not None,
            draining=draining,
        )
        views = [view for view in (worker.view() for worker in workers) if not view.state.dropped]
        # Planning reads all files on the disk: if only the clock has changed, the last empty plan is reused.
        now_s = self._clock.monotonic_s()
        if (node.draining, views) == self._idle and now_s < self._idle_until_s:
            return []
        with self._planning:
            actions = tick(node, views, self._memories)
        if not actions:
            self._idle, self._idle_until_s = (node.draining, views), now_s + IDLE_S
        return actions

    def _worker(self, handle: TableHandle) -> TableWorker:
        if handle.directory not in self._workers:
            self._workers[handle.directory] = TableWorker(
                self.name,
                handle,
                self._run_merge,
                status=self.status,
                disk=LocalDisk(self._disk, handle.directory) if self._disk is not None else None,
                build=self._build,
                abandon=self.abandon.is_set,
                listening=self._listening,
                run_mutations=self._run_mutations,
                merges_on_disk={"merge", "upload"} <= set(self._roles),
                check_merges=self._check_merges,
                upload_rate=self._upload_rate,
                run_joined=self._run_joined,
            )
        return self._workers[handle.directory]

    def _collect_round(self, collect: Callable[[], int]) -> None:
        try:
            self.status.add(objects_collected=collect())
        except Exception as failure:  # noqa: BLE001  the next round tries again
            self._cannot("collection failed", failure)

    def _is_down(self, failure: MergelakeError) -> None:
        """Note that the store does not answer: log it once, and retry after longer and longer pauses."""
        if not self._down_s:
            self._cannot("the tables cannot be looked up now, and the node waits", failure, "store_down")
        self._down_s = min(max(2 * self._down_s, self._poll_s, DOWN_FIRST_S), DOWN_MAX_S)

    def _is_up(self) -> None:
        if self._down_s:
            _logger.warning("the tables can be looked up again: the node goes on", extra=event_of("store_up"))
        self._down_s = 0.0

    def _cannot(self, problem: str, failure: Exception, event: str = "failure") -> None:
        self.status.last_error = str(failure)
        code = getattr(failure, "name", type(failure).__name__)
        _logger.warning("%s: %s", problem, failure, extra=event_of(event, error=code))

    def _forget_others(self, tables: set[str]) -> None:
        """Clear the tables that are gone, now or since the disk was last used."""
        if self._disk is not None and not self._swept:
            sweep(self._disk, tables)
            self._swept = True
        for table_id in [*self._workers.keys() - tables]:
            if not self._workers[table_id].busy:
                self._workers.pop(table_id).clear()
