"""A node as it is: the real planner and the real worker, on a simulated disk.

Only the bytes are ours: merges and mutations of tiny rows, in the store or on the disk. Work that was started is
finished at any later moment, in any order, with other ticks in between.
"""

from __future__ import annotations

from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError, UnavailableError, error
from mergelake.core.model.manifest import PartManifest
from mergelake.format.codecs.hashes import file_hash
from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.node.actions import Build, Merge, Mutate, NodeView, Upload
from mergelake.jobs.node.disk import LocalDisk
from mergelake.jobs.node.plan import tick
from mergelake.jobs.node.worker import TableWorker
from mergelake.store.interface.protocol import Store
from tests.simulation.actors import Actor
from tests.simulation.bucket import Bucket, ProcessStore
from tests.simulation.tiny import Rows, collapsed, decode, mutated, places_of, write

SLOTS = 4


class Worker(TableWorker):
    """Tells the world of failures that nothing explains: a real one only counts them."""

    actor: PlannedNode

    def record_failure(self, failure: Exception, partition_id: str = "") -> None:
        actor = self.actor
        damaged = actor.process.thread.doubtful or actor.process.machine.torn
        explained = isinstance(failure, UnavailableError) or (
            isinstance(failure, MergelakeError)
            and (
                failure.name == "ABORTED"
                or (isinstance(failure, CorruptDataError) and damaged)
                or (isinstance(failure, NotFoundError) and actor.explains(failure))
            )
        )
        if not explained:
            actor.world.bucket.violation = actor.world.bucket.violation or failure
        super().record_failure(failure, partition_id)


class PlannedNode(Actor):
    """Ticks, and work."""

    attentive = 0.7
    roams = 0.4
    merges = True
    """Whether it has the role `merge`."""
    worker: Worker | None = None

    def actions(self):
        return {self.tick: 5, self.work: 8, self.leave: 0.2, self.reopen: 0.1}

    @property
    def together(self) -> int:
        """Merges that it executes together; of two nodes the second does."""
        return 3 if self.node.endswith("2") else 1

    @property
    def node(self) -> str:
        machine = self.process.machine
        return machine.alias or machine.name

    def explains(self, failure: NotFoundError) -> bool:
        """Whether an object may be missing: of a version that nobody keeps, or on a damaged disk."""
        return self.process.machine.torn > 0 or self.state.version not in self.table.kept()

    def open(self) -> None:
        super().open()
        machine = self.process.machine
        bucket = Bucket(self.world.kernel, 0.0, self.world.bucket.crash_rate / 4, page=1000)
        bucket.objects = machine.disk
        disk = LocalDisk(ProcessStore(bucket, self.process), self.directory)
        self.started: list = []
        self.memories: dict = {}
        self.worker = None
        self.worker = Worker(
            self.node,
            self.handle,
            self.merge_bytes,
            disk=disk,
            build=self.build_bytes,
            run_mutations=self.mutation_bytes,
            run_joined=self.joined_bytes if self.together > 1 else None,
            listening=self.listening(),
        )
        self.worker.actor = self

    def listening(self) -> object | None:
        """What it serves to others; nothing."""
        return None

    def tick(self) -> None:
        if self.worker is None:
            self.handle = None
            return
        now_ms, slots = self.process.clock.now_ms(), MergeSlots(total=SLOTS)
        node = NodeView(
            self.node, now_ms, slots, disk=True, cache_bytes=300, merges=self.merges, together=self.together
        )
        views = [view for view in [self.worker.view()] if not view.state.dropped]
        joined = []
        for action in tick(node, views, self.memories):
            self.worker.start(action)
            if isinstance(action, Merge) and action.joins:
                joined.append(action)
            elif isinstance(action, (Merge, Mutate, Build, Upload)):
                self.started.append(action)
            else:
                self.worker.finish(action)
            self.world.did[type(action).__name__] += 1
        self.started += [joined] if joined else []
        self.world.did["merges together"] += len(joined) > 1
        assert self.worker.status.results_different == 0, "two nodes made different rows of one volatile part"

    def work(self) -> None:
        if self.worker is not None and self.started:
            action = self.started.pop(self.random.randrange(len(self.started)))
            if isinstance(action, list):
                self.worker.finish_together(action)
            else:
                self.worker.finish(action)

    def leave(self) -> None:
        """And come back, with what is on the disk."""
        if self.worker is not None and not self.worker.busy:
            self.worker.leave()
            self.handle = None

    def rows_of(self, task: MergeTask, local: Store | None = None) -> Rows:
        """The rows of a task: of each source with the mutations that it lacks, then merged."""
        rows: list = []
        for source in task.sources:
            held: list = []
            for place in places_of(self.directory, source.manifest):
                on_disk = source.local and local is not None
                held += self.local_rows(local, place[0], source) if on_disk else self.rows_at(place)
            rows += mutated(tuple(held), source.lacks)
        return collapsed(tuple(rows), task.schema.engine)

    def local_rows(self, local: Store, key: str, source: MergeSource) -> Rows:
        """From the disk; the frames of a real part have checksums."""
        data = local.get(key)
        if any(file.hash != file_hash(data) for file in source.manifest.file_table().values()):
            raise CorruptDataError(f"{key} is damaged on the disk")
        return decode(data)

    def merge_bytes(self, handle, task):
        return self.write(task.result.partition_id, self.rows_of(task), task.base_version)

    def joined_bytes(self, handle, tasks):
        """None for a task that has to be executed alone, here each third."""
        return [self.merge_bytes(handle, task) if at % 3 != 2 else None for at, task in enumerate(tasks)]

    def mutation_bytes(self, handle, tasks):
        """None for the parts in which no row changes."""
        out: list[PartManifest | None] = []
        for task in tasks:
            before = self.read([task.sources[0].manifest])
            rows = mutated(before, task.sources[0].lacks)
            same = before == rows
            out.append(None if same else self.write(task.result.partition_id, rows, task.base_version))
        return out

    def build_bytes(self, handle, task, disk, unwanted):
        rows = self.rows_of(task, disk.store)
        if unwanted():
            raise error("ABORTED", "given up", "")
        return write(
            disk.store, self.directory, self.process.ids.new_id(), task.result.partition_id, rows, task.base_version
        )


class NodeThread(PlannedNode):
    """One of several threads of a node: the first ticks, the others work, and the table goes on while they do."""

    roams = 0.0

    def actions(self):
        ticks = self.process.machine.name == self.process.machine.group
        return {self.tick: 5, self.work: 1.1} if ticks else {self.work: 8}

    def open(self) -> None:
        self.open_for_all(super().open, "handle", "worker", "started", "memories")
