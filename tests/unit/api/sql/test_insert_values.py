"""Cells of an INSERT that are no plain literals, values that are left out, and settings of how data is read."""

from __future__ import annotations

from typing import Any

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError, UnavailableError
from mergelake.query.embedded import engine

CREATE = """CREATE TABLE t (k UInt8, s String DEFAULT concat('d', toString(n)), n UInt8 DEFAULT k + 1, a Array(UInt8),
    t DateTime('UTC'), f Float32, u Nullable(String)) ENGINE = MergeTree ORDER BY k"""


@pytest.fixture
def db() -> Database:
    db = connect("memory://insert_values")
    db.sql("DROP TABLE IF EXISTS t")
    db.sql(CREATE)
    return db


def inserted(db: Database, text: str, columns: str = "k, s, n, a") -> list[tuple[Any, ...]]:
    db.sql(f"INSERT INTO t {text}")
    return db.sql(f"SELECT {columns} FROM t ORDER BY k").rows()


def test_no_digit_is_lost_beside_a_computed_value(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS w")
    db.sql(
        "CREATE TABLE w (k UInt8, d Decimal(18, 2), e DateTime64(9, 'UTC'), i Int128, u UInt256, x Decimal(76, 38),"
        " o Tuple(UInt8), m Map(String, UInt8)) ENGINE = MergeTree ORDER BY k"
    )
    plain = (
        "1234567890123456.78",
        "2026-01-02 03:04:05.123456789",
        str(-(1 << 127)),
        str((1 << 256) - 1),
        f"{'9' * 38}.{'9' * 38}",
    )
    d, e, *others = plain
    first = f"(1, {d}, '{e}', {', '.join(others)}, (1), {{'a': 1}})"
    db.sql(f"INSERT INTO w VALUES {first}, (1 + 1, 1, now(), 1, 1, 1, tuple(2), map())")
    texts = ", ".join(f"toString({name})" for name in "deiux")
    assert db.sql(f"SELECT {texts}, m FROM w WHERE k = 1").rows() == [(*plain, [("a", 1)])]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("(1, DEFAULT, DEFAULT, [])", [(1, "d2", 2, [])]),
        ("(1, DEFAULT, 5, []), (2, 'x', DEFAULT, [1, 1 + 1])", [(1, "d5", 5, []), (2, "x", 3, [1, 2])]),
        ("(1.0, upper('a'), 1e1, array(1, 2.0)), -- it's\n (true, $$;(it's$$, 7, []) /* ) */", None),
        ("(1, 1.50, +5, [0x1F]), (2, 00012, 1_0, [])", [(1, "1.5", 5, [31]), (2, "12", 10, [])]),
    ],
)
def test_cells_of_all_kinds(db: Database, cells: str, expected: list[Any] | None) -> None:
    found = inserted(db, f"(k, s, n, a) VALUES {cells}")
    assert found == (expected or [(1, "A", 10, [1, 2]), (1, ";(it's", 7, [])])


