# ruff: noqa: E501  (tables read best with one idea a line)
"""rand(), rand64() and generateUUIDv4() as defaults: taken and refused where ClickHouse does, each row its own value."""

from __future__ import annotations

import pickle
import re
import uuid
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column
from mergelake.core.types.types import parse_type
from mergelake.expr import compile_expression
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.scan.read.read import read_items

pytestmark = pytest.mark.chdb

DEFINITIONS = [
    "id UUID DEFAULT generateUUIDv4()", "id UUID MATERIALIZED generateUUIDv4()", "id UUID ALIAS generateUUIDv4()",
    "id DEFAULT generateUUIDv4()", "id UInt32 DEFAULT rand()", "id UInt64 DEFAULT rand64()", "id UInt32 DEFAULT rand32(x)",
    "id UInt8 DEFAULT rand() % 7", "id String DEFAULT toString(generateUUIDv4(x))", "id UUID DEFAULT generateUUIDv4(1, 2)",
    "id UInt32 DEFAULT RAND(1)", "id UInt32 DEFAULT RAND64()", "id UUID DEFAULT GENERATEUUIDV4()", "id UInt32 DEFAULT rand(1, 2)",
    "id DEFAULT now64(9)", "id DEFAULT now64(12)", "id DEFAULT now64(3, 'Asia/Tokyo')", "id DEFAULT now64('x')", "id DEFAULT now(5)",
    "id DEFAULT now()", "INDEX i rand() TYPE minmax", "INDEX i generateUUIDv4() TYPE bloom_filter",
]  # fmt: skip
KEYS = ["ORDER BY generateUUIDv4()", "ORDER BY (x, rand())", "PARTITION BY rand() % 4 ORDER BY x", "PARTITION BY rand32() ORDER BY x",
        "PRIMARY KEY rand64() ORDER BY rand64()", "ORDER BY cityHash64(x, now64())"]  # fmt: skip


def code_of(run: Any, statement: str) -> int:
    """The code of a refusal, 0 where there is none."""
    try:
        run(statement)
    except MergelakeError as problem:
        return problem.code
    except RuntimeError as problem:
        found = re.search(r"Code: (\d+)", str(problem))
        return int(found.group(1)) if found else -1
    return 0


def test_they_are_taken_and_refused_where_clickhouse_does(oracle: Any, tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    tables = [f"(x UInt8, {each}) ENGINE = MergeTree ORDER BY x" for each in DEFINITIONS]
    for table in [*tables, *(f"(x UInt8) ENGINE = MergeTree {key}" for key in KEYS)]:
        statement = f"CREATE TABLE random_defaults {table}"
        expected, found = code_of(oracle.query, statement), code_of(db.sql, statement)
        assert found == expected, (statement, found, expected)
        oracle.query("DROP TABLE IF EXISTS random_defaults")
        db.sql("DROP TABLE IF EXISTS random_defaults")


def test_each_row_of_an_insert_gets_its_own_uuid_which_is_stored(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql(
        "CREATE TABLE t (id UUID DEFAULT generateUUIDv4(), x UInt32, r UInt32 MATERIALIZED rand(), w UInt64 DEFAULT rand64()) "
        "ENGINE = MergeTree ORDER BY x SETTINGS max_insert_block_size = 1000"
    )
    given = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
    db.sql("INSERT INTO t (x) VALUES (1), (2)")
    db.sql(f"INSERT INTO t (x, id) VALUES (3, DEFAULT), (4, '{given}')")
    db.sql(f'INSERT INTO t FORMAT JSONEachRow {{"x": 5}}\n{{"x": 6, "id": "{given}"}}')
    db.sql("INSERT INTO t (x) SELECT number + 10 FROM numbers(5000)")
    db.table("t").append({"x": [7, 8]})
    db.table("t").append(pa.table({"x": pa.array(np.arange(9000, 9500), pa.uint32())}))
    db.sql("OPTIMIZE TABLE t FINAL")
    rows = db.sql("SELECT x, toString(id), r, w FROM t ORDER BY x").rows()
    ids = {x: uuid.UUID(text) for x, text, _, _ in rows}
    assert str(ids.pop(4)) == str(ids.pop(6)) == given
    assert len(set(ids.values())) == len(ids) == len(rows) - 2
    assert all(each.version == 4 and each.variant == uuid.RFC_4122 for each in ids.values())
    numbers = np.array([[r, w] for _, _, r, w in rows], np.uint64)
    assert len(np.unique(numbers[:, 1])) == len(rows)
    for column, bits in ((0, 32), (1, 64)):  # every bit is set in about half of the rows
        ones = (numbers[:, column, None] >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
        assert 0.4 < ones.mean(axis=0).min() <= ones.mean(axis=0).max() < 0.6
    assert rows == db.sql("SELECT x, toString(id), r, w FROM t ORDER BY x").rows()


def test_calls_written_the_same_are_equal_within_an_expression_as_in_clickhouse(oracle: Any) -> None:
    calls = ("rand() = rand()", "rand(1) = rand(1)", "rand(1) = rand(2)", "generateUUIDv4() = generateUUIDv4()", "rand64() = rand64(1)",
             "if(x % 2 = 0, rand(), 0) = if(x % 2 = 0, rand(), 0)", "nullIf(rand() % 2, 0) = 0")  # fmt: skip
    block = pa.table({"x": pa.array(np.arange(64, dtype=np.uint8))})
    for call in calls:
        mine = compile_expression(call, {"x": parse_type("UInt8")}, 0, count().__next__).evaluate(block).to_pylist()
        text = f"SELECT max({call}) FROM (SELECT number AS x FROM numbers(64))"
        theirs = str(oracle.query(text, "TSV")).strip()
        assert str(max((value for value in mine if value is not None), default=0)) == theirs, call


def test_nothing_else_is_ever_given_random_values(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (x UInt8, a UInt32 ALIAS rand()) ENGINE = MergeTree ORDER BY x")
    db.sql("INSERT INTO t VALUES (1)")
    table = db.table("t")
    with pytest.raises(MergelakeError, match=r"rand\(\) has no place"):
        table.scan(where="rand() % 2 = 0").arrow()
    with pytest.raises(MergelakeError, match=r"rand\(\) has no place"):
        table.scan(columns=["a"]).arrow()
    assert db.sql("SELECT count() FROM t WHERE a >= 0 AND rand() >= 0").rows() == [(1,)]

    compiled = compile_expression("rand() + x", {"x": parse_type("UInt8")}, 0, lambda: 1)
    with pytest.raises(MergelakeError, match=r"rand\(\) has no place"):
        pickle.loads(pickle.dumps(compiled))

    # A part that lacks the column would give other values each time that it is read.
    snapshot = table.handle.snapshot()
    added = Column(10, "id", parse_type("UUID"), "DEFAULT", "generateUUIDv4()")
    later = replace(snapshot, schema=replace(snapshot.schema, columns=(*snapshot.schema.columns, added)))
    plan = plan_scan(table.handle.store, table.handle.directory, later, ScanRequest(("x", "id")))
    with pytest.raises(MergelakeError, match=r"generateUUIDv4\(\) has no place"):
        list(read_items(table.handle.store, table.handle.directory, plan))
