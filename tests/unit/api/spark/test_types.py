"""ClickHouse types in Spark: one mapping, complete, and values that survive it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.spark.types import spark_schema, to_spark
from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_storage
from mergelake.core.types.types import DataType, parse_type
from mergelake.format.serializations.values import encode_values
from tests.helpers.random_arrays import random_array
from tests.helpers.random_types import DICTIONARIES, GEO, LEAVES

NONE = {"Int128", "Int256", "UInt128", "UInt256", "Decimal(76, 38)"}
"""Types that Spark has no form for."""
LOSSY = {"DateTime64(9, 'Europe/Berlin')", "Time64(9)"}
KNOWN = [
    *(kind for kind in LEAVES if kind not in NONE),
    *GEO,
    *(f"LowCardinality(Nullable({kind}))" for kind in DICTIONARIES if kind not in NONE),
    "Nullable(BFloat16)",
    "Array(LowCardinality(String))",
    "Array(Array(Nullable(DateTime64(6, 'UTC'))))",
    "Map(LowCardinality(String), Nullable(UInt64))",
    "Tuple(a LowCardinality(String), b Tuple(BFloat16, Enum8('x' = 1)))",
    "AggregateFunction(uniq, String)",
]


def _row(kind: DataType, array: pa.Array) -> pa.RecordBatch:
    return to_spark(pa.record_batch({"v": array}), {"v": kind})


@pytest.mark.parametrize("text", KNOWN)
def test_every_type_has_a_spark_type_and_its_values_come_back(text: str) -> None:
    kind = parse_type(text)
    values = random_array(np.random.default_rng(3), kind, 200) if "Aggregate" not in text else pa.array([b"\0\0"] * 9)
    batch = _row(kind, values)
    assert spark_schema({"v": kind}).fieldNames() == ["v"]
    if text not in LOSSY:
        back = to_storage(batch.column("v"), kind)
        assert encode_values([back], [kind]) == encode_values([values], [kind])


@pytest.mark.parametrize("text", sorted(NONE))
def test_what_spark_has_no_type_for_is_refused_by_name(text: str) -> None:
    with pytest.raises(MergelakeError, match="Spark has no type"):
        spark_schema({"v": parse_type(f"Array(Nullable({text}))")})


def test_values_of_several_types_are_structs_and_json_text() -> None:
    kind = parse_type("Variant(UInt64, LowCardinality(String), Array(UInt8))")
    given = pa.array([{"UInt64": 5}, None, {"Array(UInt8)": [1, 2]}, {"LowCardinality(String)": "x"}])
    found = _row(kind, to_storage(given, kind)).column("v").to_pylist()
    assert [next((v for v in row.values() if v is not None), None) for row in found] == [5, None, [1, 2], "x"]
    assert spark_schema({"v": kind})["v"].dataType.fieldNames() == ["Array(UInt8)", "LowCardinality(String)", "UInt64"]
    kind = parse_type("Array(JSON(a UInt8))")
    found = _row(kind, to_storage(pa.array([['{"a": 1, "b": [1.5]}'], []]), kind)).column("v")
    assert found.to_pylist() == [['{"a":1,"b":[1.5]}'], []]
    assert spark_schema({"v": kind}).simpleString() == "struct<v:array<string>>"
