"""States with volatile parts, made by operations that the log would take; what a node sees of them."""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.core.model.manifest import PartManifest
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.merge.volatile import LocalPart
from mergelake.jobs.node.actions import Action, NodeView, TableView
from mergelake.jobs.node.plan import tick
from mergelake.log.model.conflict import Reject, step
from mergelake.log.model.operations import (
    AddParts,
    AddVolatile,
    CreateTable,
    Entry,
    LogOp,
    MergeRecipe,
    Publish,
    RenewLease,
)
from mergelake.log.model.state import State, VolatilePart
from mergelake.log.model.volatile import element_id, leaves, top_level
from tests.helpers.manifests import manifest, schema_with

MIB = 1 << 20
START_MS = 1_700_000_000_000


class Shared:
    """The state that all nodes share, and its clock."""

    def __init__(self, schema=None, **settings: object) -> None:
        self.now_ms = START_MS
        self.state = State()
        self.count = 0
        self.commit(CreateTable(schema or schema_with(merge_upload_policy="volatile", **settings)))

    def commit(self, *ops: LogOp) -> State:
        entry = Entry(self.state.version + 1, "", self.now_ms, "", ops)
        after = step(self.state, entry)
        assert not isinstance(after, Reject), after
        self.state = after
        return after

    def new_id(self) -> str:
        self.count += 1
        return f"{self.count:032x}"

    def insert(self, count: int = 1, size: int = MIB, partition: str = "all") -> None:
        """So many parts."""
        parts = [manifest(self.new_id(), partition, bytes_on_disk=size) for _ in range(count)]
        self.commit(AddParts(tuple(parts)))

    def elements(self, partition: str = "all"):
        """What stands at the top level of a partition."""
        return top_level(self.state.partitions[partition], self.state.volatile.get(partition, ()))

    def intend(self, first: int, end: int, owner: str = "me", partition: str = "all") -> VolatilePart:
        """A volatile part over the top-level elements `first` to `end`, which is not included."""
        sources = tuple(element_id(element) for element in self.elements(partition)[first:end])
        volatile_id = self.new_id()
        self.commit(AddVolatile(volatile_id, partition, sources, MergeRecipe(1, self.now_ms), owner))
        part = self.state.live(volatile_id)
        assert part is not None
        return part

    def publish(self, part: VolatilePart, made: PartManifest | None = None) -> PartManifest:
        """What was built comes into the store."""
        made = made or manifest(self.new_id(), part.info.partition_id)
        inside = leaves(self.state.partitions[part.info.partition_id], part.info)
        self.commit(Publish(made, tuple(leaf.manifest.id for leaf in inside), "volatile", part.id))
        return made

    def renew(self, *nodes: str, seconds: int = 60) -> None:
        """Signs of life."""
        for node in nodes:
            self.commit(RenewLease(node, self.state.version, self.now_ms + seconds * 1000))

    def pass_s(self, seconds: float) -> None:
        """Time goes by."""
        self.now_ms += round(seconds * 1000)


def here(*parts: VolatilePart, size: int = MIB, rows: int = 10) -> dict[str, LocalPart]:
    """Volatile parts whose bytes are on the disk."""
    made = [manifest(f"{int(part.id, 16) + (1 << 64):032x}", rows=rows, bytes_on_disk=size) for part in parts]
    return {part.id: LocalPart(part.id, part.info, found) for part, found in zip(parts, made, strict=True)}


def plan(shared: Shared, node: dict[str, object] | None = None, **table: object) -> list[Action]:
    """One tick of the node `me`, which has a disk."""
    slots = MergeSlots(total=4, lower_at_free=1, whole_partition_at_free=1)
    view = NodeView(**{"name": "me", "now_ms": shared.now_ms, "slots": slots, "disk": True, **(node or {})})
    return tick(view, [TableView("t", shared.state, **table)])


def only(actions: Sequence[Action], kind: type) -> list:
    """The actions of one kind."""
    return [action for action in actions if isinstance(action, kind)]
