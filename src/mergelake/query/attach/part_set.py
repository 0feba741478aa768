"""Parts of a table that a statement reads, and whether ClickHouse can attach them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mergelake.core.errors import MergelakeError
from mergelake.core.manifest import PartManifest
from mergelake.core.schema import TableSchema
from mergelake.log.state import ActivePart, PendingMutation
from mergelake.log.volatile import lacking
from mergelake.parts.ahead import SMALL_BYTES
from mergelake.parts.cache import PartCache
from mergelake.parts.joined import is_joinable
from mergelake.parts.layout import layout
from mergelake.query.statement.access import check_expression
from mergelake.store.protocol import Store

PARTS_AT_ONCE = 300
"""Maximum number of parts that a statement attaches itself; each takes half a millisecond."""


@dataclass(frozen=True)
class PartSet:
    """Some parts of one version of a table."""

    store: Store
    directory: str
    schema: TableSchema
    """The schema to read them with."""
    parts: tuple[ActivePart, ...]
    caches: PartCache
    """Cache of their files."""
    mutations: tuple[PendingMutation, ...] = ()
    """Mutations that parts of the table may lack, in order, without killed ones."""

    @cached_property
    def views(self) -> Mapping[str, ActivePart]:
        """The parts by the ids of their views: what is attached before a mutation is not read for parts that lack it.

        A view id is the part's id, the last mutation in the part's name, and the versions of those that it lacks.
        """
        if not self.mutations:
            return {_view_id(part, ()): part for part in self.parts}
        return {_view_id(part, lacking(self.mutations, part.info)): part for part in self.parts}

    @cached_property
    def ids(self) -> frozenset[str]:
        """Ids of the parts' views."""
        return frozenset(self.views)

    @cached_property
    def part_ids(self) -> frozenset[str]:
        """Ids of the parts themselves."""
        return frozenset(part.manifest.id for part in self.parts)

    @cached_property
    def lacked(self) -> tuple[PendingMutation, ...]:
        """The mutations that at least one of the parts lacks, in order."""
        if not self.mutations:
            return ()
        lacked = {mutation.version for part in self.parts for mutation in lacking(self.mutations, part.info)}
        return tuple(mutation for mutation in self.mutations if mutation.version in lacked)

    @cached_property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.manifest.rows for part in self.parts)

    @property
    def table(self) -> Hashable:
        """Key of the table and its schema."""
        return self.store.url, self.directory, self.schema.version

    @cached_property
    def key(self) -> Hashable:
        """Key of the set."""
        return self.table, self.ids

    def only(self, ids: frozenset[str]) -> PartSet:
        """The subset with these views."""
        return replace(self, parts=tuple(part for view_id, part in self.views.items() if view_id in ids))

    @cached_property
    def unnamed(self) -> tuple[PartManifest, ...]:
        """The parts whose files ClickHouse cannot refer to as objects of a local directory."""
        manifests, url = (part.manifest for part in self.parts), self.store.url
        if "://" in url or not url.isprintable() or "\\" in url:
            return tuple(manifests)
        return tuple(each for each in manifests if not layout(self.directory, each).named)

    @cached_property
    def worth_attaching(self) -> PartSet:
        """The set without its small parts, if these are many: a scan reads them together efficiently."""
        if len(self.parts) <= PARTS_AT_ONCE:
            return self
        large = frozenset(view_id for view_id, part in self.views.items() if not is_joinable(part.manifest))
        return self if len(large) == len(self.parts) else self.only(large)

    @cached_property
    def small(self) -> frozenset[str]:
        """Ids of the views of parts that are fetched whole from a bucket."""
        return frozenset(view_id for view_id, part in self.views.items() if part.manifest.bytes_on_disk <= SMALL_BYTES)


def _view_id(part: ActivePart, lacked: Sequence[PendingMutation]) -> str:
    if not (lacked or part.info.mutation):
        return part.manifest.id
    return f"{part.manifest.id}@{part.info.mutation}+{','.join(str(mutation.version) for mutation in lacked)}"


def differs(newest: TableSchema, schemas: Mapping[int, TableSchema], versions: frozenset[int]) -> str:
    """Why a column name has another meaning in parts of the schemas in `versions` than in the newest, or empty.

    ClickHouse reads columns of parts by name, and names may have been reused.
    """
    try:
        for column in newest.columns:
            check_expression(column.default)
    except MergelakeError:
        return "a default reaches outside of its columns"
    today = {(column.name, column.id, column.type) for column in newest.columns}
    names, ids = {name for name, _, _ in today}, {column_id for _, column_id, _ in today}
    for version in versions:
        for column in schemas[version].columns if version in schemas else newest.columns:
            same = (column.name, column.id, column.type) in today
            if not same and (column.name in names or column.id in ids):
                return f"column {column.name} was another one when parts were written"
    return ""
