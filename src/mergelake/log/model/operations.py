"""The operations of log entries.

An entry holds one or more operations; they land together or not at all. It may consist of several members, each with
the operations of one writer. Operations never carry block numbers: those are assigned by the entry's position when it
is folded, so a writer needs no reservation and a retry costs nothing. Kinds are added over time; the meaning of a kind
never changes.

Table operations: `CreateTable`, `AlterMetadata`, `DropTable`, `UndropTable`; rows: `AddParts`, `Publish`,
`DropRange`, `DropParts`, `DropDetached`; intentions to merge: `AddVolatile`, `CancelVolatile`, `AdoptVolatile`; changes
of rows: `RowsUnchanged`, `Mutation`, `MarkMutated`, `FinishMutations`, `MutationFailed`, `KillMutation`; retention:
`Tag`, `Untag`, `AddReference`, `DropReference`, `AdvanceGcHorizon`; nodes: `RenewLease`, `ReleaseLease`; transactions:
`Prepare`.
Catalog operations: `CreateDatabase`, `DropDatabase`, `RenameDatabase`, `PutTable`, `RemoveTable`, `RenameTable`,
`Exchange`. Of both: `MoveLog`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema

KnownInsert: TypeAlias = tuple[str, int, tuple[str, ...]]
"""Token or hash of an insert, its version, and the partitions with rows of it."""


@dataclass(frozen=True, slots=True)
class CreateTable:
    """The first operation of a table's log."""

    schema: TableSchema


@dataclass(frozen=True, slots=True)
class AlterMetadata:
    """The table's schema from here on; its version is the last one plus one."""

    schema: TableSchema


@dataclass(frozen=True, slots=True)
class AddParts:
    """New rows. Each part gets the next block number, in the order of `parts`."""

    parts: tuple[PartManifest, ...]
    dedup_token: str = ""
    """The caller's name for this insert: a second one with the same token adds nothing."""
    dedup_hash: str = ""
    """Hash of the rows as sent, for tables that remember them (`non_replicated_deduplication_window`)."""
    detached: tuple[str, ...] = ()
    """Ids of detached parts that these attach again (under new ids)."""
    begun: tuple[str, ...] = ()
    """Directories of objects that parts of this insert share. Like the ids of the parts, theirs were drawn after the
    writer had read `base_version`."""
    schema_version: int = 0
    """The version of the schema for which the writer made or judged the parts; 0: they fit any."""
    held: tuple[str, ...] = ()
    """Directories of other tables in which files of the parts lie, and which these tables hold by the same
    transaction. Only in a `Prepare`."""


@dataclass(frozen=True, slots=True)
class Publish:
    """A written part replaces active ones: the only way in which merges and mutations retire parts.

    Its name follows from the replaced parts: first and last block, newest mutation, and the highest level plus one (for
    a merge) or the same level (for a mutation). If it replaces a volatile part, it takes that part's name.
    """

    part: PartManifest
    replaced: tuple[str, ...]
    """Ids of the active parts that it replaces: all of one partition, with nothing active between them."""
    kind: str = "direct"
    """`direct`: a merge in the background whose result was written straight to the store. `volatile`: the bytes of a
    Live volatile part. `optimize`: a merge that a user asked for. `ttl`: one that the table's TTL asked for.
    `mutation`: one element rewritten.
    """
    volatile: str = ""
    """Id of the Live volatile part that it replaces."""
    mutations: tuple[int, ...] = ()
    """Versions of the pending mutations that it applies, ascending."""
    begun: tuple[str, ...] = ()
    """As of `AddParts`: directories of the slices from which the part was assembled."""


@dataclass(frozen=True, slots=True)
class MergeRecipe:
    """All that the rows of a merge depend on beside its sources, so that every build of it gives the same rows."""

    schema_version: int
    time_ms: int
    """The time that the merge uses as the current one."""
    kind: str = "regular"


@dataclass(frozen=True, slots=True)
class AddVolatile:
    """The intention to merge: a volatile part becomes Live and claims its blocks."""

    id: str
    """32 hex digits, unique."""
    partition_id: str
    sources: tuple[str, ...]
    """Ids of active parts and Live volatile parts, in block order, side by side; at least two."""
    recipe: MergeRecipe
    owner: str
    """Name of the node that builds it."""


