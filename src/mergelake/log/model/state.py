"""The state of a table: the fold of the entries of its log.

Invariants of every state that `fold` returns:

1. Active parts are pairwise disjoint in (partition, block range), and in each partition sorted by block.
2. Every committed row that was not dropped lies in exactly one active part.
3. Block numbers are assigned by position, from one counter for the whole table, and never reused.
4. No active part begins at or below its partition's floor.
5. The id of a part is active at most once; a part that mutations did not change is retired and active again.
6. Live volatile parts of a partition are nested or disjoint, and the active parts within each tile its blocks.
7. The mutations of a partition are in the order of their versions.

A state is immutable. It shares what an entry does not change with the state before (`part_map`), so consecutive states
cost only their difference. It pickles.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mergelake.core.base.errors import error
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.log.model.operations import KnownInsert, MergeRecipe
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.retired import Retired
from mergelake.log.model.sequencer import BUCKET, Sequencer

TOKENS_MAX = 10_000
"""Inserts with an explicit `dedup_token` that a table remembers."""
FINISHED_MUTATIONS_TO_KEEP = 100
"""Mutations that are remembered after they are done; as in ClickHouse."""
COMMANDS_KEPT_MAX = 4096
"""Characters of its commands that are remembered of a mutation that is finished or killed."""


@dataclass(frozen=True, slots=True)
class VolatilePart:
    """A Live intention to merge. Its bytes need not exist: the active parts within its blocks hold the rows."""

    id: str
    info: PartInfo
    """The name of the result, once published."""
    sources: tuple[tuple[str, PartInfo], ...]
    """Ids and infos of its sources, in block order: active parts, and volatile parts as they were at the time."""
    recipe: MergeRecipe
    owner: str
    """The node that builds it."""
    added: int
    """Version of the entry that brought it."""
    added_ms: int

    @property
    def name(self) -> str:
        """ClickHouse's name of the result."""
        return str(self.info)


@dataclass(frozen=True, slots=True)
class MutationFailure:
    """The last failure of a mutation."""

    part: str
    """Name of the part."""
    code: str
    """Name of the error."""
    reason: str
    failed_ms: int


@dataclass(frozen=True, slots=True)
class PendingMutation:
    """A mutation in the log. Whether it is done follows from the active parts; `finished_ms` says that it is known."""

    id: str
    version: int
    """A block number: it concerns the rows of parts with a lower data version."""
    commands: str
    """Of a mutation that is finished or killed perhaps only the beginning (`shortened`)."""
    partition_ids: tuple[str, ...] | None
    schema_version: int
    """The schema for which the commands were written."""
    added: int
    added_ms: int
    killed: bool = False
    drops_rows: bool = True
    """Whether it deletes rows."""
    finished_ms: int = 0
    """Time of the entry that says that no part lacks it; 0 before."""
    failure: MutationFailure | None = None
    """Why it could not be applied the last time."""
    since: int = 0
    """A block number: it concerns no part with a lower data version. Of a mutation of attached parts the first of their
    blocks."""

    @property
    def name(self) -> str:
        """ClickHouse's name of the mutation."""
        return f"mutation_{self.version}.txt"


@dataclass(frozen=True, slots=True)
class DetachedPart:
    """A part set aside by DETACH: no reader sees it, and its objects stay."""

    info: PartInfo
    """Its name when it was active."""
    manifest: PartManifest
    detached: int
    """Version of the entry that detached it."""
    detached_ms: int
    lacks: tuple[PendingMutation, ...] = ()
    """The mutations that it lacked then, in order: attached again, it lacks them still, whatever became of them."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A node's last sign of life."""

    version: int
    """The oldest version that it still reads."""
    until_ms: int
    address: str = ""
    """Where it takes commits of others, `HOST:PORT`; empty: nowhere."""
    token: str = ""
    disk: bool = False
    """Whether it merges on a disk of its own."""


@dataclass(frozen=True, slots=True)
class WrittenBytes:
    """Bytes of parts that were written to the store over the life of a table, by who asked for them.

    Sums of `PartManifest.bytes_on_disk` of what was committed; a part that was written and not committed is not in it.
    """

    inserted: int = 0
    """Of all parts that came into the table: from other tables, too, but not those that were detached from it."""
    merged: int = 0
    """By merges in the background, uploads of volatile parts among them."""
    requested: int = 0
    """By OPTIMIZE, and by merges that a TTL asked for. Mutations, which write some of a part's columns, are not in it.
    """

    @property
    def amplification(self) -> float:
        """Bytes that inserts and merges in the background wrote for each byte inserted; 1 before the first insert."""
        return 1 + self.merged / self.inserted if self.inserted else 1.0


