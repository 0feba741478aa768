"""Which names ClickHouse sees, decided; a small model of its reader checks that no row is missing or doubled."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mergelake.core.names import LEVEL_MAX, PartInfo
from mergelake.log.state import State
from mergelake.publish.plan import PublishedName, PublishPlan, empty_token, floor_part, plan_publish, shows
from tests.helpers.work import bytecodes


def info(name: str) -> PartInfo:
    return PartInfo.parse(name)


def names(*texts: str, since_ms: int = 0) -> list[PublishedName]:
    """Published names; the token is the name itself, or an empty part's where it starts with `drop-`."""
    return [PublishedName(t, info(t.removeprefix("drop-")), since_ms) for t in texts]


def floors(state_floors: Mapping[str, int], blocks: int = 9) -> Callable[[str], PartInfo | None]:
    return partial(floor_part, State(floors=state_floors, block_counter=blocks))


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
    assert [(str(c.info), c.over) for c in done.cover] == [("a_1_5_500000005_9", ("a_1_1_0", "a_2_5_1"))]
    assert done.remove == ()
    covered = shown + names("drop-a_1_5_500000005_9", since_ms=10_000)
    assert plan(["b_6_6_0"], covered, a=5) == PublishPlan((), (), ())
    assert set(plan(["b_6_6_0"], covered, now_ms=20_000, a=5).remove) == {"a_1_1_0", "a_2_5_1"}


def test_parts_that_were_dropped_singly_are_covered_each_alone() -> None:
    """What is merged there one day covers each hole that the log knows, and no name that spans several."""
    shown = names("a_1_1_0", "a_2_2_0", "a_3_3_4", "a_4_4_0", "drop-a_2_2_1")
    done = plan(["a_1_1_0", "a_4_4_0"], [shown[0], *shown[2:]])
    assert [str(c.info) for c in done.cover] == ["a_3_3_5"]
    done = plan(["a_4_4_0"], shown[:4], a=1)
    assert [str(c.info) for c in done.cover] == ["a_1_1_500000001_9", "a_2_2_1", "a_3_3_5"]


def test_empty_parts_never_cross_whoever_plans_them_and_when() -> None:
    """Two publishers know different versions, and see different names."""
    shown = names("a_1_2_7", "a_3_3_0")
    early = plan([], shown[:1], a=2).cover
    late = plan([], shown, a=3).cover
    other = plan([], [*shown, *names("drop-a_1_2_500000002_9")], a=3).cover
    assert late[0].info == other[0].info
    assert late[0].info.covers(early[0].info)
    assert late[0].info.covers(plan([], shown[1:]).cover[0].info)
    later = plan_publish({}, floors({"a": 3}, 12), shown, 10_000, 0).cover
    assert later[0].info.covers(late[0].info)
    assert plan([], names("a_3_3_0", "drop-a_1_3_500000003_8"), a=3).cover == ()


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


@pytest.mark.parametrize("seed", range(40))
def test_a_reader_never_misses_or_doubles_a_row_whatever_happens(seed: int) -> None:
    random = np.random.default_rng(seed)
    active: dict[str, PartInfo] = {}
    dropped: dict[str, int] = {}
    shown: dict[str, PublishedName] = {}
    block, now, grace = 0, 0, int(random.choice([0, 3000]))
    readers = [Reader(), Reader()]
    for _ in range(80):
        now += 1000
        action = random.integers(0, 5)
        if action == 0 or not active:
            block += 1
            active[f"p{block}"] = PartInfo("ab"[block % 2], block, block, 0)
        elif action == 1:
            partition = "ab"[random.integers(0, 2)]
            members = sorted((i, k) for k, i in active.items() if i.partition_id == partition)
            if len(members) >= 2:
                first = int(random.integers(0, len(members) - 1))
                chosen = members[first : first + int(random.integers(2, 4))]
                for _, key in chosen:
                    del active[key]
                low, high = chosen[0][0], chosen[-1][0]
                level, mutation = (1 + max(i.level for i, _ in chosen), max(i.mutation for i, _ in chosen))
                active[f"m{now}"] = PartInfo(partition, low.min_block, high.max_block, level, mutation)
        elif action == 2 and random.random() < 0.3:
            partition = "ab"[random.integers(0, 2)]
            active = {k: i for k, i in active.items() if i.partition_id != partition}
            dropped[partition] = block
        elif action == 3:
            block += 1
            for key, old in list(active.items()):
                rewritten = random.random() < 0.5  # else it is only marked
                active[f"{key}-{block}" if rewritten else key] = replace(old, mutation=block)
                if rewritten:
                    del active[key]
        for _ in range(2 if grace == 0 else 1):
            # A marked part may be known by its new name, while the old one is shown.
            newer = random.random() < 0.5
            names = [replace(n, info=active.get(n.token, n.info)) if newer else n for n in shown.values()]
            done = plan_publish(active, floors(dropped, block), names, now, grace)
            for part_id in done.add:
                shown[part_id] = PublishedName(part_id, active[part_id], now)
            for cover in done.cover:
                shown[cover.token] = PublishedName(empty_token(cover.info), cover.info, now)
            if grace == 0:
                continue
            for token in done.remove:
                del shown[token]
        visible = {token: name.info for token, name in shown.items()}
        # One reader looks at every step, one at every second: within the grace period.
        for reader in readers[: 1 + (now // 1000) % 2]:
            parts = {str(i): token for token, i in visible.items() if not token.startswith("drop-")}
            seen = {parts[name] for name in reader.refresh(visible) if name in parts}
            assert seen == set(active)


def test_a_plan_over_thousands_of_covered_names_takes_no_quadratic_time() -> None:
    def work(names: int) -> int:
        shown = [PublishedName(f"{n:032x}", PartInfo("all", n, n, 0), 0) for n in range(names)]
        merged = PublishedName("m", PartInfo("all", 0, names - 1, 1), 0)
        assert len(plan_publish({"m": merged.info}, floors({}), [*shown, merged], 10_000, 5000).remove) == names
        return bytecodes(lambda: plan_publish({"m": merged.info}, floors({}), [*shown, merged], 10_000, 5000))

    assert work(2000) < 4.5 * work(500)


def test_columns_of_infos_cover_as_infos_do() -> None:
    from mergelake.publish.plan import _Infos

    rng = np.random.default_rng(1)
    infos = [
        PartInfo("p", int(low), int(low + length), int(level), int(mutation))
        for low, length, level, mutation in rng.integers(0, 4, (80, 4))
    ]
    infos += [PartInfo("p", 1, 3, LEVEL_MAX), PartInfo("p", 2, 2, LEVEL_MAX)]
    for info in infos:
        assert _Infos(infos).over(info).tolist() == [other.covers(info) for other in infos]
    assert _Infos([]).over(infos[0]).tolist() == []