@dataclass(frozen=True, slots=True)
class CancelVolatile:
    """These volatile parts, and all that are built on them, are removed; their sources stay."""

    ids: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AdoptVolatile:
    """Another node takes over a volatile part, because its owner seems to be gone."""

    id: str
    owner: str
    previous: str
    """The owner until now."""


@dataclass(frozen=True, slots=True)
class RenewLease:
    """A node's sign of life. Which node builds what, and what is kept, depends on leases; correctness does not."""

    node: str
    version: int
    """The oldest version that it still reads."""
    until_ms: int
    address: str = ""
    """`HOST:PORT` where it takes commits of others as long as the lease lasts; empty: nowhere."""
    token: str = ""
    """The secret that it and its clients prove to know: readers of the log may connect."""
    disk: bool = False
    """Whether it merges on a disk of its own: as long as the lease lasts, others leave merges in the background to it
    where `merge_upload_policy` is `auto`."""


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """A node leaves."""

    node: str


@dataclass(frozen=True, slots=True)
class RowsUnchanged:
    """A precondition of the operations that follow in the entry: they were computed from the rows of a version, and no
    row has been added, changed or removed since. Merges do not count. It changes nothing.
    """

    since: int
    """That version."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of rows; its version is the next block number, and it concerns the rows of all blocks below."""

    id: str
    commands: str
    """In ClickHouse's words."""
    partition_ids: tuple[str, ...] | None = None
    """None is every partition."""
    drops_rows: bool = True
    """Whether it deletes rows: then merges that collapse rows may not come before it."""
    only: tuple[str, ...] = ()
    """Ids of parts that operations before it in the entry added, which it concerns alone: they were attached or
    restored, and lack it as they did before. Empty: all parts."""
    schema_version: int = 0
    """The version of the schema for which its commands were written: with `only` any, else that of the state (or 0)."""


@dataclass(frozen=True, slots=True)
class MarkMutated:
    """No row of these parts is changed by their next mutations: their names say so, and no byte is written."""

    partition_id: str
    ids: tuple[str, ...]
    """Ids of active parts that lack the same mutations."""
    mutations: tuple[int, ...]
    """Versions of the mutations, ascending: the first ones that the parts lack."""


@dataclass(frozen=True, slots=True)
class FinishMutations:
    """No active part lacks these mutations any more, and none ever will: readers need not look for such parts."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MutationFailed:
    """Mutations cannot be applied to a part: for people, who may kill them."""

    mutations: tuple[int, ...]
    """Versions."""
    part: str
    """Name of the part."""
    code: str
    """Name of the error."""
    reason: str


@dataclass(frozen=True, slots=True)
class KillMutation:
    """A mutation is given up: it is not applied to further parts."""

    id: str


@dataclass(frozen=True, slots=True)
class DropRange:
    """All rows of a partition, or of the table, up to a block number."""

    partition_id: str | None = None
    """None is every partition."""
    kind: str = "drop"
    """`drop`, `truncate`, `replace` (new parts follow in the entry), `move` (another table has them), or `detach` (the
    parts are kept aside).
    """
    max_block: int | None = None
    """Last block that is dropped; None is everything committed before this entry."""
    remember: int | None = None
    """Inserts up to this version stay in the deduplication windows: a rollback, whose parts follow, restores their
    rows.
    """
    tokens: tuple[KnownInsert, ...] | None = None
    """The tokens in the window from here on, oldest first, if some of that version were forgotten since; None if
    `remember` is enough.
    """
    hashes: tuple[KnownInsert, ...] | None = None
    """The same as `tokens`, for content hashes."""


@dataclass(frozen=True, slots=True)
class DropParts:
    """The rows of single parts of a partition."""

    partition_id: str
    ids: tuple[str, ...]
    """Ids of active parts."""
    kind: str = "drop"
    """`drop`, `expire` (by the TTL: their inserts stay in the deduplication windows), or `detach`: the parts are kept
    aside."""


@dataclass(frozen=True, slots=True)
class DropTable:
    """The table is dropped; only `UndropTable` and operations of collection may follow."""


@dataclass(frozen=True, slots=True)
class UndropTable:
    """The table is restored, if the version before the drop is still kept; its rows follow in the entry."""


@dataclass(frozen=True, slots=True)
class DropDetached:
    """Detached parts are given up."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tag:
    """A version is kept under a name. A second one of the name may take partitions out of it."""

    name: str
    version: int
    partition_ids: tuple[str, ...] | None = None
    """The partitions that are kept; None: all of the version."""


