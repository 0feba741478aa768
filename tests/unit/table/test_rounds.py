"""Rounds of publishing and of collection look at what changed since the last one, and do what a first round would."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.manifest import Extent, PartFile, encode_files
from mergelake.jobs.gc.collect import Known, collect_round
from mergelake.jobs.gc.reached import Reached
from mergelake.jobs.publish.plan import shown_token
from mergelake.jobs.publish.publish import names_shown, publish
from mergelake.jobs.publish.shown import Shown
from mergelake.log.model.operations import AddParts, AdvanceGcHorizon, DropParts, DropRange, Publish
from mergelake.log.model.retention import reachable, unreachable
from mergelake.log.model.state import State
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions import listing
from tests.helpers.manifests import SCHEMA, manifest
from tests.helpers.work import bytecodes


class Table:
    """A table whose parts have one object each, in partitions of its own making."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.store = MemoryStore(clock=self.clock)
        self.ids = SeededIds(seed)
        options = {"clock": self.clock, "ids": self.ids}
        self.handle = TableHandle.create(self.store, "t", SCHEMA, **options)
        self.other = TableHandle.open(self.store, "t", **options)

    @property
    def state(self) -> State:
        return self.handle.refresh()

    def made(self, partition: str, **fields: object):
        part = manifest(self.ids.new_id(), partition, files=1, base_version=self.state.version, **fields)
        key = f"{part.id}/files.packed"  # named as its file, so that it is published where it lies
        part = replace(part, files=encode_files([PartFile("files.packed", 1000, (Extent(key, 0, 1000),), "0" * 32)]))
        self.store.put(f"t/{key}", bytes(1000))
        return part

    def insert(self, *partitions: str) -> None:
        parts = tuple(self.made(partition) for partition in partitions)
        self.handle.log.commit(lambda _: [AddParts(parts)])

    def merge(self, partition: str) -> None:
        """The last two parts of a partition."""
        parts = self.state.partitions.get(partition, ())
        if len(parts) >= 2:
            made = self.made(partition, rows=sum(part.manifest.rows for part in parts[-2:]))
            sources = tuple(part.manifest.id for part in parts[-2:])
            self.handle.log.commit(lambda _: [Publish(made, sources)])

    def names(self) -> dict[str, bytes]:
        """What ClickHouse is shown."""
        return {meta.key: self.store.get(meta.key) for meta in self.store.list("t/__meta")}


def _move(table: Table, draw: random.Random) -> None:
    partition = draw.choice("abcd")
    parts = table.state.partitions.get(partition, ())
    match draw.randrange(9):
        case 0 | 1 | 2:
            table.insert(*draw.choices("abcd", k=draw.randint(1, 3)))
        case 3 | 4:
            table.merge(partition)
        case 5 if parts:
            gone = draw.choice(parts).manifest.id
            table.handle.log.commit(lambda _: [DropParts(partition, (gone,), draw.choice(["drop", "detach"]))])
        case 6:
            table.handle.log.commit(lambda _: [DropRange(draw.choice([partition, partition, None]))])
        case 7:
            history = draw.randint(table.state.history, table.state.version)
            table.handle.log.commit(lambda _: [AdvanceGcHorizon(table.state.fence, history)])
        case 8:
            keys = [meta.key for meta in table.store.list("t/__meta")]
            if keys and draw.random() < 0.3:
                table.store.delete([draw.choice(keys)])
            elif keys and draw.random() < 0.3:
                key = draw.choice(keys)
                table.store.put(key, table.store.get(key))  # another publisher
            else:
                publish(table.other, grace_seconds=draw.choice([0, 100]))


