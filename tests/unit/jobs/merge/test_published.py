"""Which names ClickHouse sees, decided; a small model of its reader checks that no row is missing or doubled."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mergelake.core.model.names import LEVEL_MAX, PartInfo, merged_name
from mergelake.jobs.publish.plan import (
    PublishedName,
    PublishPlan,
    brought,
    empty_token,
    floor_part,
    name_over,
    over_all_before,
    plan_publish,
    shows,
)
from mergelake.log.model.parts import ActivePart, RetiredPart
from mergelake.log.model.state import State
from tests.helpers.work import bytecodes


def info(name: str) -> PartInfo:
    return PartInfo.parse(name)


def names(*texts: str, since_ms: int = 0) -> list[PublishedName]:
    """Published names; the token is the name itself, or an empty part's where it starts with `drop-`."""
    return [PublishedName(t, info(t.removeprefix("drop-")), since_ms) for t in texts]


def floors(state_floors: Mapping[str, int]) -> Callable[[str], PartInfo | None]:
    """Each floor was set by the version of its number."""
    return partial(floor_part, State(floors=state_floors, drops=state_floors))


def plan(
    active: list[str], shown: list[PublishedName], now_ms: int = 10_000, grace_ms: int = 5000, **dropped: int
) -> PublishPlan:
    """With the last block that a drop removed, by partition."""
    return plan_publish({name: info(name) for name in active}, floors(dropped), shown, now_ms, grace_ms)


def test_every_active_part_gets_a_name_once() -> None:
    assert plan(["all_1_1_0", "all_2_2_0"], names("all_1_1_0")).add == ("all_2_2_0",)
    assert plan(["all_1_1_0"], names("all_1_1_0")) == PublishPlan((), (), ())


def test_a_part_that_mutations_did_not_change_keeps_the_name_that_it_was_shown_by() -> None:
    shown = [PublishedName("a", info("all_1_1_0"), 0)]
    for known in (shown, [replace(shown[0], info=info("all_1_1_0_5"))]):
        assert plan_publish({"a": info("all_1_1_0_5")}, floors({}), known, 10_000, 5000) == PublishPlan((), (), ())
        changed = {"b": info("all_1_1_0_7")}
        assert plan_publish(changed, floors({}), known, 10_000, 5000) == PublishPlan(("b",), (), ())
        covered = [*known, PublishedName("b", info("all_1_1_0_7"), 0)]
        assert plan_publish(changed, floors({}), covered, 10_000, 5000).remove == ("a",)
        assert plan_publish({}, floors({}), known, 10_000, 5000).cover[0].info.covers(info("all_1_1_0"))
    assert shows(info("all_1_1_0"), info("all_1_1_0_5"))
    assert shows(info("all_1_1_0_5"), info("all_1_1_0_5"))
    for other in ("all_1_1_0_6", "all_1_1_1_5", "all_1_2_0_5", "all_2_2_0", "a_1_1_0"):
        assert not shows(info(other), info("all_1_1_0_5")), other


def test_names_are_put_in_the_order_of_commits() -> None:
    active = ["a_1_1_0", "a_3_7_1", "b_2_2_0", "b_5_5_0", "b_8_8_0"]
    assert plan(active, []).add == ("a_1_1_0", "b_2_2_0", "b_5_5_0", "a_3_7_1", "b_8_8_0")


def test_sources_stay_visible_until_their_merge_has_been_for_the_grace_period() -> None:
    sources = names("all_1_1_0", "all_2_2_0")
    assert plan(["all_1_2_1"], sources) == PublishPlan(("all_1_2_1",), (), ())
    fresh = sources + names("all_1_2_1", since_ms=8000)
    assert plan(["all_1_2_1"], fresh).remove == ()
    assert set(plan(["all_1_2_1"], fresh, now_ms=13_000).remove) == {"all_1_1_0", "all_2_2_0"}


def test_a_dropped_partition_is_covered_by_one_empty_part() -> None:
    shown = names("a_1_1_0", "a_2_5_1", "b_6_6_0")
    done = plan(["b_6_6_0"], shown, a=5)
    assert [(str(c.info), c.over) for c in done.cover] == [("a_1_5_1000000010_5", ("a_1_1_0", "a_2_5_1"))]
    assert done.remove == ()
    covered = shown + names("drop-a_1_5_1000000010_5", since_ms=10_000)
    assert plan(["b_6_6_0"], covered, a=5) == PublishPlan((), (), ())
    assert set(plan(["b_6_6_0"], covered, now_ms=20_000, a=5).remove) == {"a_1_1_0", "a_2_5_1"}


def test_parts_that_were_dropped_singly_are_covered_each_alone() -> None:
    """What is merged there one day covers each hole that the log knows, and no name that spans several."""
    shown = names("a_1_1_0", "a_2_2_0", "a_3_3_4", "a_4_4_0", "drop-a_2_2_1")
    done = plan(["a_1_1_0", "a_4_4_0"], [shown[0], *shown[2:]])
    assert [str(c.info) for c in done.cover] == ["a_3_3_5"]
    done = plan(["a_4_4_0"], shown[:4], a=1)
    assert [str(c.info) for c in done.cover] == ["a_1_1_1000000002_1", "a_2_2_1", "a_3_3_5"]