@dataclass(frozen=True, slots=True)
class RememberedInsert:
    """A remembered insert."""

    version: int
    partition_ids: tuple[str, ...]
    """Partitions into which it brought rows that have not been dropped since."""


@dataclass(frozen=True, slots=True)
class Joint:
    """The last transaction that a table has in common with another one."""

    version: int
    """Of this table, with the transaction."""
    other: int
    """Of the other table, with it: whoever reads both tables must not read an older version there."""
    timestamp_ms: int
    """The time from which on both have it, for reads as of a time."""


@dataclass(frozen=True, slots=True)
class State:
    """A table at one version of its log."""

    version: int = 0
    """Version of the last entry folded; 0 before the first."""
    timestamp_ms: int = 0
    """Timestamp of that entry."""
    schemas: Mapping[int, TableSchema] = field(default_factory=dict)
    """All schemas of the table so far, by version: a part is read with the schema it was written with."""
    schema_version: int = 0
    """The current one; 0 before the table is created."""
    dropped: bool = False
    dropped_version: int = 0
    """Version of the entry that dropped it; 0 in old states, before UNDROP existed."""
    block_counter: int = 0
    """The last block number (or mutation version) assigned."""
    rows_version: int = 0
    """Version of the last entry that added, changed or removed rows, or altered the table."""
    partitions: Partitions = field(default_factory=lambda: Partitions.of({}))
    """Active parts by partition id, in block order; no empty tuples."""
    floors: Mapping[str, int] = field(default_factory=dict)
    """By partition: the last block that a drop removed."""
    floor: int = 0
    """The same for drops of the whole table."""
    drops: Mapping[str, int] = field(default_factory=dict)
    """By partition: version of the entry that set `floors`; none in old states, before this was noted."""
    drop: int = 0
    """The same for `floor`."""
    holes: Mapping[str, tuple[PartInfo, ...]] = field(default_factory=dict)
    """By partition: infos of single dropped parts, with the level raised by one, until a part covers their blocks.

    Empty parts of these names are published to ClickHouse, so that part has to cover them.
    """
    firsts: Mapping[str, int] = field(default_factory=dict)
    """By partition: the block that was added when all parts from before had been dropped, at the latest such time.

    The part that has this block now is published to ClickHouse as one over all blocks before, too.
    """
    tokens: Mapping[str, RememberedInsert] = field(default_factory=dict)
    """Explicit deduplication tokens, oldest first."""
    hashes: Mapping[str, RememberedInsert] = field(default_factory=dict)
    """Content hashes of inserts, oldest first, if the table remembers them."""
    retired: Retired = field(default_factory=Retired)
    """Retired parts that a kept version shows, in the order of their retirement."""
    volatile: Mapping[str, tuple[VolatilePart, ...]] = field(default_factory=dict)
    """Live volatile parts by partition id: by first block, an outer one before those within; no empty tuples."""
    mutations: tuple[PendingMutation, ...] = ()
    """By version; the last `FINISHED_MUTATIONS_TO_KEEP` that are done stay."""
    detached: tuple[DetachedPart, ...] = ()
    """In the order of their detachment."""
    tags: Mapping[str, int] = field(default_factory=dict)
    """Name -> version that is kept."""
    tagged_partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of tags with which only some partitions of a version are kept: name -> these."""
    holds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Directory of another table -> directories of this one that it refers to."""
    leases: Mapping[str, Lease] = field(default_factory=dict)
    """By node."""
    fence: int = 0
    """A part begun (`PartManifest.base_version`) at an older version can no longer be committed."""
    history: int = 0
    """Older versions are no longer kept, except those with tags and leases."""
    sequencer: Sequencer = BUCKET
    """Where the entries after this version lie."""
    written: WrittenBytes = WrittenBytes()
    """Counted since the table, or its oldest checkpoint without this field, was made."""
    joint: Mapping[str, Joint] = field(default_factory=dict)
    """By directory of the other table; those before `history` are forgotten."""

    @property
    def schema(self) -> TableSchema:
        """The current schema; UNKNOWN_TABLE before creation or after a drop."""
        if self.dropped or self.schema_version == 0:
            reason = "has been dropped" if self.dropped else "does not exist"
            raise error("UNKNOWN_TABLE", f"The table {reason}")
        return self.schemas[self.schema_version]

    def insert_of(self, dedup_token: str, dedup_hash: str) -> RememberedInsert | None:
        """The remembered insert with this token or, without a token, this hash; None if it is new."""
        return self.tokens.get(dedup_token) if dedup_token else self.hashes.get(dedup_hash)

    def parts(self) -> Iterator[ActivePart]:
        """Active parts, sorted by partition id and block."""
        return self.partitions.all_parts()

    @property
    def part_count(self) -> int:
        """How many parts are active."""
        return self.partitions.totals.parts

    @property
    def row_count(self) -> int:
        """Rows of all active parts."""
        return self.partitions.totals.rows

    def live(self, volatile_id: str) -> VolatilePart | None:
        """The Live volatile part with this id."""
        return next((part for held in self.volatile.values() for part in held if part.id == volatile_id), None)

    @property
    def whole_tags(self) -> Mapping[str, int]:
        """The tags that keep all of their version."""
        if not self.tagged_partitions:
            return self.tags
        return {name: version for name, version in self.tags.items() if name not in self.tagged_partitions}

    def keeps(self, version: int) -> bool:
        """Whether a version is kept, so that it can be read."""
        pinned = version in self.whole_tags.values() or any(lease.version == version for lease in self.leases.values())
        return self.history <= version <= self.version or pinned

    def floor_of(self, partition_id: str) -> int:
        """The last block of a partition that a drop removed, 0 for none."""
        return max(self.floor, self.floors.get(partition_id, 0))

    def drop_of(self, partition_id: str) -> int:
        """Version of the entry that set `floor_of`; 0 for none, or if it is not known."""
        return self.drops.get(partition_id, 0) if partition_id in self.floors else self.drop

    def find(self, name: str) -> ActivePart | None:
        """The active part with this ClickHouse name."""
        info = PartInfo.try_parse(name)
        parts = self.partitions.get(info.partition_id, ()) if info else ()
        if info is None:
            return None
        at = bisect_left(parts, info.min_block, key=lambda part: part.info.min_block)
        return parts[at] if at < len(parts) and parts[at].info == info else None


