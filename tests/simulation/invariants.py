"""The 18 invariants of the design, and where each is checked. `after_entry` runs after every applied entry.

==  =====================================================================  ==========================================
 1  active parts are disjoint; their rows are those of the model           `parts_hold_the_models_rows`
 2  the active parts within a Live volatile part tile it; local bytes of   `volatile_parts_are_covered`,
    one are the same on every node                                         `Merger.build`, `PlannedNode.tick` (bytes)
 3  sources of a Live one are there; nested or disjoint; above the floor   `volatile_parts_are_covered`
 4  equal versions have equal states; checkpoint + tail = full replay;     `Table.compare`, `Table.on_checkpoint`
    an emptied checkpoint stays empty
 5  what a kept version refers to exists, and goes no sooner than          `Table.on_delete`, `objects_exist`,
    retention and grace say                                                `periods` (and `World.on_change`: clones)
 6  a read at a version (or a time) gives the model's rows at that         `Reader`, `Actor.read`, `Shown` (what a
    version                                                                stock ClickHouse sees)
 7  an acknowledged commit is in the log once, at its position, and led    `Table.watch`, `Table.on_entry` (members),
    to the state it got; one that was refused is not in the log            `Inserter.send`
 8  reads of a process never go back; it reads its own writes, and no      `Table.compare`, `Actor.follow`
    refresh is older than the question
 9  no part whose rows lack different mutations; done means written down;  `mutations_are_whole`,
    a mutation lands once                                                  `volatile_parts_are_covered`
10  what a reader sees does not depend on the schedule of merges and       `Model._publish`, `Model._mark`
    rewrites: a mutation concerns the rows that were there when it came,
    and is applied before they are merged
11  no merge that must be direct is ever Live                              `volatile_parts_are_covered`
12  Publish takes what it lists, and no row comes or goes (but for those   `publish_takes_what_it_lists`, and the model
    that an engine collapses)
13  at most one Publish for a volatile part; losers delete their own;      `publish_takes_what_it_lists`, `on_delete`,
    nodes take over from whom they name                                    `builders_take_over_from_builders`
14  when faults stop, all comes to rest, nothing is kept longer than it    `World.settle`, `rest`, `World.answer`
    must be, no mutation is unfinished, and no thread waits for ever
15  bytes to the store stay below a bound                                  tests/integration/test_volatile.py
16  a chosen range is legal                                                tests/unit/merge; the log's precondition here
17  the deduplication windows are the model's                              `windows_are_the_models`
18  levels, names, block numbers; no part comes in twice                   `names_are_new`, the model
==  =====================================================================  ==========================================
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mergelake.log.model.operations import (
    AddParts,
    AdoptVolatile,
    Entry,
    FinishMutations,
    MarkMutated,
    Mutation,
    Publish,
    RowsUnchanged,
)
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.retired import Retired
from mergelake.log.model.state import State
from mergelake.log.model.volatile import inside, leaves, pending

if TYPE_CHECKING:
    from tests.simulation.table import Table


SUMS_EVERY = 8
"""Entries after which what a state carries along is added up anew."""


def after_entry(table: Table, before: State, entry: Entry, after: State) -> None:
    for partition_id in table.model.touched:
        parts_hold_the_models_rows(table, after, partition_id)
        mutations_are_whole(table, after, partition_id)
    for partition_id in {*before.volatile, *after.volatile}:
        volatile_parts_are_covered(after, partition_id)
    publish_takes_what_it_lists(table, before, entry, after)
    for op in entry.ops:
        if isinstance(op, Mutation):
            assert op.id not in {m.id for m in before.mutations}, f"mutation {op.id} is applied twice"
        if isinstance(op, RowsUnchanged) and len(entry.parties) == 1:
            assert table.views[op.since] == table.views[before.version], f"rows of version {op.since} have changed"
    builders_take_over_from_builders(before, entry)
    names_are_new(table, before, entry, after)
    windows_are_the_models(table, after)
    if after.version % SUMS_EVERY == 0:
        assert Partitions.of(dict(after.partitions)).totals == after.partitions.totals
        assert Retired().plus(list(after.retired)) == after.retired


def parts_hold_the_models_rows(table: Table, state: State, partition_id: str) -> None:
    """1."""
    last, held = state.floor_of(partition_id), []
    for part in state.partitions.get(partition_id, ()):
        assert last < part.info.min_block <= part.info.max_block, f"{part.name} shares blocks, or is below the floor"
        last = part.info.max_block
        held += table.model.known[part.manifest.id]
    kept = [kept.row for kept in table.model.rows.get(partition_id, ()) if kept.row]
    in_order = table.model.kind.in_order
    assert in_order(held) == in_order(kept), f"partition {partition_id} holds {held}, not {kept}"
    assert state.block_counter == table.model.counter
    rows = Counter(row for part in state.detached for row in table.model.known[part.manifest.id])
    aside = Counter(kept.row for kept in table.model.detached if kept.row)
    assert rows == aside, "detached parts hold other rows than were detached"


def mutations_are_whole(table: Table, state: State, partition_id: str) -> None:
    """9: each row lacks exactly what its part lacks, so what is done is written down."""
    held = iter(table.model.rows.get(partition_id, ()))
    known = {m.version: m for m in state.mutations}
    kept = next(held, None)
    for part in state.partitions.get(partition_id, ()):
        lacking = [
            m.version
            for m in known.values()
            if m.since <= part.info.data_version < m.version
            and not m.killed
            and (m.partition_ids is None or partition_id in m.partition_ids)
        ]
        while kept is not None and kept.block <= part.info.max_block:
            assert kept.pending == lacking, f"{part.name} lacks {lacking}, a row of it {kept.pending}"
            kept = next(held, None)
        unknown = [version for version in lacking if known[version].finished_ms]
        assert not unknown, f"mutations {unknown} are said to be finished, and {part.name} lacks them"


def volatile_parts_are_covered(state: State, partition_id: str) -> None:
    """2, 3, 9, 11."""
    parts = state.partitions.get(partition_id, ())
    live = state.volatile.get(partition_id, ())
    active = {part.manifest.id for part in parts}
    ids = {volatile.id for volatile in live}
    for volatile in live:
        info = volatile.info
        assert info.min_block > state.floor_of(partition_id), f"{volatile.name} is Live below the floor"
        assert volatile.recipe.kind in ("regular", "forced"), f"{volatile.recipe.kind} must not be volatile"
        inner = leaves(parts, info)
        assert inner, f"{volatile.name} covers nothing"
        assert inner[0].info.min_block == info.min_block, f"{volatile.name} is not tiled from its start"
        assert inner[-1].info.max_block == info.max_block, f"{volatile.name} is not tiled to its end"
        lacks = pending(state.mutations, info)
        later = {tuple(v for v in pending(state.mutations, part.info) if v > info.mutation) for part in inner}
        assert later == {lacks}, f"the parts within {volatile.name} lack different mutations"
        dropping = [m.version for m in state.mutations if m.drops_rows and m.version in lacks]
        collapses = state.schemas[state.schema_version].engine != "MergeTree"
        assert not (collapses and dropping), f"{volatile.name} collapses rows before mutations {dropping}"
        for part in parts:
            within = info.min_block <= part.info.min_block and part.info.max_block <= info.max_block
            apart = part.info.max_block < info.min_block or part.info.min_block > info.max_block
            assert within or apart, f"{part.name} crosses the border of {volatile.name}"
        for other in live:
            nested = info.min_block <= other.info.min_block and other.info.max_block <= info.max_block
            around = other.info.min_block <= info.min_block and info.max_block <= other.info.max_block
            apart = other.info.max_block < info.min_block or other.info.min_block > info.max_block
            assert nested or around or apart, f"{volatile.name} and {other.name} cross"
            assert other is volatile or other.info.min_block != info.min_block or other.info.max_block != info.max_block
        for source, where in volatile.sources:
            there = source in active or source in ids
            assert there or leaves(parts, where), f"source {where} of {volatile.name} is gone"
            if not there:
                blocks = leaves(parts, where)
                assert len(blocks) == 1, f"source {where} of {volatile.name} is neither Live nor published"


def publish_takes_what_it_lists(table: Table, before: State, entry: Entry, after: State) -> None:
    """12, 13."""
    published = [op for op in entry.ops if isinstance(op, Publish)]
    if not all(isinstance(op, (Publish, MarkMutated, FinishMutations)) for op in entry.ops):
        return
    ids = {part.manifest.id for part in before.parts()}, {part.manifest.id for part in after.parts()}
    listed = {part_id for op in published for part_id in op.replaced}
    new = {op.part.id for op in published}
    assert ids[0] - ids[1] == listed - new, "Publish retired other parts than it lists"
    assert ids[1] - ids[0] == new - listed, "Publish added other parts than its own"
    for op in published:
        if op.volatile:
            assert op.volatile not in table.published, f"{op.volatile} was published twice"
            table.published.add(op.volatile)


def builders_take_over_from_builders(before: State, entry: Entry) -> None:
    """13: of two nodes that take a volatile part from a third, one gets it."""
    for op in entry.ops:
        if isinstance(op, AdoptVolatile):
            part = before.live(op.id)
            assert getattr(part, "owner", None) == op.previous, f"{op.id} was taken from who does not build it"


def names_are_new(table: Table, before: State, entry: Entry, after: State) -> None:
    """18."""
    assert after.block_counter >= before.block_counter
    brought = [part for op in entry.ops for part in (op.parts if isinstance(op, AddParts) else ())]
    brought += [op.part for op in entry.ops if isinstance(op, Publish)]
    if not brought:
        return
    infos = {part.manifest.id: part.info for part in after.parts()}
    old = {part.manifest.id: part.info for part in before.parts()}
    for part in brought:
        if part.id in infos:
            name = str(infos[part.id])
            assert table.names.setdefault(name, part.id) == part.id, f"the name {name} was given twice"
    for op in entry.ops:
        if isinstance(op, Publish) and not op.volatile and op.part.id in infos and set(op.replaced) <= old.keys():
            name = infos[op.part.id]
            between = [hole for hole in before.holes.get(op.part.partition_id, ()) if inside(hole, name)]
            level = max(info.level for info in [*map(old.get, op.replaced), *between]) + (op.kind != "mutation")
            assert name.level == level, "the level of a merge is that of its sources and one"


def windows_are_the_models(table: Table, state: State) -> None:
    """17."""
    model = table.model
    for window, wanted in ((state.tokens, model.tokens), (state.hashes, model.hashes)):
        found = [(name, (insert.version, frozenset(insert.partition_ids))) for name, insert in window.items()]
        assert found == [*wanted.items()], "the table remembers other inserts than the model"
