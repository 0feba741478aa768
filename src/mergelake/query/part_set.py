"""Parts of a table that a statement reads, and whether ClickHouse can attach them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.log.model.parts import ActivePart
from mergelake.parts.read.ahead import SMALL_BYTES
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.joined import is_joinable
from mergelake.parts.read.layout import layout
from mergelake.store.interface.protocol import Store

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

    @cached_property
    def by_id(self) -> Mapping[str, ActivePart]:
        """The parts by their ids and last mutations, which their names show: one that did not change has a new name."""
        return {_id(part): part for part in self.parts}

    @cached_property
    def ids(self) -> frozenset[str]:
        """The keys of `by_id`."""
        return frozenset(self.by_id)

    @cached_property
    def data_versions(self) -> tuple[int, int]:
        """The oldest and the newest data version of a part: mutations up to it are applied."""
        versions = [part.info.data_version for part in self.parts] or [0]
        return min(versions), max(versions)

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
        """The subset with these ids."""
        chosen = tuple(part for part_id, part in self.by_id.items() if part_id in ids)
        return PartSet(self.store, self.directory, self.schema, chosen, self.caches)

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
        large = frozenset(part_id for part_id, part in self.by_id.items() if not is_joinable(part.manifest))
        return self if len(large) == len(self.parts) else self.only(large)

    @cached_property
    def small(self) -> frozenset[str]:
        """Ids of the parts that are fetched whole from a bucket."""
        return frozenset(part_id for part_id, part in self.by_id.items() if part.manifest.bytes_on_disk <= SMALL_BYTES)


def _id(part: ActivePart) -> str:
    mutation = part.info.mutation
    return f"{part.manifest.id}@{mutation}" if mutation else part.manifest.id
