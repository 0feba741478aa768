"""`check_against`: what a part says of itself is right, and still it is not what its table wants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mergelake.api.python.check import check_against
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.schema import SkipIndex, TableSchema
from mergelake.parts.read.cache import PartCache
from mergelake.parts.tools.verify import check_part
from mergelake.scan.read.source import open_part
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.write.insert import insert_target, write_blocks
from tests.helpers.scans import block_of, make_schema

INDEXES = (
    SkipIndex("m", "v", "minmax", 2),
    SkipIndex("s", "lower(t)", "set(100)", 1),
    SkipIndex("b", "t", "bloom_filter", 1),
    SkipIndex("w", "t", "tokenbf_v1(32, 2, 0)", 3),
)
SCHEMA = make_schema(
    {"k": "UInt32", "v": "Int32", "t": "String"},
    partition_by=("k % 2",),
    order_by=("k", "v"),
    primary_key=("k",),
    indices=INDEXES,
    settings={"index_granularity": "7"},
)


def _problems(written: TableSchema, told: TableSchema) -> str:
    """A part of 50 rows of one definition, checked against another."""
    rows = [{"k": 2 * (i // 3), "v": -i, "t": b"Text %d" % (i % 11)} for i in range(50)]
    store: Any = MemoryStore()
    block = block_of(rows, written.types)
    (manifest,) = write_blocks(insert_target(store, "t", written, SeededIds(1), ManualClock()), [block])
    assert check_part(open_part(store, "t", manifest, written, PartCache())) == []
    return "; ".join(map(str, check_against(open_part(store, "t", manifest, told, PartCache()), told)))


def test_a_part_of_its_table_has_nothing_wrong() -> None:
    assert _problems(SCHEMA, SCHEMA) == ""


def test_rows_in_another_order_are_told() -> None:
    assert "not in the order of (k, v)" in _problems(replace(SCHEMA, order_by=("k", "-v")), SCHEMA)


def test_rows_of_another_partition_are_told() -> None:
    found = _problems(replace(SCHEMA, partition_by=("(k + 1) % 2",)), SCHEMA)
    assert "Rows belong to another partition: expected 1, found 0" in found


def test_a_primary_index_of_other_keys_is_told() -> None:
    halves = replace(SCHEMA, order_by=("toUInt32(intDiv(k, 2))", "v"), primary_key=("toUInt32(intDiv(k, 2))",))
    assert "The primary index of granules 0 to 7 does not hold the keys" in _problems(halves, SCHEMA)


@pytest.mark.parametrize("name", [index.name for index in INDEXES])
def test_a_skip_index_of_other_values_is_told(name: str) -> None:
    lying = tuple(replace(i, expression="k" if name == "m" else "upper(t)") if i.name == name else i for i in INDEXES)
    found = _problems(replace(SCHEMA, indices=lying), SCHEMA)
    assert f"Skip index {name} is not what its rows give" in found, found


def test_a_part_without_an_index_of_its_table_is_right() -> None:
    assert _problems(replace(SCHEMA, indices=INDEXES[:1]), SCHEMA) == ""