def test_empty_parts_never_cross_whoever_plans_them_and_when() -> None:
    """Two publishers know different versions, and see different names."""
    shown = names("a_1_2_7", "a_3_3_0")
    early = plan([], shown[:1], a=2).cover
    late = plan([], shown, a=3).cover
    other = plan([], [*shown, *names("drop-a_1_2_1000000004_2")], a=3).cover
    assert late[0].info == other[0].info
    assert late[0].info.covers(early[0].info)
    assert late[0].info.covers(plan([], shown[1:]).cover[0].info)
    assert plan([], names("a_3_3_0", str(empty_token(late[0].info))), a=3).cover == ()


class Reader:
    """ClickHouse's: it loads the names it sees, hides covered ones, and never forgets what nothing covers."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()

    def refresh(self, shown: Mapping[str, PartInfo]) -> set[str]:
        self.loaded |= set(map(str, shown.values()))
        infos = [info(name) for name in self.loaded]
        tops = {i for i in infos if not any(o != i and o.covers(i) for o in infos)}
        for top in tops:
            assert not any(other != top and top.intersects(other) for other in tops), tops
        self.loaded = {str(top) for top in tops}
        gone = self.loaded - set(map(str, shown.values()))
        assert not gone, f"the reader still uses {gone}, which were taken away"
        return self.loaded


class World:
    """Parts of two partitions as they come and go, and the names that publishers give them."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.active: dict[str, ActivePart] = {}
        self.retired: dict[str, RetiredPart] = {}
        self.state = State()
        self.block, self.version = 0, 0
        self.shown: dict[str, PublishedName] = {}

    def change(self) -> None:
        """An insert, a merge, a drop of a partition or of a part, or a mutation."""
        self.version += 1
        random, partition = self.random, "ab"[self.random.integers(0, 2)]
        members = sorted((part.info, key) for key, part in self.active.items() if part.info.partition_id == partition)
        holes = self.state.holes.get(partition, ())
        match random.integers(0, 7):
            case 1 if len(members) >= 2:
                first = int(random.integers(0, len(members) - 1))
                chosen = members[first : first + int(random.integers(2, 4))]
                self.replace([key for _, key in chosen], f"m{self.version}", merged_name([i for i, _ in chosen], holes))
            case 2 if random.random() < 0.6:
                self.replace([key for _, key in members])
                at, others = {partition: self.version}, {k: v for k, v in self.state.holes.items() if k != partition}
                firsts = {k: v for k, v in self.state.firsts.items() if k != partition}
                floors = {**self.state.floors, partition: self.block}
                drops = {**self.state.drops, **at}
                self.state = replace(self.state, floors=floors, drops=drops, firsts=firsts, holes=others)
                for _ in range(int(random.integers(0, 3))):
                    self.insert(partition)
            case 3:
                self.block += 1
                for key, old in list(self.active.items()):
                    if random.random() < 0.5:
                        self.replace([key], f"{key}-{self.block}", replace(old.info, mutation=self.block))
                    else:  # it is only marked
                        self.replace([key], key, replace(old.info, mutation=self.block))
            case 4 if members:
                gone, key = members[random.integers(0, len(members))]
                self.replace([key])
                held = {**self.state.holes, partition: (*holes, merged_name([gone]))}
                self.state = replace(self.state, holes=held)
            case 5 if members:  # OPTIMIZE FINAL
                old_info, key = members[random.integers(0, len(members))]
                self.replace([key], f"o{self.version}", merged_name([old_info]))
            case _:
                self.insert(partition)

    def replace(self, keys: list[str], key: str = "", part: PartInfo | None = None) -> None:
        for old in keys:
            gone = self.active.pop(old)
            self.retired[old] = RetiredPart(old, gone.info, 0, 0, gone.added, self.version, 0)
        if part is not None:
            self.active[key] = ActivePart(part, None, self.version, 0)  # type: ignore[arg-type]

    def insert(self, partition: str) -> None:
        self.block += 1
        emptied = not any(part.info.partition_id == partition for part in self.active.values())
        if emptied and (partition in self.state.floors or self.state.holes.get(partition)):
            self.state = replace(self.state, firsts={**self.state.firsts, partition: self.block})
        level = int(self.random.integers(0, 3))
        self.replace([], f"p{self.block}", PartInfo(partition, self.block, self.block, level))

    def plan(self, now: int, grace: int) -> Callable[[], Iterator[None]]:
        """What a publisher does from now on, a request at a time."""
        named = {key: name_over(self.state, part.info, brought(part)) for key, part in self.active.items()}
        # A marked part may be known by its new name, while the old one is shown; a retired one by what the log knows.
        newer = self.random.random() < 0.5
        known = (
            {key: name_over(self.state, part.info, brought(part)) for key, part in self.retired.items()} | named
            if newer
            else {}
        )
        names = [replace(n, info=known.get(n.token, n.info)) for n in self.shown.values()]
        done = plan_publish(named, partial(floor_part, self.state), names, now, grace)

        def steps() -> Iterator[None]:
            for part_id in done.add:
                self.shown[part_id] = PublishedName(part_id, named[part_id], now)
                yield
            for cover in done.cover:
                self.shown[cover.token] = PublishedName(empty_token(cover.info), cover.info, now)
                yield
            if grace:
                for token in done.remove:
                    self.shown.pop(token, None)
                    yield

        return steps

    def seen(self, reader: Reader) -> set[str]:
        visible = {token: name.info for token, name in self.shown.items()}
        parts = {str(i): token for token, i in visible.items() if not token.startswith("drop-")}
        return {parts[name] for name in reader.refresh(visible) if name in parts}


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_never_misses_or_doubles_a_row_whatever_happens(seed: int) -> None:
    world, now = World(seed), 0
    grace = int(world.random.choice([0, 3000]))
    often, seldom = Reader(), Reader()
    late: list[Callable[[], Iterator[None]]] = []
    for _ in range(80):
        now += 1000
        world.change()
        if late:  # of a publisher that has planned before the change
            for _ in late.pop()():
                world.seen(often)
        for _ in range(2 if grace == 0 else 1):
            for _ in world.plan(now, grace)():
                seen = world.seen(often)
                for partition, first in world.state.firsts.items():  # old rows never beside those that replace them
                    alive = any(
                        (p.info.partition_id, p.info.min_block) == (partition, first) for p in world.active.values()
                    )
                    infos = [world.shown[token].info for token in seen]
                    there = {i.max_block >= first for i in infos if i.partition_id == partition}
                    assert not alive or len(there) < 2, (partition, first, infos)
        # One reader looks at every step, one at every second: within the grace period.
        for reader in (often, seldom)[: 1 + (now // 1000) % 2]:
            assert world.seen(reader) == set(world.active)
        if world.random.random() < 0.3 and grace == 0:
            late = [world.plan(now, grace)]


def test_a_part_over_all_before_covers_whatever_was_shown_of_them() -> None:
    def over(name: str, version: int) -> PartInfo:
        return over_all_before(info(name), version)

    named, dropped = over("a_57_60_1_70", 56), floors({"a": 56})("a")
    assert str(named) == "a_1_60_1000000113_70"
    assert str(over("a_57_57_0", 56)) == "a_1_57_1000000113_56"
    for other in (info("a_57_60_1_70"), dropped, info("a_3_56_900_56"), over("a_40_56_900_56", 55)):
        assert other is not None
        assert named.covers(other)
        assert not other.covers(named)
    for later in ("a_57_60_1_71", "a_57_60_2_70", "a_57_61_2_70", "a_71_71_0"):
        assert over(later, 57).covers(named)
    detached = RetiredPart("", info("a_57_60_1_70"), 0, 0, 3, 60, 0, noted=64)
    gone = over_all_before(detached.info, brought(detached))
    assert gone.covers(named)
    assert over("a_57_60_2_70", 60).covers(gone)
    assert shows(named, gone)
    assert not shows(gone, named)
    (cover,) = plan_publish({}, floors({}), [PublishedName("x", gone, 0)], 10_000, 0).cover
    assert cover.info.covers(gone)
    assert over("a_71_71_0", 60).covers(cover.info)
    many = (LEVEL_MAX - 1_000_000_000) // 2
    assert over("a_57_60_1_70", many) == info("a_57_60_1_70")
    last = floors({"a": many})("a")
    assert last is not None
    assert last.covers(over("a_57_60_1_70", many - 1))


def test_a_plan_over_thousands_of_covered_names_takes_no_quadratic_time() -> None:
    def work(names: int) -> int:
        shown = [PublishedName(f"{n:032x}", PartInfo("all", n, n, 0), 0) for n in range(names)]
        merged = PublishedName("m", PartInfo("all", 0, names - 1, 1), 0)
        assert len(plan_publish({"m": merged.info}, floors({}), [*shown, merged], 10_000, 5000).remove) == names
        return bytecodes(lambda: plan_publish({"m": merged.info}, floors({}), [*shown, merged], 10_000, 5000))

    assert work(2000) < 4.5 * work(500)


def test_columns_of_infos_cover_as_infos_do() -> None:
    from mergelake.jobs.publish.plan import _Infos

    rng = np.random.default_rng(1)
    infos = [
        PartInfo("p", int(low), int(low + length), int(level), int(mutation))
        for low, length, level, mutation in rng.integers(0, 4, (80, 4))
    ]
    infos += [PartInfo("p", 1, 3, LEVEL_MAX), PartInfo("p", 2, 2, LEVEL_MAX)]
    for info in infos:
        assert _Infos(infos).over(info).tolist() == [other.covers(info) for other in infos]
    assert _Infos([]).over(infos[0]).tolist() == []
