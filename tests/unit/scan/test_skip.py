"""Skip indexes in scans: the learning example, FINAL, parts without indexes, and how much is asked of the store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.schema import SkipIndex
from mergelake.core.types.types import parse_type
from mergelake.parts.read import index_reader
from mergelake.parts.read.cache import PartCache
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.explain import explain_text
from mergelake.scan.read.plan import plan_scan
from tests.helpers.scans import ScanTable, make_schema

LEARNING = make_schema(
    {"a": "Int32", "b": "Int32", "c": "Int32"},
    partition_by=("a",),
    order_by=("b",),
    indices=(SkipIndex("idx_c", "(c)", "minmax"),),
    settings={"index_granularity": "3"},
)


def learning(schema=LEARNING, **kwargs) -> ScanTable:
    table = ScanTable(schema, **kwargs)
    table.insert([{"a": 1, "b": 1, "c": 1}])
    table.insert([{"a": 5, "b": 2, "c": 2}, {"a": 5, "b": 3, "c": 3}])
    table.insert([{"a": 3, "b": 10 - i, "c": 4 + i} for i in range(7)])
    return table


def test_the_learning_example_drops_1_of_1_2_of_3_and_1_of_1_granules():
    # M-056
    table = learning()
    plan = table.plan(ScanRequest(where="c = 5"))
    (item,) = plan.items
    assert (item.info.partition_id, item.ranges) == ("3", ((1, 2),)) or item.marks == 1
    skip = plan.steps[-1]
    assert (skip.name, skip.parts, skip.parts_total, skip.granules, skip.granules_total) == ("idx_c", 1, 3, 1, 5)
    assert [row["b"] for row in table.scan(ScanRequest(where="c = 5"))] == [9]
    text = explain_text(plan)
    assert "     Skip\n       Name: idx_c\n       Description: minmax GRANULARITY 1\n" in text
    assert "       Condition: (c in [5, 5])\n       Parts: 1/3\n       Granules: 1/5\n" in text


def test_a_predicate_on_other_columns_asks_no_index():
    table = learning()
    steps = table.plan(ScanRequest(where="b = 5")).steps
    assert [step.type for step in steps] == ["Min-Max", "Partition", "PrimaryKey"]


def test_parts_without_the_index_or_with_another_one_of_its_name_are_read():
    table = learning(replace(LEARNING, indices=()))
    for index in (SkipIndex("idx_c", "c", "minmax"), SkipIndex("idx_c", "c", "set(0)", 2)):
        snapshot = replace(table.handle.snapshot(), schema=replace(LEARNING, indices=(index,)))
        plan = plan_scan(table.store, "t", snapshot, ScanRequest(where="c = 5"), table.caches)
        assert plan.marks == 5
    two = learning(replace(LEARNING, indices=(SkipIndex("idx_c", "c", "minmax", 2),)))
    snapshot = replace(two.handle.snapshot(), schema=LEARNING)
    plan = plan_scan(two.store, "t", snapshot, ScanRequest(where="c = 5"), two.caches)
    assert sum(item.marks for item in plan.items if item.info.partition_id == "3") == 3


def test_final_does_not_lose_the_newest_row_to_an_index():
    schema = make_schema(
        {"k": "UInt32", "v": "UInt32"},
        engine="ReplacingMergeTree",
        order_by=("k",),
        indices=(SkipIndex("i", "v", "minmax"), SkipIndex("j", "k", "bloom_filter")),
        settings={"index_granularity": "2"},
    )
    table = ScanTable(schema)
    table.insert([{"k": i, "v": 1} for i in range(10)])
    table.insert([{"k": i, "v": 2} for i in range(5)])
    rows = table.scan(ScanRequest(where="v = 1", final=True))
    assert sorted(row["k"] for row in rows) == [5, 6, 7, 8, 9]
    assert table.scan(ScanRequest(where="k = 3", final=True)) == [{"k": 3, "v": 2}]


def test_an_index_costs_two_requests_a_part_once_and_none_if_it_is_not_asked():
    table = learning()
    gets = [table.store.counters.get]
    for where in ("c > b", "c = 5", "c = 6"):
        table.plan(ScanRequest(where=where))
        gets.append(table.store.counters.get)
    assert gets[1] == gets[0]
    assert gets[2] - gets[1] <= 2 * 3
    assert gets[3] == gets[2]


def test_a_column_that_had_another_type_makes_its_index_useless():
    table = learning()
    columns = tuple(replace(c, type=parse_type("Int64")) if c.name == "c" else c for c in LEARNING.columns)
    changed = replace(LEARNING, columns=columns, version=2)
    snapshot = replace(table.handle.snapshot(), schema=changed)
    assert plan_scan(table.store, "t", snapshot, ScanRequest(where="c = 5"), table.caches).marks == 5
    same = replace(table.handle.snapshot(), schema=replace(LEARNING, version=2))
    assert plan_scan(table.store, "t", same, ScanRequest(where="c = 5"), table.caches).marks == 1


@pytest.mark.parametrize("kind", ["minmax", "set(0)", "bloom_filter"])
def test_a_damaged_index_is_told_with_its_object(kind: str):
    table = learning(replace(LEARNING, indices=(SkipIndex("idx_c", "c", kind),)))
    part = table.handle.snapshot().parts[-1]
    file = next(f for name, f in part.manifest.file_table().items() if name.startswith("skp_idx_idx_c.idx"))
    key = f"t/{file.extents[0].key}"
    body = bytearray(table.store.get(key))
    body[file.extents[0].offset + 20] ^= 1
    table.store.put(key, bytes(body))
    with pytest.raises(CorruptDataError) as caught:
        table.plan(ScanRequest(where="c = 5"))
    assert caught.value.object_key == key
    assert caught.value.offset == file.extents[0].offset


def test_a_large_index_is_read_by_the_ranges_that_the_key_has_left(monkeypatch: pytest.MonkeyPatch):
    schema = make_schema(
        {"k": "UInt32", "s": "String"},
        order_by=("k",),
        indices=(SkipIndex("i", "s", "set(0)", 2), SkipIndex("m", "s", "minmax", 3)),
        settings={"index_granularity": "4", "min_compress_block_size": "64", "max_compress_block_size": "200"},
    )
    table = ScanTable(schema)
    table.insert([{"k": i, "s": b"value %d" % (i % 97)} for i in range(1000)])
    requests = [ScanRequest(where=f"k > {low} AND k < {low + 90} AND s = 'value 5'") for low in range(0, 900, 70)]
    whole = [table.plan(request).items for request in requests]
    monkeypatch.setattr(index_reader, "WHOLE_BYTES", 0)
    table.caches = PartCache()
    assert [table.plan(request).items for request in requests] == whole
    assert all(len(table.scan(request)) in (0, 1) for request in requests)
    assert any(whole)


def test_keys_and_values_of_maps_are_looked_for():
    keys = SkipIndex("keys", "mapKeys(m)", "bloom_filter(0.001)")
    schema = make_schema(
        {"k": "UInt32", "m": "Map(String, String)"},
        order_by=("k",),
        indices=(keys, SkipIndex("vals", "mapValues(m)", "bloom_filter(0.001)")),
        settings={"index_granularity": "2"},
    )
    table = ScanTable(schema)
    table.insert([{"k": i, "m": [(b"k%d" % (i // 4), b"v%d" % (i // 2))]} for i in range(40)])

    def marks(where: str) -> int:
        return table.plan(ScanRequest(where=where)).marks

    assert marks("mapContains(m, 'k3')") == 2
    assert marks("m['k3'] = 'v6'") == 1
    assert marks("m['k3'] IN ('v6', 'v7')") == 2
    assert marks("m['k3'] = ''") == marks("m['k3'] IN ('v6', '')") == 20  # so it is without the key
    assert marks("m['k3'] != 'v6'") == 20
