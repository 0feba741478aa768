# ruff: noqa: E501  (statements read best with one a line)
"""ALIAS columns: statements over tables that have them give ClickHouse's rows, or its codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.jobs.publish.definition import create_statement
from mergelake.jobs.publish.publish import publish

pytestmark = pytest.mark.chdb

STATEMENTS = r"""
CREATE TABLE b1 (x UInt8, y UInt8 ALIAS x + 1) ENGINE = MergeTree ORDER BY x
CREATE TABLE b2 (x UInt8, y ALIAS x + 1, z String ALIAS concat('a', toString(y)), w UInt8 DEFAULT y + 1, m UInt16 MATERIALIZED y * 2) ENGINE = MergeTree ORDER BY x
INSERT INTO b2 (x) VALUES (1), (2)
INSERT INTO b2 (x, y) VALUES (1, 2)
INSERT INTO b2 VALUES (5, 6)
INSERT INTO b2 (* EXCEPT y) VALUES (5, 6)
INSERT INTO b2 (* EXCEPT (w)) VALUES (9)
INSERT INTO b2 (x, z) SELECT 1, 'a'
INSERT INTO b2 (x) FORMAT JSONEachRow {"x": 7}
SELECT * FROM b2 ORDER BY ALL
SELECT x, y, z, w, m, toTypeName(y) FROM b2 ORDER BY ALL
SELECT y FROM b2 WHERE y = 3
SELECT y, count() FROM b2 WHERE z LIKE 'a%' GROUP BY y ORDER BY y
SELECT b2.y, t.z FROM b2 AS t JOIN b2 ON t.y = b2.y ORDER BY ALL
SELECT t.y, t.z FROM b2 AS t PREWHERE t.y > 2 ORDER BY ALL
SELECT x FROM b2 WHERE y IN (SELECT y FROM b2 WHERE x = 2) ORDER BY x
SELECT * FROM (SELECT y, z FROM b2) ORDER BY ALL
SELECT y AS k, sum(w) FROM b2 GROUP BY k HAVING k > 2 ORDER BY k
SELECT max(y), min(z) FROM b2
SELECT count(y) FROM b2
SELECT COLUMNS('y|z') FROM b2 ORDER BY ALL
SELECT b2.* FROM b2 ORDER BY ALL
SELECT x + 1 AS y FROM b2 ORDER BY y
SELECT y FROM b2 ORDER BY y LIMIT 1 BY x
WITH y AS q SELECT q FROM b2 ORDER BY q
SELECT y FROM b2 FINAL ORDER BY y
DESCRIBE b2
SELECT name, type, default_kind, default_expression FROM system.columns WHERE table = 'b2'
CREATE TABLE b3 (x UInt8, y UInt8 ALIAS x + 1) ENGINE = MergeTree ORDER BY y
CREATE TABLE b4 (x UInt8, y UInt8 ALIAS x + 1) ENGINE = MergeTree PARTITION BY y ORDER BY x
CREATE TABLE b5 (x UInt8, y UInt8 ALIAS z) ENGINE = MergeTree ORDER BY x
CREATE TABLE b6 (x UInt8, y UInt8 ALIAS y) ENGINE = MergeTree ORDER BY x
CREATE TABLE b7 (x UInt8, y UInt8 ALIAS z, z UInt8 ALIAS y) ENGINE = MergeTree ORDER BY x
CREATE TABLE b8 (y UInt8 ALIAS 1) ENGINE = MergeTree ORDER BY tuple()
CREATE TABLE b81 (m UInt8 MATERIALIZED 1, y UInt8 ALIAS m) ENGINE = MergeTree ORDER BY tuple()
CREATE TABLE b9 (x UInt8, y UInt8 ALIAS nosuch(x)) ENGINE = MergeTree ORDER BY x
CREATE TABLE b10 (x UInt8, y Date ALIAS x || 'a') ENGINE = MergeTree ORDER BY x
CREATE TABLE b14 (x UInt8, y UInt64 ALIAS x CODEC(ZSTD)) ENGINE = MergeTree ORDER BY x
CREATE TABLE b16 (x UInt64, y UInt64 ALIAS x, m UInt64 MATERIALIZED y + 1) ENGINE = MergeTree ORDER BY x
INSERT INTO b16 VALUES (1)
SELECT x, y, m FROM b16
CREATE TABLE b18 (x UInt64, y UInt64 ALIAS x) ENGINE = ReplacingMergeTree(y) ORDER BY x
CREATE TABLE b181 (x UInt64, v UInt64, y UInt8 ALIAS x) ENGINE = ReplacingMergeTree(v, y) ORDER BY x
CREATE TABLE b19 (x String, y UInt8 ALIAS 'abc') ENGINE = MergeTree ORDER BY x
CREATE TABLE b20 (x String, y UInt8 ALIAS x) ENGINE = MergeTree ORDER BY x
INSERT INTO b20 VALUES ('a')
SELECT y FROM b20
SELECT x FROM b20 WHERE y = 1
CREATE TABLE b22 (x Array(UInt8), y UInt8 ALIAS length(x), t Tuple(UInt8, String) ALIAS (x[1], 'q'), n Nullable(UInt8) ALIAS if(x[1] > 2, NULL, x[1]), `o dd` UInt8 ALIAS y + 1) ENGINE = MergeTree ORDER BY tuple()
INSERT INTO b22 VALUES ([1,2]), ([7])
SELECT y, t, t.1, n, `o dd` FROM b22 ORDER BY ALL
SELECT t.2 FROM b22 WHERE t.1 = 7
SELECT n IS NULL, n.null FROM b22 ORDER BY ALL
SELECT x FROM b22 WHERE n = 1 AND `o dd` > 1
CREATE TABLE b23 AS b2
SELECT count() FROM b23 WHERE y > 1
INSERT INTO b23 SELECT * FROM b2
SELECT x, y, z, w, m FROM b23 ORDER BY ALL
OPTIMIZE TABLE b23 FINAL
SELECT x, y, z, w, m FROM b23 ORDER BY ALL
CREATE TABLE b24 (d Date, mo ALIAS toYYYYMM(d), k UInt32) ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY k
INSERT INTO b24 SELECT toDate('2020-01-01') + number, number FROM numbers(100)
SELECT mo, count() FROM b24 WHERE mo = 202002 GROUP BY mo
SELECT count() FROM b24 WHERE mo IN (202001, 202003)
SELECT countIf(k > 50) FROM b24 WHERE mo >= 202002
INSERT INTO b24 (d, mo) VALUES ('2020-01-01', 1)
INSERT INTO b24 FORMAT CSV 2020-05-01,7
INSERT INTO b24 FORMAT JSONEachRow {"d": "2020-05-01", "k": 8}
SELECT count() FROM b24
CREATE TABLE b25 (k UInt8, y UInt8 NULL ALIAS k, c UInt8 ALIAS k COMMENT 'it') ENGINE = MergeTree ORDER BY k
DESCRIBE b25
CREATE TABLE b28 (k UInt8, s LowCardinality(String) ALIAS toString(k), e Enum8('a' = 1) ALIAS 1, l UInt64 ALIAS k CODEC(NONE)) ENGINE = MergeTree ORDER BY k
CREATE TABLE b29 (k UInt8, s LowCardinality(String) ALIAS toString(k), e Enum8('a' = 1) ALIAS 1) ENGINE = MergeTree ORDER BY k
INSERT INTO b29 VALUES (3)
SELECT k, s, e, toTypeName(s) FROM b29
CREATE TABLE b30 (k UInt8, arr Array(UInt8) ALIAS [k, k + 1]) ENGINE = MergeTree ORDER BY k
INSERT INTO b30 VALUES (3)
SELECT a FROM b30 ARRAY JOIN arr AS a
SELECT arr FROM b30 ARRAY JOIN arr
SELECT `b30`.`arr` FROM b30
SELECT z FROM b2 ORDER BY z
SELECT COLUMNS('x|m') FROM b2 ORDER BY ALL
SELECT COLUMNS('.*') FROM b2 ORDER BY ALL
SELECT COLUMNS('x|z'), * FROM b2 ORDER BY ALL
SELECT b2.COLUMNS('z') FROM b2 ORDER BY ALL
SELECT * EXCEPT ('y') FROM b2 ORDER BY ALL
SELECT q FROM b2 JOIN (SELECT 2 AS y, 5 AS q) AS o USING (y)
SELECT * FROM b2 JOIN (SELECT 2 AS x, 5 AS q) AS o USING (x) WHERE y = 3
SELECT * REPLACE(y + 1 AS x) FROM b2 ORDER BY ALL
SELECT * FROM (SELECT COLUMNS('.*') FROM b2) ORDER BY ALL
SELECT z, row_number() OVER (ORDER BY y) FROM b2 ORDER BY ALL
SELECT x FROM b2 WHERE x IN (SELECT y FROM b2) ORDER BY x
""".strip().splitlines()
"""All in one database each: later ones need the tables of those before."""

REFUSED = {
    "CREATE TABLE r1 (x UInt8, y UInt8 ALIAS x, INDEX i y TYPE minmax) ENGINE = MergeTree ORDER BY x": "NOT_IMPLEMENTED",
    "CREATE TABLE r2 (x Array(UInt8), y UInt64 ALIAS arraySum(x)) ENGINE = MergeTree ORDER BY tuple()": "UNKNOWN_FUNCTION",
    "CREATE TABLE r3 (k UInt8, y UInt8 ALIAS k PRIMARY KEY) ENGINE = MergeTree ORDER BY k": "BAD_ARGUMENTS",
    "SELECT * FROM b2 JOIN (SELECT 2 AS y, 5 AS q) AS o USING (y)": "NOT_IMPLEMENTED",
    "SELECT * FROM b2 SETTINGS asterisk_include_alias_columns = 1": "NOT_IMPLEMENTED",
}
"""Valid or refused with another code there, and refused by name here."""


def theirs(oracle: Any, statement: str) -> Any:
    """Rows of ClickHouse's, or the code of its refusal."""
    try:
        return str(oracle.query(statement, "TSVRaw")).splitlines()
    except RuntimeError as problem:
        found = re.search(r"Code: (\d+)", str(problem))
        return int(found.group(1)) if found else str(problem)


