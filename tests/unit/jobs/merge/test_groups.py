"""Small columns of a merge are read together: few requests, bounded memory, the same part."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.clock import SystemClock
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from tests.helpers.merging import SmallTable, plain

COLUMNS = 60


def merged(rows: int, **settings: object) -> tuple[SmallTable, int]:
    """A table of many columns after a merge of three parts, and the GETs that the merge took."""
    types = {"k": "UInt32"} | {f"c{i}": ("UInt32", "String", "LowCardinality(String)")[i % 3] for i in range(COLUMNS)}
    schema = define(types, order_by=["k"], settings=settings)
    table = SmallTable(schema, MemoryStore(), SystemClock())
    for part in range(3):
        keys = np.arange(part, 3 * rows, 3, dtype=np.uint32)
        texts = pa.array([b"%d" % (k % 7) for k in keys.tolist()], pa.binary())
        values = {"UInt32": pa.array(keys * 2), "String": texts, "LowCardinality(String)": texts.dictionary_encode()}
        table.insert(pa.table({"k": keys} | {name: values[kind] for name, kind in list(types.items())[1:]}))
    before = table.store.counters.get
    table.optimize()
    return table, table.store.counters.get - before


@pytest.mark.parametrize("wide", ["0", "100000000"])
def test_the_requests_of_a_merge_do_not_grow_with_small_columns(wide: str) -> None:
    table, gets = merged(200, min_bytes_for_wide_part=wide)
    assert gets < COLUMNS
    rows = table.rows()
    assert rows.column("k").to_pylist() == list(range(600))
    for name in ("c0", "c1", "c2", f"c{COLUMNS - 1}"):
        wanted = [2 * k for k in range(600)] if name == "c0" else [b"%d" % (k % 7) for k in range(600)]
        assert plain(rows.select([name])) == plain(pa.table({name: wanted}))


def test_with_little_memory_each_column_is_read_alone() -> None:
    few, gets = merged(200, merge_max_chunk_bytes=20_000)
    many, together = merged(200)
    assert gets > COLUMNS > together
    assert few.rows().equals(many.rows())