@dataclass(frozen=True, slots=True)
class Untag:
    """A tag is removed."""

    name: str


@dataclass(frozen=True, slots=True)
class AddReference:
    """Another table refers to objects of this one."""

    holder: str
    """Directory of the other table."""
    directories: tuple[str, ...]
    """First segments of the keys, below this table's directory."""


@dataclass(frozen=True, slots=True)
class DropReference:
    """The other table refers to nothing here any more."""

    holder: str


@dataclass(frozen=True, slots=True)
class AdvanceGcHorizon:
    """Moves the limits of collection (see `docs/design/0007`)."""

    base_version: int
    """The fence: a part that was begun at an older version can no longer be committed."""
    history: int
    """Older versions are no longer kept, except those with tags and leases."""


@dataclass(frozen=True, slots=True)
class MoveLog:
    """Another sequencer assigns the positions after this one; see `sequencer`. For tables and the catalog."""

    sequencer: str = ""
    """`zookeeper://hosts/path`; empty is the bucket."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a transaction, as one of its tables sees it."""

    committed: bool
    others: tuple[tuple[str, int], ...] = ()
    """The other tables of a committed transaction, and the versions that have it there."""
    timestamp_ms: int = 0
    """Of a committed transaction: the time from which on all of its tables have it."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """The share of one table in a transaction over several: the only operation of its entry.

    Its operations count, at this position, if the record of the transaction says that it is committed
    (`transactions`). The record is not part of the entry: whoever reads the entry adds the decision.
    """

    transaction: str
    """Id of the transaction, 32 hex digits."""
    base_version: int
    """The newest version of this table that was known when the transaction began: once the fence has passed it, the
    entry is refused."""
    others: tuple[tuple[str, int], ...]
    """The other tables of the transaction (directories), each with its own `base_version`."""
    ops: tuple[TableOp, ...]
    decision: Decision | None = None
    """None: not known (yet). Never stored."""


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """A new, empty database."""

    name: str


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """An empty database is removed."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameDatabase:
    """A database, with all its tables, gets another name."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class PutTable:
    """A table that has a log already gets a name."""

    database: str
    name: str
    table_id: str
    """Directory of the table."""


@dataclass(frozen=True, slots=True)
class RemoveTable:
    """A name is removed, if it still means this table."""

    database: str
    name: str
    table_id: str


@dataclass(frozen=True, slots=True)
class RenameTable:
    """A table gets another name; no byte of it moves."""

    database: str
    name: str
    new_database: str
    new_name: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """Two names swap their tables at one instant."""

    database: str
    name: str
    other_database: str
    other_name: str


@dataclass(frozen=True, slots=True)
class PutVirtual:
    """A name without a log: a view, or a union of tables (engine Merge)."""

    database: str
    name: str
    table_id: str
    """Tells it from another one of the same name; there is no directory."""
    schema: TableSchema
    """Its engine, `View` or `Merge`, with arguments, its columns and comment. No columns: those of the query."""
    query: str = ""
    """The SELECT of a view, in which each table has its database."""
    reads: tuple[str, ...] = ()
    """`database.table` of each name that the query reads."""


@dataclass(frozen=True, slots=True)
class RemoveVirtual:
    """The name of a view or a union is removed, if it still means this one."""

    database: str
    name: str
    table_id: str


TableOp: TypeAlias = (
    CreateTable
    | AlterMetadata
    | DropTable
    | UndropTable
    | AddParts
    | Publish
    | DropRange
    | DropParts
    | DropDetached
    | AddVolatile
    | CancelVolatile
    | AdoptVolatile
    | RenewLease
    | ReleaseLease
    | RowsUnchanged
    | Mutation
    | MarkMutated
    | FinishMutations
    | MutationFailed
    | KillMutation
    | Tag
    | Untag
    | AddReference
    | DropReference
    | AdvanceGcHorizon
    | MoveLog
    | Prepare
)
CatalogOp: TypeAlias = (
    CreateDatabase
    | DropDatabase
    | RenameDatabase
    | PutTable
    | RemoveTable
    | RenameTable
    | Exchange
    | MoveLog
    | PutVirtual
    | RemoveVirtual
)
LogOp: TypeAlias = TableOp | CatalogOp

_DROPS = (DropTable, DropRange, DropParts, DropDetached, RemoveTable, RemoveVirtual, DropDatabase)
_LETS_GO = (AlterMetadata, CancelVolatile, Untag, DropReference, ReleaseLease, AdvanceGcHorizon)


def gives_space_back(ops: Sequence[LogOp]) -> bool:
    """Whether an entry adds nothing, and leads to objects being deleted: it must be possible on a full disk.

    AlterMetadata counts too: settings control retention.
    """
    return all(isinstance(op, (*_DROPS, *_LETS_GO)) for op in ops)


WRITER_DIGITS = 8


def writer_of(attempt: str) -> str:
    """The common beginning of the attempts of one process. A hint: no outcome depends on it."""
    return attempt[:WRITER_DIGITS]


@dataclass(frozen=True, slots=True)
class Member:
    """The writer of some operations of an entry."""

    attempt: str
    """Drawn by the writer: it is in the log at most once."""
    author: str
    """Name of the writer, for people."""
    ops: int
    """Number of its operations, which follow those of the member before. 0: the attempt was given up, and can no longer
    land elsewhere."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit, or those of several writers in one: `_log/<version, 20 digits>.json`."""

    version: int
    """Its position: 1, 2, 3, … without gaps."""
    attempt: str
    """Drawn by the writer that appends it; identifies its entry after a lost reply."""
    timestamp_ms: int
    """The writer's clock, never less than in the entry before."""
    author: str
    """Name of the writer that appended it, for people."""
    ops: tuple[LogOp, ...]
    members: tuple[Member, ...] = ()
    """The writers of the operations, in their order; empty: all are those of `attempt`, as in most entries."""

    @property
    def parties(self) -> tuple[Member, ...]:
        """The members, also of an entry that has only one."""
        return self.members or (Member(self.attempt, self.author, len(self.ops)),)

    @property
    def authors(self) -> str:
        """Names of all writers, for people: once each."""
        return ", ".join(dict.fromkeys(member.author for member in self.parties))

    @property
    def prepare(self) -> Prepare | None:
        """Its `Prepare`, if it is an entry of a transaction."""
        return next((op for op in self.ops if isinstance(op, Prepare)), None)

    @property
    def effective(self) -> tuple[LogOp, ...]:
        """The operations that count: of a transaction its own if it is committed, else none."""
        if (prepare := self.prepare) is None:
            return self.ops
        return prepare.ops if prepare.decision is not None and prepare.decision.committed else ()

    def decided(self, decision: Decision | None) -> Entry:
        """The entry of a transaction with this decision."""
        return replace(
            self, ops=tuple(replace(op, decision=decision) if isinstance(op, Prepare) else op for op in self.ops)
        )

    def holds(self, attempt: str) -> bool:
        """Whether the operations of an attempt are in it."""
        return any(member.attempt == attempt for member in self.parties)

    def until(self, attempt: str) -> Entry:
        """The entry up to the last operation of one of its members.

        >>> entry = Entry(7, "b", 0, "me", (DropTable(), UndropTable()), (Member("a", "you", 1), Member("b", "me", 1)))
        >>> entry.holds("b"), entry.until("a").ops
        (True, (DropTable(),))
        """
        end = 0
        for member in self.parties:
            end += member.ops
            if member.attempt == attempt:
                break
        return Entry(self.version, self.attempt, self.timestamp_ms, self.author, self.ops[:end])
