"""What a TTL does in one merge, decided by the manifests of its sources. Pure.

ClickHouse's rules: a merge applies the TTL if some row of a source has expired, or
if the times of a source are not known (they were computed by another TTL, or a mutation changes them). All elements
see one time, that of the task. Without such a row the times of the sources are merged, and nothing is computed. A task
without a time (a volatile part is built) removes nothing, and computes the times that are not known.

Source: ClickHouse, `MergeTask.cpp`, `TTLTransform.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.ttl import TtlInfo, merged_info
from mergelake.engines.ttl.ttl import BoundTtl, Infos, TableTtl, has_ttl, packed_infos, table_ttl
from mergelake.format.codecs.codec import Codec, parse_default_codec
from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.log.model.state import PendingMutation
from mergelake.parts.write.indexing import table_indexes
from mergelake.parts.write.part_spec import PartTtl
from mergelake.table.pending.commands import Update, parse_commands

DELETED, RECOMPRESSED = "at:delete", "at:recompress"
"""Names in a manifest: when a TTL merge of this kind last wrote rows of the part."""
TTL_KINDS = {"ttl_delete": DELETED, "ttl_recompress": RECOMPRESSED}
"""Kinds of tasks that only a TTL asks for."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """What a TTL does in a merge."""

    ttl: TableTtl
    now: int
    """The time of the merge, in seconds; 0: there is none, so that nothing expires."""
    old: Infos
    """The times of all sources; without those that are not known of some source."""
    times: Mapping[str, int]
    """When TTL merges last wrote rows of the sources, by `DELETED` and `RECOMPRESSED`."""
    removes: bool
    """Whether rows or values are removed."""
    computes: bool
    """Whether the times that are not known are computed."""
    absent: frozenset[str] = frozenset()
    """Elements of columns that no source has, since all values had expired, and that have no DEFAULT.

    A merge leaves such columns out, and ClickHouse's `ttl.txt` says no more of them.
    """

    @property
    def force(self) -> bool:
        """Whether every element is looked at, as the times of some source are not known."""
        return len(self.old) < len(self.ttl.elements)

    @property
    def empties(self) -> bool:
        """Whether no row stays: ClickHouse's rule, by the latest time alone."""
        return self.removes and self.ttl.rows is not None and self.of(self.ttl.rows).is_max_expired(self.now)

    def of(self, element: BoundTtl) -> TtlInfo:
        """The times of the sources."""
        return self.old.get(element.key, TtlInfo())

    def is_due(self, element: BoundTtl) -> bool:
        """Whether the element is applied."""
        return self.removes and (self.force or self.of(element).is_min_expired(self.now))

    def settled(self, element: BoundTtl) -> TtlInfo:
        """The times of an element that is not due."""
        info = self.of(element)
        return replace(info, finished=True) if self.removes and info.is_max_expired(self.now) else info

    def emptied(self) -> dict[str, TtlInfo]:
        """The times of a result without rows."""
        due = {
            e.key: TtlInfo(finished=self.of(e).is_max_expired(self.now)) for e in self.ttl.elements if self.is_due(e)
        }
        return {e.key: self.settled(e) for e in self.ttl.elements} | due

    @property
    def gone(self) -> frozenset[str]:
        """Columns all of whose values have expired, by the sources' times."""
        if self.removes:
            return frozenset(e.element.column for e in self.ttl.columns if self.of(e).is_max_expired(self.now))
        return frozenset(e.element.column for e in self.ttl.columns if self.of(e).finished)

    @property
    def recompression(self) -> BoundTtl | None:
        """The recompression whose codec the result has: that of the latest due time; None: the table's codec."""
        return due_recompression(self.ttl, self.old, self.now)

    @property
    def codec(self) -> Codec | None:
        """The codec of `recompression`."""
        return None if self.recompression is None else parse_default_codec(self.recompression.element.codec)

    def part_ttl(self, infos: Infos) -> PartTtl:
        """What the result says of its rows, which have these times."""
        chosen = self.recompression
        for element in self.ttl.recompressions:
            if element.key in infos:
                infos = {**infos, element.key: replace(infos[element.key], finished=element is chosen)}
        times = {name: (time, time) for name, time in self.times.items()}
        told = {key: info for key, info in infos.items() if key not in self.absent}
        return PartTtl({**packed_infos(infos), **times}, self.ttl.file(told))