@pytest.mark.parametrize("seed", range(12))
def test_publishing_again_and_again_shows_what_a_first_round_would(seed: int) -> None:
    table, draw = Table(seed), random.Random(seed)
    for _ in range(25):
        for _ in range(draw.randint(0, 3)):
            _move(table, draw)
        table.clock.advance_s(draw.choice([0, 1, 60, 500]))
        grace = draw.choice([0, 100, 100, 100])
        with table.handle.remembering(Shown) as shown:
            new, now_ms = Shown(), table.clock.now_ms()
            for each in (shown, new):
                names_shown(table.handle, each)
            assert shown.plan(now_ms, grace * 1000) == new.plan(now_ms, grace * 1000)
            assert {token for token in _tokens(table) if not any(token in each for each in shown.tokens)} == set()
        report = publish(table.handle, grace_seconds=grace)
        fresh = TableHandle.open(table.store, "t", clock=table.clock, ids=table.ids)
        again = publish(fresh, grace_seconds=grace)
        assert (again.added, again.dropped, again.waiting) == ((), (), report.waiting)
        shown_now = {key.split("/")[2] for key in table.names()}
        assert {shown_token(part.manifest) for part in table.state.parts()} <= shown_now


def _tokens(table: Table) -> set[str]:
    return {meta.key.split("/")[2] for meta in table.store.list("t/__meta")}


@pytest.mark.parametrize("seed", range(12))
def test_what_is_reached_is_the_same_by_differences(seed: int) -> None:
    table, draw, reached = Table(seed), random.Random(seed), Reached()
    everything: set[str] = set()
    for _ in range(25):
        reached.look(table.state)
        before = {directory for directory in everything if directory in reached.directories}
        assert before == reachable(table.state) & everything
        for _ in range(draw.randint(0, 4)):
            _move(table, draw)
        now = reachable(table.state)
        assert now - before <= reached.newer(table.state) | (now - everything)
        assert reached.newer(table.state) <= now
        everything |= now


@pytest.mark.parametrize("seed", range(6))
def test_some_directories_are_reached_as_all_are(seed: int) -> None:
    """Whichever parts are said to lead to them, and where parts refer to objects of others that are gone."""
    table, draw, everything = Table(seed), random.Random(seed), {"nowhere", "/other/one"}
    table.store.put("t/shared/object", b"0")
    for _ in range(25):
        _move(table, draw)
        state = table.state
        parts = [*(p.manifest for p in state.parts()), *(p.manifest for p in state.detached)]
        if parts and draw.random() < 0.5:
            key = draw.choice(draw.choice(parts).object_keys())
            borrowing = manifest(table.ids.new_id(), draw.choice("abcd"), base_version=state.version)
            files = encode_files(PartFile(at, 1, (Extent(at, 0, 1),), "0" * 32) for at in (key, "shared/object"))
            added = AddParts((replace(borrowing, files=files),), begun=("shared",))
            table.handle.log.commit(lambda _, added=added: [added])
        state, all_of_it = table.state, reachable(table.state)
        everything |= all_of_it
        probe = set(draw.sample(sorted(everything), draw.randint(0, len(everything))))
        near = draw.sample(parts, draw.randint(0, len(parts))) if {p.id for p in parts} <= all_of_it else []
        assert unreachable(state, probe, near) == probe - all_of_it


def test_a_round_with_nothing_new_plans_nothing_and_looks_at_no_part() -> None:
    table = Table()
    table.insert(*(f"{number:03d}" for number in range(50)))
    publish(table.handle)
    collect_round(table.handle)
    with table.handle.remembering(Shown) as shown, table.handle.remembering(Known) as known:
        planned = shown.planned + known.shown.planned
        looked = known.reached.visited
    for _ in range(3):
        publish(table.handle)
        collect_round(table.handle)
    with table.handle.remembering(Shown) as shown, table.handle.remembering(Known) as known:
        # The first round gave 50 names; the one after that sees them, and has nothing left to do.
        assert shown.planned + known.shown.planned == planned + 50
        assert known.reached.visited == looked
    table.insert("007")
    table.merge("007")
    publish(table.handle)
    collect_round(table.handle)
    with table.handle.remembering(Shown) as shown, table.handle.remembering(Known) as known:
        assert shown.planned <= planned + 50 + 3
        assert known.reached.visited <= looked + 2 * 4


def _judged(table: Table) -> int:
    """Pages at which the last round of collection looked."""
    with table.handle.remembering(Known) as known:
        before = known.clean.judged
    collect_round(table.handle)
    with table.handle.remembering(Known) as known:
        return known.clean.judged - before


