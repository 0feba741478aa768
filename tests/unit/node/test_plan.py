"""What a node starts next."""

from __future__ import annotations

from mergelake.core.names import PartInfo
from mergelake.core.settings import TableSettings
from mergelake.log.state import ActivePart
from mergelake.merge.select import Slots
from mergelake.node.plan import TableView, tick
from tests.helpers.manifests import manifest

SLOTS = Slots(total=3, lower_at_free=1, whole_partition_at_free=1)
NOW_MS = 10_000_000


def view(table_id: str, parts: int, partition: str = "all") -> TableView:
    active = tuple(
        ActivePart(
            PartInfo(partition, n, n, 0), manifest(f"{table_id}{n:030x}", partition, bytes_on_disk=1 << 20), n, 0
        )
        for n in range(1, parts + 1)
    )
    return TableView(table_id, active, TableSettings())


def test_a_table_with_many_small_parts_gets_a_merge_of_neighbours():
    (work,) = tick([view("t1", 12)], NOW_MS, {}, Slots(total=1))
    blocks = [part.info.min_block for part in work.sources]
    assert len(blocks) >= 2
    assert blocks == list(range(blocks[0], blocks[0] + len(blocks)))


def test_never_more_work_than_free_slots():
    tables = [view(f"t{n}", 30) for n in range(5)]
    assert len(tick(tables, NOW_MS, {}, SLOTS)) == 3
    assert len(tick(tables, NOW_MS, {"a": frozenset({"x"}), "b": frozenset({"y"})}, SLOTS)) == 1
    assert tick(tables, NOW_MS, {k: frozenset({k}) for k in "abc"}, SLOTS) == []


def test_tables_take_turns_and_the_fullest_comes_first():
    works = tick([view("t1", 20), view("t2", 40)], NOW_MS, {}, SLOTS)
    assert [work.table_id for work in works[:2]] == ["t2", "t1"]


def test_parts_that_are_being_merged_are_not_taken_again():
    table = view("t1", 40)
    (first,) = tick([table], NOW_MS, {}, Slots(total=1))
    later = tick([table], NOW_MS, {"running": first.part_ids}, SLOTS)
    assert all(not (work.part_ids & first.part_ids) for work in later)


def test_nothing_to_do_starts_nothing():
    assert tick([view("t1", 1), view("t2", 0)], NOW_MS, {}, SLOTS) == []
