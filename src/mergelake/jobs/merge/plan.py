"""`MergeTask`: one merge as a value that any process can execute.

It holds all that the work depends on (schema, sources, settings), without a clock or a state of the table, so every
execution gives the same result. It pickles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mergelake.core.base.errors import InternalError, error
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo, merged_name
from mergelake.core.model.schema import TableSchema
from mergelake.engines.rules.modes import ENGINES
from mergelake.jobs.merge.select import Candidate
from mergelake.log.model.state import PendingMutation
from mergelake.log.model.volatile import lacking

SOURCES_MAX = 32767
"""Parts of one merge: the recorded order has 15 bits for a row's source (`order.RowOrder`)."""


@dataclass(frozen=True, slots=True)
class MergeSource:
    """One part that goes into a merge."""

    info: PartInfo
    manifest: PartManifest
    local: bool = False
    """Its bytes lie on the disk of the node that merges, not in the store."""
    lacks: tuple[PendingMutation, ...] = ()
    """The mutations that are applied to its rows before they are merged."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a large merge is cut into slices, ranges of its primary key that are merged apart."""

    id: str
    """32 hex digits that follow from the merge and the keys: where what is done of it is found again."""
    keys: tuple[bytes, ...]
    """The primary keys (single value binary form) with which the second and each further slice begins, in order."""
    fence: int = 0
    """Slices that were begun before this version do not count: what they refer to may be collected."""

    @property
    def slices(self) -> int:
        """Number of slices."""
        return len(self.keys) + 1


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Sources in, one part out."""

    directory: str
    """The table's directory in the store."""
    schema: TableSchema
    """The schema of the result; a column that a source lacks is filled with its default."""
    sources: tuple[MergeSource, ...]
    """In order of block number; at least one."""
    result: PartInfo
    """The name of the result if it is committed while the sources are active."""
    kind: str = "regular"
    """`regular` (chosen by the selector), `forced` (a rested partition), `optimize` (requested by a user), `ttl_drop`,
    `ttl_delete` and `ttl_recompress` (a TTL asks for it), or `mutation` (one source, whose rows are not collapsed)."""
    base_version: int = 0
    """Version of the table at which this was decided: `PartManifest.base_version` of the result."""
    local: bool = False
    """The result goes to the disk of the node that merges: the bytes of a volatile part."""
    split: Split | None = None
    """How it is cut into slices; None: not at all."""
    slice: int | None = None
    """The number of the slice that this task writes, from 0; None: the whole merge."""
    deduplicate: tuple[str, ...] | None = None
    """Columns: of the result's rows that are equal in all of them only the first stays."""
    cleanup: bool = False
    """Rows of a ReplacingMergeTree that are marked deleted do not stay."""
    time_ms: int = 0
    """The current time for the TTL of the table; 0: nothing expires."""

    @property
    def rows(self) -> int:
        """Rows of all sources."""
        return sum(source.manifest.rows for source in self.sources)

    @property
    def mutations(self) -> tuple[int, ...]:
        """Versions of the mutations that the result has and some source lacks, ascending."""
        return tuple(sorted({mutation.version for source in self.sources for mutation in source.lacks}))

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all sources."""
        return sum(source.manifest.bytes_on_disk for source in self.sources)

    @property
    def plain_bytes(self) -> int:
        """Bytes of all sources before compression."""
        return sum(source.manifest.bytes_uncompressed for source in self.sources)

    @property
    def source_ids(self) -> tuple[str, ...]:
        """Ids of the sources: what Publish replaces."""
        return tuple(source.manifest.id for source in self.sources)


def plan_merge(
    directory: str,
    schema: TableSchema,
    parts: Sequence[Candidate],
    kind: str = "regular",
    base_version: int = 0,
    mutations: Sequence[PendingMutation] = (),
    time_ms: int = 0,
) -> MergeTask:
    """The task that merges `parts`: active neighbours of one partition, in block order, as a selector returns them.

    `base_version` is the table's version at which they were chosen, `mutations` are those of that version: each part
    gets the ones that it lacks, before it is merged. `time_ms` is the time by which rows expire.
    Raises NOT_IMPLEMENTED for an engine that cannot be merged here, TOO_MANY_PARTS for more than `SOURCES_MAX`.
    """
    check_engine(schema)
    infos = [part.info for part in parts]
    if not infos or len({info.partition_id for info in infos}) != 1 or infos != sorted(infos):
        raise InternalError("Sources of a merge must be parts of one partition, in order")
    if len(infos) > SOURCES_MAX:
        raise error(
            "TOO_MANY_PARTS",
            f"Partition {infos[0].partition_id} has {len(infos)} parts, and one merge takes at most {SOURCES_MAX}",
            "Run OPTIMIZE TABLE without FINAL, or a node with the role merge, until there are fewer",
        )
    sources = tuple(
        MergeSource(part.info, part.manifest, lacks=lacking(mutations, part.info) if mutations else ())
        for part in parts
    )
    task = MergeTask(directory, schema, sources, merged_name(infos), kind, base_version, time_ms=time_ms)
    last = max((task.result.mutation, *task.mutations))
    return replace(task, result=replace(task.result, mutation=last))


def check_engine(schema: TableSchema) -> None:
    """NOT_IMPLEMENTED unless parts of this table may be merged."""
    if schema.engine not in ENGINES:
        raise error(
            "NOT_IMPLEMENTED",
            f"Merging a table of engine {schema.engine} is not supported",
            f"Engines with merges are {' and '.join(ENGINES)}",
        )
