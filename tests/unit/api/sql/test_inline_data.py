"""INSERT … VALUES and FORMAT: what comes into the table, and what is refused before anything is written."""

from __future__ import annotations

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.api.sql.values import read_values
from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import parse_type
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


def test_json_that_is_out_of_the_ordinary_is_read_by_clickhouse(db: Database) -> None:
    data = '{"K": 1, "s": "two\nlines", "x": nan}'
    with pytest.raises(MergelakeError, match="CANNOT_PARSE"):
        db.sql(f"INSERT INTO t FORMAT JSONEachRow {data}")
    db.sql(f"INSERT INTO t FORMAT JSONEachRow {data.replace('nan', '+1.5')}")
    db.sql('INSERT INTO t (k, s, c) FORMAT JSONEachRow {"k": 2, "s": {"a" : [1, null]}} {"k": 3, "s": 1.50, "c": true}')
    assert rows(db, "k, s, toString(x), c") == [
        (1, "two\nlines", "1.5", 7),
        (2, '{"a" : [1, null]}', "0", 7),
        (3, "1.50", "0", 1),
    ]


def test_null_in_a_float_is_not_nan_in_data_that_clickhouse_reads(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS floats")
    db.sql("CREATE TABLE floats (k Int8, x Float64, y Tuple(a BFloat16, b UInt8)) ENGINE = MergeTree ORDER BY k")
    for data in ('{"k": +1, "x": null}', '{"k": 2, "y": {"a": null}}'):
        with pytest.raises(MergelakeError, match="CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"):
            db.sql(f"INSERT INTO floats FORMAT JSONEachRow {data}")


def test_json_in_nested_columns(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS nested")
    kinds = "k UInt8, m Map(String, UInt64), n Map(UInt8, Array(String)), p Tuple(a UInt8, b Nullable(Date)), d Date32"
    db.sql(f"CREATE TABLE nested ({kinds}) ENGINE = MergeTree ORDER BY k")
    db.sql(
        'INSERT INTO nested FORMAT JSONEachRow {"k": 1, "m": {"x": "7", "y": 8}, "p": {"b": "2026-01-02", "a": ""}}'
        '\n{"k": 2, "n": {"1": ["a", "b"], "2": []}}'
    )
    db.sql('INSERT INTO nested FORMAT JSONEachRow {"k": 3, "p": {"a": 4, "c": 5}, "m": {"z": 1, "z": 2}}')
    assert db.sql("SELECT m, n, toString(p), toString(d) FROM nested ORDER BY k").rows() == [
        ([("x", 7), ("y", 8)], [], "(0,'2026-01-02')", "1970-01-01"),
        ([], [(1, ["a", "b"]), (2, [])], "(0,NULL)", "1970-01-01"),
        ([("z", 1), ("z", 2)], [], "(4,NULL)", "1970-01-01"),
    ]


def test_json_in_columns_of_json_dynamic_and_variant(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS mixed")
    kinds = "k UInt8, j JSON, d Dynamic, v Variant(String, UInt8), a Array(JSON)"
    db.sql(f"CREATE TABLE mixed ({kinds}) ENGINE = MergeTree ORDER BY k")
    db.sql(
        'INSERT INTO mixed (k, j, d, a) FORMAT JSONEachRow {"k": 1, "j": {"a": {"b": 1.5}}, "d": 5, "a": [{"x": 1}]}'
    )
    db.sql('INSERT INTO mixed (k, d, v) FORMAT JSONEachRow {"k": 2, "d": [1, 2], "v": 5}\n{"k": 3, "d": "5", "v": "x"}')
    found = db.table("mixed").scan().arrow().sort_by("k").to_pylist()
    assert [row["j"] for row in found] == ['{"a":{"b":1.5}}', "{}", "{}"]
    assert [row["d"] for row in found] == ["5", "[1,2]", '"5"']
    assert [row["v"] for row in found][1:] == [{"String": None, "UInt8": 5}, {"String": "x", "UInt8": None}]
    assert found[0]["a"] == ['{"x":1}']


def test_columns_named_as_those_of_our_own_statements(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS named")
    db.sql("CREATE TABLE named (ml_row UInt8, c0 UInt8, c1 String, c_ UInt8) ENGINE = MergeTree ORDER BY c0")
    db.sql("INSERT INTO named SETTINGS input_format_null_as_default = 1 VALUES (1, 2, 'x', 3)")
    db.sql("INSERT INTO named SELECT 5::Int64, 6::Int64, 'y', 7::Int64")
    found = db.sql("SELECT c1, c_, ml_row, c0 FROM named ORDER BY c0")
    assert found.rows() == [("x", 3, 1, 2), ("y", 7, 5, 6)]
    assert found.text("TSV") == "x\t3\t1\t2\ny\t7\t5\t6\n"


def test_a_star_under_array_join_of_nested_columns(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS baskets")
    kinds = "k UInt8, item Nested(n String, c UInt8), tag Nested(v UInt8)"
    db.sql(f"CREATE TABLE baskets ({kinds}) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO baskets VALUES (1, ['a', 'b'], [3, 4], [7, 8])")
    assert db.sql("SELECT * FROM baskets ARRAY JOIN item").rows() == [(1, "a", 3, [7, 8]), (1, "b", 4, [7, 8])]
    assert db.sql("SELECT * FROM baskets ARRAY JOIN item, tag").rows() == [(1, "a", 3, 7), (1, "b", 4, 8)]
    assert len(db.sql("SELECT * FROM baskets ARRAY JOIN item ARRAY JOIN tag").rows()) == 4


@pytest.mark.parametrize("kinds", ["n Tuple(a UInt8), `n.a` UInt8", "m Map(String, UInt8), `m.keys` Array(String)"])
def test_columns_whose_files_would_have_one_name_are_refused(db: Database, kinds: str) -> None:
    with pytest.raises(MergelakeError, match="BAD_ARGUMENTS"):
        db.sql(f"CREATE TABLE twice (k UInt8, {kinds}) ENGINE = MergeTree ORDER BY k")


def test_a_name_that_is_not_utf_8_is_refused(db: Database) -> None:
    with pytest.raises(MergelakeError, match="NOT_IMPLEMENTED"):
        db.sql(r"CREATE TABLE odd (`\xff` UInt8) ENGINE = MergeTree ORDER BY tuple()")


def test_variants_of_nested_types_are_inserted(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS several")
    kind = "Variant(Array(UInt64), String, Tuple(a UInt8, b Nullable(String)))"
    db.sql(f"CREATE TABLE several (k UInt8, v {kind}) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO several VALUES (1, [1, 2]), (2, 'x')")
    db.sql("INSERT INTO several SELECT 3, (5, NULL)::Tuple(a UInt8, b Nullable(String))")
    found = db.table("several").scan().arrow().sort_by("k")["v"].to_pylist()
    assert [list(filter(None, row.values())) for row in found] == [[[1, 2]], ["x"], [{"a": 5, "b": None}]]


def test_every_type_is_shown_as_text(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS shown")
    kinds = "a Time64(3), b Array(UInt256), c Map(String, BFloat16), d LowCardinality(DateTime)"
    db.sql(f"CREATE TABLE shown ({kinds}, e Variant(String, UInt8)) ENGINE = MergeTree ORDER BY tuple()")
    db.sql("INSERT INTO shown VALUES ('10:11:12.123', [1, 2], {'x': 1.5}, '2026-01-02 03:04:05', 7)")
    assert db.sql("SELECT a, 5 AS n FROM shown").text("TSVWithNamesAndTypes").splitlines()[1] == "Time64(3)\tUInt8"
    assert db.sql("SELECT * FROM shown").text("TSV") == "10:11:12.123\t[1,2]\t{'x':1.5}\t2026-01-02 03:04:05\t7\n"


def test_an_empty_number_is_zero_in_the_formats_that_take_it_so(db: Database) -> None:
    db.sql("INSERT INTO t (k, x, s) FORMAT TSV\n1\t\ta\n\t2.5\tb\n")
    db.sql('INSERT INTO t (k, x) FORMAT CSV\n2,""\n')
    assert rows(db, "k, toString(x)") == [(0, "2.5"), (1, "0"), (2, "0")]
    with pytest.raises(MergelakeError):
        db.sql("INSERT INTO t (d) FORMAT TSV\n\n")


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
        ('FORMAT JSONEachRow {"k": 1}\n{"k": 2, "k": 3}', "INCORRECT_DATA"),
        ('FORMAT JSONEachRow {"k": 1\n"s": "x"}', "CANNOT_PARSE_INPUT_ASSERTION_FAILED"),
        ('FORMAT JSONEachRow {"k": ', "ATTEMPT_TO_READ_AFTER_EOF"),
        ('FORMAT JSONEachRow {"k": [1]}', "CANNOT_PARSE_INPUT_ASSERTION_FAILED"),
        (r'FORMAT JSONEachRow {"s": "\ud83d"}', "CANNOT_PARSE_ESCAPE_SEQUENCE"),
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
