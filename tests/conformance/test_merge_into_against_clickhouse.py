"""Merges against the same joins in ClickHouse, whose tables are called `target` and `source` as in the expressions.

Random tables, keys with NULLs and repetitions, forms and conditions, one merge after another; the rows of both sides
are compared after each. What is deleted is sometimes written down between, as a node would.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.convert.public import to_public_table
from mergelake.core.convert.storage import to_storage
from mergelake.core.types import types as t
from tests.helpers.blocks import insert
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

TYPES = {
    "k": "UInt32",
    "s": "LowCardinality(String)",
    "n": "Nullable(Int64)",
    "d": "Date",
    "x": "Decimal(18, 3)",
    "w": "String",
}
CREATE = f"CREATE TABLE t ({', '.join(f'{n} {kind}' for n, kind in TYPES.items())}) ENGINE = MergeTree "
LAYOUTS = (
    "ORDER BY k",
    "PARTITION BY toYYYYMM(d) ORDER BY (s, k)",
    "PARTITION BY k % 3 ORDER BY w",
    "ORDER BY tuple()",
)
KEYS = (("k",), ("k", "s"), ("n",), ("s", "n"), ("d", "k"), ("x",), ("w", "k"))
ASSIGNMENTS = (
    {"w": "concat(target.w, source.w)"},
    {"x": "target.x + source.x", "n": "ifNull(target.n, 0) + source.k"},
    {"k": "source.k + 100", "d": "source.d"},
    {"n": "NULL", "s": "upper(source.s)"},
)
MATCHED_IF = (None, None, "source.x > target.x", "target.n IS NOT NULL", "source.k % 2 = 0")
DELETE_IF = (None, None, "source.k % 5 = 0", "target.w = 'a'", "source.n < 3 AND target.k > 2")


def random_rows(rng, rows, *, unique=()):
    """Rows with few different values; with different, comparable keys in the columns `unique`."""
    block = pa.table(
        {
            "k": pa.array(rng.integers(0, 12, rows), pa.uint32()),
            "s": pa.array(rng.choice(["", "a", "it's", "ü"], rows)).cast(pa.binary()).dictionary_encode(),
            "n": pa.array(rng.integers(-2, 6, rows), pa.int64(), mask=rng.random(rows) < 0.2),
            "d": pa.array(rng.integers(19990, 20100, rows), pa.uint16()),
            "x": pa.array(rng.integers(-4, 9, rows) * 125, pa.int64()),
            "w": pa.array(rng.choice([b"a", b"b", b"\xff\x00", b"long " * 9], rows), pa.binary()),
        }
    )
    if not unique:
        return block
    seen: set[Any] = set()
    keep = []
    for key in zip(*(block.column(name).to_pylist() for name in unique), strict=True):
        keep.append(None in key or key not in seen)
        seen.add(key)
    return block.filter(pa.array(keep, pa.bool_()))


def expected_rows(on, form, sources):
    """A query for the rows after a merge, made of joins."""
    matched, not_matched, matched_if, delete_if = form
    join = " AND ".join(f"target.{name} = source.{name}" for name in on)
    gone = not_inserted = f"ifNull({delete_if}, 0)" if delete_if else "0"
    act = f"(NOT {gone} AND ifNull({matched_if or '1'}, 0))"
    if matched == "delete":
        gone, act = f"({gone} OR {act})", "0"
    if matched == "ignore":
        act = "0"
    old = {name: f"target.{name}" for name in TYPES}
    given = {n: f"source.{n}" if n in sources else f"defaultValueOfTypeName('{kind}')" for n, kind in TYPES.items()}
    pairs = f"FROM tgt AS target INNER JOIN src AS source ON {join}"
    parts = [(old, f"FROM tgt AS target LEFT ANTI JOIN src AS source ON {join}")]
    if isinstance(matched, dict) or matched == "update":
        sets = matched if isinstance(matched, dict) else {n: f"source.{n}" for n in sources if n not in on}
        new = {n: f"if({act}, CAST({sets[n]}, '{TYPES[n]}'), {o})" if n in sets else o for n, o in old.items()}
        parts.append((new, f"{pairs} WHERE NOT {gone}"))
    else:
        parts.append((old, f"{pairs} WHERE NOT {gone} AND NOT {act}"))
        if matched == "replace":
            parts.append((given, f"FROM src AS source WHERE i IN (SELECT source.i {pairs} WHERE {act})"))
    if not_matched == "insert":
        rest = f"FROM src AS source WHERE i NOT IN (SELECT source.i {pairs})"
        parts.append((given, f"{rest} AND NOT {not_inserted}" if delete_if and "target." not in delete_if else rest))
    return " UNION ALL ".join(f"{selected(columns)} {rest}" for columns, rest in parts)


def selected(columns):
    texts = (f"{f'hex({text})' if n == 'w' else f'toString({text})'} AS c_{n}" for n, text in columns.items())
    return f"SELECT {', '.join(texts)}"


def rows_of(text):
    return Counter(text.splitlines())


def fill(oracle, name, block, folder, *, numbered=False):
    types = {column: t.parse_type(TYPES[column]) for column in block.column_names}
    if numbered:
        block = block.append_column("i", pa.array(np.arange(block.num_rows), pa.uint32()))
        types["i"] = t.parse_type("UInt32")
    oracle.query(f"DROP TABLE IF EXISTS {name} SYNC")
    oracle.query(f"CREATE TABLE {name} ({', '.join(f'{n} {kind}' for n, kind in types.items())}) ENGINE = Memory")
    if block.num_rows:
        insert(oracle, name, block, types, folder)


def storage_rows(table):
    """The rows of a table of ours in storage form."""
    block = table.scan().arrow()
    types = {name: t.parse_type(kind) for name, kind in TYPES.items()}
    return pa.table({name: to_storage(block.column(name).combine_chunks(), types[name], name) for name in TYPES})


def as_text(oracle, sql):
    return rows_of(str(oracle.query(sql, "TSV")))


@pytest.mark.parametrize("seed", range(rounds(12, 400)))
def test_merges_are_joins(oracle, tmp_path, seed):
    rng = np.random.default_rng([91, seed])
    db = ml.connect(f"memory://merge-into-{seed}")
    db.sql(CREATE + LAYOUTS[seed % len(LAYOUTS)])
    table = db.table("t")
    public = {name: t.parse_type(kind) for name, kind in TYPES.items()}
    for _ in range(int(rng.integers(0, 4))):
        table.append(to_public_table(random_rows(rng, 40), public))
    for _ in range(6):
        on = KEYS[rng.integers(len(KEYS))]
        matched: Any = rng.choice(["replace", "replace", "update", "mapping", "delete", "ignore"])
        matched = ASSIGNMENTS[rng.integers(len(ASSIGNMENTS))] if matched == "mapping" else str(matched)
        not_matched = str(rng.choice(["insert", "insert", "ignore"]))
        matched_if = MATCHED_IF[rng.integers(len(MATCHED_IF))]
        delete_if = DELETE_IF[rng.integers(len(DELETE_IF))]
        if (matched, not_matched, delete_if) == ("ignore", "ignore", None):
            continue
        source = random_rows(rng, int(rng.integers(0, 25)), unique=on)
        read = " ".join(map(str, (matched, matched_if, delete_if)))
        kept = [n for n in TYPES if n in on or f"source.{n}" in read or rng.random() < 0.8]
        kept = kept if set(kept) - set(on) else list(TYPES)
        source = source.select(kept)
        fill(oracle, "tgt", storage_rows(table), tmp_path)
        fill(oracle, "src", source, tmp_path, numbered=True)
        expected = as_text(oracle, expected_rows(on, (matched, not_matched, matched_if, delete_if), kept))
        table.merge(
            to_public_table(source, public),
            on,
            when_matched=matched,
            when_not_matched=not_matched,
            matched_if=matched_if,
            delete_if=delete_if,
        )
        if rng.random() < 0.3:
            table.apply_mutations()
        fill(oracle, "after", storage_rows(table), tmp_path)
        found = as_text(oracle, f"{selected({name: name for name in TYPES})} FROM after")
        what = (on, matched, not_matched, matched_if, delete_if, kept)
        assert found == expected, (what, found - expected, expected - found)
