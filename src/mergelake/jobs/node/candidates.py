"""Selects merges of a table for one tick, one best merge after another, with a memory between ticks.

The partitions with work under way (a Live volatile part, a running merge, avoided blocks) are scored one by one; all
others are in a ranking (`jobs.merge.ranking`) that a `Memory` keeps and updates by the changed partitions. So the cost
of a tick follows the running work and the changes. A memory only saves work: with a new one the results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from mergelake.core.model.manifest import PartManifest, encode_files
from mergelake.jobs.merge.budget import BudgetRules, Outlines
from mergelake.jobs.merge.ranking import Found, Ranking, Rest, Rules, best_merge
from mergelake.jobs.merge.scoring import SelectorSettings
from mergelake.jobs.merge.select import is_free, rest_asked_s
from mergelake.jobs.merge.ttl_select import TtlMemory
from mergelake.jobs.merge.volatile import LocalPart, OnDisk, settled
from mergelake.jobs.node.actions import NodeView, TableView
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import VolatilePart
from mergelake.log.model.volatile import Element, boundaries, top_level
from mergelake.table.partitions.mutations import open_mutations

_RANKINGS_MAX = 4
"""Rankings that are kept. A tick uses three at most: for the disk, for the store, and for the store by another base."""


class Memory:
    """The rankings of a table that a node keeps between two ticks. Not thread-safe."""

    def __init__(self) -> None:
        self._rankings: dict[Rules, tuple[Partitions, Ranking[ActivePart]]] = {}
        self._rest: tuple[Partitions, Rest[ActivePart]] | None = None
        self._outlines: tuple[Partitions, Outlines] | None = None
        self._expiry: tuple[int, Partitions, TtlMemory[ActivePart]] | None = None

    @property
    def scored(self) -> int:
        """How many times a partition was scored for the rankings that are kept."""
        return sum(ranking.scored for _, ranking in self._rankings.values())

    def ranking(self, rules: Rules, partitions: Partitions, now_ms: int) -> Ranking[ActivePart]:
        """The ranking of these partitions now."""
        known = self._rankings.pop(rules, None)
        changed = partitions.touched_since(known[0]) if known else None
        ranking = known[1] if known and changed is not None else Ranking[ActivePart](rules)
        ranking.update(partitions if changed is None else changed, lambda name: partitions.get(name, ()), now_ms)
        self._rankings[rules] = partitions, ranking
        while len(self._rankings) > _RANKINGS_MAX:
            del self._rankings[next(iter(self._rankings))]
        return ranking

    def rest(self, partitions: Partitions) -> Rest[ActivePart]:
        """These partitions by how long they have rested."""
        changed = partitions.touched_since(self._rest[0]) if self._rest else None
        rest = self._rest[1] if self._rest and changed is not None else Rest[ActivePart]()
        rest.update(partitions if changed is None else changed, lambda name: partitions.get(name, ()))
        self._rest = partitions, rest
        return rest

    def expiry(
        self, schema_version: int, partitions: Partitions, make: Callable[[], TtlMemory[ActivePart]]
    ) -> TtlMemory[ActivePart]:
        """These partitions by when a TTL asks for something; `make` makes the memory of a schema."""
        known = self._expiry if self._expiry and self._expiry[0] == schema_version else None
        changed = partitions.touched_since(known[1]) if known else None
        memory = known[2] if known and changed is not None else make()
        memory.update(partitions if changed is None else changed, lambda name: partitions.get(name, ()))
        self._expiry = schema_version, partitions, memory
        return memory

    def outlines(self, rules: BudgetRules, partitions: Partitions, now_ms: int) -> Outlines:
        """The outlines of these partitions for the budget."""
        known = self._outlines if self._outlines and self._outlines[1].rules == rules else None
        changed = partitions.touched_since(known[0]) if known else None
        outlines = known[1] if known and changed is not None else Outlines(rules)
        outlines.update(partitions if changed is None else changed, lambda name: partitions.get(name, ()), now_ms)
        self._outlines = partitions, outlines
        return outlines


class Candidates:
    """The top-level elements of a table as a selector sees them, and which of them are busy."""

    def __init__(self, node: NodeView, table: TableView, memory: Memory, *, claimed: bool) -> None:
        """`claimed`: merges begin as volatile parts."""
        self._node, self._settings, self._memory = node, table.settings, memory
        self._partitions, self._volatile, self._local = table.state.partitions, table.state.volatile, table.local
        self._selector = SelectorSettings.from_table(table.settings)
        # Merges straight to the store apply the mutations that each source lacks; volatile parts need equal ones.
        self.mutations = boundaries(open_mutations(table.state)) if claimed else ()
        """`boundaries` of the mutations that all parts of one merge must have, or lack, alike."""
        self._fresh_only = table.settings.number("write_amplification_target") > 0
        self._rankings: dict[Rules, Ranking[ActivePart]] = {}
        self._scored: dict[tuple[Rules, str], tuple[int, frozenset[str], Found | None]] = {}
        self.busy: set[str] = {*table.uploading, *table.uploaded, *table.building}.union(*table.merging)
        """Ids of the elements that are in use, or avoided."""
        self.volatile: set[str] = set()
        """Ids of all volatile parts."""
        self.absent: set[str] = set()
        """Ids of the volatile parts whose bytes are not on this node's disk."""
        places = {*self._volatile, *table.merging.values(), *(area.partition_id for area in table.avoided)}
        self._apart: dict[str, Sequence[ActivePart]] = {name: self._elements(name) for name in places}
        """The partitions in which something is busy."""
        for elements in self._apart.values() if table.avoided else ():
            avoided = (p for p in elements if any(area.intersects(p.info) for area in table.avoided))
            self.busy.update(part.manifest.id for part in avoided)

    def take(self, sources: Collection[str], partition_id: str) -> None:
        """Mark these parts as busy."""
        self.busy.update(sources)
        self._apart.setdefault(partition_id, self._partitions.get(partition_id, ()))

    def best(
        self, busy: Collection[str], used: int, limit: int, base: float | None = None, disk: int | None = None
    ) -> tuple[ActivePart, ...] | None:
        """The best merge of up to `limit` bytes without `busy` elements; None if there is none.

        `used`: slots in use. `base`: replaces the one of the settings. `disk`: as in `Rules`.
        """
        bytes_max = max(limit, self._settings.integer("max_bytes_to_merge_at_max_space_in_pool"))
        selector = self._selector if base is None else replace(self._selector, base=base)
        limit_of_all = bytes_max if disk is None else min(bytes_max, disk)
        rules = Rules(selector, limit_of_all, self.mutations, disk, self._fresh_only and disk is not None)
        if rules not in self._rankings:
            self._rankings[rules] = self._memory.ranking(rules, self._partitions, self._node.now_ms)
        chosen = self._rankings[rules].best(limit, self.elements, without=self._apart)
        held = frozenset(busy)
        for name, elements in self._apart.items():
            merge = self._best_apart(name, elements, rules, limit, held)
            if merge is not None and (chosen is None or (-merge.score, name) > (-chosen[1].score, chosen[0])):
                chosen = name, merge
        if chosen is None:
            return self._rested(held, used, limit, disk)
        name, merge = chosen
        return tuple(self.elements(name)[merge.begin : merge.end])

    def _best_apart(
        self, name: str, elements: Sequence[ActivePart], rules: Rules, limit: int, busy: frozenset[str]
    ) -> Found | None:
        busy_here = busy.intersection(part.manifest.id for part in elements)
        known = self._scored.get((rules, name))
        if known is None or known[:2] != (limit, busy_here):
            merge, _ = best_merge(elements, rules, self._node.now_ms, limit, busy_here)
            known = self._scored[rules, name] = limit, busy_here, merge
        return known[2]

    def _rested(self, busy: frozenset[str], used: int, limit: int, disk: int | None) -> tuple[ActivePart, ...] | None:
        """All parts of the partition that has rested longest, as `select_rested_partition` says."""
        age_s = rest_asked_s(self._settings, used, self._node.slots)
        if not age_s:
            return None
        now_ms = self._node.now_ms
        apart = Rest[ActivePart]()
        apart.update(self._apart, lambda name: self._apart[name])
        candidates = [
            rest.best(age_s, limit, now_ms, without)
            for rest, without in ((self._memory.rest(self._partitions), self._apart), (apart, ()))
        ]
        best = min(((-each[0], each[1]) for each in candidates if each is not None), default=None)
        if best is None:
            return None
        members = self.elements(best[1])
        large = disk is not None and any(settled(part, disk) for part in members)
        return tuple(members) if not large and is_free(members, busy, self.mutations) else None

    def elements(self, name: str) -> Sequence[ActivePart]:
        """The elements of a partition, in order."""
        return self._apart[name] if name in self._apart else self._partitions.get(name, ())

    def _elements(self, name: str) -> Sequence[ActivePart]:
        parts, held = self._partitions.get(name, ()), self._volatile.get(name, ())
        return [self._shown(element, self._local) for element in top_level(parts, held)] if held else parts

    def _shown(self, element: Element, local: Mapping[str, LocalPart]) -> ActivePart:
        """A volatile part as if it were active."""
        if not isinstance(element, VolatilePart):
            return element
        self.volatile.add(element.id)
        if element.id not in local:
            self.absent.add(element.id)
        size = local[element.id].manifest.bytes_on_disk if element.id in local else 0
        shape = PartManifest(element.id, element.info.partition_id, 0, encode_files(()), bytes_on_disk=size)
        return OnDisk(element.info, shape, element.added, element.added_ms)
