"""A node that remembers chooses what one without a memory would, after any history: and looks at what changed only."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from mergelake.jobs.merge.select import MergeSlots, merge_bytes_limit, select_merges, select_rested_partition
from mergelake.jobs.merge.volatile import fits_disk, settled
from mergelake.jobs.node.actions import Merge, NodeView, Propose, TableView
from mergelake.jobs.node.candidates import Candidates, Memory
from mergelake.jobs.node.plan import tick
from mergelake.log.model.conflict import Reject, step
from mergelake.log.model.operations import AddParts, CancelVolatile, DropRange, Entry, KillMutation, Mutation, Publish
from tests.helpers.manifests import manifest, schema_with
from tests.helpers.volatile import MIB, Shared, here
from tests.helpers.work import bytecodes

SLOTS = MergeSlots(total=8, lower_at_free=6, whole_partition_at_free=3)
SIZES = [1, 1000, 50_000, MIB, 3 * MIB, 40 * MIB, 10_000 * MIB]
PAUSES_MS = [0, 1, 999, 1000, 7_003, 60_000, 900_000, 3_600_000, 40 * 86_400_000]
SETTINGS = [
    {},
    {"merge_upload_policy": "direct"},
    {"merge_selector_base": 1.5},
    {"merge_selector_base": 2},
    {"max_bytes_to_merge_volatile": 64 * MIB, "write_amplification_target": 0},
    {"max_bytes_to_merge_volatile": 64 * MIB, "write_amplification_target": 4, "parts_to_upload_volatile": 20},
    {"merge_upload_policy": "auto"},
    {"min_age_to_force_merge_seconds": 3600},
    {"min_age_to_force_merge_seconds": 900, "min_age_to_force_merge_on_partition_only": 1},
    {"min_parts_to_merge_at_once": 4, "merge_selector_window_size": 5, "parts_to_throw_insert": 12},
]


class History:
    """A table at the hands of chance."""

    def __init__(self, seed: int, **settings: object) -> None:
        self.random = random.Random(seed)
        self.shared = Shared(schema_with(**{"merge_upload_policy": "volatile", **settings}))
        self.merging: dict[frozenset[str], str] = {}

    def some(self, *ops: object) -> None:
        """An entry, if the log takes it."""
        shared = self.shared
        after = step(shared.state, Entry(shared.state.version + 1, "", shared.now_ms, "", ops))  # type: ignore[arg-type]
        if not isinstance(after, Reject):
            shared.state = after

    def move(self) -> None:
        """One thing happens."""
        draw, shared = self.random, self.shared
        partition = draw.choice("abcdef")
        parts = shared.state.partitions.get(partition, ())
        kind = draw.randrange(12)
        if kind < 5:
            made = [
                manifest(shared.new_id(), draw.choice([partition, "a"]), bytes_on_disk=draw.choice(SIZES))
                for _ in range(draw.choice([1, 1, 2, 12]))
            ]
            self.some(AddParts(tuple(made)))
        elif kind < 7 and len(parts) >= 2:
            begin = draw.randrange(len(parts) - 1)
            sources = parts[begin : begin + draw.randint(2, 5)]
            size = sum(part.manifest.bytes_on_disk for part in sources)
            made_of = manifest(shared.new_id(), partition, 10 * len(sources), bytes_on_disk=size)
            self.some(Publish(made_of, tuple(part.manifest.id for part in sources)))
        elif kind == 7 and len(parts) >= 2:
            elements = shared.elements(partition)
            if len(elements) >= 2:
                begin = draw.randrange(len(elements) - 1)
                with suppress(AssertionError):  # the log does not take it
                    shared.intend(begin, begin + 2, draw.choice(["me", "you"]), partition)
        elif kind == 8:
            live = [part.id for held in shared.state.volatile.values() for part in held]
            self.some(CancelVolatile(tuple(live[: draw.randint(0, 2)]), "so it goes"))
        elif kind == 9 and draw.random() < 0.4:
            self.some(DropRange(partition))
        elif kind == 10 and draw.random() < 0.3:
            self.some(Mutation(shared.new_id(), "DELETE WHERE k = 1"))
        elif kind == 11:
            for mutation in shared.state.mutations:
                self.some(KillMutation(mutation.id))
        shared.now_ms += draw.choice(PAUSES_MS) if draw.random() < 0.9 else -draw.choice(PAUSES_MS[:6])

    def view(self) -> TableView:
        """What a node sees of it."""
        draw, state = self.random, self.shared.state
        everyone = list(state.parts())
        if everyone and draw.random() < 0.3:
            first = draw.choice(everyone)
            self.merging[frozenset({first.manifest.id})] = first.info.partition_id
        if draw.random() < 0.3:
            self.merging.clear()
        live = [part for held in state.volatile.values() for part in held]
        local = here(*(part for part in live if draw.random() < 0.6), size=draw.choice(SIZES))
        avoided = [draw.choice(everyone).info] if everyone and draw.random() < 0.2 else []
        return TableView("t", state, local, dict(self.merging), avoided=avoided)


def plain(
    candidates: Candidates,
    view: TableView,
    node: NodeView,
    used: int,
    limit: int,
    base: float | None,
    disk: int | None,
    claimed: bool,
) -> object:
    """The same by looking at everything."""
    everyone = [part for name in view.state.partitions for part in candidates.elements(name)]
    busy = candidates.busy | (candidates.volatile if disk is None else candidates.absent)
    if disk is not None:
        fresh_only = view.settings.number("write_amplification_target") > 0
        busy |= {
            p.manifest.id
            for p in everyone
            if not fits_disk(disk, [p.manifest.bytes_on_disk]) or (fresh_only and settled(p, disk))
        }
    mutations = [m.version for m in view.state.mutations if claimed and not (m.killed or m.finished_ms)]
    found = select_merges(
        everyone, view.settings, node.now_ms, bytes_max=[limit], busy=busy, mutations=mutations, base=base
    )
    if found:
        return found[0]
    return select_rested_partition(
        everyone, view.settings, node.now_ms,
        busy_slots=used, slots=node.slots, bytes_max=limit, busy=busy, mutations=mutations,
    )  # fmt: skip


@pytest.mark.parametrize("named", SETTINGS, ids=str)
@given(st.integers(0, 2**32))
@settings(max_examples=15)
def test_one_merge_after_another_is_what_a_look_at_everything_chooses(named: dict[str, object], seed: int) -> None:
    history, memory, draw = History(seed, **named), Memory(), random.Random(seed + 1)
    for _ in range(20):
        for _ in range(draw.choice([0, 1, 1, 5])):
            history.move()
        view = history.view()
        node = NodeView("me", history.shared.now_ms, SLOTS)
        claimed = draw.random() < 0.6
        candidates = Candidates(node, view, memory, claimed=claimed)
        for used in range(draw.randrange(SLOTS.total)):
            limit = draw.choice([merge_bytes_limit(view.settings, used, SLOTS), draw.choice(SIZES) * 3])
            disk = draw.choice([None, 64 * MIB])
            limit = limit if disk is None else min(limit, disk)
            base = draw.choice([None, None, 1.0, 6.0])
            busy = candidates.busy | (candidates.volatile if disk is None else candidates.absent)
            found = candidates.best(busy, used, limit, base, disk)
            assert found == plain(candidates, view, node, used, limit, base, disk, claimed)
            if found is not None:
                candidates.take([part.manifest.id for part in found], found[0].info.partition_id)


@given(st.integers(0, 2**32), st.sampled_from(SETTINGS), st.booleans())
@settings(max_examples=40)
def test_a_memory_changes_no_tick(seed: int, named: dict[str, object], disk: bool) -> None:
    history, memories = History(seed, **named), {}
    for _ in range(30):
        history.move()
        node = NodeView("me", history.shared.now_ms, SLOTS, disk=disk)
        view = history.view()
        assert tick(node, [view], memories) == tick(node, [view])


def _table(partitions: int, each: int = 6) -> Shared:
    """Parts that are not worth a merge while they are young: the first is a third of all."""
    shared = Shared(schema_with(merge_upload_policy="direct"))
    for number in range(partitions):
        sizes = [1000 * MIB * 2**n // 3**n for n in range(each)]
        parts = [manifest(shared.new_id(), f"{number:05d}", bytes_on_disk=size) for size in sizes]
        shared.commit(AddParts(tuple(parts)))
    return shared


def _ticks(shared: Shared, memories: dict[str, Memory], slots: int = 32) -> list:
    return tick(NodeView("me", shared.now_ms, MergeSlots(total=slots)), [TableView("t", shared.state)], memories)


def test_an_idle_tick_looks_at_what_changed_and_at_what_has_become_old_enough() -> None:
    shared, memories = _table(50), {}
    shared.pass_s(1)
    _ticks(shared, memories)
    memory = memories["t"]
    assert memory.scored == 50
    for _ in range(10):
        shared.pass_s(0.1)
        assert _ticks(shared, memories) == []
    assert memory.scored == 50
    shared.insert(1, 100, "00007")
    shared.pass_s(1)
    _ticks(shared, memories)
    assert memory.scored == 51
    first, days = [], 0
    while not first and days < 100:
        shared.pass_s(86_400)
        first, days = _ticks(shared, memories), days + 1
        assert first == _ticks(shared, {})
    assert 1 < days < 100
    assert memory.scored <= 51 + 2 * 50


def test_what_an_idle_tick_does_is_the_same_with_ten_times_the_partitions() -> None:
    def work(partitions: int) -> int:
        shared, memories = _table(partitions), {}
        shared.pass_s(1)
        _ticks(shared, memories)
        shared.insert(1, 100, "00007")
        shared.pass_s(1)
        return bytecodes(lambda: _ticks(shared, memories))

    assert work(300) < 1.2 * work(30)


def test_a_tick_that_fills_all_slots_looks_again_only_at_what_it_takes_from() -> None:
    shared, memories = Shared(schema_with(merge_upload_policy="direct")), {}
    for number in range(60):
        shared.insert(12, 10_000, f"{number:05d}")
    shared.pass_s(20)
    started = _ticks(shared, memories)
    assert len(started) == 32
    assert memories["t"].scored == 60
    running = {work.part_ids: work.partition_id for work in started if isinstance(work, Merge)}
    view = replace(TableView("t", shared.state), merging=dict(list(running.items())[:31]))
    node = NodeView("me", shared.now_ms, MergeSlots(total=32))
    again = tick(node, [view], memories)
    assert len(again) == 1
    assert isinstance(again[0], (Merge, Propose))
    assert memories["t"].scored == 60
