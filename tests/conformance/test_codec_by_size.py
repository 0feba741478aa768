"""Parts of both default codecs, and mixed ones: ClickHouse attaches and checks them, and reads the same rows."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pytest

import mergelake as ml
from mergelake.api.python.table import Table
from tests.helpers.clickhouse_tables import CLASSIC, attach
from tests.helpers.codecs import block_methods, data_methods, part_files, said_codec

pytestmark = pytest.mark.chdb

SMALL, LARGE = "LZ4", "ZSTD(3)"
COLUMNS = (
    "k UInt64, a UInt32 CODEC(Delta, Default), b String, c LowCardinality(String), d Array(Nullable(Int64)),"
    " e Float64 CODEC(NONE), f String CODEC(ZSTD(1)), INDEX i b TYPE bloom_filter GRANULARITY 2"
)
ROWS = (
    "number * 7 % 1000, toUInt32(cityHash64(number, {seed}) % 4000000000), hex(cityHash64({seed}, number)),"
    " toString(number % 5), if(number % 3, [number, NULL], []), number / 3, repeat('f', number % 50)"
)
READ = "SELECT * FROM {} ORDER BY ALL"
FORMS = {
    "wide": ("", CLASSIC),
    "compact": (", min_rows_for_wide_part = 1000000", CLASSIC),
    "modern": (", part_profile = 'modern'", "min_bytes_for_full_part_storage = 0, min_bytes_for_wide_part = 0"),
}


def judged(oracle: Any, table: Table, settings: str) -> list[str]:
    """The codecs of the active parts, which ClickHouse, having attached and checked them, tells as well."""
    parts = table.handle.snapshot().parts
    told = []
    oracle.query("DROP TABLE IF EXISTS by_size")
    oracle.query(f"CREATE TABLE by_size ({COLUMNS}) ENGINE = MergeTree ORDER BY k SETTINGS {settings}")
    oracle.query("SYSTEM STOP MERGES by_size")
    for at, part in enumerate(parts, 1):
        attach(oracle, "by_size", f"all_{at}_{at}_0", table.handle.store, table.handle.directory, part.manifest)
        told.append(said_codec(part_files(table.handle.store, table.handle.directory, part.manifest)))
    listed = str(
        oracle.query(
            "SELECT default_compression_codec FROM system.parts WHERE database = currentDatabase()"
            " AND table = 'by_size' AND active ORDER BY min_block_number",
            "TSVRaw",
        )
    )
    assert listed.split("\n")[:-1] == told
    checked = str(oracle.query("CHECK TABLE by_size SETTINGS check_query_single_value_result = 0", "TSV"))
    assert [line.split("\t")[1] for line in checked.splitlines()] == ["1"] * len(parts), checked
    return told


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(2))
def test_clickhouse_reads_parts_of_both_codecs(
    oracle: Any, monkeypatch: pytest.MonkeyPatch, form: str, seed: int
) -> None:
    monkeypatch.setattr("mergelake.parts.write.rewrite.REWRITTEN_WHOLE_BYTES", 0)
    ours, theirs = FORMS[form]
    random = np.random.default_rng([seed, len(form)])
    db = ml.connect(f"memory://{uuid.uuid4().hex}")
    db.sql(
        f"CREATE TABLE t ({COLUMNS}) ENGINE = MergeTree ORDER BY k"
        f" SETTINGS min_bytes_for_zstd = 30000, index_granularity = 100{ours}"
    )
    table = db.table("t")

    def same(codecs: list[str]) -> None:
        assert judged(oracle, table, theirs) == codecs
        rows = oracle.query(READ.format("by_size"), "JSONCompactEachRow")
        assert str(rows) == db.sql(READ.format("t")).text("JSONCompactEachRow")
        oracle.query("SYSTEM START MERGES by_size")
        oracle.query("OPTIMIZE TABLE by_size FINAL")
        assert str(oracle.query(READ.format("by_size"), "JSONCompactEachRow")) == str(rows)

    for rows in (int(random.integers(1, 200)), int(random.integers(1000, 3000))):
        db.sql(f"INSERT INTO t SELECT {ROWS.format(seed=seed)} FROM numbers({rows})")
    same([SMALL, LARGE])
    table.update({"b": "concat(b, c)", "a": "a + 1"}, where=f"k % {random.integers(2, 5)} = 0")
    table.apply_mutations()
    same([SMALL, LARGE])
    db.sql(f"DELETE FROM t WHERE k % {random.integers(3, 6)} = 1")
    table.apply_mutations()
    same([SMALL, LARGE])
    # Columns are rewritten after the table got a codec: the part's own is used, which its file tells.
    table.modify_settings({"default_compression_codec": "LZ4HC(3)"})
    table.update({"d": "[k, NULL]"}, where="k % 2 = 0")
    table.apply_mutations()
    same([SMALL, LARGE] if form != "compact" else ["LZ4HC(3)", "LZ4HC(3)"])
    if form != "compact":
        for part, method in zip(table.handle.snapshot().parts, ("LZ4", "ZSTD"), strict=True):
            files = part_files(table.handle.store, table.handle.directory, part.manifest)
            found = data_methods(files)
            assert found["b.bin"] == found["d.bin"] == {method}
            assert found["e.bin"] == {"NONE"}
            assert block_methods(files["f.bin"]) == {"ZSTD"}
    table.modify_settings({}, ["default_compression_codec"])
    table.optimize(final=True)
    same([LARGE])
