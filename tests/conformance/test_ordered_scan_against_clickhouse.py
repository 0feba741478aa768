"""`scan(ordered=True)` against ORDER BY of ClickHouse: the same rows in the same order, ties too."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.convert.storage import to_public
from mergelake.core.types.types import parse_type
from tests.helpers.random_arrays import random_array

pytestmark = pytest.mark.chdb

KEYS = (
    *("Int8", "UInt64", "Int128", "Float64", "String", "FixedString(3)", "Date", "DateTime64(3, 'UTC')", "UUID"),
    *("Decimal(18, 4)", "Enum8('b' = -1, 'a' = 3)", "IPv6", "Bool", "LowCardinality(String)", "Nullable(Int16)"),
    *(
        "Nullable(Float32)",
        "Nullable(String)",
        "Tuple(Int8, String)",
        "LowCardinality(Nullable(String))",
    ),
)
TABLES = int(os.environ.get("ORDERED_TABLES", "10"))


def few(rng: np.random.Generator, text: str, rows: int) -> pa.Array:
    """Random values of a type, most of them more than once."""
    kind = parse_type(text)
    values = random_array(rng, kind, max(2, rows // 6), 0.1)
    return to_public(values.take(pa.array(rng.integers(0, len(values), rows))), kind)


@pytest.mark.parametrize("number", range(TABLES))
def test_rows_come_in_the_order_of_the_sorting_key(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([20, number])
    monkeypatch.setattr("mergelake.scan.read.layers.LAYER_ROWS", int(rng.choice([1 << 20, 30, 7])))
    kinds = [str(kind) for kind in rng.choice(KEYS, int(rng.integers(1, 4)))]
    names = [f"k{at}" for at in range(len(kinds))]
    down = rng.random(len(kinds)) < 0.3
    keys = ", ".join(f"{name} DESC" if falls else name for name, falls in zip(names, down, strict=True))
    primary = f"PRIMARY KEY ({', '.join(names[: int(rng.integers(1, len(names) + 1))])})"
    partition = "PARTITION BY p" if rng.random() < 0.5 else ""
    db = ml.connect(f"memory://ordered-{number}")
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    db.sql(
        f"CREATE TABLE t ({columns}, p UInt8, n UInt32, `o.x` UInt32) ENGINE = MergeTree {partition} {primary} "
        f"ORDER BY ({keys}) SETTINGS index_granularity = 8, allow_nullable_key = 1"
    )
    table, total = db.table("t"), 0
    for _ in range(int(rng.integers(1, 6))):
        rows = int(rng.choice([1, 30, 90]))
        data = {name: few(rng, kind, rows) for name, kind in zip(names, kinds, strict=True)}
        data["p"] = pa.array(rng.integers(0, 3, rows), pa.uint8())
        data["n"] = data["o.x"] = pa.array(np.arange(total, total + rows), pa.uint32())
        table.append(pa.table(data))
        total += rows
    order = ", ".join(f"{name} {'DESC NULLS FIRST' if f else 'ASC'}" for name, f in zip(names, down, strict=True))
    for where in ("1", "n % 3 = 1", "p = 1"):
        ties = "toUInt32(splitByChar('_', _part)[2])" if partition else "1"
        wanted = db.sql(f"SELECT n FROM t WHERE {where} ORDER BY {order}, _partition_id, {ties}, n").arrow()["n"]
        for columns_asked in (["n"], ["o.x", "p", *reversed(names), "n"]):
            scan = table.scan(columns_asked, where, ordered=True)
            assert scan.arrow()["n"].to_pylist() == wanted.to_pylist()
            assert scan.arrow().column_names == columns_asked
        first = table.scan(["n"], where, ordered=True, limit=5).arrow()["n"]
        assert first.to_pylist() == wanted.to_pylist()[:5]


def test_an_ordered_final_shows_the_rows_of_final_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    db = ml.connect("memory://ordered-final")
    db.sql(
        "CREATE TABLE t (k Int32, s LowCardinality(String), v UInt32) ENGINE = ReplacingMergeTree(v) "
        "PARTITION BY k % 3 PRIMARY KEY k ORDER BY (k, s) SETTINGS index_granularity = 8"
    )
    for start in range(0, 400, 100):
        data = {"k": rng.integers(-20, 20, 100), "s": rng.choice(["a", "b"], 100), "v": np.arange(start, start + 100)}
        db.table("t").append(data)
    wanted = db.sql("SELECT k, s, v FROM t FINAL WHERE v % 2 = 0 ORDER BY k, s").rows()
    for layer_rows in (1 << 20, 9):
        monkeypatch.setattr("mergelake.scan.read.layers.LAYER_ROWS", layer_rows)
        found = db.table("t").scan(["v", "k", "s"], "v % 2 = 0", final=True, ordered=True).arrow()
        assert list(zip(*(found[name].to_pylist() for name in ("k", "s", "v")), strict=True)) == wanted


def test_a_table_without_a_sorting_key_is_read_in_the_order_of_its_parts() -> None:
    db = ml.connect("memory://ordered-tuple")
    db.sql("CREATE TABLE t (n UInt32) ENGINE = MergeTree ORDER BY tuple() SETTINGS index_granularity = 8")
    numbers = np.random.default_rng(1).permutation(500)
    for piece in np.split(numbers, 5):
        db.table("t").append({"n": piece})
    assert db.table("t").scan(ordered=True).arrow()["n"].to_pylist() == numbers.tolist()
    assert sorted(db.table("t").scan().arrow()["n"].to_pylist()) == list(range(500))