@pytest.mark.parametrize("seed", range(12))
def test_collecting_again_and_again_notes_what_a_first_round_would(seed: int, monkeypatch) -> None:
    monkeypatch.setattr(listing, "LIST_PAGE", 4)
    table, draw, judged = Table(seed), random.Random(seed), 0
    fresh = partial(TableHandle.open, table.store, "t", clock=table.clock, ids=table.ids)
    for _ in range(30):
        for _ in range(draw.choice([0, 0, 1, 3])):
            _move(table, draw)
        if draw.random() < 0.2:
            table.store.put(f"t/{table.ids.new_id()}/files.packed", b"nobody's")
        table.clock.advance_s(draw.choice([0, 1, 100_000]))
        again = collect_round(table.handle, dry_run=True)
        assert again == collect_round(fresh(), dry_run=True)
        judged += _judged(table)
    whole = sum(1 for _ in listing.parts_listed(table.handle))
    assert judged < 30 * whole


def test_a_round_with_nothing_new_judges_no_page(monkeypatch) -> None:
    monkeypatch.setattr(listing, "LIST_PAGE", 5)
    table = Table()
    for _ in range(20):
        table.insert("a", "b", "c")
    assert _judged(table) > 10
    assert _judged(table) == 0
    last = max(meta.key for meta in table.store.list("t") if "/_" not in meta.key)
    table.store.put(last.replace("/files", "x/files"), b"nobody's")
    assert _judged(table) <= 2
    assert _judged(table) == 0


@pytest.mark.parametrize("everything", [False, True])
def test_what_was_kept_by_its_name_alone_is_noted_once_that_goes(everything: bool) -> None:
    table = Table()
    table.insert("a", "b")
    gone = table.state.partitions["a"][0].manifest.id
    publish(table.handle)
    table.handle.log.commit(lambda _: [DropRange("a")])
    publish(table.handle)
    for _ in range(3):  # history ends
        table.clock.advance_s(10**6)
        assert collect_round(table.handle).noted == []
    assert (table.state.retired.find([gone]), _judged(table)) == ({}, 0)
    table.store.delete([key for key in table.names() if everything or gone in key])
    assert gone in {noted.directory for noted in collect_round(table.handle).noted}


def test_planning_a_round_is_no_more_work_with_ten_times_the_parts() -> None:
    def work(partitions: int) -> int:
        table = Table()
        table.insert(*(f"{number:03d}" for number in range(partitions)))
        publish(table.handle)
        publish(table.handle)
        shown = Shown()
        names_shown(table.handle, shown)
        shown.plan(table.clock.now_ms(), 0)
        table.insert("007")
        state = table.state
        listed = list(table.store.list("t/__meta/"))

        class Quiet:
            """A handle whose listing is there already."""

            directory = "t"
            store = type("Store", (), {"list": staticmethod(lambda prefix: iter(listed))})
            refresh = staticmethod(lambda: state)

        def call() -> None:
            names_shown(Quiet(), shown)  # type: ignore[arg-type]
            assert len(shown.plan(table.clock.now_ms(), 0).add) == 1

        return bytecodes(call) - 30 * len(listed)  # of the listing itself

    assert work(500) < work(50) + 1000


def test_a_round_that_fails_is_followed_by_a_whole_one() -> None:
    table = Table()
    table.insert("a", "b")
    publish(table.handle)
    table.insert("a")
    table.store.put = None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        publish(table.handle)
    with table.handle.remembering(Shown) as shown:
        assert (len(shown), shown.planned) == (0, 0)


def test_collection_never_lists_the_log_or_the_names_among_the_parts() -> None:
    table = Table()
    for _ in range(30):
        table.insert("a", "b")
    publish(table.handle)
    listed: list[str] = []
    real = table.store.list

    def watched(prefix: str, after: str = ""):
        for meta in real(prefix, after):
            listed.append(meta.key)
            yield meta

    table.store.list = watched  # type: ignore[method-assign]
    collect_round(table.handle)
    entries = [key for key in listed if key.startswith("t/_log/") and "/checkpoints/" not in key]
    assert entries == []
    assert sum(key.endswith("/files.packed") for key in listed) == 60
    assert sum(key.startswith("t/__meta/") for key in listed) <= 2 * 60 + 1
