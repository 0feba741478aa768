"""Nodes without threads: each step of the real code, on stores in memory and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.manifest import PartManifest
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.node.actions import Action, NodeView
from mergelake.jobs.node.disk import LocalDisk
from mergelake.jobs.node.plan import tick
from mergelake.jobs.node.worker import TableWorker
from mergelake.parts.read.reader import PartReader
from mergelake.store.interface.protocol import Store
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.insert import commit_parts, insert_target, write_blocks

COLUMNS = {"k": "UInt64", "v": "UInt32"}


class Lake:
    """One table in a store, and what is true of it."""

    def __init__(self, engine: str = "MergeTree", store: Store | None = None, **settings: object) -> None:
        self.store = store or MemoryStore()
        self.clock = ManualClock()
        self.ids = SeededIds(1)
        given = {"merge_upload_policy": "volatile", "max_bytes_to_merge_volatile": 100_000, "merge_selector_base": 4}
        schema = define(COLUMNS, order_by="k", engine=engine, settings={**given, **settings})
        self.handle = TableHandle.create(self.store, "t", schema, clock=self.clock, ids=self.ids)
        self.rows: list[tuple[int, int]] = []

    def insert(self, count: int = 5, rows: int = 20) -> None:
        """So many small parts."""
        for _ in range(count):
            first = len(self.rows)
            new = [((n * 37) % 1000, n) for n in range(first, first + rows)]
            self.rows += new
            columns = zip(*new, strict=True)
            table = pa.table([pa.array(next(columns), pa.uint64()), pa.array(next(columns), pa.uint32())], ["k", "v"])
            schema = self.handle.schema
            written = write_blocks(insert_target(self.store, "t", schema, self.ids, self.clock), [table])
            commit_parts(self.handle, written)

    def content(self) -> list[tuple[int, int]]:
        """All rows, sorted, from the parts in the store."""
        state = self.handle.refresh()
        columns = {column.name: column for column in state.schema.stored}
        out: list[tuple[int, int]] = []
        for part in state.parts():
            for batch in PartReader(self.store, "t", part.manifest, columns).read(["k", "v"]):
                out += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return sorted(out)

    def intact(self) -> bool:
        """Whether every row is there once."""
        return self.content() == sorted(self.rows)

    @property
    def names(self) -> list[str]:
        """Active parts."""
        return [part.name for part in self.handle.refresh().parts()]

    @property
    def live(self) -> list[str]:
        """Live volatile parts."""
        return [part.name for held in self.handle.refresh().volatile.values() for part in held]

    def objects(self) -> set[str]:
        """Directories of parts in the store."""
        return {item.key.split("/")[1] for item in self.store.list("t")} - {"_log"}


class TinyNode:
    """A node that works on the lake's table, a step at a time."""

    def __init__(
        self,
        lake: Lake,
        name: str = "a",
        disk: Store | None = None,
        store: Store | None = None,
        has_disk: bool = True,
        check_merges: Callable | None = None,
        **view: object,
    ) -> None:
        self.lake, self.name = lake, name
        self.disk = disk if disk is not None else MemoryStore()
        self.store = store or lake.store
        self.options = {"disk": has_disk, **view}
        ids = SeededIds(int(lake.ids.new_id(), 16))
        self.handle = TableHandle.open(self.store, "t", clock=lake.clock, ids=ids, author=name)
        self.build: Callable = lambda handle, task, disk, unwanted: execute_merge(
            handle.store, task, ids, lake.clock, threads=1, disk=disk.store
        )
        self.worker = TableWorker(
            name,
            self.handle,
            self._merge,
            disk=LocalDisk(self.disk, "t") if has_disk else None,
            build=lambda *arguments: self.build(*arguments),
            check_merges=check_merges or (lambda schema: None),
        )
        self.stored: list[MergeTask] = []
        """Merges whose results went to the store at once."""

    def _merge(self, handle: TableHandle, task: MergeTask) -> PartManifest:
        self.stored.append(task)
        return execute_merge(handle.store, task, self.handle.ids, self.lake.clock, threads=1)

    @property
    def status(self):
        return self.worker.status

    @property
    def local(self) -> list[str]:
        """Volatile parts on the disk."""
        return sorted(str(part.info) for part in self.worker.view().local.values())

    def due(self, **view: object) -> list[Action]:
        """What it would do now."""
        self.handle.refresh()
        slots = MergeSlots(total=2, lower_at_free=1, whole_partition_at_free=1)
        node = NodeView(self.name, self.lake.clock.now_ms(), slots, **{**self.options, **view})
        return tick(node, [self.worker.view()])

    def step(self, *kinds: type, **view: object) -> list[Action]:
        """Do what is due, or only actions of these kinds."""
        actions = [action for action in self.due(**view) if not kinds or isinstance(action, kinds)]
        for action in actions:
            self.worker.perform(action)
        return actions

    def rest(self, **view: object) -> None:
        """Until nothing is due."""
        for _ in range(60):
            if not self.step(**view):
                return
            if self.worker.waits:
                self.lake.clock.advance_s(61)
        raise AssertionError(f"the node does not come to rest: {self.due(**view)}")
