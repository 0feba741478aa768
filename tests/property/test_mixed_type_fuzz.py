"""Damaged columns of Variant, Dynamic, JSON and aggregate states: a coded error or the right rows, nothing else.

As `test_reader_fuzz`, over types whose serialisation tells in its own bytes how it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mergelake.core.base.errors import InternalError, MergelakeError
from mergelake.core.convert.storage import to_public
from mergelake.core.types.type_binary import decode_type, encode_type
from mergelake.core.types.types import parse_type
from tests.helpers.clickhouse_tables import part_paths
from tests.helpers.part_fuzz import KINDS, Files, Worker, damage, read_everything, sealed

COLUMNS = {
    "k": "UInt32",
    "v": "Variant(UInt64, String, Array(LowCardinality(String)))",
    "d": "Dynamic(max_types=2)",
    "j": "JSON(max_dynamic_paths=2, `t.x` UInt32, `t.y` LowCardinality(Nullable(String)))",
    "a": "Array(Variant(String, UInt8))",
    "q": "AggregateFunction(quantile, UInt64)",
    "c": "AggregateFunction(uniqCombined(12), UInt64)",
    "m": "AggregateFunction(sumMap, Map(String, UInt8))",
    "i": "AggregateFunction(quantileTiming, UInt16)",
}
VALUES = """
SELECT number AS k,
  multiIf(number % 3 = 0, number::UInt64::{v}, number % 3 = 1, toString(number)::{v},
    ['a', 'b']::Array(LowCardinality(String))::{v}),
  multiIf(number % 4 = 0, number::Dynamic, number % 4 = 1, 'x'::Dynamic, number % 4 = 2, [1]::Array(UInt8)::Dynamic,
    NULL),
  '{{"a":' || number::String || ',"b' || (number % 5)::String || '":{{"c":[1,"x"]}},"t":{{"x":3}}}}',
  arrayMap(x -> x % 2 ? (x % 9)::UInt8::{a} : 'q'::{a}, range(number % 4)),
  arrayReduce('quantileState', range(number)), arrayReduce('uniqCombinedState(12)', range(number * 9)),
  arrayReduce('sumMapState', [map('a', 1::UInt8)]), arrayReduce('quantileTimingState', range(number)::Array(UInt16))
FROM numbers(40)
"""
SHARED = (
    "object_shared_data_serialization_version_for_zero_level_parts='{}', object_shared_data_buckets_for_wide_part=2"
)
WIDE = "min_bytes_for_full_part_storage=0, index_granularity=8, min_bytes_for_wide_part=0"
COMPACT = (
    "min_bytes_for_full_part_storage=0, index_granularity=8, min_bytes_for_wide_part=100000000, "
    "min_rows_for_wide_part=100000000, object_shared_data_buckets_for_compact_part=2"
)
PROFILES = {
    "wide": f"{WIDE}, {SHARED.format('advanced')}",
    "wide, old": f"{WIDE}, {SHARED.format('map')}, dynamic_serialization_version='v1', "
    "object_serialization_version='v1'",
    "compact": f"{COMPACT}, {SHARED.format('advanced_chunked')}, object_shared_data_target_chunk_rows=3",
    "compact, buckets": f"{COMPACT}, {SHARED.format('map_with_buckets')}, "
    "use_compact_variant_discriminators_serialization=0",
}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    running = Worker()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def parts(oracle: Any) -> dict[str, Files]:
    found = {}
    for profile, settings in PROFILES.items():
        columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
        oracle.query("DROP TABLE IF EXISTS fuzz")
        oracle.query(f"CREATE TABLE fuzz ({columns}) ENGINE = MergeTree ORDER BY k SETTINGS {settings}")
        oracle.query(f"INSERT INTO fuzz {VALUES.format(v=COLUMNS['v'], a='Variant(String, UInt8)')}")
        (path,) = part_paths(oracle, "fuzz").values()
        found[profile] = {file.name: file.read_bytes() for file in Path(path).iterdir() if file.is_file()}
        assert read_everything(found[profile])[0] == "rows"
    return found


@given(
    profile=st.sampled_from(sorted(PROFILES)),
    number=st.integers(0, 400),
    kind=st.sampled_from([kind for kind in KINDS if kind != "swap"]),
    at=st.integers(0, 1 << 20),
    mask=st.integers(1, 255),
    is_sealed=st.booleans(),
)
def test_random_damage_of_columns_of_mixed_types(
    worker: Worker, parts: dict[str, Files], profile: str, number: int, kind: str, at: int, mask: int, is_sealed: bool
) -> None:
    files = parts[profile]
    if worker._warm is None:
        assert worker.warm(files)[0] == "rows"
    name = sorted(files)[number % len(files)]
    changed = damage(files[name], kind, at, mask, b"")
    answer = worker.read(sealed(files, name, changed) if is_sealed else {**files, name: changed})
    assert answer[0] in ("rows", "refused"), (name, answer)
    if answer[0] == "rows" and not is_sealed and name != "columns.txt":
        assert answer == read_everything(files), name


_TYPES = [
    "Array(Nullable(DateTime64(3, 'UTC')))",
    "Tuple(a UInt8, b Map(String, Enum8('x' = 1)))",
    "Variant(Decimal(9, 2), UUID)",
    "JSON(max_dynamic_paths=3, a.b FixedString(3), SKIP c)",
    "Point",
    "IntervalDay",
    "SimpleAggregateFunction(sum, UInt64)",
]


@given(kind=st.sampled_from(_TYPES), at=st.integers(0, 200), put=st.binary(max_size=4), cut=st.integers(0, 3))
def test_damaged_bytes_of_types_and_values_are_refused_or_read(kind: str, at: int, put: bytes, cut: int) -> None:
    whole = encode_type(parse_type(kind)) + bytes(24)
    at %= len(whole)
    cell = whole[:at] + put + whole[at + cut :]
    entries = pa.array(
        [[{"path": b"a.b", "value": cell}]], pa.list_(pa.struct({"path": pa.binary(), "value": pa.binary()}))
    )
    for array, text in ((pa.array([cell]), "Dynamic"), (entries, "JSON")):
        try:
            decode_type(cell, 0)
            to_public(array, parse_type(text)).to_pylist()
        except InternalError:
            raise
        except MergelakeError:
            pass


def test_random_bytes_are_no_type_without_end() -> None:
    rng = np.random.default_rng(1)
    for _ in range(3000):
        with suppress(MergelakeError):
            decode_type(rng.integers(0, 64, 40, dtype=np.uint8).tobytes(), 0)
    with pytest.raises(MergelakeError):
        decode_type(b"\x1e" * 100_000, 0)
