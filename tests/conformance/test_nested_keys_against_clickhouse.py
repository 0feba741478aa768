"""Arrays, maps and tuples of them in sorting keys: order, FINAL, merges, and conditions that prune by them."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

KINDS = {
    "Array(UInt8)": ("[]", "[1]", "[1, 2]", "[2]", "[0]", "[255, 1]"),
    "Array(Nullable(Int8))": ("[]", "[NULL]", "[-1]", "[NULL, 1]", "[1, NULL]", "[0]"),
    "Array(Float64)": ("[]", "[nan]", "[-0.]", "[0.]", "[1, nan]", "[inf]", "[-inf]"),
    "Array(Nullable(Float32))": ("[]", "[nan]", "[NULL]", "[0., NULL]", "[1]", "[NULL, nan]"),
    "Array(String)": ("[]", "['']", "['a']", "['a', 'b']", "['aaaaaaaaab']", "['aaaaaaaa']"),
    "Array(LowCardinality(String))": ("[]", "['']", "['a']", "['a', 'b']"),
    "Array(Array(Int16))": ("[]", "[[]]", "[[1]]", "[[], [1]]", "[[1], []]", "[[-1, 2]]"),
    "Array(Tuple(UInt8, String))": ("[]", "[(1, 'a')]", "[(1, 'b'), (0, '')]", "[(0, 'z')]"),
    "Map(String, UInt8)": ("{}", "{'a': 1}", "{'a': 2}", "{'b': 1, 'a': 1}", "{'a': 1, 'b': 1}", "{'': 0}"),
    "Map(UInt8, Nullable(String))": ("{}", "{1: NULL}", "{1: 'a'}", "{2: 'a'}"),
    "Tuple(Array(UInt8), Map(UInt8, UInt8))": ("([], {})", "([1], {})", "([], {1: 2})", "([1], {1: 1})"),
    "Tuple(a UInt8, b Array(String))": ("(1, [])", "(1, ['a'])", "(0, ['b'])"),
    "Array(UUID)": (
        "[]", "['61f0c404-5cb3-11e7-907b-a6006ad3dba0']", "['01f0c404-5cb3-11e7-f07b-a6006ad3dba0']",
    ),
    "Array(Decimal(38, 2))": ("[]", "[1.5]", "[-1.5]", "[1.5, 2]"),
    "Array(Int128)": ("[]", "[1]", "[-1]", "[170141183460469231731687303715884105727]"),
    "Array(Enum8('x' = -1, 'y' = 2))": ("[]", "['x']", "['y']", "['x', 'y']"),
    "Array(DateTime64(3))": ("[]", "['2020-01-01 00:00:00.001']", "['1960-01-01 00:00:00']"),
    "Int8": ("0", "1"),
}  # fmt: skip
CASES = int(os.environ.get("MERGELAKE_NESTED_KEYS", rounds(10, 200)))
FIRST = int(os.environ.get("MERGELAKE_NESTED_KEYS_FIRST", "0"))


def _same(db: Any, oracle: Any, query: str, settings: str = "") -> None:
    """Both answer alike, or both with an error."""
    try:
        # Its index loses arrays with NULL.
        theirs = str(oracle.query(query.replace("{}", "default.nested_keys") + settings, "TSV"))
    except RuntimeError:
        with pytest.raises(MergelakeError):
            db.sql(query.replace("{}", "t", 1))
        return
    assert db.sql(query.replace("{}", "t", 1)).text("TSV") == theirs, query


@pytest.mark.parametrize("number", range(FIRST, FIRST + CASES))
def test_keys_of_arrays_and_maps_are_sorted_and_compared_as_in_clickhouse(number: int, oracle: Any) -> None:
    rng = random.Random(number)
    kind, other = rng.choice([*KINDS][:-1]), rng.choice([*KINDS])
    key = rng.choice(["x", "(x, y)", "(y, x)", "x DESC"])
    engine = rng.choice(["MergeTree", "ReplacingMergeTree", "SummingMergeTree"])
    settings = f"index_granularity = {rng.choice((1, 3, 8192))}, allow_nullable_key = 1"
    settings += ", allow_experimental_reverse_key = 1" if "DESC" in key else ""
    create = f"(x {kind}, y {other}, n UInt32) ENGINE = {engine} ORDER BY {key} SETTINGS {settings}"
    db = connect(f"memory://nested-keys-{number}")
    oracle.query("DROP TABLE IF EXISTS default.nested_keys")
    oracle.query(f"CREATE TABLE default.nested_keys {create}")
    oracle.query("SYSTEM STOP MERGES default.nested_keys")
    db.sql(f"CREATE TABLE t {create}")
    count = 0
    for _ in range(3):
        rows = []
        for _ in range(rng.choice((1, 5, 30))):
            count += 1
            rows.append(f"({rng.choice(KINDS[kind])}, {rng.choice(KINDS[other])}, {count})")
        for table, run in (("t", db.sql), ("default.nested_keys", oracle.query)):
            run(f"INSERT INTO {table} VALUES {', '.join(rows)}")
    if engine != "MergeTree":
        _same(db, oracle, "SELECT toString((x, y, n)) AS r FROM {} FINAL ORDER BY r")
    quoted = kind.replace("'", "\\'")
    for merged in (False, True):
        for value in rng.sample(KINDS[kind], 2):
            for condition in ("= CAST({}, '{}')", "< CAST({}, '{}')", ">= CAST({}, '{}')", "IN ({})", "NOT IN ({})"):
                where = "x " + condition.replace("{}", value, 1).replace("{}", quoted, 1)
                _same(db, oracle, f"SELECT n FROM {{}} WHERE {where} ORDER BY n", " SETTINGS use_primary_key = 0")
        if not merged:
            oracle.query("SYSTEM START MERGES default.nested_keys")
            oracle.query("OPTIMIZE TABLE default.nested_keys FINAL")
            db.sql("OPTIMIZE TABLE t FINAL")
            _same(db, oracle, "SELECT x, y, n FROM {} SETTINGS max_threads = 1")


@pytest.mark.parametrize("condition", ["IN ([NULL])", "IN ([NULL], [1])", "NOT IN ([NULL])", "IN ([1, NULL], [])"])
def test_arrays_with_null_are_found(condition: str, oracle: Any) -> None:
    db = connect("memory://null-arrays")
    db.sql("DROP TABLE IF EXISTS t SYNC")
    db.sql("CREATE TABLE t (x Array(Nullable(Int8)), n UInt8) ENGINE = MergeTree ORDER BY n")
    values = "([NULL], 1), ([], 2), ([1], 3), ([1, NULL], 4), ([NULL, 1], 5), ([NULL], 6)"
    db.sql(f"INSERT INTO t VALUES {values}")
    given = f"(SELECT * FROM VALUES('x Array(Nullable(Int8)), n UInt8', {values}))"
    query = f"SELECT n FROM {{}} WHERE x {condition} ORDER BY n"
    assert db.sql(query.format("t")).text("TSV") == str(oracle.query(query.format(given), "TSV"))