def test_values_that_are_left_out_in_some_rows_take_the_columns_default(db: Database) -> None:
    db.sql("INSERT INTO t (k, s, n) FORMAT CSV\n1,,\n2,x,\n")
    db.sql('INSERT INTO t FORMAT JSONEachRow {"k": 3}\n{"k": 4, "n": 9}\n{}')
    rows = db.sql("SELECT k, s, n FROM t ORDER BY k").rows()
    assert rows == [(0, "d1", 1), (1, "d2", 2), (2, "x", 3), (3, "d4", 4), (4, "d9", 9)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(k) VALUES (1.5)", "TYPE_MISMATCH"),
        ("(k) VALUES (7 / 2)", "TYPE_MISMATCH"),
        ("(a) VALUES ([1, 2.5])", "TYPE_MISMATCH"),
        ("(a) VALUES ([1, 300])", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
        ("(a) VALUES ([NULL])", "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
        ("(k) VALUES (inf)", "CANNOT_CONVERT_TYPE"),
        ("(t) VALUES (5000000000)", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
        ("(t) VALUES ('2026-02-30 00:00:00')", "CANNOT_PARSE_DATETIME"),
        ("(t) VALUES ('10:00')", "NOT_IMPLEMENTED"),
        ("(k, a) VALUES (1, [1]), (2)", "NUMBER_OF_COLUMNS_DOESNT_MATCH"),
        ("(k, a) VALUES (1, [1]), (2, [", "SYNTAX_ERROR"),
        ("(k) SETTINGS insert_conversion = 'loose' VALUES (1)", "BAD_ARGUMENTS"),
        ("(k) SETTINGS input_format_record_errors_file_path = '/x' VALUES (1)", "NOT_IMPLEMENTED"),
        ("(k) SETTINGS input_format_csv_skip_frist_lines = 1 FORMAT CSV 1", "UNKNOWN_SETTING"),
        ("(k, s) SETTINGS input_format_null_as_default = 0 VALUES (1, NULL)", "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
    ],
)
def test_what_a_conversion_would_change_is_refused(db: Database, text: str, name: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        db.sql(f"INSERT INTO t {text}")
    assert caught.value.name == name, caught.value
    assert db.table("t").version == 1


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("(k, s) SETTINGS input_format_null_as_default = 1 VALUES (1, NULL)", "k, s", [(1, "d2")]),
        ("(k, s) SETTINGS format_csv_delimiter = ';' FORMAT CSV\n1;x\n", "k, s", [(1, "x")]),
        ("(k, s) SETTINGS input_format_csv_skip_first_lines = 1 FORMAT CSV\nno data\n1,x\n", "k, s", [(1, "x")]),
        ("(k, s) SETTINGS input_format_allow_errors_num = 1 FORMAT CSV\nno,y\n1,x\n", "k, s", [(1, "x")]),
        ("(k, u) SETTINGS format_csv_null_representation = 'nil' FORMAT CSV\n1,nil\n", "k, u", [(1, None)]),
        ("(k, s) SETTINGS input_format_tsv_empty_as_default = 1 FORMAT TSV\n1\t\n", "k, s", [(1, "d2")]),
        ('SETTINGS input_format_skip_unknown_fields = 1 FORMAT JSONEachRow {"k": 1, "z": 2}', "k, s", [(1, "d2")]),
        ("(k) SETTINGS insert_conversion = 'clickhouse' VALUES (300), (1.5)", "k", [(1,), (44,)]),
        ("(k, s) SETTINGS insert_conversion = 'clickhouse' VALUES (300, NULL)", "k, s", [(44, "d45")]),
        ("(k) SETTINGS insert_conversion = 'clickhouse' SELECT 300", "k", [(44,)]),
        ("(k, n) SETTINGS insert_conversion = 'clickhouse' FORMAT CSV\n300,\n", "k, n", [(44, 45)]),
        ("(k, f) SELECT 1, 0.1", "k, toString(f)", [(1, "0.1")]),
    ],
)
def test_settings_of_reading_are_honoured(db: Database, text: str, columns: str, expected: list[Any]) -> None:
    assert inserted(db, text, columns) == expected


def test_settings_of_reading_keep_the_strict_conversion(db: Database) -> None:
    with pytest.raises(MergelakeError, match="VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"):
        db.sql("INSERT INTO t (k) SETTINGS format_csv_delimiter = ';' FORMAT CSV\n300\n")


def test_a_setting_of_the_session_counts_too(db: Database) -> None:
    db.sql("SET insert_conversion = 'clickhouse'")
    assert inserted(db, "(k) VALUES (257)", "k") == [(1,)]


def test_a_tuple_has_a_cell_for_each_element_in_csv(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS c")
    kinds = "k UInt8, p Tuple(a UInt8, b Tuple(String, Array(UInt8))), z UInt8"
    db.sql(f"CREATE TABLE c ({kinds}) ENGINE = MergeTree ORDER BY k")
    db.sql('INSERT INTO c FORMAT CSV\n1,2,"x","[3]",4\n5,,,,6\n')
    rows = db.sql("SELECT k, p.1, p.2.1, p.2.2, z FROM c ORDER BY k").rows()
    assert rows == [(1, 2, "x", [3], 4), (5, 0, "", [], 6)]


def test_a_first_line_of_names_is_no_row(db: Database) -> None:
    assert inserted(db, "(k, s) FORMAT CSV\ns,k\nx,1\n", "k, s") == [(1, "x")]


def test_plain_values_need_no_clickhouse_and_others_say_what_to_install(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(engine, "available", lambda: False)
        patch.setattr(engine, "run", lambda *_, **__: pytest.fail("ClickHouse was asked"))
        db.sql("INSERT INTO t (k, s, n, u) VALUES (1, 'x', DEFAULT, NULL), (2, 5, 1.0, 'y')")
        for text in (
            "(a) VALUES ([1])",
            "(k) VALUES (1 + 1)",
            "(k) SETTINGS input_format_null_as_default = 1 VALUES (1)",
        ):
            with pytest.raises(UnavailableError, match=r"mergelake\[sql\]"):
                db.sql(f"INSERT INTO t {text}")
    assert db.sql("SELECT k, s, n, u FROM t ORDER BY k").rows() == [(1, "x", 2, None), (2, "5", 1, "y")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Enum('a', 'b')", "Enum8('a' = 1, 'b' = 2)"),
        ("enum('a' = -10, 'b')", "Enum8('a' = -10, 'b' = -9)"),
        ("Enum('a', 'b' = 9, 'c' = 10)", "Enum8('a' = 1, 'b' = 9, 'c' = 10)"),
        ("Enum('a' = +5, 'b' = 0x10,)", "Enum8('a' = 5, 'b' = 16)"),
        ("Enum('a' = 127, 'b')", "Enum16('a' = 127, 'b' = 128)"),
        *((f"Enum({inner})", "UNEXPECTED_AST_STRUCTURE") for inner in
          ("'a' = -10, 'b', 'c' = 5", "'a', 'b', 'c' = 7", "NULL", "'a' = NULL", "'a' = 1.5", "1", "'a' = 'b'")),
        ("Enum()", "EMPTY_DATA_PASSED"),
        ("Enum8", "EMPTY_DATA_PASSED"),
        ("Enum8('a' = 128)", "ARGUMENT_OUT_OF_BOUND"),
        ("Enum('a' = 1, 'a' = 2)", "SYNTAX_ERROR"),
    ],
)  # fmt: skip
def test_enums_are_declared_as_in_clickhouse(text: str, expected: str, oracle: Any) -> None:
    from mergelake.core.types.types import parse_type

    oracle.query("DROP TABLE IF EXISTS enums")
    try:
        oracle.query(f"CREATE TABLE enums (e {text}) ENGINE = Memory")
        sql = "SELECT type FROM system.columns WHERE database = currentDatabase() AND table = 'enums'"
        theirs = str(oracle.query(sql, "TSVRaw")).strip()
    except Exception as failure:
        theirs = engine.translate(str(failure)).name
    try:
        ours = str(parse_type(text))
    except MergelakeError as failure:
        ours = failure.name
    assert ours == theirs == expected


@pytest.mark.parametrize(
    ("rows", "stored"),
    [
        ("(,5)", [(0, 5)]),
        ("(1,)", [(1, 0)]),
        ("(,)", [(0, 0)]),
        ("(1,5,)", [(1, 5)]),
        ("(1,), (,)", [(0, 0), (1, 0)]),
        ("()", None),
        ("(1)", None),
        ("(1,,)", [(1, 0)]),
        ("(1,5,,)", None),
    ],
)
def test_a_cell_may_be_empty_and_a_comma_may_end_a_row(rows: str, stored: list[Any] | None) -> None:
    """As chdb 26.9 takes them: an empty cell is a number's 0, not the column's default."""
    db = connect("memory://empty_cells")
    db.sql("DROP TABLE IF EXISTS u")
    db.sql("CREATE TABLE u (a UInt8 DEFAULT 7, b UInt16 DEFAULT 8) ENGINE = MergeTree ORDER BY a")
    if stored is None:
        with pytest.raises(MergelakeError, match="Row 1 of VALUES has"):
            db.sql(f"INSERT INTO u VALUES {rows}")
    else:
        db.sql(f"INSERT INTO u VALUES {rows}")
        assert db.sql("SELECT a, b FROM u ORDER BY a").rows() == stored


def test_brackets_with_nothing_in_them_are_a_row_of_one_empty_cell() -> None:
    db = connect("memory://empty_cells")
    db.sql("DROP TABLE IF EXISTS u")
    db.sql("CREATE TABLE u (a UInt8 DEFAULT 7) ENGINE = MergeTree ORDER BY a")
    db.sql("INSERT INTO u VALUES (), ( ), (1,)")
    assert db.sql("SELECT a FROM u ORDER BY a").rows() == [(0,), (0,), (1,)]
