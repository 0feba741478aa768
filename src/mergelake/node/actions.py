"""What a tick is told, and what it answers: values that `plan` and `worker` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mergelake.core.names import PartInfo
from mergelake.core.settings import TableSettings
from mergelake.log.state import ActivePart, State
from mergelake.merge.select import Slots
from mergelake.merge.volatile import LocalPart


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a tick knows of the node."""

    name: str
    now_ms: int
    slots: Slots
    """For merges; as many uploads may run beside them."""
    disk: bool = False
    """Whether it has a disk for volatile parts."""
    disk_free_bytes: int | None = None
    cache_bytes: int = 0
    """How many bytes of published parts of all tables may stay on the disk, to be read from there."""
    merges: bool = True
    """Role `merge`."""
    uploads: bool = True
    """Role `upload`."""
    draining: bool = False
    """It leaves: nothing new, and what it owns is published or given up."""


@dataclass(frozen=True, slots=True)
class TableView:
    """What a tick sees of one table.

    Retired parts are none of its business: a merge covers those that it retires, and a drop takes a partition's first
    blocks, so none ever lies between two active ones (`select.part_ranges`).
    """

    table_id: str
    state: State
    local: Mapping[str, LocalPart] = field(default_factory=dict)
    """What lies on the node's disk, by id of the volatile part."""
    merging: Mapping[frozenset[str], str] = field(default_factory=dict)
    """Of each merge to the store that runs: ids of its sources -> their partition."""
    building: frozenset[str] = frozenset()
    """Volatile parts whose bytes are being made."""
    uploading: frozenset[str] = frozenset()
    uploaded: frozenset[str] = frozenset()
    """Volatile parts whose bytes are in the store, and whose Publish is not known to have landed."""
    failed: frozenset[str] = frozenset()
    """Volatile parts that cannot be built here."""
    avoided: Sequence[PartInfo] = ()
    """Blocks in which a merge failed for good a short while ago."""
    silent: frozenset[str] = frozenset()
    """Nodes that have shown no sign of life for a lease's time."""
    waits: bool = False
    """Work on the table failed a moment ago: it has a pause."""
    listens: tuple[str, str] | None = None
    """Address and token by which others should know that the node takes their commits; None: they need not."""

    @property
    def settings(self) -> TableSettings:
        """The table's settings."""
        return TableSettings(self.state.schema.settings)


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge these neighbours straight to the store."""

    table_id: str
    sources: tuple[ActivePart, ...]

    @property
    def part_ids(self) -> frozenset[str]:
        """Ids of the sources: busy while the work runs."""
        return frozenset(part.manifest.id for part in self.sources)

    @property
    def partition_id(self) -> str:
        """Where they lie."""
        return self.sources[0].info.partition_id


@dataclass(frozen=True, slots=True)
class Propose:
    """Commit the intention to merge these elements."""

    table_id: str
    partition_id: str
    source_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take over a volatile part whose owner is silent."""

    table_id: str
    id: str
    previous: str


@dataclass(frozen=True, slots=True)
class Build:
    """Make the bytes of an own volatile part, on the disk or in the store."""

    table_id: str
    id: str
    past_disk: bool = False
    """It is one for the disk, which has no room for it: straight to the store."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Bring the bytes of a volatile part to the store."""

    table_id: str
    id: str


@dataclass(frozen=True, slots=True)
class PublishVolatile:
    """Commit the uploaded bytes in place of the parts that they replace."""

    table_id: str
    id: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give volatile parts up."""

    table_id: str
    ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Show that the node lives."""

    table_id: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete bytes from the node's disk."""

    table_id: str
    ids: tuple[str, ...]
    different: tuple[str, ...] = ()
    """Those of `ids` whose rows are not those that another node published: a merge was not reproducible."""


LongWork: TypeAlias = Merge | Build | Upload
"""Work that takes time, one slot each."""
ShortWork: TypeAlias = Propose | Adopt | PublishVolatile | Cancel | Renew | Discard
"""A commit, or a few deletions on the disk."""
Action: TypeAlias = LongWork | ShortWork
