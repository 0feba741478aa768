"""Whatever is wrong is told in ClickHouse's words, with a way out, before anything is written."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.store import Store, Stored
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.refusals import clickhouse_error, held, refused

TABLE = """CREATE TABLE t (k UInt8, s String DEFAULT 'x', d Date, n Nullable(Int8), e Enum8('a' = 1), dt DateTime,
    dc Decimal(4, 2), f FixedString(2), u UUID, a Array(UInt8), b Bool, x Float32)
    ENGINE = MergeTree PARTITION BY k ORDER BY k"""


@pytest.fixture
def db() -> ml.Database:
    db = ml.Database(ml.Warehouse(MemoryStore()))
    db.sql(TABLE)
    db.sql("INSERT INTO t (k) VALUES (1)")
    return db


@pytest.fixture(scope="module")
def clickhouse(oracle: Any) -> Iterator[Any]:
    """A ClickHouse with the same table, in a database of its own."""
    before = str(oracle.query("SELECT currentDatabase()", "TSV")).strip()
    oracle.query("CREATE DATABASE IF NOT EXISTS bad_input")
    oracle.query("USE bad_input")
    oracle.query(TABLE)
    yield oracle
    oracle.query(f"USE {before}")
    oracle.query("DROP DATABASE bad_input")


MERGETREE = "ENGINE = MergeTree ORDER BY k"
SAME = [
    # unknown type, engine, function, codec
    ("CREATE TABLE y (k Int7) " + MERGETREE, "UNKNOWN_TYPE", "Int7", "Maybe you meant Int8"),
    ("CREATE TABLE y (k Array(Nope)) " + MERGETREE, "UNKNOWN_TYPE", "Nope"),
    ("CREATE TABLE y (k Int8) ENGINE = MergeTee ORDER BY k", "UNKNOWN_STORAGE", "MergeTee", "Supported are MergeTree"),
    ("CREATE TABLE y (k Int8) ENGINE = MergeTree ORDER BY nosuch(k)", "UNKNOWN_FUNCTION", "nosuch"),
    ("CREATE TABLE y (k Int8) ENGINE = MergeTree PARTITION BY nosuch(k) ORDER BY k", "UNKNOWN_FUNCTION", "nosuch"),
    ("CREATE TABLE y (k Int8, v Int8 DEFAULT nosuch(k)) " + MERGETREE, "UNKNOWN_FUNCTION", "nosuch"),
    ("CREATE TABLE y (k Int8 CODEC(NOSUCH)) " + MERGETREE, "UNKNOWN_CODEC", "NOSUCH"),
    ("SELECT nosuch(k) FROM t", "UNKNOWN_FUNCTION", "nosuch"),
    ("SELECT k FROM t WHERE nosuch(k) = 1", "UNKNOWN_FUNCTION", "nosuch"),
    # unknown column
    ("SELECT z FROM t", "UNKNOWN_IDENTIFIER", "`z`", "There are columns k, s"),
    ("SELECT dd FROM t", "UNKNOWN_IDENTIFIER", "`dd`", "Maybe you meant"),
    ("SELECT k FROM t WHERE z = 1", "UNKNOWN_IDENTIFIER", "`z`"),
    ("INSERT INTO t (z) VALUES (1)", "NO_SUCH_COLUMN_IN_TABLE", "z", "default.t", "There are columns k, s"),
    ("INSERT INTO t (z) SELECT 1", "NO_SUCH_COLUMN_IN_TABLE", "z", "There are columns"),
    ("INSERT INTO t (k, k) VALUES (1, 1)", "DUPLICATE_COLUMN", "k", "once"),
    # a key that is not in the table
    ("CREATE TABLE y (k Int8) ENGINE = MergeTree ORDER BY z", "UNKNOWN_IDENTIFIER", "z", "There are columns k"),
    ("CREATE TABLE y (k Int8) ENGINE = MergeTree ORDER BY (k, z + 1)", "UNKNOWN_IDENTIFIER", "z"),
    ("CREATE TABLE y (k Int8) ENGINE = MergeTree PARTITION BY z ORDER BY k", "UNKNOWN_IDENTIFIER", "z"),
    ("CREATE TABLE y (k Int8) ENGINE = MergeTree PRIMARY KEY z ORDER BY k", "UNKNOWN_IDENTIFIER", "z"),
    ("CREATE TABLE y (k Int8) ENGINE = ReplacingMergeTree(z) ORDER BY k", "NO_SUCH_COLUMN_IN_TABLE", "z"),
    ("CREATE TABLE y (k Int8, v String) ENGINE = ReplacingMergeTree(v) ORDER BY k", "BAD_TYPE_OF_FIELD", "String"),
    ("CREATE TABLE y (k Nullable(Int8)) " + MERGETREE, "ILLEGAL_COLUMN", "allow_nullable_key = 1"),
    # unknown setting
    ("CREATE TABLE y (k Int8) " + MERGETREE + " SETTINGS nosuch = 1", "UNKNOWN_SETTING", "nosuch", "system.merge_tree"),
    ("SELECT k FROM t SETTINGS nosuch = 1", "UNKNOWN_SETTING", "'nosuch'"),
    ("SET nosuch = 1", "UNKNOWN_SETTING", "'nosuch'"),
    # values that do not parse
    ("INSERT INTO t (k) VALUES ('abc')", "CANNOT_PARSE_TEXT", "'abc' as UInt8", "column k"),
    ("INSERT INTO t (d) VALUES ('yesterday')", "CANNOT_PARSE_DATE", "'yesterday'", "column d", "YYYY-MM-DD"),
    ("INSERT INTO t (dt) VALUES ('yesterday')", "CANNOT_PARSE_DATETIME", "'yesterday'", "column dt", "hh:mm:ss"),
    ("INSERT INTO t (d) SELECT 'yesterday'", "CANNOT_PARSE_DATE", "date"),
    ('INSERT INTO t FORMAT JSONEachRow {"d": "yesterday"}', "CANNOT_PARSE_DATE", "'yesterday'", "column d"),
    ("INSERT INTO t (k, d) FORMAT CSV 1,yesterday", "CANNOT_PARSE_DATE", "'yesterday'", "column d"),
    ("INSERT INTO t (k, d) FORMAT TSV 1\tyesterday", "CANNOT_PARSE_DATE", "'yesterday'", "column d"),
    ("SELECT k FROM t WHERE d = 'yesterday'", "CANNOT_PARSE_DATE", "yesterday"),
    ("INSERT INTO t (e) VALUES ('b')", "UNKNOWN_ELEMENT_OF_ENUM", "'b'", "It has 'a'"),
    ("INSERT INTO t (f) VALUES ('abc')", "TOO_LARGE_STRING_SIZE", "3 bytes", "FixedString(2)"),
    ("INSERT INTO t (u) VALUES ('abc')", "CANNOT_PARSE_UUID", "'abc'", "column u"),
    ("INSERT INTO t (b) VALUES ('perhaps')", "CANNOT_PARSE_BOOL", "'perhaps'", "true or false"),
    ("INSERT INTO t (k, s) SELECT 1", "NUMBER_OF_COLUMNS_DOESNT_MATCH", "gives 1 columns, the insert has 2"),
    ("INSERT INTO t (k) FORMAT NoSuch 1", "UNKNOWN_FORMAT", "NoSuch", "JSONEachRow"),
    # too many partitions
    ("INSERT INTO t (k) SELECT number FROM numbers(200)", "TOO_MANY_PARTS", "200", "max_partitions_per_insert_block"),
    # tables that do not exist, or already do
    ("SELECT k FROM tt", "UNKNOWN_TABLE", "default.tt", "Maybe you meant"),
    ("SELECT k FROM nosuch.t", "UNKNOWN_DATABASE", "nosuch", "There are databases default"),
    ("INSERT INTO tt VALUES (1)", "UNKNOWN_TABLE", "tt", "Maybe you meant"),
    ("DROP TABLE tt", "UNKNOWN_TABLE", "tt", "Maybe you meant"),
    ("TRUNCATE TABLE tt", "UNKNOWN_TABLE", "tt"),
    ("OPTIMIZE TABLE tt", "UNKNOWN_TABLE", "tt"),
    ("CHECK TABLE tt", "UNKNOWN_TABLE", "tt"),
    ("DESCRIBE TABLE tt", "UNKNOWN_TABLE", "tt"),
    ("ALTER TABLE tt DROP PARTITION 1", "UNKNOWN_TABLE", "tt"),
    ("RENAME TABLE tt TO y", "UNKNOWN_TABLE", "tt"),
    ("EXCHANGE TABLES t AND tt", "UNKNOWN_TABLE", "tt"),
    ("RENAME TABLE t TO t", "TABLE_ALREADY_EXISTS", "already exists", "another name"),
    ("CREATE TABLE t (k Int8) " + MERGETREE, "TABLE_ALREADY_EXISTS", "already exists", "IF NOT EXISTS"),
    ("CREATE TABLE nosuch.y (k Int8) " + MERGETREE, "UNKNOWN_DATABASE", "nosuch", "There are databases default"),
    ("DROP DATABASE nosuch", "UNKNOWN_DATABASE", "nosuch"),
    ("USE nosuch", "UNKNOWN_DATABASE", "nosuch"),
    ("ALTER TABLE t DROP PARTITION (1, 2)", "INVALID_PARTITION_VALUE", "1 columns, the value 2"),
    # what this engine cannot do
    ("SELECT k FROM t FINAL", "ILLEGAL_FINAL", "Leave out FINAL"),
    ("SELECT k FROM t SAMPLE 0.1", "SAMPLING_NOT_SUPPORTED", "SAMPLE BY"),
    ("SELEC 1", "SYNTAX_ERROR", "line 1, column 1", "SELECT"),
]


@pytest.mark.parametrize("case", SAME, ids=lambda case: case[0])
def test_sql_is_refused_with_the_error_that_clickhouse_gives(db: ml.Database, clickhouse: Any, case: Any) -> None:
    statement, name, *says = case
    assert clickhouse_error(clickhouse, statement) == name
    with refused(db, name, *says):
        db.sql(statement)


STRICTER = [
    # ClickHouse wraps numbers around, turns NULL into a default and skips unknown fields: here data stay what they are
    ("INSERT INTO t (k) VALUES (NULL)", "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "column k, row 0", "Nullable(UInt8)"),
    ("INSERT INTO t (k) VALUES (1), (256)", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "256", "0 to 255", "column k, row 1"),
    ("INSERT INTO t (n) VALUES (128)", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "128", "-128 to 127", "column n"),
    ("INSERT INTO t (a) VALUES ([256])", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "256", "column a"),
    ("INSERT INTO t (dc) VALUES ('1234.5')", "ARGUMENT_OUT_OF_BOUND", "1234.5", "Decimal(4, 2)", "column dc"),
    ("INSERT INTO t (k) SELECT number + 250 FROM numbers(10)", "CANNOT_CONVERT_TYPE", "UInt8", "fills k UInt8"),
    ("INSERT INTO t (k) SELECT NULL", "CANNOT_CONVERT_TYPE", "NULL", "fills k UInt8"),
    ('INSERT INTO t FORMAT JSONEachRow {"k": 300}', "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "300", "column k"),
    ('INSERT INTO t FORMAT JSONEachRow {"k": null}', "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "column k", "Nullable"),
    ('INSERT INTO t FORMAT JSONEachRow {"k": 1, "z": 2}', "INCORRECT_DATA", "z: (at row 1)", "has the columns k, s"),
    ("INSERT INTO t (k, d) FORMAT CSV 300,2026-01-01", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "300", "column k"),
    ("CREATE TABLE y (k Int8) ENGINE = Memory", "NOT_IMPLEMENTED", "Memory", "Supported are"),
    ("CREATE TABLE y (k Int8) ENGINE = Log", "NOT_IMPLEMENTED", "not supported (yet)"),
]


@pytest.mark.parametrize("case", STRICTER, ids=lambda case: case[0])
def test_what_clickhouse_would_bend_is_refused(db: ml.Database, clickhouse: Any, case: Any) -> None:
    statement, name, *says = case
    assert clickhouse_error(clickhouse, statement) == ""
    clickhouse.query("DROP TABLE IF EXISTS y; TRUNCATE TABLE t")
    with refused(db, name, *says):
        db.sql(statement)


DAY = datetime.date(2026, 1, 2)
BATCHES = [
    # extra columns
    ({"k": [1], "z": [2]}, "NO_SUCH_COLUMN_IN_TABLE", "z", "There are columns k"),
    ({"k": [1], "K": [2]}, "NO_SUCH_COLUMN_IN_TABLE", "K", "Maybe you meant k"),
    ([{"k": 1}, {"s": "a"}], "INCORRECT_DATA", "Row 1", "columns k, s"),
    ([], "EMPTY_LIST_OF_COLUMNS_PASSED", "at least one row"),
    ({"k": [1, 2], "s": ["a"]}, "INCORRECT_DATA", "different numbers of rows"),
    # NULL
    ({"k": [None]}, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "column k, row 0", "Nullable(UInt8)"),
    ({"k": [1], "a": [[None]]}, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "column a"),
    # out of range
    ({"k": [1, 256]}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "256", "column k, row 1", "0 to 255"),
    ({"k": [-1]}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "-1", "column k"),
    ({"n": pa.array([128], pa.int16())}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "128", "column n"),
    ({"d": [datetime.date(2200, 1, 1)]}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "2200-01-01", "column d"),
    ({"d": [datetime.date(1960, 1, 1)]}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "1960-01-01", "column d"),
    ({"dt": [datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)]}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "column dt"),
    ({"a": [[1, 256]]}, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "256", "column a"),
    ({"f": [b"abc"]}, "TOO_LARGE_STRING_SIZE", "column f"),
    ({"e": ["b"]}, "UNKNOWN_ELEMENT_OF_ENUM", "'b'", "It has 'a'"),
    # ill-typed
    ({"k": ["a lot"]}, "CANNOT_PARSE_TEXT", "a lot", "column k"),
    ({"k": [DAY]}, "TYPE_MISMATCH", "k", "UInt8"),
    ({"d": [[1]]}, "TYPE_MISMATCH", "d", "Date"),
    ({"s": [1.5]}, "TYPE_MISMATCH", "s", "String"),
    ({"a": [1]}, "TYPE_MISMATCH", "a", "Array(UInt8)"),
    ({"k": [object]}, "TYPE_MISMATCH", "k", "UInt8"),
    (7, "TYPE_MISMATCH", "int", "pyarrow Table"),
    # does not parse
    ({"d": ["yesterday"]}, "CANNOT_PARSE_DATE", "'yesterday'", "column d", "YYYY-MM-DD"),
    ({"dt": ["yesterday"]}, "CANNOT_PARSE_DATETIME", "'yesterday'", "column dt"),
    ({"u": ["abc"]}, "CANNOT_PARSE_UUID", "'abc'", "column u"),
    # too many partitions
    ({"k": list(range(101))}, "TOO_MANY_PARTS", "101 partitions, limit is 100", "max_partitions_per_insert_block"),
]


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: f"{case[1]}: {str(case[0])[:40]}")
def test_a_batch_that_does_not_fit_is_refused(db: ml.Database, case: Any) -> None:
    data, name, *says = case
    table = db.table("t")
    before = table.version
    with refused(db, name, *says, kind=ml.InvalidInputError):
        table.append(data)
    assert table.refresh() == before
    assert db.sql("SELECT count() FROM t").scalar() == 1


def test_a_bad_value_in_a_late_block_leaves_nothing_behind(db: ml.Database) -> None:
    """Blocks before it have been written by then: their objects go again, and no version shows them."""
    db.sql("CREATE TABLE late (k UInt8) ENGINE = MergeTree ORDER BY k SETTINGS max_insert_block_size = 10")
    table = db.table("late")
    batches = [pa.record_batch({"k": pa.array([n % 100] * 10, pa.int64())}) for n in range(5)]
    batches.append(pa.record_batch({"k": pa.array([256], pa.int64())}))
    objects = held(db)
    with pytest.raises(ml.InvalidInputError, match="256 is out of range of UInt8"):
        table.append(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert held(db) == objects
    assert table.refresh() == 1


def test_missing_columns_get_their_defaults(db: ml.Database) -> None:
    db.table("t").append({"k": [2], "d": [DAY]})
    row = "SELECT s, d, n, e, f, a, b, x FROM t WHERE k = 2"
    assert db.sql(row).rows() == [("x", DAY, None, "a", b"\0\0", [], False, 0.0)]


def test_definitions_in_python_are_refused_like_those_in_sql(db: ml.Database) -> None:
    cases = [
        ({"columns": {"k": "Int7"}}, "UNKNOWN_TYPE", "Int7"),
        ({"columns": {"k": "Int8"}, "order_by": "z"}, "UNKNOWN_IDENTIFIER", "z"),
        ({"columns": {"k": "Int8"}, "order_by": "k", "engine": "MergeTee"}, "UNKNOWN_STORAGE", "MergeTee"),
        ({"columns": {"k": "Int8"}, "order_by": "k", "settings": {"nosuch": 1}}, "UNKNOWN_SETTING", "nosuch"),
        ({"columns": {"k": "Int8"}, "order_by": "k", "partition_by": "nosuch(k)"}, "UNKNOWN_FUNCTION", "nosuch"),
    ]
    for arguments, name, says in cases:
        with refused(db, name, says, kind=ml.InvalidInputError):
            db.warehouse.create_table("y", ml.define(**arguments))
    with refused(db, "TABLE_ALREADY_EXISTS", "default.t", kind=ml.InvalidInputError):
        db.warehouse.create_table("t", ml.define({"k": "Int8"}, order_by="k"))


def test_scans_and_names_in_python_are_refused_like_those_in_sql(db: ml.Database) -> None:
    table = db.table("t")
    with refused(db, "UNKNOWN_TABLE", "Maybe you meant", kind=ml.NotFoundError):
        db.table("tt")
    with refused(db, "UNKNOWN_DATABASE", "nosuch", kind=ml.NotFoundError):
        db.table("nosuch.t")
    with refused(db, "NO_SUCH_COLUMN_IN_TABLE", "z", kind=ml.InvalidInputError):
        table.scan(["z"])
    with refused(db, "UNKNOWN_IDENTIFIER", "z", kind=ml.InvalidInputError):
        table.scan(where="z = 1")
    with refused(db, "UNKNOWN_FUNCTION", "nosuch", kind=ml.InvalidInputError):
        table.scan(where="nosuch(k) = 1")
    with refused(db, "CANNOT_PARSE_DATE", "yesterday", kind=ml.InvalidInputError):
        table.scan(where="d = 'yesterday'").arrow()
    with refused(db, "BAD_ARGUMENTS", "no version 99", "Versions go from 1 to 2", kind=ml.InvalidInputError):
        table.scan(version=99)
    with refused(db, "BAD_ARGUMENTS", "did not exist at that time", kind=ml.InvalidInputError):
        table.scan(timestamp="2001-01-01")


class _Liar(MemoryStore):
    """A store that takes every create, as an S3 look-alike without `If-None-Match` does."""

    def create(self, key: str, data: Any) -> Stored:
        self.put(key, data)
        return Stored()


def test_a_store_without_create_if_absent_is_refused() -> None:
    # M-066
    store: Store = _Liar()
    with pytest.raises(ml.InvalidInputError) as caught:
        ml.Warehouse(store).create_database("d")
    text = str(caught.value)
    assert (caught.value.name, caught.value.code) == ("SUPPORT_IS_DISABLED", 344)
    assert "no reliable create-if-absent" in text
    assert "If-None-Match" in text  # the way out: a store that honours it
    assert list(store.list("")) == []


def test_a_bucket_without_credentials_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ml.InvalidInputError, match="AWS_ACCESS_KEY_ID") as caught:
        ml.connect("s3://bucket/warehouse", {"endpoint": "http://127.0.0.1:1"})
    assert (caught.value.name, caught.value.code) == ("S3_ERROR", 499)
    with pytest.raises(ml.InvalidInputError, match="not a kind of store"):
        ml.connect("ftp://bucket/warehouse")


def test_a_bucket_that_does_not_exist_or_denies_says_so(s3_options: dict[str, str]) -> None:
    cases = [
        ("s3://no-such-bucket/w", {}, "does not exist", "Create the bucket"),
        ("s3://test/w", {"secret_access_key": "wrong"}, "denied", "Check the credentials"),
    ]
    for url, change, says, way_out in cases:
        with pytest.raises(ml.InvalidInputError, match=says) as caught:
            ml.connect(url, {**s3_options, **change})
        assert (caught.value.name, caught.value.code) == ("S3_ERROR", 499)
        assert way_out in str(caught.value)
