"""The input and output of a tick: values that `plan` and `worker` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mergelake.core.model.names import PartInfo
from mergelake.core.model.settings import TableSettings
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.merge.volatile import LocalPart
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State


@dataclass(frozen=True, slots=True)
class NodeView:
    """The input of a tick about the node."""

    name: str
    now_ms: int
    slots: MergeSlots
    """Slots for merges; the same number of uploads may run beside them."""
    disk: bool = False
    """Whether it has a disk for volatile parts."""
    disk_free_bytes: int | None = None
    cache_bytes: int = 0
    """Bytes of published parts of all tables that may stay on the disk as a cache."""
    merges: bool = True
    """Whether it has the role `merge`."""
    uploads: bool = True
    """Whether it has the role `upload`."""
    mutates: bool = True
    """Whether it has the role `mutate`."""
    together: int = 1
    """Merges of small parts to the store that may share a slot."""
    draining: bool = False
    """Whether it leaves: it starts no new merge, and publishes or gives up its volatile parts."""

    @property
    def keeps_volatile(self) -> bool:
        """Whether it may keep volatile parts on its disk: it has one, and the role to upload them."""
        return self.disk and self.uploads


@dataclass(frozen=True, slots=True)
class TableView:
    """The input of a tick about one table.

    Retired parts are not needed: a merge covers those that it retires, and a drop removes a partition's first blocks,
    so none ever lies between two active ones (`select.part_ranges`).
    """

    table_id: str
    state: State
    local: Mapping[str, LocalPart] = field(default_factory=dict)
    """Parts on the node's disk, by id of the volatile part."""
    merging: Mapping[frozenset[str], str] = field(default_factory=dict)
    """Running merges and mutations to the store: ids of the sources -> their partition."""
    building: frozenset[str] = frozenset()
    """Volatile parts that are being built."""
    uploading: frozenset[str] = frozenset()
    uploaded: frozenset[str] = frozenset()
    """Volatile parts whose bytes are in the store, without a known commit of their Publish."""
    failed: frozenset[str] = frozenset()
    """Volatile parts that cannot be built here."""
    avoided: Sequence[PartInfo] = ()
    """Blocks in which a merge failed permanently not long ago."""
    silent: frozenset[str] = frozenset()
    """Nodes without a sign of life for the duration of a lease."""
    waits: bool = False
    """Whether the table is in a pause after failed work."""
    listens: tuple[str, str] | None = None
    """Address and token to announce to other processes, so that the node takes their commits; None: nothing."""
    mutating: frozenset[frozenset[str]] = frozenset()
    """Those of the running merges that are mutations: ids of their parts."""
    merges: bool = True
    """Whether its parts can be merged in this process: its engine may need ClickHouse to merge aggregate states."""

    joins: bool = False
    """Whether its merges of small parts can be executed together."""
    expiring: frozenset[frozenset[str]] = frozenset()
    """Those of the running merges that its TTL asked for: ids of their parts."""

    @property
    def settings(self) -> TableSettings:
        """The table's settings."""
        return TableSettings(self.state.schema.settings)


@dataclass(frozen=True, slots=True)
class _OfParts:
    """Work on active parts of one partition, whose result goes to the store."""

    table_id: str
    sources: tuple[ActivePart, ...]

    @property
    def part_ids(self) -> frozenset[str]:
        """Ids of the parts: busy while the work runs."""
        return frozenset(part.manifest.id for part in self.sources)

    @property
    def partition_id(self) -> str:
        """The partition of the parts."""
        return self.sources[0].info.partition_id


@dataclass(frozen=True, slots=True)
class Merge(_OfParts):
    """Merge these neighbours straight to the store."""

    joins: bool = False
    """Whether it may be executed together with others."""
    kind: str = "regular"
    """As of `MergeTask`."""
    past_target: bool = False
    """As in `Propose`."""


@dataclass(frozen=True, slots=True)
class Mutate(_OfParts):
    """Rewrite these parts, each alone, for the mutations that they lack."""


@dataclass(frozen=True, slots=True)
class Propose:
    """Commit the intention to merge these elements."""

    table_id: str
    partition_id: str
    source_ids: tuple[str, ...]
    past_target: bool = False
    """Whether it passes `write_amplification_target`, because a partition has too many parts."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take over a volatile part whose owner is silent."""

    table_id: str
    id: str
    previous: str


@dataclass(frozen=True, slots=True)
class Build:
    """Build the bytes of an own volatile part, on the disk or in the store."""

    table_id: str
    id: str
    past_disk: bool = False
    """Whether it belongs on the disk, which has no room for it, and is written straight to the store."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Copy the bytes of a volatile part to the store."""

    table_id: str
    id: str
    past_target: bool = False
    """As in `Propose`."""


@dataclass(frozen=True, slots=True)
class PublishVolatile:
    """Commit the uploaded bytes in place of the parts that they replace."""

    table_id: str
    id: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """Give volatile parts up."""

    table_id: str
    ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the node's lease."""

    table_id: str


@dataclass(frozen=True, slots=True)
class DropExpired:
    """Drop the parts of which no row stays by the TTL."""

    table_id: str
    partitions: tuple[str, ...]
    """Those with such parts."""
    busy: frozenset[str]
    """Ids of parts in use here."""


@dataclass(frozen=True, slots=True)
class EndMutations:
    """Commit that mutations are finished which no part lacks: the last that did were dropped, or there are none."""

    table_id: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete bytes from the node's disk."""

    table_id: str
    ids: tuple[str, ...]
    different: tuple[tuple[str, int], ...] = ()
    """Those of `ids` whose rows differ from those of the part that has their name, with the version that brought it.

    If another node published them, the merge was not reproducible. OPTIMIZE may have made other rows in their place.
    """


LongWork: TypeAlias = Merge | Mutate | Build | Upload
"""Work that takes time, one slot each."""
ShortWork: TypeAlias = Propose | Adopt | PublishVolatile | Abandon | Renew | EndMutations | DropExpired | Discard
"""A commit, or a few deletions on the disk."""
Action: TypeAlias = LongWork | ShortWork
