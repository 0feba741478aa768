"""Merges, FINAL and optimize_on_insert give exactly ClickHouse's rows, in its order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.engines.order.keys import table_keys
from mergelake.engines.order.sorting import sort_order
from mergelake.engines.rules.modes import final_rows
from mergelake.jobs.publish.definition import attach_text
from mergelake.table.definition.define import define
from tests.helpers.blocks import insert, select
from tests.helpers.merging import SmallTable, plain, random_column

ENGINES = {
    "plain": "MergeTree",
    "last": "ReplacingMergeTree",
    "version": "ReplacingMergeTree(ver)",
    "deleted": "ReplacingMergeTree(ver, gone)",
    "collapsing": "CollapsingMergeTree(sign)",
    "versioned": "VersionedCollapsingMergeTree(sign, ver)",
}
KEYS = {
    "number": (["n"], {"n": "UInt32"}),
    "string": (["s", "n"], {"s": "String", "n": "Int16"}),
    "dictionary": (["lc", "d"], {"lc": "LowCardinality(String)", "d": "DateTime"}),
    "float": (["f", "lcn"], {"f": "Float64", "lcn": "LowCardinality(Nullable(String))"}),
    "nullable": (["ns", "ni"], {"ns": "Nullable(String)", "ni": "Nullable(Int64)"}),
    "wide": (["u", "w"], {"u": "UUID", "w": "Int256"}),
    "odd": (["x", "ip", "e"], {"x": "FixedString(5)", "ip": "IPv6", "e": "Enum8('b' = -1, 'a' = 2)"}),
    "expression": (["n % 7", "s"], {"n": "UInt32", "s": "String"}),
    "one": ([], {"n": "UInt32"}),
}
VERSIONS = ["UInt8", "Int64", "Float32", "DateTime64(3)", "Date"]


def _tables(
    oracle: Any, key: str, engine: str, seed: int, folder: Path
) -> tuple[SmallTable, str, dict[str, Any], np.random.Generator]:
    random = np.random.default_rng([seed, len(key), len(engine)])
    order_by, key_columns = KEYS[key]
    columns = {
        **key_columns,
        "ver": VERSIONS[seed % len(VERSIONS)],
        "gone": "UInt8",
        "sign": "Int8",
        "a": "String",
        "b": "Nullable(Int32)",
    }
    settings = {"allow_nullable_key": 1, "index_granularity": 64}
    schema = define(columns, order_by=order_by, engine=ENGINES[engine], settings=settings)
    table = SmallTable(schema)
    name = f"default.m_{key}_{engine}_{seed}"
    oracle.query(f"DROP TABLE IF EXISTS {name}")
    text = attach_text(schema, name, "X", 0)
    text = text[: text.index("refresh_parts_interval")] + "min_bytes_for_wide_part = 0"
    oracle.query(text)
    oracle.query(f"SYSTEM STOP MERGES {name}")
    for _ in range(int(random.integers(1, 6))):
        rows = int(random.integers(1, 700))
        types = schema.types
        block = pa.table(
            {
                n: pa.array(random.integers(0, 2, rows), pa.uint8())
                if n == "gone"
                else pa.array(random.choice([1, -1], rows), pa.int8())
                if n == "sign"
                else random_column(kind, rows, random, distinct=6 if n == "ver" else 40)
                for n, kind in types.items()
            }
        )
        table.insert(block)
        insert(oracle, name, block, types, folder)
    return table, name, dict(schema.types), random


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("key", KEYS)
def test_a_merge_gives_the_rows_of_clickhouse_in_its_order(
    oracle: Any, tmp_path: Path, key: str, engine: str, seed: int
) -> None:
    # M-100
    if engine == "versioned" and key == "one":
        pytest.skip("refused: the version would be the whole sorting key")
    table, name, types, _ = _tables(oracle, key, engine, seed, tmp_path)
    columns = ", ".join(types)
    inserted = select(oracle, f"SELECT {columns} FROM {name} ORDER BY _part, _part_offset", types)
    assert plain(table.rows()) == plain(inserted), "optimize_on_insert"
    if engine != "plain":
        final = select(oracle, f"SELECT {columns} FROM {name} FINAL SETTINGS max_threads = 1", types)
        assert sorted(plain(_final(table)), key=repr) == sorted(plain(final), key=repr), "FINAL"
    [merged] = table.optimize()
    oracle.query(f"SYSTEM START MERGES {name}")
    oracle.query(f"OPTIMIZE TABLE {name} FINAL")
    found = select(oracle, f"SELECT {columns} FROM {name} ORDER BY _part_offset", types)
    assert plain(table.rows()) == plain(found)
    [theirs] = str(oracle.query(f"SELECT name FROM system.parts WHERE active AND table = '{name[8:]}'", "TSV")).split()
    assert str(merged.info) == theirs
    assert table.names == [theirs]
    oracle.query(f"DROP TABLE {name}")


def _final(table: SmallTable) -> pa.Table:
    """FINAL over all parts: the rows in merge order, then the engine's choice."""
    schema = table.handle.schema
    keys = table_keys(schema)
    block = table.rows()
    arrays = [key.evaluate(block) for key in keys.sorting]
    types = [key.type for key in keys.sorting]
    order = sort_order(arrays, types, keys.descending) if arrays else None
    merged = np.repeat(np.arange(len(table.parts)), [part.manifest.rows for part in table.parts])
    if order is not None:
        block = block.take(pa.array(order))
        arrays = [array.take(pa.array(order)) for array in arrays]
        merged = merged[order]
    return block.filter(pa.array(final_rows(block, schema, arrays, types, merged)))


def test_a_descending_key_is_merged_as_clickhouse_does(oracle: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    schema = define(
        {"s": "Nullable(String)", "n": "Int32", "v": "UInt32"},
        order_by=["s", "n"],
        engine="ReplacingMergeTree(v)",
        settings={"allow_nullable_key": 1, "index_granularity": 32},
    )
    schema = replace(schema, order_desc=(True, False))
    table = SmallTable(schema)
    oracle.query(
        "CREATE OR REPLACE TABLE default.m_desc (s Nullable(String), n Int32, v UInt32) "
        "ENGINE = ReplacingMergeTree(v) ORDER BY (s DESC, n) "
        "SETTINGS allow_nullable_key = 1, allow_experimental_reverse_key = 1, min_bytes_for_wide_part = 0"
    )
    for _ in range(4):
        block = pa.table({n: random_column(kind, 300, random, distinct=30) for n, kind in schema.types.items()})
        table.insert(block)
        insert(oracle, "default.m_desc", block, schema.types, tmp_path)
    table.optimize()
    oracle.query("OPTIMIZE TABLE default.m_desc FINAL")
    found = select(oracle, "SELECT s, n, v FROM default.m_desc ORDER BY _part_offset", schema.types)
    assert plain(table.rows()) == plain(found)


def test_versions_that_are_not_numbers_are_refused_as_in_clickhouse(oracle: Any) -> None:
    for arguments, columns in (("s", {"s": "String"}), ("v", {"v": "Nullable(UInt8)"}), ("n, v", {"v": "UInt16"})):
        given = {"n": "UInt32", **columns}
        with pytest.raises(MergelakeError) as caught:
            define(given, order_by=["n"], engine=f"ReplacingMergeTree({arguments})")
        text = ", ".join(f"{n} {k}" for n, k in given.items())
        with pytest.raises(Exception, match=f"Code: {caught.value.code}"):
            oracle.query(f"CREATE TABLE default.bad ({text}) ENGINE = ReplacingMergeTree({arguments}) ORDER BY n")