def plan_expiry(task: MergeTask) -> Expiry | None:
    """What the TTL of the table does in a task; None without a TTL."""
    if not has_ttl(task.schema):
        return None
    ttl, now = table_ttl(task.schema), max(task.time_ms, 0) // 1000
    keys = {element.key for element in ttl.elements}
    # A part without rows says nothing, unless it is the result of this TTL.
    filled = [s for s in task.sources if s.manifest.rows or keys <= s.manifest.ttl.keys()]
    old = merged_infos(ttl, [_known(source, ttl, task.schema) for source in filled])
    held = {column_id for source in filled for column_id in source.manifest.columns}
    lacked = {c.name for c in task.schema.columns if c.id not in held and not c.default}
    absent = frozenset(e.key for e in ttl.columns if e.key in old and e.element.column in lacked)
    times = ttl_times([source.manifest for source in task.sources])
    if task.kind in TTL_KINDS:
        times[TTL_KINDS[task.kind]] = now
    missing = len(old) < len(ttl.elements)
    if task.kind == "mutation" or not now:
        return Expiry(ttl, now, old, times, removes=False, computes=missing, absent=absent)
    due = (old[e.key].is_min_expired(now) for e in ttl.removing if e.key in old)
    return Expiry(ttl, now, old, times, removes=missing or any(due), computes=False, absent=absent)


def _known(source: MergeSource, ttl: TableTtl, schema: TableSchema) -> Infos:
    """The times of a source, in its view; none if mutations that it lacks change them."""
    return {} if changes_times(source.lacks, ttl, schema) else part_infos(source.manifest, ttl)


def changes_times(mutations: Iterable[PendingMutation], ttl: TableTtl, schema: TableSchema) -> bool:
    """Whether mutations may change the times at which rows expire, or values that expire."""
    concerns = ttl.concerns
    computed = any(c.default_kind == "MATERIALIZED" and c.name in concerns for c in schema.columns)
    for mutation in mutations:
        updates = [command for command in parse_commands(mutation.commands) if isinstance(command, Update)]
        # Names in its text are those of the schema at which it was submitted.
        if updates and (computed or mutation.schema_version != schema.version):
            return True
        if any(name in concerns for command in updates for name, _ in command.assignments):
            return True
    return False


def part_infos(manifest: PartManifest, ttl: TableTtl) -> dict[str, TtlInfo]:
    """The times of a part by this TTL, as far as they are known."""
    return {e.key: TtlInfo.unpacked(manifest.ttl[e.key]) for e in ttl.elements if e.key in manifest.ttl}


def merged_infos(ttl: TableTtl, each: Iterable[Infos]) -> dict[str, TtlInfo]:
    """The times of the rows of several parts, as far as they are known of all."""
    parts = list(each)
    keys = [e.key for e in ttl.elements if all(e.key in infos for infos in parts)]
    return {key: merged_info(infos[key] for infos in parts) if parts else TtlInfo() for key in keys}


def ttl_times(manifests: Iterable[PartManifest]) -> dict[str, int]:
    """When TTL merges last wrote rows of any of these parts, by `DELETED` and `RECOMPRESSED`."""
    times: dict[str, int] = {}
    for manifest in manifests:
        for name in TTL_KINDS.values():
            if name in manifest.ttl:
                times[name] = max(times.get(name, 0), manifest.ttl[name][0])
    return times


def due_recompression(ttl: TableTtl, infos: Infos, now: int) -> BoundTtl | None:
    """Of the recompressions whose time has come for all rows the latest, the last of equal ones."""
    found, latest = None, 0
    for element in ttl.recompressions:
        time = infos[element.key].max if element.key in infos else 0
        if 0 < time <= now and latest <= time:
            found, latest = element, time
    return found


def written_never(schema: TableSchema, gone: frozenset[str]) -> frozenset[str]:
    """Of columns all of whose values have expired those that a part does not hold: readers compute their defaults.

    Not those that a skip index reads, and never all columns of the table.
    """
    left = gone - {name for index in table_indexes(schema) for name in index.columns}
    stored = [column.name for column in schema.stored]
    return left if not left.issuperset(stored) else left - {stored[0]}


def slices_ttl(expiry: Expiry, slices: Sequence[PartManifest]) -> PartTtl:
    """What a part says of its rows that was assembled from slices, those with rows."""
    return expiry.part_ttl(merged_infos(expiry.ttl, [part_infos(part, expiry.ttl) for part in slices]))


def joins_rows(expiry: Expiry | None) -> bool:
    """Whether a merge leaves no row, or makes one of several: it cannot be cut into slices."""
    return expiry is not None and (expiry.empties or any(map(expiry.is_due, expiry.ttl.groups)))


def expiry_text(task: MergeTask) -> str:
    """What the result of a task depends on beside its schema and sources: equal texts give equal results."""
    expiry = plan_expiry(task)
    if expiry is None:
        return ""
    return str(expiry.now) if expiry.removes else str(expiry.codec or "")
