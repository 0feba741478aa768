"""Columns compared with constants of any other type: ClickHouse's rows, and no index loses one of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import SkipIndex
from mergelake.core.types.types import parse_type
from mergelake.expr import compile_expression
from mergelake.scan.prune.request import ScanRequest
from mergelake.table.definition.define import check_schema
from tests.helpers.blocks import insert
from tests.helpers.cross_types import COLUMNS, INDEXES, random_atom, rows
from tests.helpers.rounds import rounds
from tests.helpers.scans import ScanTable, make_schema

pytestmark = pytest.mark.chdb

TYPES = {name: parse_type(kind) for name, kind in COLUMNS.items()}
BLOCK = rows(1)
SETTINGS = {"index_granularity": "3", "allow_nullable_key": "1"}
OVERFLOWS_THERE = re.compile(r"(?=.*\b[iu](128|256)\b)(?=.*toDecimal)|(?=.*\be(8|16)\b)(?=.*\d{6})")
"""ClickHouse wraps around where it compares wide integers with Decimals, or looks for wide integers in an Enum."""


@pytest.fixture(scope="module")
def session(oracle: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    oracle.query("DROP TABLE IF EXISTS cross_types")
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    oracle.query(f"CREATE TABLE cross_types (row UInt32, {columns}) ENGINE = Memory")
    numbered = BLOCK.add_column(0, "row", pa.array(np.arange(len(BLOCK), dtype=np.uint32)))
    insert(oracle, "cross_types", numbered, {"row": parse_type("UInt32"), **TYPES}, tmp_path_factory.mktemp("rows"))
    yield oracle
    oracle.query("DROP TABLE cross_types")
    oracle.query("SET allow_suspicious_low_cardinality_types = 0")


def matching(where: str) -> list[int] | None:
    """Numbers of the rows that match; None for what is refused."""
    try:
        return np.flatnonzero(compile_expression(where, TYPES).mask(BLOCK)).tolist()
    except MergelakeError:
        return None


def test_rows_are_clickhouses(session: Any) -> None:
    rng = random.Random("constants of other types")
    compared = 0
    while compared < rounds(250, 5000):
        where = random_atom(rng, list(COLUMNS))
        mine = matching(where)
        if mine is None or OVERFLOWS_THERE.search(where):
            continue
        try:
            text = str(session.query(f"SELECT row FROM cross_types WHERE {where} ORDER BY row", "TSV"))
        except RuntimeError:  # what ClickHouse refuses to compare may be compared here
            continue
        compared += 1
        assert mine == [int(row) for row in text.split()], where


@cache
def tables(kind: str) -> list[tuple[list[str], ScanTable]]:
    """A table for each column that can be the primary key, the partition key, or in an index of that kind."""
    made = []
    for name in COLUMNS:
        keys: dict[str, Any] = {"order_by": (name,)} if kind == "primary key" else {}
        if kind == "partition key":
            keys = {"partition_by": (name,)}
        if kind in INDEXES:
            keys = {"indices": (SkipIndex("x", name, INDEXES[kind], 1),)}
        try:
            table = ScanTable(check_schema(make_schema(COLUMNS, settings=SETTINGS, **keys)))
        except MergelakeError:
            continue
        table.insert_block(BLOCK)
        made.append(([name], table))
    return made


@pytest.mark.parametrize("kind", ["primary key", "partition key", *INDEXES])
def test_no_index_loses_a_row(kind: str) -> None:
    rng = random.Random(f"pruned by {kind}")
    compared = 0
    while compared < rounds(60, 3000):
        names, table = rng.choice(tables(kind))
        where = random_atom(rng, names)
        if rng.random() < 0.3:
            where = f"({where}) {rng.choice(['AND', 'OR'])} ({random_atom(rng, names)})"
        expected = matching(where)
        if expected is None:
            continue
        compared += 1
        assert len(table.scan(ScanRequest(where=where, columns=tuple(names)))) == len(expected), where


FIXED = [
    "s IN (toFixedString('a', 4))",
    "s = toFixedString('a', 4)",
    "s = toFixedString('', 4)",
    "s = toFixedString('ab', 6)",
    "s IN (toFixedString('a', 1), 'b')",
    "(s, i8) IN ((toFixedString('a', 1), 1))",
    "s > toFixedString('a', 4)",
]


@pytest.mark.parametrize("kind", ["primary key", *INDEXES])
@pytest.mark.parametrize("where", FIXED)
def test_fixed_strings_find_the_strings_that_are_equal(session: Any, kind: str, where: str) -> None:
    expected = int(str(session.query(f"SELECT count() FROM cross_types WHERE {where}", "TSV")))
    for names, table in tables(kind):
        if names == ["s"]:
            assert len(table.scan(ScanRequest(where=where, columns=("s",)))) == expected