def listed(window: Mapping[str, RememberedInsert]) -> tuple[KnownInsert, ...]:
    """A deduplication window as a list: its order is part of the state."""
    return tuple((name, insert.version, insert.partition_ids) for name, insert in window.items())


def window_of(inserts: Iterable[KnownInsert]) -> dict[str, RememberedInsert]:
    """Inverse of `listed`."""
    return {name: RememberedInsert(version, tuple(partition_ids)) for name, version, partition_ids in inserts}


def known_until(window: Mapping[str, RememberedInsert], version: int) -> dict[str, RememberedInsert]:
    """The inserts of a window up to a version."""
    return {name: insert for name, insert in window.items() if insert.version <= version}


def shortened(commands: str) -> str:
    """The commands of a mutation for people: long ones up to an ellipsis."""
    return commands if len(commands) <= COMMANDS_KEPT_MAX else f"{commands[: COMMANDS_KEPT_MAX - 1]}…"


def is_shortened(commands: str) -> bool:
    """Whether these are the beginning of commands, by `shortened`: they are for people, and cannot be parsed."""
    return len(commands) == COMMANDS_KEPT_MAX and commands.endswith("…")


def positions(parts: tuple[ActivePart, ...] | list[ActivePart], ids: tuple[str, ...]) -> list[int] | None:
    """Positions of the parts with these ids in one partition, ascending; None if one is missing."""
    wanted = set(ids)
    places = [at for at, part in enumerate(parts) if part.manifest.id in wanted]
    return places if len(places) == len(wanted) == len(ids) else None


def known_ids(state: State, parts: Collection[PartManifest]) -> set[str]:
    """The ids of those of `parts` that are active, detached or retired: their objects belong to the table."""
    wanted = {part.id: part.partition_id for part in parts}
    base_version = min((part.base_version for part in parts), default=0)
    ids = {
        part.manifest.id
        for partition_id in set(wanted.values())
        for part in state.partitions.find(partition_id, wanted.keys(), base_version)
    }
    ids.update(part.manifest.id for part in state.detached if part.manifest.id in wanted)
    return ids | state.retired.find(wanted.keys() - ids, base_version).keys()
