"""Laws of merging: no row lost or doubled, any grouping gives the same, and selection keeps its promises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given, settings, strategies as st

from mergelake.core.model.manifest import PartManifest, encode_files
from mergelake.core.model.names import PartInfo
from mergelake.core.model.settings import TableSettings
from mergelake.core.types.types import parse_type
from mergelake.engines.order.normalized_keys import normalized_keys
from mergelake.engines.order.sorting import sort_order
from mergelake.jobs.merge.commit import merge_parts
from mergelake.jobs.merge.plan import plan_merge
from mergelake.jobs.merge.select import part_ranges, select_merges
from mergelake.table.definition.define import define
from tests.helpers.merging import SmallTable, plain, random_column

ROW = st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 1))
INSERTS = st.lists(st.lists(ROW, min_size=1, max_size=12), min_size=2, max_size=5)
KEY_TYPES = [
    *("UInt8", "Int64", "Float32", "Float64", "String", "FixedString(9)", "UUID", "IPv6", "Int128", "Date32"),
    *("Nullable(Int16)", "Nullable(String)", "LowCardinality(String)", "LowCardinality(Nullable(String))"),
    *("Decimal(38, 4)", "Enum8('b' = -1, 'a' = 2)", "Bool", "Nullable(Float64)", "DateTime64(3)"),
]


def _table(inserts: list[list[tuple[int, int, int]]], engine: str) -> SmallTable:
    columns = {"k": "UInt8", "ver": "UInt8", "gone": "UInt8", "id": "UInt32"}
    table = SmallTable(define(columns, order_by=["k"], engine=engine, settings={"index_granularity": 3}))
    number = 0
    for rows in inserts:
        ids = range(number, number := number + len(rows))
        arrays = [pa.array([row[i] for row in rows], pa.uint8()) for i in range(3)]
        table.insert(pa.table([*arrays, pa.array(ids, pa.uint32())], names=list(columns)))
    return table


def _merge(table: SmallTable, first: int, count: int) -> None:
    parts = table.parts[first : first + count]
    merge_parts(table.handle, plan_merge("t", table.handle.schema, parts))


@given(INSERTS)
@settings(max_examples=25)
def test_a_plain_merge_keeps_every_row_in_key_then_insert_order(inserts: list[list[tuple[int, int, int]]]) -> None:
    table = _table(inserts, "MergeTree")
    before = sorted(plain(table.rows()), key=lambda row: (row[0], row[3]))  # type: ignore[index]
    table.optimize()
    assert plain(table.rows()) == before


@given(INSERTS, st.sampled_from(["", "(ver)", "(ver, gone)"]), st.data())
@settings(max_examples=40)
def test_replacing_gives_the_same_rows_however_merges_are_grouped(
    inserts: list[list[tuple[int, int, int]]], arguments: str, data: st.DataObject
) -> None:
    rows = [(*row, number) for number, row in enumerate(row for insert in inserts for row in insert)]
    expected: dict[int, tuple[int, ...]] = {}
    for row in rows:
        known = expected.get(row[0])
        if known is None or not arguments or row[1] >= known[1]:
            expected[row[0]] = row
    table = _table(inserts, f"ReplacingMergeTree{arguments}")
    while len(table.parts) > 1:
        first = data.draw(st.integers(0, len(table.parts) - 2))
        _merge(table, first, data.draw(st.integers(2, len(table.parts) - first)))
    assert plain(table.rows()) == [expected[key] for key in sorted(expected)]


@given(st.lists(st.tuples(st.sampled_from(KEY_TYPES), st.booleans()), min_size=1, max_size=3), st.integers(0, 2**32))
def test_the_words_of_a_key_compare_as_its_values_sort(key: list[tuple[str, bool]], seed: int) -> None:
    random = np.random.default_rng(seed)
    types = [parse_type(text) for text, _ in key]
    desc = [down for _, down in key]
    arrays = [random_column(kind, 60, random, distinct=int(random.integers(1, 40))) for kind in types]
    order = sort_order(arrays, types, desc)
    order = np.arange(60) if order is None else order
    words = normalized_keys(arrays, types, desc)
    tails = {column.word: column for column in words.strings}

    def comparable(row: int) -> list[object]:
        out: list[object] = []
        for word in range(words.words.shape[1]):
            out.append(int(words.words[row, word]))
            if word in tails:
                column = tails[word]
                value = column.data[column.starts[row] : column.ends[row]].tobytes()
                out.append(_Reversed(value) if column.descending else value)
        return out

    assert sorted(range(60), key=comparable) == order.tolist()


@dataclass(frozen=True)
class _Reversed:
    value: bytes

    def __lt__(self, other: _Reversed) -> bool:
        return self.value > other.value


@dataclass(frozen=True)
class Part:
    info: PartInfo
    manifest: PartManifest
    added_ms: int


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**6), st.booleans()), min_size=1, max_size=120),
    st.lists(st.integers(1, 10**10), min_size=1, max_size=4),
)
def test_chosen_merges_are_disjoint_neighbours_within_their_limits(
    sizes: list[tuple[int, int, bool]], limits: list[int]
) -> None:
    # M-028, M-043
    now = 10**10
    parts = [
        Part(
            PartInfo("ab"[block % 7 == 0], block, block, 0),
            PartManifest(str(block), "a", 1, encode_files(()), bytes_on_disk=size),
            now - age * 1000,
        )
        for block, (size, age, _) in enumerate(sizes)
    ]
    busy = {part.manifest.id for part, (_, _, used) in zip(parts, sizes, strict=True) if used}
    merges = select_merges(parts, TableSettings(), now, bytes_max=limits, busy=busy)
    chosen = [part for merge in merges for part in merge]
    assert len({part.manifest.id for part in chosen}) == len(chosen)
    assert len(merges) <= len(limits)
    ranges = part_ranges(parts, busy=busy)
    for merge in merges:
        assert 2 <= len(merge) <= 100
        assert sum(part.manifest.bytes_on_disk for part in merge) <= max(limits)
        assert any(list(merge) == found[i : i + len(merge)] for found in ranges for i in range(len(found)))
