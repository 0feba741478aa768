"""What the write amplification budget of one table buys in one tick: uploads, and merges before or without them.

`jobs.merge.budget` has the rules; this module applies them to what a node sees: which elements are in use, which bytes
are here, and what is being written already, on this node and on others.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from mergelake.jobs.merge.budget import BudgetRules, Outlines, best_window, finish
from mergelake.jobs.merge.volatile import settled
from mergelake.jobs.node.actions import NodeView, TableView
from mergelake.jobs.node.candidates import Candidates, Memory
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.volatile import leaves, outermost


class Spending:
    """The budget of one table in one tick."""

    def __init__(self, node: NodeView, table: TableView, candidates: Candidates, memory: Memory) -> None:
        self._table, self.candidates = table, candidates
        self.rules = BudgetRules.of(table.settings)
        self.outlines: Outlines = memory.outlines(self.rules, table.state.partitions, node.now_ms)
        self._under_way = sum(_bytes_under_way(table, self.rules))
        self.uploads: dict[str, bool] = {}
        """Ids of volatile parts that are due, the best ones first -> whether that passes the target."""
        self._merges: list[tuple[ActivePart, ...]] = []
        self.finishing: set[str] = set()
        """Ids of the elements of due partitions: nothing else is begun with them."""
        if self.rules.target:
            self._finish(node)

    def next_finish(self) -> tuple[ActivePart, ...] | None:
        """A merge of fresh parts that are due for one upload; None if there is none left."""
        while self._merges:
            merge = self._merges.pop(0)
            if not any(part.manifest.id in self.candidates.busy for part in merge):
                return merge
        return None

    def next_settled(self, limit: int) -> tuple[tuple[ActivePart, ...], bool] | None:
        """The best merge of settled parts of up to `limit` bytes that can be had, and whether it passes the target."""
        written = self._table.state.written
        left = self.rules.merges_left(written, self._under_way, self.outlines.fresh_bytes)
        for name in self.outlines.by_worth():
            known = self.outlines[name]
            if known.least_bytes > (inf if known.pressed else left):
                continue
            elements = self.candidates.elements(name)
            busy = self.candidates.busy | self.candidates.volatile
            fresh = {part.manifest.id for part in elements if not settled(part, self.rules.disk)}
            window = best_window(
                elements,
                self.rules,
                self.rules.least_width(len(elements) - len(fresh), pressed=known.pressed),
                busy=busy if known.rested else busy | fresh,
                mutations=self.candidates.mutations,
                bytes_max=min(limit, inf if known.pressed else left),
                rested=known.rested,
            )
            if window is not None:
                self._under_way += window.bytes
                return window.parts, window.bytes > left
        return None

    def _finish(self, node: NodeView) -> None:
        outlines, candidates = self.outlines, self.candidates
        left = self.rules.uploads_left(self._table.state.written, self._under_way)
        leaving = self._table.uploading | self._table.uploaded
        for name in sorted(outlines.due, key=lambda name: (-outlines[name].worth, name)):
            known = outlines[name]
            if known.fresh_bytes > left and not known.pressed:
                continue
            parts = self._table.state.partitions.get(name, ())
            live = outermost(self._table.state.volatile.get(name, ()))
            sent = [leaf for part in live if part.id in leaving for leaf in leaves(parts, part.info)]
            if not known.is_due(self.rules, len(sent), sum(leaf.manifest.bytes_on_disk for leaf in sent)):
                continue
            elements = candidates.elements(name)
            foreign = {part.id for part in live if part.owner != node.name}
            asked = finish(
                elements,
                self.rules,
                barriers=foreign | leaving,
                busy=candidates.busy | candidates.absent,
                leaf_count=lambda part, parts=parts: len(leaves(parts, part.info)),  # type: ignore[misc]
                mutations=candidates.mutations,
            )
            self.finishing.update(part.manifest.id for part in elements)
            self.uploads.update(dict.fromkeys(asked.uploads, known.fresh_bytes > left))
            self._merges += asked.merges
            left -= known.fresh_bytes


def _bytes_under_way(table: TableView, rules: BudgetRules) -> Iterator[int]:
    """Bytes that uploads and merges of settled parts are about to write to the store: of all nodes, as far as known."""
    for ids in table.merging.keys() - table.mutating - table.expiring:
        sources = table.state.partitions.find(table.merging[ids], tuple(ids), 0)  # those that are still active
        yield sum(source.manifest.bytes_on_disk for source in sources)
    sent = table.uploading | table.uploaded
    for name, live in table.state.volatile.items():
        parts = table.state.partitions.get(name, ())
        for part in outermost(live):
            local = table.local.get(part.id)
            if part.id in sent and local is not None:
                yield local.manifest.bytes_on_disk
                continue
            below = leaves(parts, part.info)
            if part.id in sent or any(settled(leaf, rules.disk) for leaf in below):
                yield sum(leaf.manifest.bytes_on_disk for leaf in below)
