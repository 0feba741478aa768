"""IN with many members: read in bulk, exact for tuples of any width, and pruned by the key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.types import types as t
from mergelake.expr import compile_expression, parse
from mergelake.expr.nodes import Call, Literal

TEXTS = ["a", "it''s", r"b\'c", r"\xff\0", "", "ü, ] [", "a\nb"]


def test_a_list_of_strings_is_read_as_one_of_single_tokens():
    for close in ("]", " ]", "\n]"):
        bulk = parse("[" + " ,\t".join(f"'{text}'" for text in TEXTS) + close)
        slow = parse("[" + ", ".join(f"('{text}')" for text in TEXTS) + "]")
        assert bulk == slow
        assert len(bulk.args) == len(TEXTS)
    assert parse("['a'][1]") == Call("arrayElement", (Call("array", (Literal(b"a", t.STRING),)), parse("1")))
    assert parse("['a', s]") == Call("array", (parse("'a'"), parse("s")))
    for broken in ("['a' 'b']", "['a',]", "[,'a']", "['a'", "['a"):
        with pytest.raises(ml.InvalidInputError):
            parse(broken)


def test_tuples_of_many_wide_columns_match_exactly():
    """The product of the numbers of distinct values exceeds 64 bits: nothing may wrap around."""
    width, count = 6, 3000
    rng = np.random.default_rng(7)
    members = rng.permuted(np.tile(np.arange(count, dtype=np.uint64), (width, 1)), axis=1)
    names = [f"c{i}" for i in range(width)]
    types = dict.fromkeys(names, t.Int(64, signed=False))
    lists = ", ".join(
        "CAST([" + ", ".join(f"'{v}'" for v in column) + "], 'Array(UInt64)')" for column in members.tolist()
    )
    condition = compile_expression(f"({', '.join(names)}) IN arrayZip({lists})", types)
    rows = np.concatenate([members, rng.integers(0, count, (width, 20_000), dtype=np.uint64)], axis=1)
    known = set(zip(*members.tolist(), strict=True))
    expected = [row in known for row in zip(*rows.tolist(), strict=True)]
    assert condition.mask(pa.table(dict(zip(names, rows, strict=True)))).tolist() == expected
    assert sum(expected) >= count


def test_the_key_prunes_by_a_set_of_many_columns():
    width, count = 5, 20_000
    rng = np.random.default_rng(11)
    names = [f"c{i}" for i in range(width)]
    columns = {name: pa.array(rng.permutation(count), pa.uint64()) for name in names}
    table = ml.connect("memory://large-sets").create_table("t", dict.fromkeys(names, "UInt64"), order_by=tuple(names))
    table.append(pa.table(columns))
    chosen = rng.choice(count, 6000, replace=False)
    lists = ", ".join(
        "CAST([" + ", ".join(f"'{v}'" for v in columns[name].take(pa.array(chosen)).to_pylist()) + "], 'Array(UInt64)')"
        for name in names
    )
    scan = table.scan(where=f"({', '.join(names)}) IN arrayZip({lists})")
    assert sorted(scan) == sorted(zip(*(columns[n].take(pa.array(chosen)).to_pylist() for n in names), strict=True))


@pytest.mark.parametrize("kind", ["String", "UUID", "Int256", "Decimal(30, 4)", "Float64", "Int8"])
def test_the_key_prunes_by_a_long_list(kind):
    db = ml.connect(f"memory://long-lists-{kind[:4]}")
    texts = {
        "String": lambda i: f"k{i:06d}",
        "UUID": lambda i: f"00000000-0000-4000-8000-{i:012d}",
        "Int256": lambda i: str(i * 10**60 - 10**64),
        "Decimal(30, 4)": lambda i: f"{i}.25",
        "Float64": lambda i: f"{i}.5",
        "Int8": lambda i: str(i % 256 - 128),
    }[kind]
    rows = [texts(i) for i in range(5000)]
    db.sql(f"CREATE TABLE l (k {kind}, n UInt32) ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 100")
    db.sql("INSERT INTO l VALUES " + ", ".join(f"('{text}', {i})" for i, text in enumerate(rows)))
    chosen = {texts(i) for i in range(1000, 1100)}
    where = "k IN CAST([" + ", ".join(f"'{text}'" for text in sorted(chosen)) + f"], 'Array({kind})')"
    table = db.table("l")
    assert sorted(n for (n,) in table.scan(["n"], where)) == [i for i, text in enumerate(rows) if text in chosen]
    if kind != "Int8":
        assert table.scan(["n"], where).plan.rows_estimate <= 300
