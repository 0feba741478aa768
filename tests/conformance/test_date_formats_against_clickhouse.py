"""Random formats, weeks and counts of random times in random zones: ClickHouse's texts, as values and as keys."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.expr import compile_expression
from mergelake.expr.functions.date_format import SPECIFIERS
from tests.helpers.blocks import insert
from tests.helpers.rounds import LONG

pytestmark = pytest.mark.chdb

ROWS = 500
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe",
         "Pacific/Apia", "America/Sao_Paulo", "America/Havana")  # fmt: skip
LETTERS = "".join(SPECIFIERS) + "DFhklrRSTnt%"
PLAIN = (" ", "-", "/", "text", "é", "0", "'", "")


def drawn_type(rng: random.Random) -> str:
    """A type of dates or times, at times Nullable or LowCardinality."""
    name = rng.choice(ZONES)
    kinds = ["Date", "Date32", f"DateTime('{name}')", *[f"DateTime64({rng.randrange(10)}, '{name}')"] * 3]
    kind = rng.choice(kinds)
    if rng.random() < 0.2:
        kind = f"Nullable({kind})"
    return f"LowCardinality({kind})" if rng.random() < 0.2 and "64" not in kind and "32" not in kind else kind


def drawn_values(rng: np.random.Generator, kind: str) -> pa.Array:
    """Times of a type across its whole range, more around 1970, at the edges, and some NULLs."""
    data_type = parse_type(kind)
    plain = kind.removeprefix("LowCardinality(").removeprefix("Nullable(")
    low, high, unit = -2208988800, 10413791999, 1
    if plain.startswith("DateTime64"):
        unit = 10 ** int(plain[11])
        if unit == 10**9:
            high = 9214646399  # the last nanoseconds of 63 bits
    elif plain.startswith("DateTime"):
        low, high = 86400, 2**32 - 86401
    else:
        unit = 86400
        low, high = (0, 65535) if plain.startswith("Date)") or plain == "Date" else (-25567, 120529)
    if plain.startswith("DateTime"):
        near = rng.integers(max(-(10**7), low), 10**8, ROWS // 4)
        numbers = np.concatenate([near, rng.integers(low, high, ROWS - len(near) - 2, endpoint=True), [low, high]])
        values = numbers * unit + (rng.integers(0, unit, len(numbers)) if unit > 1 else 0)
    else:
        near = rng.integers(max(-800, low), 800, ROWS // 4)
        values = np.concatenate([near, rng.integers(low, high, ROWS - len(near) - 2, endpoint=True), [low, high]])
    mask = rng.random(ROWS) < 0.2 if "Nullable" in kind else None
    storage = storage_type(data_type)
    if pa.types.is_dictionary(storage):
        return pa.array(values, mask=mask).cast(storage.value_type).dictionary_encode().cast(storage)
    return pa.array(values, mask=mask).cast(storage)


def drawn_call(rng: random.Random, kind: str) -> str:
    """A call over `x` of the type."""
    name = rng.choice(ZONES)
    letters = LETTERS if "DateTime" in kind else LETTERS.replace("z", "")
    pieces = [rng.choice(PLAIN) + "%" + rng.choice(letters) for _ in range(rng.randrange(1, 9))]
    text = "".join(pieces).replace("'", "''")
    week = f"{rng.choice(('toWeek', 'toYearWeek'))}(x, {rng.randrange(10)}, '{name}')"
    count = f"toRelative{rng.choice(('Hour', 'Minute', 'Second'))}Num(x, '{name}')"
    return rng.choice([f"formatDateTime(x, '{text}')"] * 3 + [f"formatDateTime(x, '{text}', '{name}')", week, count])


@pytest.mark.parametrize("seed", range(400 if LONG else 12))
def test_random_formats_weeks_and_counts_are_clickhouses(oracle: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"date formats {seed}")
    kind = drawn_type(rng)
    x = drawn_values(np.random.default_rng(seed), kind)
    types = {"row": parse_type("UInt32"), "x": parse_type(kind)}
    rows = pa.table({"row": pa.array(np.arange(ROWS, dtype=np.uint32)), "x": x})
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    oracle.query("DROP TABLE IF EXISTS date_formats")
    oracle.query(f"CREATE TABLE date_formats (row UInt32, x {kind}) ENGINE = Memory")
    insert(oracle, "date_formats", rows, types, tmp_path)
    for call in [drawn_call(rng, kind) for _ in range(12)]:
        found = compile_expression(call, {"x": types["x"]})
        mine = [None if v is None else v.decode() if isinstance(v, bytes) else str(v)
                for v in found.evaluate(rows.select(["x"])).to_pylist()]  # fmt: skip
        query = f"SELECT hex(toString({call})), isNull({call}), toTypeName({call}) FROM date_formats ORDER BY row"
        lines = [line.split("\t") for line in str(oracle.query(query, "TSVRaw")).splitlines()]
        theirs = [None if null == "1" else bytes.fromhex(text).decode() for text, null, _ in lines]
        assert mine == theirs, (kind, call)
        plain = lines[0][2].removeprefix("LowCardinality(").rstrip(")")
        assert str(found.type).rstrip(")") == plain, (kind, call)
    oracle.query("DROP TABLE date_formats")


KEYS = [
    ("DateTime64(3, 'Europe/Berlin')", "formatDateTime(x, '%Y-%m-%d %H')"),
    ("DateTime64(6, 'America/St_Johns')", "toYearWeek(x, 3)"),
    ("DateTime('Asia/Kathmandu')", "toRelativeHourNum(x)"),
    ("Date32", "toWeek(x, 8)"),
    ("Date", "formatDateTime(x, '%M')"),
    ("DateTime64(9, 'UTC')", "toRelativeMinuteNum(x)"),
    ("DateTime", "toRelativeSecondNum(x)"),
]


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_a_sorting_key_of_them_orders_as_in_clickhouse(oracle: Any, tmp_path: Path, kind: str, key: str) -> None:
    x = drawn_values(np.random.default_rng(len(key)), kind)
    types = {"row": parse_type("UInt32"), "x": parse_type(kind)}
    rows = pa.table({"row": pa.array(np.arange(ROWS, dtype=np.uint32)), "x": x})
    create = f"CREATE TABLE date_order (row UInt32, x {kind}) ENGINE = MergeTree ORDER BY ({key}, row)"
    oracle.query("DROP TABLE IF EXISTS date_order")
    oracle.query(create)
    insert(oracle, "date_order", rows, types, tmp_path)
    first = str(oracle.query("SELECT row FROM date_order", "TSV")).split()
    ours = ml.connect(str(tmp_path / "lake"))
    ours.sql(create)
    text = str(oracle.query("SELECT row, toString(x) FROM date_order ORDER BY rand()", "Values"))
    ours.sql(f"INSERT INTO date_order VALUES {text}")
    assert [
        str(row) for row in ours.table("date_order").scan(["row"], ordered=True).arrow()["row"].to_pylist()
    ] == first
    oracle.query("DROP TABLE date_order")
