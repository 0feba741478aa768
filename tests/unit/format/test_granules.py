"""The bytes that ClickHouse counts when it cuts granules."""

from __future__ import annotations

import pyarrow as pa

from mergelake.core.types.types import parse_type
from mergelake.format.files.granules import block_bytes


def test_a_nullable_column_counts_its_null_map_also_where_nothing_is_null():
    numbers, lists = pa.array([1, 2, 3], pa.int64()), pa.array([[1], [], [2, 3]], pa.list_(pa.int64()))
    types = [parse_type("Nullable(Int64)"), parse_type("Array(Nullable(Int64))")]
    assert block_bytes([numbers, lists]) == 24 + (24 + 24)
    assert block_bytes([numbers, lists], types) == (24 + 3) + (24 + 24 + 3)
