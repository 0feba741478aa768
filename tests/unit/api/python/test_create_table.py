"""Tables made from schemas and from data: their types, keys and rows, and what is refused."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError

DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ROWS = {"k": [1, 2, 3], "s": ["a", None, "c"], "at": [DAY + datetime.timedelta(days=n) for n in range(3)]}


@pytest.fixture
def db() -> ml.Database:
    return ml.connect("memory://")


@pytest.mark.parametrize(
    "data",
    [
        pa.table(ROWS),
        pa.table(ROWS).to_batches()[0],
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        ROWS,
        [dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)],
    ],
    ids=["table", "batch", "pandas", "polars", "columns", "rows"],
)
def test_data_becomes_a_table_with_its_rows(db: ml.Database, data: Any) -> None:
    table = db.create_table("t", data, order_by="k", partition_by="toYYYYMM(at)")
    types = {name: str(kind) for name, kind in table.schema.types.items()}
    assert types["k"] == "Int64"
    assert types["s"] == "Nullable(String)"
    assert types["at"].startswith("DateTime64(")
    assert db.sql("SELECT k, s, toDate(at) FROM t ORDER BY k").rows() == [
        (k, s, at.date()) for k, s, at in zip(*ROWS.values(), strict=True)
    ]


def test_a_schema_becomes_an_empty_table_whose_key_is_not_nullable(db: ml.Database) -> None:
    schema = pa.schema([("k", pa.uint32()), ("v", pa.list_(pa.float64())), pa.field("n", pa.int8(), nullable=False)])
    table = db.create_table("default.t", schema, order_by=("k",), engine="ReplacingMergeTree(n)")
    assert {name: str(kind) for name, kind in table.schema.types.items()} == {
        "k": "UInt32",
        "v": "Array(Nullable(Float64))",
        "n": "Int8",
    }
    assert table.schema.engine == "ReplacingMergeTree"
    assert db.sql("SELECT count() FROM t").scalar() == 0
    assert db.create_table("u", {"k": "UInt8", "s": "LowCardinality(String)"}, order_by="k").schema.order_by == ("k",)
    assert db.create_table("v", ml.define({"k": "UInt8"}, order_by="k")).scan().arrow().num_rows == 0


def test_types_that_are_given_win(db: ml.Database) -> None:
    table = db.create_table("t", ROWS, order_by="k", types={"k": "UInt16", "s": "LowCardinality(Nullable(String))"})
    assert str(table.schema.types["k"]) == "UInt16"
    assert db.sql("SELECT toTypeName(s) FROM t LIMIT 1").scalar() == "LowCardinality(Nullable(String))"


def test_a_stream_is_read_once_and_its_nulls_are_taken(db: ml.Database) -> None:
    reader = pa.RecordBatchReader.from_batches(pa.table(ROWS).schema, pa.table(ROWS).to_batches())
    db.create_table("t", reader, order_by="k")
    assert db.sql("SELECT count(), count(s) FROM t").rows() == [(3, 2)]


def test_what_is_there_stays_as_it_is(db: ml.Database) -> None:
    db.create_table("t", ROWS, order_by="k")
    db.create_table("t", ROWS, order_by="k", if_not_exists=True)
    assert db.sql("SELECT count() FROM t").scalar() == 3
    with pytest.raises(MergelakeError, match="TABLE_ALREADY_EXISTS"):
        db.create_table("t", ROWS, order_by="k")


@pytest.mark.parametrize(
    ("data", "options", "name"),
    [
        (ROWS, {"order_by": "nope"}, "UNKNOWN_IDENTIFIER"),
        (ROWS, {"order_by": "k", "types": {"nope": "UInt8"}}, "NO_SUCH_COLUMN_IN_TABLE"),
        (ROWS, {"order_by": "s"}, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
        ({"k": [300]}, {"order_by": "k", "types": {"k": "UInt8"}}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
        ({"k": pa.nulls(2)}, {}, "NOT_IMPLEMENTED"),
        (7, {}, "TYPE_MISMATCH"),
        (ml.define({"k": "UInt8"}, order_by="k"), {"order_by": "k"}, "BAD_ARGUMENTS"),
        (pa.table([[1], [2]], ["a", "a"]), {}, "DUPLICATE_COLUMN"),
    ],
)
def test_what_cannot_be_a_table_leaves_none(db: ml.Database, data: Any, options: dict[str, Any], name: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        db.create_table("t", data, **options)
    assert caught.value.name == name
    assert db.tables() == []


def test_results_and_scans_are_streams_of_arrow_and_iterable(db: ml.Database) -> None:
    scan = db.create_table("t", {"k": [1, 2], "s": ["a", "b"]}, order_by="k").scan(ordered=True)
    assert list(scan) == [(1, "a"), (2, "b")]
    assert (
        pl.DataFrame(scan).rows() == pl.DataFrame(db.sql("SELECT * FROM t ORDER BY k")).rows() == [(1, "a"), (2, "b")]
    )
    assert list(db.sql("SELECT * FROM t ORDER BY k")) == [(1, "a"), (2, "b")]
    assert repr(scan) == "<Scan of default.t at version 2: about 2 rows in 1 parts; k Int64, s String>"
    assert "│ 2 │ b │" in repr(db.sql("SELECT * FROM t ORDER BY k"))


def test_a_result_in_a_format_has_bytes_and_no_rows(db: ml.Database) -> None:
    result = db.sql("SELECT 1 FORMAT CSV")
    assert (list(result), list(result.batches()), result.rows()) == ([], [], [])
    assert (result.formatted, b"".join(result.chunks())) == (b"1\n", b"1\n")
    assert "formatted" in repr(result)
