"""The condition of a merge on its keys: our expressions and ClickHouse's find exactly the rows with these keys.

Random keys of every type by which rows can be matched, one to three columns; ClickHouse executes the very text as
ALTER TABLE … DELETE, and what it leaves are the rows whose keys are not among them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.expr import compile_expression
from mergelake.jobs.upsert.keys import Keys, condition_of
from tests.helpers.blocks import insert, select
from tests.helpers.random_arrays import random_array
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

TYPES = (
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)),
    *("Float32", "Float64", "Bool", "String", "FixedString(5)", "UUID", "IPv4", "IPv6", "Date", "Date32"),
    *("DateTime", "DateTime('Europe/Berlin')", "DateTime64(0, 'Asia/Kolkata')", "DateTime64(3, 'America/New_York')"),
    *("DateTime64(9, 'UTC')", "Decimal(9, 2)", "Decimal(18, 0)", "Decimal(38, 6)", "Decimal(76, 30)"),
    *(r"Enum8('a' = -3, 'it\'s' = 0, 'b\\c' = 7)", "Enum16('x' = 1, 'y, z' = 300)"),
    *("Nullable(Int32)", "Nullable(String)", "Nullable(DateTime64(6, 'UTC'))", "Nullable(Float64)"),
    *("LowCardinality(String)", "LowCardinality(Nullable(String))", "LowCardinality(FixedString(3))"),
    *("LowCardinality(UInt16)", "Nullable(Enum8('p' = 1, 'q' = 2))", "Nullable(UUID)", "Nullable(Decimal(12, 3))"),
)
ROWS = 120


def column(rng, name, kind, rows, others):
    """Values at the edges of the type, and some of `others` again."""
    array = random_array(rng, kind, rows, edges=0.3)
    if others is None:
        return array
    both = pa.concat_arrays([as_plain(others), as_plain(array)])
    taken = both.take(pa.array(rng.integers(0, len(both), rows)))
    return taken.dictionary_encode().cast(array.type) if pa.types.is_dictionary(array.type) else taken


def as_plain(array):
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def python_keys(block, names):
    """The keys as Python values; None where a value is NULL or NaN, which equal nothing."""
    columns = [as_plain(block.column(name).combine_chunks()).to_pylist() for name in names]
    keys = []
    for row in zip(*columns, strict=True):
        matches_nothing = any(v is None or (isinstance(v, float) and v != v) for v in row)
        keys.append(None if matches_nothing else tuple(v + 0.0 if isinstance(v, float) else v for v in row))
    return keys


def compare(oracle, folder, rng, kinds):
    columns = tuple(Column(i, f"k{i}" if i else "`odd, k", t.parse_type(kind)) for i, kind in enumerate(kinds))
    names, types = [c.name for c in columns], {c.name: c.type for c in columns}
    source = pa.table({c.name: column(rng, c.name, c.type, ROWS, None) for c in columns})
    given = {c.name: column(rng, c.name, c.type, ROWS, source.column(c.name).combine_chunks()) for c in columns}
    rows = {name: given[name] for name in names}
    whole = pa.array(rng.integers(0, ROWS, ROWS // 3))  # some whole keys, too
    target = pa.table(
        {
            name: pa.concat_arrays([as_plain(rows[name]), as_plain(source.column(name).combine_chunks()).take(whole)])
            for name in names
        }
    )
    target = pa.table(
        {
            name: target.column(name).combine_chunks().dictionary_encode().cast(given[name].type)
            if pa.types.is_dictionary(given[name].type)
            else target.column(name).combine_chunks()
            for name in names
        }
    )
    condition = condition_of(Keys.of(source, columns))
    wanted = set(filter(None, python_keys(source, names)))
    expected = [key in wanted for key in python_keys(target, names)]
    if condition is None:
        assert not wanted
        return 0
    assert compile_expression(condition, types).mask(target).tolist() == expected, condition

    numbered = target.append_column("n", pa.array(np.arange(target.num_rows), pa.uint32()))
    with_number = {**types, "n": t.parse_type("UInt32")}
    oracle.query("DROP TABLE IF EXISTS merge_keys SYNC")
    shown = ", ".join(f"`{name.replace('`', chr(92) + '`')}` {kind}" for name, kind in with_number.items())
    oracle.query(
        f"CREATE TABLE merge_keys ({shown}) ENGINE = MergeTree ORDER BY n SETTINGS allow_nullable_key = 1",
    )
    insert_odd(oracle, numbered, with_number, folder)
    oracle.query(f"ALTER TABLE merge_keys DELETE WHERE {condition} SETTINGS mutations_sync = 1, max_query_size = 0")
    left = select(oracle, "SELECT n FROM merge_keys ORDER BY n", {"n": with_number["n"]})
    assert left.column("n").to_pylist() == [n for n, gone in enumerate(expected) if not gone], condition
    return sum(expected)


def insert_odd(oracle, block, types, folder):
    renamed = {f"c{i}": kind for i, kind in enumerate(types.values())}
    oracle.query("DROP TABLE IF EXISTS merge_keys_in SYNC")
    shown = ", ".join(f"{name} {kind}" for name, kind in renamed.items())
    oracle.query(f"CREATE TABLE merge_keys_in ({shown}) ENGINE = Memory")
    insert(oracle, "merge_keys_in", block.rename_columns(list(renamed)), renamed, folder)
    oracle.query("INSERT INTO merge_keys SELECT * FROM merge_keys_in")


@pytest.mark.parametrize("kind", TYPES)
def test_single_columns(oracle, tmp_path, kind):
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    rng = np.random.default_rng([77, TYPES.index(kind)])
    assert sum(compare(oracle, tmp_path, rng, [kind]) for _ in range(rounds(2, 20))) > 0


def test_several_columns(oracle, tmp_path):
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    found = 0
    for seed in range(rounds(25, 1000)):
        rng = np.random.default_rng([78, seed])
        found += compare(oracle, tmp_path, rng, rng.choice(TYPES, int(rng.integers(2, 4))).tolist())
    assert found > 100


def test_a_table_schema_is_not_needed_for_the_keys_alone():
    schema = TableSchema((Column(0, "k", t.parse_type("UInt8")),), order_by=("k",))
    block = pa.table({"k": pa.array([3, 1, 3], pa.uint8())})
    assert condition_of(Keys.of(block, schema.columns)) == "`k` IN CAST(['3', '1'], 'Array(UInt8)')"
