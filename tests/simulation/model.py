"""The trivial model: a table is a list of rows for each partition, and an entry is executed on the list.

Of parts it knows only which rows they brought and between which blocks these stand. What a reader must see follows
from the rows alone: those that no drop took away, each with its updates, without the deleted ones.

Where the engine collapses rows, it does so twice: a merge does it to the rows that it writes, after its mutations, and
a reader (FINAL) to all rows of a partition, after all mutations. So a merge must not change what a reader sees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from mergelake.core.model.manifest import PartManifest
from mergelake.log.model.operations import (
    AddParts,
    CreateTable,
    DropDetached,
    DropParts,
    DropRange,
    DropTable,
    Entry,
    FinishMutations,
    KillMutation,
    LogOp,
    MarkMutated,
    Mutation,
    Publish,
)
from tests.simulation.tiny import Row, Rows, TinyRows

Window: TypeAlias = dict[str, tuple[int, frozenset[str]]]


class RowKind(Protocol):
    """What mutations, engines and readers do to rows of some kind."""

    def changed(self, rows: Iterable[Row], commands: str) -> Rows:
        """Rows after one mutation."""
        ...

    def merged(self, rows: Rows, engine: str) -> dict[int, Row]:
        """What is left of rows that meet in a merge: place among them, in order, and the row that is there then."""
        ...

    def in_order(self, rows: Iterable[Row]) -> Rows:
        """Rows to be compared: in any order, unless their order counts."""
        ...


@dataclass(slots=True)
class Kept:
    """A row: as its part holds it, and what is still to be done to it."""

    row: Row | None
    """None once a delete was written down, or a merge kept another row of its key."""
    block: int
    part: str
    """Id of its part."""
    pending: list[int] = field(default_factory=list)


@dataclass
class Model:
    """Executes entries, in order."""

    content: Callable[[PartManifest], Rows]
    """The rows of a new part, as whoever wrote it said."""
    tokens_max: int
    hashes_max: int
    kind: RowKind = field(default_factory=TinyRows)
    rows: dict[str, list[Kept]] = field(default_factory=dict)
    counter: int = 0
    mutations: dict[int, str] = field(default_factory=dict)
    """Version -> commands, of all there ever were."""
    scopes: dict[str, tuple[int, tuple[str, ...] | None]] = field(default_factory=dict)
    """Mutation id -> version and partitions."""
    tokens: Window = field(default_factory=dict)
    """Token -> version, and partitions with rows of it that no drop took away; oldest first."""
    hashes: Window = field(default_factory=dict)
    detached: list[Kept] = field(default_factory=list)
    """Rows that were taken aside, with what was still to be done to them."""
    attached: list[tuple[tuple[str, ...], Counter[Row]]] = field(default_factory=list)
    """Of the last entry: ids of parts that were attached, and the rows that readers must see of them."""
    windows: dict[int, tuple[Window, Window]] = field(default_factory=dict)
    """Version -> tokens and hashes then: what a rollback there must leave, whatever its entry says."""
    known: dict[str, Rows] = field(default_factory=dict)
    """Part id -> its rows, of all there ever were."""
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Part id -> blocks."""
    origins: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """Part id -> the version that brought it, and whether its rows are those of one insert of that version."""
    touched: set[str] = field(default_factory=set)
    """Partitions that the last entry changed."""
    views: dict[str, Rows] = field(default_factory=dict)
    """Partition -> the rows that a reader must see; replaced, never changed."""
    physical: dict[str, Rows] = field(default_factory=dict)
    """The same without FINAL: with the rows that the engine has yet to collapse."""

    version: int = 0
    engine: str = "MergeTree"

    def execute(self, entry: Entry) -> None:
        self.version = entry.version
        self.touched = set()
        self.attached.clear()
        for op in entry.ops:
            self._execute(op)
        for part_ids, expected in self.attached:
            there = [kept for held in self.rows.values() for kept in held if kept.part in part_ids]
            assert Counter(self._seen(there)) == expected, f"{part_ids} have other rows than when they were detached"
        self.windows[self.version] = (dict(self.tokens), dict(self.hashes))
        physical = {**self.physical, **{name: self._there(name) for name in self.touched}}
        views = {**self.views, **{name: self._final(physical[name]) for name in self.touched}}
        self.physical = {name: rows for name, rows in physical.items() if rows}
        self.views = {name: rows for name, rows in views.items() if rows}

    def _there(self, partition_id: str) -> Rows:
        return self._seen(self.rows.get(partition_id, ()))

    def _take(self, part_id: str) -> list[Kept]:
        """The rows of a detached part, which is detached no more."""
        taken = [kept for kept in self.detached if kept.part == part_id]
        self.detached = [kept for kept in self.detached if kept.part != part_id]
        return taken

    def _seen(self, held: Iterable[Kept]) -> Rows:
        """Rows with what is still to be done to them."""
        out: list[Row] = []
        for kept in held:
            rows: Rows = (kept.row,) if kept.row else ()
            for version in kept.pending:
                rows = self.kind.changed(rows, self.mutations[version])
            out += rows
        return tuple(out)

    def _final(self, rows: Rows) -> Rows:
        return self.kind.in_order(self.kind.merged(rows, self.engine).values())

    def _execute(self, op: LogOp) -> None:
        match op:
            case CreateTable(schema):
                self.engine = schema.engine
            case AddParts():
                self._add(op)
            case Publish():
                self._publish(op)
            case DropRange():
                self._drop(op)
            case DropTable():
                self._drop(DropRange())
                self.detached.clear()
            case DropParts():
                self._drop_parts(op)
            case DropDetached(ids):
                for part_id in ids:
                    self._take(part_id)
            case Mutation(id, commands, partition_ids):
                self.counter += 1
                self.mutations[self.counter] = commands
                self.scopes[id] = (self.counter, partition_ids)
                for name in [*self.rows] if partition_ids is None else partition_ids:
                    self.touched.add(name)
                    for row in self.rows.get(name, ()):
                        if not op.only or row.part in op.only:
                            row.pending.append(self.counter)
            case KillMutation(id):
                version, partition_ids = self.scopes[id]
                for name in [*self.rows] if partition_ids is None else partition_ids:
                    self.touched.add(name)
                    for row in self.rows.get(name, ()):
                        if version in row.pending:
                            row.pending.remove(version)
            case MarkMutated():
                self._mark(op)
            case FinishMutations():
                self.touched.update(self.rows)
            case _:
                pass  # who builds, and what is kept: no row changes

    def _add(self, op: AddParts) -> None:
        assert not op.dedup_token or op.dedup_token not in self.tokens, f"the token {op.dedup_token} was taken twice"
        for part in op.parts:
            self.counter += 1
            self.touched.add(part.partition_id)
            self.ranges[part.id] = (self.counter, self.counter)
            self.origins[part.id] = (self.version, not part.level)
            rows = self._rows_of_new(part)
            self.rows.setdefault(part.partition_id, []).extend(Kept(row, self.counter, part.id) for row in rows)
        if op.detached:
            taken = [kept for part_id in op.detached for kept in self._take(part_id)]
            self.attached.append((tuple(part.id for part in op.parts), Counter(self._seen(taken))))
        inserted = frozenset(part.partition_id for part in op.parts)
        if op.dedup_token:
            _remember(self.tokens, op.dedup_token, (self.version, inserted), self.tokens_max)
        elif op.dedup_hash and self.hashes_max:
            assert op.dedup_hash not in self.hashes, f"the insert {op.dedup_hash} was taken twice"
            _remember(self.hashes, op.dedup_hash, (self.version, inserted), self.hashes_max)

    def _publish(self, op: Publish) -> None:
        """What was pending may be written down, and rows may be collapsed: no reader sees a difference."""
        name = op.part.partition_id
        seen = self._final(self._there(name))
        spans = [self.ranges[part_id] for part_id in op.replaced]
        low, high = min(span[0] for span in spans), max(span[1] for span in spans)
        self.ranges[op.part.id] = (low, high)
        self.origins[op.part.id] = (self.version, False)
        covered = [kept for kept in self.rows.get(name, ()) if low <= kept.block <= high]
        for kept in covered:
            kept.part = op.part.id
        for version in op.mutations:
            for kept in covered:
                self._write_down(kept, version)
        if op.kind != "mutation":
            left = [kept for kept in covered if kept.row]
            merged = self.kind.merged(tuple(kept.row for kept in left if kept.row), self.engine)
            for at, kept in enumerate(left):
                kept.row = merged.get(at)
        there = self.kind.in_order(kept.row for kept in covered if kept.row)
        self.touched.add(name)
        rows = self.kind.in_order(self._rows_of_new(op.part))
        assert rows == there, f"part {op.part.id} of blocks {low}-{high} holds {rows}, not {there}"
        assert op.part.rows == len(rows) or op.part.masked, "a part says another number of rows than it holds"
        after = self._final(self._there(name))
        assert after == seen, f"readers see {after} after part {op.part.id}, not {seen}"

    def _write_down(self, kept: Kept, version: int) -> None:
        if version in kept.pending:
            kept.pending.remove(version)
            rows = self.kind.changed((kept.row,), self.mutations[version]) if kept.row else ()
            kept.row = next(iter(rows), None)

    def _mark(self, op: MarkMutated) -> None:
        """The rows have their mutations, which change none of them."""
        self.touched.add(op.partition_id)
        for part_id in op.ids:
            low, high = self.ranges[part_id]
            self.origins[part_id] = (self.version, False)
            for kept in self.rows.get(op.partition_id, ()):
                if low <= kept.block <= high:
                    row = kept.row
                    for version in op.mutations:
                        self._write_down(kept, version)
                    assert kept.row == row, f"part {part_id} is marked, and a mutation changes row {row}"

    def _rows_of_new(self, part: PartManifest) -> Rows:
        """18: what a table once held never comes back under its old id, not even when nobody remembers it."""
        assert part.id not in self.known, f"part {part.id} came in twice"
        self.known[part.id] = self.content(part)
        return self.known[part.id]

    def _drop(self, op: DropRange) -> None:
        bound = self.counter if op.max_block is None else op.max_block
        for name in [*self.rows] if op.partition_id is None else [op.partition_id]:
            self.touched.add(name)
            held = self.rows.get(name, [])
            gone = [kept for kept in held if kept.block <= bound]
            self.rows[name] = [kept for kept in held if kept.block > bound]
            if op.kind == "detach":
                self.detached += gone
        if op.remember is not None:
            self.tokens, self.hashes = map(dict, self.windows[op.remember])
        elif bound >= self.counter:
            self.tokens, self.hashes = _without(self.tokens, op.partition_id), _without(self.hashes, op.partition_id)

    def _drop_parts(self, op: DropParts) -> None:
        name, held = op.partition_id, self.rows[op.partition_id]
        self.touched.add(name)
        for part_id in op.ids:
            low, high = self.ranges[part_id]
            gone = [kept for kept in held if low <= kept.block <= high]
            held = [kept for kept in held if not low <= kept.block <= high]
            if op.kind == "detach":
                self.detached += gone
            if op.kind == "expire":
                continue
            version, alone = self.origins[part_id]
            first = version if alone else 0
            self.tokens = _without(self.tokens, name, first, version)
            self.hashes = _without(self.hashes, name, first, version)
        self.rows[name] = held


def _without(window: Window, partition_id: str | None, first: int = 0, last: int | None = None) -> Window:
    """The inserts that have rows left, or had none, when those of some versions lost a partition, or all."""
    if partition_id is None:
        return {}
    if last is not None:
        some = {key: insert for key, insert in window.items() if first <= insert[0] <= last}
        left = _without(some, partition_id)
        return {key: left.get(key, insert) for key, insert in window.items() if key in left or key not in some}
    left = {key: (version, partitions - {partition_id}) for key, (version, partitions) in window.items()}
    return {key: insert for key, insert in left.items() if insert[1] or not window[key][1]}


def _remember(window: Window, key: str, insert: tuple[int, frozenset[str]], most: int) -> None:
    window[key] = insert
    while len(window) > most:
        del window[next(iter(window))]
