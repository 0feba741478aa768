"""Tables leave in archive formats and come back equal."""

from __future__ import annotations

from pathlib import Path

import pytest

import mergelake as ml

pytestmark = pytest.mark.chdb
TABLE = """(k Int64, s String, l LowCardinality(Nullable(String)), d Date, t DateTime64(3, 'UTC'), n Nullable(Int32),
x Decimal(18, 4), a Array(Nullable(UInt16)), m Map(String, Int64), f Float64, b Bool) ENGINE = MergeTree ORDER BY k"""
ROWS = """SELECT number - 500 AS k, repeat('ä', number % 5), if(number % 4 = 0, NULL, toString(number % 7)),
toDate('2024-02-28') + number % 5, toDateTime64('2024-02-28 23:59:59.5', 3, 'UTC') + number,
if(number % 3 = 0, NULL, -number), number / 8, [number % 9, NULL], map('k', number, 'l', -number),
number / 7, number % 2 FROM numbers(1000)"""


# M-090
@pytest.mark.parametrize("format_name", ["Parquet", "ORC", "JSONEachRow", "Native", "Avro", "Arrow", "CSVWithNames"])
def test_a_table_comes_back_from_an_archive(tmp_path: Path, format_name: str) -> None:
    db = ml.connect(tmp_path / "warehouse", allow_external_access=True)
    for name in ("hot", "cold", "back"):
        db.sql(f"CREATE TABLE {name} {TABLE}")
    db.sql(f"INSERT INTO hot {ROWS} WHERE number >= 300")
    db.sql(f"INSERT INTO cold {ROWS} WHERE number < 300")
    db.sql("CREATE TABLE everything ENGINE = Merge('default', '^(hot|cold)$')")
    path = tmp_path / f"archive.{format_name}"
    db.sql(f"SELECT * FROM everything ORDER BY k INTO OUTFILE '{path}' FORMAT {format_name}")
    db.sql(f"INSERT INTO back FROM INFILE '{path}' FORMAT {format_name}")
    query = "SELECT * FROM {} ORDER BY k"
    assert db.sql(query.format("back")).text("TSVWithNamesAndTypes") == db.sql(query.format("everything")).text(
        "TSVWithNamesAndTypes"
    )
    assert db.sql("SELECT count(), sum(k) FROM back").rows() == [(1000, -500)]
