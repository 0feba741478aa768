"""Conditions on tables whose keys are arrays, maps, tuples, subcolumns and NULLs: the rows of a table without keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mergelake.api.sql.database import Database, connect

COLUMNS = (
    "k UInt32, n Nullable(Int32), s String, arr Array(Nullable(Float64)), m Map(String, UInt8), "
    "t Tuple(a Int32, b Nullable(String)), f BFloat16, g Nullable(Float64)"
)
ROWS = (
    "SELECT number, if(number % 3 = 0, NULL, number), repeat('a', number % 5), "
    "arrayMap(x -> if(x = 1, NULL, if(x = 2, nan, x * number)), range(number % 4)), map('a', number % 7), "
    "(number % 5, if(number % 2 = 0, NULL, 'b')), -toFloat32(number % 4), if(number % 7 < 3, NULL, nan) "
    "FROM numbers(300)"
)
KEYS = (
    "PARTITION BY n.null ORDER BY (arr.size0, t.a, k)",
    "PARTITION BY t.b.null ORDER BY (arr, k)",
    "PARTITION BY s.size ORDER BY (k * NULL, m, k)",
    "ORDER BY (t, f, k)",
    "ORDER BY (t.b.size, m.keys DESC, s.size DESC, k)",
    "ORDER BY (arr.null, ignore(k), n.null, k)",
    "ORDER BY (g, k)",
)
CONDITIONS = (
    *("n IS NULL", "n IS NOT NULL", "n.null = 1", "n.null", "NOT n.null", "isNull(n) AND k < 40", "n > 7"),
    *("arr.size0 = 2", "length(arr) = 2 AND t.a = 3", "empty(arr)", "length(arr) > 2 OR k = 5", "has(arr, 0.)"),
    *("t.a > 3", "t.b = 'b' AND k > 250", "t.b.size = 1", "t = (1, 'b')", "t.1 = 2", "m['a'] = 3 AND k < 50"),
    *("k = 7", "k > 290", "k IN (1, 2, 299)", "s.size = 3", "length(s) < 2", "f = -2 AND k < 50", "f > -1", "s = 'aa'"),
)


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with connect("memory://odd-keys") as db:
        settings = "index_granularity = 8, allow_nullable_key = 1, max_partitions_per_insert_block = 0"
        for number, key in enumerate((*KEYS, "ORDER BY tuple()")):
            db.sql(f"CREATE TABLE t{number} ({COLUMNS}) ENGINE = MergeTree {key} SETTINGS {settings}")
            for _ in range(2):
                db.sql(f"INSERT INTO t{number} {ROWS}")
        yield db


@pytest.mark.parametrize("number", range(len(KEYS)), ids=KEYS)
def test_a_key_never_hides_rows(db: Database, number: int) -> None:
    for merged in (False, True):
        if merged:
            db.sql(f"OPTIMIZE TABLE t{number} FINAL")
        for condition in CONDITIONS:
            counts = [
                db.sql(f"SELECT count(), sum(k) FROM {table} WHERE {condition}").rows()
                for table in (f"t{number}", f"t{len(KEYS)}")
            ]
            assert counts[0] == counts[1], condition
        [*verdicts] = db.sql(f"CHECK TABLE t{number}").rows()
        assert all(passed for _, passed, _ in verdicts), verdicts


def test_a_key_of_a_subcolumn_serves_the_function_that_says_the_same(db: Database) -> None:
    def granules(condition: str) -> str:
        rows = db.sql(f"EXPLAIN indexes = 1 SELECT count() FROM t0 WHERE {condition}").rows()
        return next(str(text).strip() for (text,) in rows if "Granules:" in str(text))

    everything = granules("m['a'] = 3")
    assert granules("n IS NULL") == granules("n.null = 1") == granules("n.null") != everything
    assert granules("length(arr) = 2") == granules("arr.size0 = 2") != everything
