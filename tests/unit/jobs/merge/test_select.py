"""Ranges, several merges at once, whole partitions, OPTIMIZE."""

from dataclasses import dataclass

import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.manifest import PartManifest, encode_files
from mergelake.core.model.names import PartInfo
from mergelake.core.model.settings import TableSettings
from mergelake.jobs.merge.select import part_ranges, select_merges, select_optimize, select_rested_partition

NOW = 1_700_000_000_000
DEFAULTS = TableSettings()


@dataclass(frozen=True)
class Part:
    info: PartInfo
    manifest: PartManifest
    added_ms: int


def part(name: str, size: int = 1 << 20, age_s: int = 0) -> Part:
    info = PartInfo.parse(name)
    manifest = PartManifest(name, info.partition_id, 10, encode_files(()), bytes_on_disk=size)
    return Part(info, manifest, NOW - age_s * 1000)


def run(partition: str, first: int, count: int, size: int = 1 << 20, age_s: int = 0) -> list[Part]:
    return [part(f"{partition}_{i}_{i}_0", size, age_s) for i in range(first, first + count)]


def names(merges: list[tuple[Part, ...]]) -> list[list[str]]:
    return [[str(p.info) for p in merge] for merge in merges]


def lengths(ranges: list[list[Part]]) -> list[int]:
    return [len(found) for found in ranges]


def test_merge_never_crosses_a_partition() -> None:
    # M-043
    parts = run("a", 1, 4) + run("b", 5, 4)
    assert lengths(part_ranges(parts)) == [4, 4]
    assert select_merges(parts, DEFAULTS, NOW) == []


def test_merge_never_skips_a_busy_part() -> None:
    # M-028
    parts = run("all", 1, 9)
    assert lengths(part_ranges(parts, busy={"all_5_5_0"})) == [4, 4]
    assert select_merges(parts, DEFAULTS, NOW, busy={"all_5_5_0"}) == []


def test_parts_at_different_mutation_versions_stay_apart() -> None:
    parts = [part("all_1_1_0_7"), part("all_2_2_0_7"), part("all_3_3_0"), part("all_8_8_0")]
    assert lengths(part_ranges(parts, mutations=[7])) == [2, 1, 1]
    assert lengths(part_ranges(parts)) == [4]


def test_a_replaced_part_of_higher_level_between_two_parts_keeps_them_apart() -> None:
    parts = [part("all_1_1_0"), part("all_5_5_0")]
    assert lengths(part_ranges(parts, retired=[PartInfo("all", 2, 4, 1)])) == [1, 1]
    assert lengths(part_ranges(parts, retired=[PartInfo("all", 2, 4, 0)])) == [2]
    assert lengths(part_ranges(parts, retired=[PartInfo("other", 2, 4, 1)])) == [2]


def test_one_merge_for_each_limit_and_never_a_part_twice() -> None:
    parts = run("a", 1, 5) + run("b", 6, 5)
    merges = select_merges(parts, DEFAULTS, NOW, bytes_max=[1 << 40, 1 << 40, 1 << 40])
    assert [[p.info.partition_id for p in merge] for merge in merges] == [["b"] * 5, ["a"] * 5]


def test_equal_scores_choose_the_later_range() -> None:
    [merge] = select_merges(run("a", 1, 5) + run("b", 6, 5), DEFAULTS, NOW)
    assert merge[0].info.partition_id == "b"


def test_merges_can_be_switched_off() -> None:
    # M-027
    settings = TableSettings({"max_bytes_to_merge_at_max_space_in_pool": 0})
    assert select_merges(run("a", 1, 50), settings, NOW) == []


def test_busy_parts_still_count_as_parts_of_the_partition() -> None:
    parts = run("a", 1, 3005)
    busy = {p.manifest.id for p in parts[:2995]}
    [merge] = select_merges(parts, DEFAULTS, NOW, busy=busy)
    assert len(merge) == 5


def test_a_partition_that_rested_long_enough_is_merged_whole() -> None:
    settings = TableSettings({"min_age_to_force_merge_seconds": 60, "min_age_to_force_merge_on_partition_only": 1})
    parts = run("a", 1, 2, 10**9, 100) + run("b", 3, 2, 10**9, 200) + run("c", 5, 2, 10**9, 10)
    assert select_merges(parts, settings, NOW) == []
    chosen = select_rested_partition(parts, settings, NOW)
    assert chosen is not None
    assert names([chosen]) == [["b_3_3_0", "b_4_4_0"]]
    assert select_rested_partition(parts, settings, NOW, busy={"b_3_3_0"}) is None
    assert select_rested_partition(parts, settings, NOW, busy_slots=10) is None
    assert select_rested_partition(parts, settings, NOW, bytes_max=10**9) is None
    assert select_rested_partition(parts, DEFAULTS, NOW) is None


def test_optimize_alone_merges_one_run() -> None:
    parts = [part("all_1_1_0", 10**9), part("all_2_2_0", 10**6)]
    assert names(select_optimize(parts, DEFAULTS, NOW)) == [["all_1_1_0", "all_2_2_0"]]


def test_optimize_of_a_partition_wants_two_parts_unless_final() -> None:
    parts = [part("a_1_1_0"), *run("b", 2, 3)]
    assert select_optimize(parts, DEFAULTS, NOW, partition_id="a") == []
    assert names(select_optimize(parts, DEFAULTS, NOW, partition_id="a", final=True)) == [["a_1_1_0"]]
    assert lengths(select_optimize(parts, DEFAULTS, NOW, partition_id="b")) == [3]


def test_optimize_final_takes_every_partition() -> None:
    # M-042
    parts = [part("a_1_1_2"), *run("b", 2, 3)]
    assert lengths(select_optimize(parts, DEFAULTS, NOW, final=True)) == [1, 3]
    assert lengths(select_optimize(parts, DEFAULTS, NOW, final=True, skip_merged=True)) == [3]


def test_optimize_says_why_it_cannot() -> None:
    parts = run("a", 1, 3)
    with pytest.raises(MergelakeError, match="a_2_2_0 of partition a is being merged") as caught:
        select_optimize(parts, DEFAULTS, NOW, final=True, busy={"a_2_2_0"})
    assert caught.value.code == 388
    with pytest.raises(MergelakeError, match="mutation versions"):
        select_optimize([part("a_1_1_0_9"), part("a_2_2_0")], DEFAULTS, NOW, final=True, mutations=[9])
    with pytest.raises(MergelakeError, match="nothing to merge"):
        select_optimize([], DEFAULTS, NOW, throw_if_noop=True)
