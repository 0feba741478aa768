"""INSERT … VALUES and FORMAT: what comes into the table, and what is refused before anything is written."""

from __future__ import annotations

import pytest

from mergelake.core.errors import MergelakeError
from mergelake.core.types import parse_type
from mergelake.sql.database import Database, connect
from mergelake.sql.values import read_values
from tests.helpers.work import bytecodes

CREATE = """CREATE TABLE t (k UInt64, s String, d Date, n Nullable(Int32), a Array(UInt8), x Decimal(9, 2),
    e Enum8('one' = 1, 'two' = 2), c UInt8 DEFAULT 7, m UInt64 MATERIALIZED k * 2) ENGINE = MergeTree ORDER BY k"""


@pytest.fixture
def db() -> Database:
    db = connect("memory://inline")
    db.sql("DROP TABLE IF EXISTS t")
    db.sql(CREATE)
    return db


def rows(db: Database, columns: str = "*") -> list[tuple[object, ...]]:
    return db.sql(f"SELECT {columns} FROM t ORDER BY k").rows()


def test_plain_values(db: Database) -> None:
    db.sql("INSERT INTO t (k, s, n, x) VALUES (1, 'it''s\\n;', NULL, 1.5), (2, '', -3, 0),\n (3, 'ü', 4, -.25)")
    assert rows(db, "k, s, n, toString(x), c, m") == [
        (1, "it's\n;", None, "1.5", 7, 2),
        (2, "", -3, "0", 7, 4),
        (3, "ü", 4, "-0.25", 7, 6),
    ]


def test_expressions_are_evaluated_by_clickhouse(db: Database) -> None:
    rest = "(5, 'y', '2026-02-01', [])"
    db.sql(f"INSERT INTO t (k, s, d, a) VALUES (1 + 1, upper('x'), toDate('2026-01-01') + 1, [1, 2]), {rest}")
    assert rows(db, "k, s, toString(d), a") == [(2, "X", "2026-01-02", [1, 2]), (5, "y", "2026-02-01", [])]


def test_json_each_row(db: Database) -> None:
    first, second = (
        '{"k": 1, "s": "a\\"b", "a": [1, 2], "x": 1.25, "e": "two"}',
        '{"k": 18446744073709551615, "n": -5, "d": "2026-01-01"}',
    )
    db.sql(f"INSERT INTO t FORMAT JSONEachRow {first}\n{second}")
    assert rows(db, "k, s, a, toString(x), toString(e), n, toString(d)") == [
        (1, 'a"b', [1, 2], "1.25", "two", None, "1970-01-01"),
        (18446744073709551615, "", [], "0", "one", -5, "2026-01-01"),
    ]


def test_csv_and_tsv(db: Database) -> None:
    db.sql('INSERT INTO t (k, s, n) FORMAT CSV\n1,"q,""r""",\\N\n2,,5\n')
    db.sql("INSERT INTO t (k, s, n) FORMAT TSV\n3\ta\\tb\\\\\t\\N\n")
    db.sql("INSERT INTO t FORMAT CSVWithNames\ns,k\nz,4\n")
    assert rows(db, "k, s, n") == [(1, 'q,"r"', None), (2, "", 5), (3, "a\tb\\", None), (4, "z", None)]


def test_an_empty_csv_cell_is_the_default(db: Database) -> None:
    db.sql("INSERT INTO t (k, d, x, c) FORMAT CSV\n1,,,\n2,2026-01-01,1.5,\n")
    assert rows(db, "k, toString(d), toString(x), c") == [(1, "1970-01-01", "0", 7), (2, "2026-01-01", "1.5", 7)]


def test_insert_select_goes_by_position_and_casts(db: Database) -> None:
    db.sql("INSERT INTO t (k, s, d) SELECT number AS z, number, '2026-01-0' || toString(number + 1) FROM numbers(2)")
    assert rows(db, "k, s, toString(d)") == [(0, "0", "2026-01-01"), (1, "1", "2026-01-02")]
    db.sql("INSERT INTO t (k, s) SELECT k + 10, s FROM t")
    assert [row[0] for row in rows(db, "k")] == [0, 1, 10, 11]


def test_a_deduplication_token_makes_an_insert_happen_once(db: Database) -> None:
    for _ in range(2):
        db.sql("INSERT INTO t (k) SETTINGS insert_deduplication_token = 'x' VALUES (1)")
    assert len(rows(db)) == 1


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("(k) VALUES (-1)", "CANNOT_PARSE_NUMBER"),
        ("(k) VALUES (18446744073709551616)", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
        ("(k) VALUES (NULL)", "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
        ("(k, c) VALUES (1, 256)", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
        ("(k, c) VALUES (1, 255 + 1)", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
        ("(d) VALUES ('2026-xx-01')", "CANNOT_PARSE_DATE"),
        ("(e) VALUES ('three')", "UNKNOWN_ELEMENT_OF_ENUM"),
        ("(k, s) VALUES (1, 'a'), (2)", "NUMBER_OF_COLUMNS_DOESNT_MATCH"),
        ("(k, k) VALUES (1, 1)", "DUPLICATE_COLUMN"),
        ("(z) VALUES (1)", "NO_SUCH_COLUMN_IN_TABLE"),
        ("(m) VALUES (1)", "ILLEGAL_COLUMN"),
        ("(k) VALUES (nosuch(1))", "UNKNOWN_FUNCTION"),
        ("(k) VALUES", "SYNTAX_ERROR"),
        ("(k) VALUES (1) x", "SYNTAX_ERROR"),
        ("(k) SELECT 1, 2", "NUMBER_OF_COLUMNS_DOESNT_MATCH"),
        ("(c) SELECT 300", "CANNOT_CONVERT_TYPE"),
        ("(k) SELECT k FROM nosuch", "UNKNOWN_TABLE"),
        ('FORMAT JSONEachRow {"k": 1}\n{"z": 1}', "INCORRECT_DATA"),
        ('FORMAT JSONEachRow {"k": ', "INCORRECT_DATA"),
        ('FORMAT JSONEachRow {"k": [1]}', "INCORRECT_DATA"),
        ("(k, s) FORMAT CSV\n1\n", "INCORRECT_DATA"),
        ("(k) FORMAT CSV\n1x\n", "CANNOT_PARSE_TEXT"),
        ("FORMAT Nosuch 1", "UNKNOWN_FORMAT"),
    ],
)
def test_bad_rows_are_refused_and_nothing_is_written(db: Database, sql: str, name: str) -> None:
    db.sql("INSERT INTO t (k) VALUES (5)")
    before = db.table("t").version
    with pytest.raises(MergelakeError) as caught:
        db.sql(f"INSERT INTO t {sql}")
    assert caught.value.name == name
    assert caught.value.code
    assert db.table("t").version == before


def test_plain_rows_take_few_bytecodes_each() -> None:
    columns = {"k": parse_type("UInt64"), "s": parse_type("String"), "f": parse_type("Float64")}
    data = ", ".join(f"({i}, 'text {i}', {i}.5)" for i in range(5000))
    assert read_values(data, columns, script=data, at=0).table["s"][7].as_py() == b"text 7"
    assert bytecodes(lambda: read_values(data, columns, script=data, at=0)) < 5000 * 600
