"""Which codec a part gets: that of the table, or one by its size, which merges never take back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.settings import TableSettings
from mergelake.log.model.operations import AlterMetadata
from mergelake.log.model.parts import ActivePart
from mergelake.parts.read.default_codec import default_codec
from mergelake.table.definition.define import define
from tests.helpers.codecs import data_methods, part_files, said_codec
from tests.helpers.merging import SmallTable

SMALL, LARGE = "LZ4", "ZSTD(3)"
LIMIT = 28_000
COLUMNS = {"k": "UInt64", "s": "String"}


def small_table(engine: str = "MergeTree", **settings: Any) -> SmallTable:
    values = {"min_bytes_for_zstd": LIMIT, **settings}
    return SmallTable(define(COLUMNS, order_by=["k"], engine=engine, settings=values))


def block(rows: int, random: np.random.Generator, keys: int = 1 << 60) -> pa.Table:
    """At most 50 bytes a row in a part."""
    texts = [random.bytes(int(size)) for size in random.integers(0, 40, rows)]
    return pa.table({"k": pa.array(random.integers(0, keys, rows), pa.uint64()), "s": pa.array(texts, pa.binary())})


def codec_of(table: SmallTable, part: ActivePart) -> str:
    """The codec that the part names, after a look at every block."""
    files = part_files(table.store, "t", part.manifest)
    codec = said_codec(files)
    if part.manifest.rows:
        assert set().union(*data_methods(files).values()) == {codec.partition("(")[0]}
    return codec


def alter(table: SmallTable, settings: Mapping[str, str]) -> None:
    schema = table.handle.schema
    changed = replace(schema, settings=dict(settings), version=schema.version + 1)
    table.handle.log.commit(lambda _: [AlterMetadata(changed)])


@pytest.mark.parametrize(
    ("settings", "size", "codec"),
    [
        ({}, 0, SMALL),
        ({}, (400 << 20) - 1, SMALL),
        ({}, 400 << 20, LARGE),
        ({"default_compression_codec": ""}, 1 << 40, LARGE),
        ({"default_compression_codec": "LZ4"}, 1 << 40, SMALL),
        ({"default_compression_codec": "zstd(7)"}, 0, "ZSTD(7)"),
        ({"default_compression_codec": "NONE", "min_bytes_for_zstd": 1}, 1 << 40, "NONE"),
        ({"min_bytes_for_zstd": 0}, 1 << 40, SMALL),
        ({"min_bytes_for_zstd": "1Ki"}, 1023, SMALL),
        ({"min_bytes_for_zstd": "1Ki"}, 1024, LARGE),
    ],
)
def test_the_codec_is_the_tables_or_one_by_size(settings: dict[str, Any], size: int, codec: str) -> None:
    assert str(default_codec(TableSettings(settings), size)) == codec


@pytest.mark.parametrize("value", ["-1", "x", "", "1.5", -1])
def test_a_limit_that_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(MergelakeError):
        define(COLUMNS, order_by=["k"], settings={"min_bytes_for_zstd": value})


@pytest.mark.parametrize("compact", [False, True])
def test_an_insert_is_judged_by_its_block(compact: bool) -> None:
    random = np.random.default_rng(1)
    table = small_table(min_rows_for_wide_part=1 << 30 if compact else 0)
    for rows, codec in ((100, SMALL), (4000, LARGE)):
        table.insert(block(rows, random))
        part = table.parts[-1]
        assert part.manifest.part_type == ("Compact" if compact else "Wide")
        assert codec_of(table, part) == codec


def test_parts_that_are_encoded_together_are_judged_each_for_itself() -> None:
    table = SmallTable(define(COLUMNS, order_by=["k"], partition_by=["k % 2"], settings={"min_bytes_for_zstd": 20_000}))
    texts = [b"x" * 10, b"x" * 100] * 300
    keys = pa.array(range(600), pa.uint64())
    table.insert(pa.table({"k": keys, "s": pa.array(texts, pa.binary())}))
    assert [codec_of(table, part) for part in table.parts] == [SMALL, LARGE]
    assert sorted(table.rows().column("k").to_pylist()) == keys.to_pylist()


def test_codecs_of_columns_stay_and_indexes_have_the_default() -> None:
    db = ml.connect("memory://codec-of-columns")
    db.sql(
        "CREATE TABLE t (k UInt64 CODEC(NONE), a UInt64 CODEC(Delta, Default), b UInt64, INDEX i b TYPE minmax)"
        " ENGINE = MergeTree ORDER BY k SETTINGS min_bytes_for_zstd = 1000"
    )
    table = db.table("t")
    for rows, method in ((10, "LZ4"), (1000, "ZSTD")):
        db.sql(f"INSERT INTO t SELECT number, number, number FROM numbers({rows})")
        files = part_files(table.handle.store, table.handle.directory, table.handle.snapshot().parts[-1].manifest)
        found = data_methods(files)
        assert (found["k.bin"], found["b.bin"]) == ({"NONE"}, {method})
        assert found["a.bin"] == {"Multiple"}
        assert {n for n, each in found.items() if n.startswith("skp_") and each == {method}}


@pytest.mark.parametrize("engine", ["MergeTree", "ReplacingMergeTree"])
@pytest.mark.parametrize("seed", range(4))
def test_a_merge_never_takes_the_codec_of_large_parts_back(engine: str, seed: int) -> None:
    random = np.random.default_rng([seed, len(engine)])
    table = small_table(engine)
    seen = set()
    for _ in range(25):
        for _ in range(int(random.integers(0, 4))):
            table.insert(block(int(random.integers(1, 500)), random, keys=700))
        before = table.parts
        if not before:
            continue
        size = sum(part.manifest.bytes_uncompressed for part in before)
        had = LARGE in [codec_of(table, part) for part in before]
        table.optimize()
        [part] = table.parts
        assert codec_of(table, part) == (LARGE if had or size >= LIMIT else SMALL)
        seen.add((had, size >= LIMIT))
    assert {(False, False), (True, True)} <= seen
    assert ((True, False) in seen) == (engine != "MergeTree")  # rows were removed: fewer bytes, the same codec


def test_a_limit_of_0_and_a_codec_of_the_table_count_from_the_next_merge_on() -> None:
    random = np.random.default_rng(2)
    table = small_table()
    table.insert(block(2000, random))
    for settings, codec in (
        ({"min_bytes_for_zstd": str(LIMIT)}, LARGE),
        ({"min_bytes_for_zstd": "0"}, SMALL),
        ({"min_bytes_for_zstd": "1000000"}, SMALL),
        ({"min_bytes_for_zstd": "1"}, LARGE),
        ({"min_bytes_for_zstd": "1000000"}, LARGE),
        ({"min_bytes_for_zstd": "1", "default_compression_codec": "LZ4"}, SMALL),
        ({"default_compression_codec": "ZSTD(1)"}, "ZSTD(1)"),
        ({}, SMALL),
    ):
        alter(table, settings)
        table.optimize()
        assert codec_of(table, table.parts[0]) == codec, settings


@pytest.mark.parametrize("whole", [False, True])
def test_a_mutation_keeps_the_codec_of_the_part(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    monkeypatch.setattr("mergelake.parts.write.rewrite.REWRITTEN_WHOLE_BYTES", 1 << 60 if whole else 0)
    db = ml.connect(f"memory://codec-mutations-{whole}")
    db.sql(
        "CREATE TABLE t (k UInt64, a UInt64, b String) ENGINE = MergeTree ORDER BY k SETTINGS min_bytes_for_zstd = 5000"
    )
    db.sql("INSERT INTO t SELECT number, number, toString(number) FROM numbers(10)")
    db.sql("INSERT INTO t SELECT number, number, toString(number) FROM numbers(1000)")
    table = db.table("t")

    def codecs() -> list[str]:
        found = []
        for part in table.handle.snapshot().parts:
            files = part_files(table.handle.store, table.handle.directory, part.manifest)
            found.append(said_codec(files))
            methods = {n: each for n, each in data_methods(files).items() if n != "_row_exists.bin"}
            assert set().union(*methods.values()) == {found[-1].partition("(")[0]}
        return found

    assert codecs() == [SMALL, LARGE]
    table.update({"b": "concat(b, 'x')"}, where="k % 2 = 0")
    table.delete(where="k % 3 != 0")
    table.apply_mutations()
    assert codecs() == [SMALL, LARGE]
    # A codec that the table has by now is for parts written whole: one file names that of all columns.
    table.modify_settings({"default_compression_codec": "NONE"})
    table.update({"a": "a + 1"}, where="k % 2 = 0")
    table.apply_mutations()
    assert codecs() == (["NONE", "NONE"] if whole else [SMALL, LARGE])
    table.optimize(final=True)
    assert codecs() == ["NONE"]
    assert db.sql("SELECT count(), sum(a) FROM t").rows() == [(338, 167020)]
