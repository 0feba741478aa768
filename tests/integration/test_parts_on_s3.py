"""Parts on a real S3 server: streamed uploads, ranges from many objects, and how few requests they take."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.clock import SystemClock
from mergelake.core.base.ids import RandomIds
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.verify import check_part
from mergelake.store.open import open_store
from tests.helpers.parts import part_target, write_block

KINDS = {name: parse_type(kind) for name, kind in (("k", "UInt64"), ("s", "String"), ("n", "Nullable(Int32)"))}
SCHEMA = TableSchema(
    tuple(Column(i, name, kind) for i, (name, kind) in enumerate(KINDS.items())), order_by=("k",), primary_key=("k",)
)


@pytest.mark.parametrize("rows", [1000, 300_000])
def test_a_part_goes_to_s3_and_comes_back(s3_url: str, s3_options: dict[str, str], rows: int) -> None:
    # M-054 M-060
    store = open_store(s3_url, s3_options)
    noise = np.random.default_rng(1).integers(0, 256, rows * 60, dtype=np.uint8).tobytes()
    block = pa.table(
        {
            "k": pa.array(np.arange(rows, dtype=np.uint64)),
            "s": pa.array([noise[i * 60 : i * 60 + 60] for i in range(rows)], pa.binary()),
            "n": pa.array(np.arange(rows, dtype=np.int32), mask=np.arange(rows) % 3 == 0),
        }
    )
    manifest = write_block(part_target(store, SCHEMA, ids=RandomIds(), clock=SystemClock()), block, threads=2)
    small = rows == 1000
    assert manifest.storage == ("packed" if small else "full")
    if small:
        assert store.counters.put == 1
    columns = {column.name: column for column in SCHEMA.columns}
    caches = PartCache()
    reader = PartReader(store, "t", manifest, columns, caches, threads=2)
    found = pa.Table.from_batches(list(reader.read(["k", "s", "n"])))
    assert found.column("s").combine_chunks().equals(block.column("s").combine_chunks())
    assert found.column("n").combine_chunks().equals(block.column("n").combine_chunks())
    assert check_part(reader, key_types=[KINDS["k"]]) == []
    before = store.counters
    (batch,) = PartReader(store, "t", manifest, columns, caches).read(["k", "s"], [(0, 1)])
    assert batch.num_rows == min(rows, 8192)
    assert (store.counters - before).get == (1 if small else 2)
