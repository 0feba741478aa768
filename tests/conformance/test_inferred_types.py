"""Types of Arrow columns: what a new table gets is what ClickHouse infers from a file of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mergelake.core.types.inferred import inferred_types

KINDS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.binary(7), pa.large_binary(), pa.date32(), pa.date64(), pa.decimal128(10, 2)),
    *(pa.decimal256(50, 3), pa.timestamp("s"), pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("us")),
    *(pa.timestamp("ns", "UTC"), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.duration("s"), pa.uuid()),
    *(pa.list_(pa.int32()), pa.large_list(pa.string()), pa.list_(pa.int8(), 3), pa.list_(pa.list_(pa.date32()))),
    *(pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]), pa.map_(pa.string(), pa.int64())),
    *(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64())),
]


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_column_gets_the_type_that_clickhouse_infers(
    oracle: Any, tmp_path: Path, kind: pa.DataType, nullable: bool
) -> None:
    schema = pa.schema([pa.field("x", kind, nullable=nullable)])
    path = tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as out:
        out.write_table(schema.empty_table())
    described = str(oracle.query(f"DESCRIBE file('{path}', 'ArrowStream')", "JSONCompactEachRow"))
    theirs = "".join(json.loads(described)[1].split())
    ours = str(inferred_types(schema)["x"])
    if pa.types.is_struct(kind):  # a Tuple is not Nullable here
        theirs = theirs.removeprefix("Nullable(").removesuffix(")") if nullable else theirs
    assert "".join(ours.split()) == theirs
