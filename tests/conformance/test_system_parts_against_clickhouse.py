"""`system.parts` tells the bytes and hashes of a part that ClickHouse tells of it, once it has attached it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mergelake.api.sql.database import connect

COLUMNS = (
    "rows, marks, files, data_compressed_bytes, data_uncompressed_bytes, marks_bytes, "
    "secondary_indices_compressed_bytes, secondary_indices_uncompressed_bytes, secondary_indices_marks_bytes, "
    "hash_of_all_files, hash_of_uncompressed_files, uncompressed_hash_of_compressed_files, has_lightweight_delete"
)
INDEXES = "data_compressed_bytes, data_uncompressed_bytes, marks_bytes"


@pytest.mark.parametrize("storage", ["packed", "full"])
@pytest.mark.parametrize("mutated", [False, True])
def test_bytes_and_hashes_of_a_part_are_those_that_clickhouse_tells(
    oracle: Any, tmp_path: Path, storage: str, mutated: bool
) -> None:
    db = connect(str(tmp_path))
    name = f"system_parts_{storage}_{mutated}"
    least = 0 if storage == "full" else "'10Mi'"
    rows = 100_000 if mutated else 1000
    db.sql(
        f"CREATE TABLE {name} (k UInt64, s String, n Nullable(Int32), lc LowCardinality(String), a Array(UInt8), "
        "INDEX i s TYPE bloom_filter GRANULARITY 1, INDEX m n TYPE minmax GRANULARITY 2) ENGINE = MergeTree ORDER BY k "
        f"SETTINGS index_granularity = 64, min_bytes_for_full_part_storage = {least}"
        + (", min_bytes_for_wide_part = 0" if mutated else "")
    )
    db.sql(
        f"INSERT INTO {name} SELECT number, toString(number), if(number % 3 = 0, NULL, number), toString(number % 5), "
        f"range(number % 4) FROM numbers({rows})"
    )
    if mutated:
        db.table(name).update({"s": "concat(s, 'x')", "n": "n + 1"}, "k < 1000")
        db.table(name).delete("k % 7 = 1")
    db.table(name).publish()
    (part,) = db.table(name).handle.log.state.parts()
    assert part.manifest.masked == mutated
    oracle.query(f"DROP TABLE IF EXISTS default.{name}")
    oracle.query(db.table(name).attach_statement(f"default.{name}"))
    where = f"WHERE database = 'default' AND table = '{name}'"
    try:
        for query in (
            f"SELECT name, {COLUMNS} FROM system.parts {where} AND active",
            (
                f"SELECT column, column_bytes_on_disk, column_data_compressed_bytes, column_data_uncompressed_bytes, "
                f"column_marks_bytes FROM system.parts_columns {where} AND active ORDER BY column_position"
            ),
            f"SELECT name, type, type_full, expr, granularity, {INDEXES} FROM system.data_skipping_indices {where}",
            f"SELECT name, {INDEXES} FROM system.columns {where} ORDER BY position",
        ):
            theirs = str(oracle.query(query, "TabSeparated"))
            assert theirs
            assert db.sql(f"{query} FORMAT TabSeparated").text() == theirs, query
    finally:
        oracle.query(f"DROP TABLE default.{name}")


@pytest.mark.parametrize(
    "key",
    ["toDate(d)", "d", "(d, toYYYYMM(e))", "(e, f)", "x", "(x, d)", "(k, x)", "toYYYYMM(e)", "k", "tuple()"],
)
def test_the_dates_and_times_of_a_part_are_those_that_clickhouse_tells(oracle: Any, tmp_path: Path, key: str) -> None:
    db = connect(str(tmp_path))
    oracle.query("DROP TABLE IF EXISTS default.part_moments")
    columns = "k UInt32, d DateTime, e Date, f Date, x DateTime64(6)"
    first = "(1, '2026-01-02 03:04:05', '2026-01-03', '2026-02-04', '2026-05-06 07:08:09.12')"
    second = "(1, '2026-01-02 04:04:05', '2026-01-05', '2026-02-04', '2026-05-06 07:08:10.98')"
    for statement in (
        f"CREATE TABLE part_moments ({columns}) ENGINE = MergeTree PARTITION BY {key} ORDER BY k",
        f"INSERT INTO part_moments VALUES {first}, {second}",
    ):
        oracle.query(statement)
        db.sql(statement)
    query = (
        "SELECT min_date, max_date, min_time, max_time FROM system.parts WHERE table = 'part_moments' AND active "
        "ORDER BY name FORMAT TSV"
    )
    assert db.sql(query).text() == str(oracle.query(query))
    oracle.query("DROP TABLE default.part_moments")
