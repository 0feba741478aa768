# ruff: noqa: E501  (tables read best with one idea a line)
"""Frames with more columns than the table: `mergeSchema` adds them in the entry of the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.types.types import parse_type

COLUMNS = "k int, v int, u bigint, f float, d decimal(9,2)"


@pytest.fixture
def db(tmp_path: Path, spark: Any) -> ml.Database:
    database = ml.connect(str(tmp_path / "warehouse"), spark=spark)
    database.sql(
        "CREATE TABLE t (k Int32, v Int32, u UInt32, f Float32, d Decimal(9, 2), e Int32 EPHEMERAL, w Int32 MATERIALIZED e * 2, CONSTRAINT c CHECK v < 1000) ENGINE = MergeTree ORDER BY k"
    )
    database.table("t").append({"k": [1], "v": [1], "u": [7], "f": [0.5], "d": [1]})
    return database


def test_columns_are_added_and_widened_in_one_entry_with_the_rows(db: ml.Database, spark: Any) -> None:
    table = db.table("t")
    before = table.refresh()
    frame = spark.sql(
        "SELECT CAST(2 AS bigint) k, CAST(5 AS bigint) v, CAST(9 AS bigint) u, 1e300D f, CAST(3 AS decimal(18,2)) d, 'x' s, 21 e, array(1, NULL) a, map('m', 2) m, named_struct('p', 1) st, current_timestamp() ts, CAST(NULL AS date) dt"
    )
    frame.write.format("mergelake").mode("append").option("mergeSchema", "true").save(table.path)
    assert table.refresh() == before + 1
    kinds = {
        "k": "Int32",
        "v": "Int64",
        "u": "UInt32",
        "f": "Float64",
        "d": "Decimal(18, 2)",
        "s": "Nullable(String)",
        "a": "Array(Nullable(Int32))",
        "dt": "Nullable(Date32)",
    }
    assert {name: table.schema.types[name] for name in kinds} == {
        name: parse_type(kind) for name, kind in kinds.items()
    }
    assert db.sql("SELECT k, v, u, f, d, s, a FROM t ORDER BY k").rows() == [
        (1, 1, 7, 0.5, 1, None, []),
        (2, 5, 9, 1e300, 3, "x", [1, None]),
    ]
    assert db.sql("SELECT w FROM t ORDER BY k").rows() == [(0,), (42,)]
    back = spark.read.format("mergelake").load(table.path)
    assert back.where("s = 'x'").count() == 1
    assert table.append(back.drop("st"), merge_schema=True).rows == 2  # nothing to add: UInt32 is no bigint
    assert table.schema.types["u"] == parse_type("UInt32")
    assert db.table("t").scan(version=before).arrow().column_names == ["k", "v", "u", "f", "d"]


def test_nothing_is_added_if_the_rows_are_refused(db: ml.Database, spark: Any) -> None:
    table = db.table("t")
    schema, version = table.schema, table.refresh()

    def save(text: str, **options: str) -> None:
        spark.sql(text).write.format("mergelake").mode("append").options(**options).save(table.path)

    with pytest.raises(Exception, match="mergeSchema"):
        save("SELECT 2 k, 'x' s")
    with pytest.raises(Exception, match="VIOLATED_CONSTRAINT"):
        save("SELECT 2 k, 5000 v, 'x' s", mergeSchema="true")
    with pytest.raises(Exception, match="CANNOT_PARSE_TEXT"):
        save("SELECT 2 k, 'abc' v, 'x' s", mergeSchema="true")
    with pytest.raises(Exception, match="mergeSchema"):
        save("SELECT 2 k", mergeSchema="perhaps")
    assert (table.refresh(), table.schema) == (version, schema)
    save("SELECT 2 k, 'x' s", mergeSchema="true", dedupToken="one")
    save("SELECT 3 k, 'y' s, 1 other", mergeSchema="true", dedupToken="one")
    assert table.refresh() == version + 1
    assert not table.schema.has("other")
    frame = spark.sql("SELECT 2 k, CAST(7 AS bigint) v, 1 other")
    frame.write.format("mergelake").mode("overwrite").options(mergeSchema="true", replaceWhere="v != 1").save(
        table.path
    )
    assert table.refresh() == version + 2
    assert db.sql("SELECT k, v, s, other FROM t ORDER BY k").rows() == [(1, 1, None, None), (2, 7, None, 1)]
    table.overwrite(spark.sql("SELECT 4 k, 'z' more"), merge_schema=True)
    assert db.sql("SELECT k, s, other, more FROM t").rows() == [(4, None, None, "z")]