def ours(db: Any, statement: str) -> Any:
    """The same here."""
    try:
        result = db.sql(statement, format="TSVRaw")
    except MergelakeError as problem:
        return problem.code
    return result.formatted.decode().splitlines() if result.has_format else []


@pytest.fixture(scope="module")
def both(oracle: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    oracle.query("CREATE DATABASE aliases")
    oracle.query("USE aliases")
    yield oracle, ml.connect(str(tmp_path_factory.mktemp("aliases")))
    oracle.query("USE default")
    oracle.query("DROP DATABASE aliases")


def test_statements_over_alias_columns_give_clickhouses_rows_and_codes(both: Any) -> None:
    oracle, db = both
    wrong = []
    for statement in STATEMENTS:
        expected, found = theirs(oracle, statement), ours(db, statement)
        ordered = "ORDER BY" in statement or not isinstance(found, list) or not isinstance(expected, list)
        if found != expected if ordered else sorted(found) != sorted(expected):
            wrong.append((statement, found, expected))
    assert not wrong
    for statement, name in REFUSED.items():
        with pytest.raises(MergelakeError, match=name):
            db.sql(statement)

    table = db.table("b2")
    stored = ours(db, "SELECT x, y, z FROM b2 ORDER BY ALL")
    scanned = table.scan(columns=["x", "y", "z"]).arrow().to_pylist()
    assert sorted("\t".join(map(str, row.values())) for row in scanned) == sorted(stored)
    for where in ("y = 3", "z = 'a3'", "y > 2 AND x < 9", "intDiv(y, 2) = 1 OR z LIKE '%1%'"):
        chosen = table.scan(columns=["z"], where=where).arrow()["z"].to_pylist()
        assert sorted(chosen) == sorted(theirs(oracle, f"SELECT z FROM b2 WHERE {where}")), where
    assert "y" not in table.scan().arrow().column_names
    for given in ({"x": [1], "y": [2]}, {"y": [2]}):
        with pytest.raises(MergelakeError, match="NO_SUCH_COLUMN_IN_TABLE"):
            table.append(given)


def test_a_stock_clickhouse_computes_the_alias_columns_of_a_published_table(oracle: Any, tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path / "lake"))
    db.sql(
        "CREATE TABLE t (k UInt8, y ALIAS k + 1, z String ALIAS concat('a', toString(y))) ENGINE = MergeTree ORDER BY k"
    )
    db.sql("INSERT INTO t VALUES (1), (2)")
    publish(db.table("t").handle)
    oracle.query(create_statement(db.table("t").handle, "default", "published_aliases"))
    rows = theirs(oracle, "SELECT k, y, z FROM default.published_aliases ORDER BY k")
    oracle.query("DROP TABLE default.published_aliases SYNC")
    assert rows == ["1\t2\ta2", "2\t3\ta3"]
