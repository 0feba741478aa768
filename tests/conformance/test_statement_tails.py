"""INTO OUTFILE, FORMAT and SETTINGS after statements: what ClickHouse takes, with its codes and its bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mergelake
from mergelake.api.sql.database import Database
from mergelake.core.base.errors import MergelakeError
from tests.helpers.oracle import oracle

_CREATE = "CREATE TABLE tailed.t (k UInt32, s String DEFAULT 'a') ENGINE = MergeTree ORDER BY k"
_EQUAL = (
    "SHOW TABLES FROM tailed",
    "SHOW TABLES FROM tailed LIKE 't%'",
    "SHOW CREATE TABLE tailed.t",
    "SHOW CREATE tailed.t",
    "DESCRIBE TABLE tailed.t",
    "DESC tailed.t",
    "DESCRIBE (SELECT 1 AS a, 'x' AS b)",
    "DESCRIBE SELECT 1 AS a",
    "DESCRIBE numbers(1)",
    "EXISTS TABLE tailed.t",
    "EXISTS tailed.nope",
    "EXISTS DATABASE tailed",
    "CHECK TABLE tailed.t",
)
"""Statements whose rows are ClickHouse's."""
_OTHERS = (
    "EXPLAIN SELECT 1",
    "OPTIMIZE TABLE tailed.t",
    "OPTIMIZE TABLE tailed.t FINAL",
    "TRUNCATE TABLE IF EXISTS tailed.nope",
    "CREATE DATABASE IF NOT EXISTS tailed",
    "DROP TABLE IF EXISTS tailed.nope",
    "ALTER TABLE tailed.t MODIFY SETTING parts_to_delay_insert = 10",
    "ALTER TABLE tailed.t DROP PARTITION ID 'nope'",
    "CREATE TABLE IF NOT EXISTS tailed.t ENGINE = MergeTree ORDER BY x AS SELECT 1 AS x",
    "CREATE TABLE IF NOT EXISTS tailed.t (k UInt8) ENGINE = MergeTree ORDER BY k",
    "USE tailed",
    "SET max_threads = 2",
)
_TAILS = (
    "FORMAT JSONEachRow",
    "FORMAT Nonsense",
    "SETTINGS max_threads = 1",
    "SETTINGS max_threads = 1 FORMAT CSVWithNames",
    "FORMAT TSVWithNamesAndTypes SETTINGS max_threads = 1",
    "FORMAT JSONEachRow SETTINGS nonsense = 1",
    "FORMAT CSV FORMAT CSV",
    "FORMAT CSV SETTINGS max_threads = 1 FORMAT CSV",
    "SETTINGS max_threads = DEFAULT, output_format_csv_crlf_end_of_line = 1 FORMAT CSV",
    "FORMAT",
    "SETTINGS",
    "INTO OUTFILE",
)


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """The same table here and in ClickHouse."""
    oracle().query("DROP DATABASE IF EXISTS tailed")
    with mergelake.connect(tmp_path_factory.mktemp("tails")) as db:
        for statement in ("CREATE DATABASE tailed", _CREATE, "INSERT INTO tailed.t VALUES (1, 'x')"):
            oracle().query(statement)
            db.sql(statement)
        yield db
    oracle().query("DROP DATABASE tailed")


def _theirs(text: str) -> bytes | int:
    """What ClickHouse gives, or its code."""
    while True:
        try:
            given = bytes(oracle().query(text, "TabSeparated").bytes() or b"")
        except RuntimeError as failure:
            return int(re.findall(r"Code: (\d+)", str(failure))[-1])
        if not given.startswith(b"\0"):  # chdb, late in a long process: zero bytes before what follows a refusal
            return given


def _ours(db: Database, text: str) -> bytes | int:
    try:
        return db.sql(text).encoded("TabSeparated")
    except MergelakeError as failure:
        return int(failure.code or 0)


@pytest.mark.parametrize("statement", [*_EQUAL, *_OTHERS])
def test_tails_are_taken_as_clickhouse_takes_them(database: Database, statement: str) -> None:
    for tail in _TAILS:
        text = f"{statement} {tail}"
        theirs, ours = _theirs(text), _ours(database, text)
        if tail in ("FORMAT", "SETTINGS") and statement.startswith("CREATE TABLE"):
            continue  # the table is there: neither its key nor its SELECT is looked at
        if statement in _EQUAL or isinstance(theirs, int) or isinstance(ours, int):
            assert ours == theirs, text


def test_a_setting_of_a_statement_holds_for_it_alone(database: Database) -> None:
    text = "CHECK TABLE tailed.t SETTINGS check_query_single_value_result = 1"
    assert database.sql(text).rows() == [(1,)]
    assert len(database.sql("CHECK TABLE tailed.t").columns) == 3
    with pytest.raises(MergelakeError, match="UNKNOWN_SETTING"):
        database.sql("DROP TABLE tailed.t SETTINGS nonsense = 1")
    assert database.sql("EXISTS tailed.t").scalar() == 1


def test_settings_of_ours_stand_in_any_statement(database: Database) -> None:
    for text in (
        "SELECT k FROM tailed.t SETTINGS skip_broken_parts = 1",
        "SELECT k FROM tailed.t SETTINGS max_threads = 1, skip_broken_parts = 1 FORMAT TSV",
        "(SELECT k FROM tailed.t) UNION ALL (SELECT 1) SETTINGS skip_broken_parts = 1, read_consistency = 'cached'",
        "SELECT k FROM tailed.t UNION ALL SELECT 1 SETTINGS executor = 'local'",
        "EXPLAIN SELECT k FROM tailed.t SETTINGS skip_broken_parts = 1 FORMAT CSV",
        "INSERT INTO tailed.t (k) SELECT k FROM tailed.t SETTINGS skip_broken_parts = 1",
        "DESCRIBE (SELECT k FROM tailed.t SETTINGS skip_broken_parts = 1)",
        "CREATE TABLE tailed.u ENGINE = MergeTree ORDER BY k AS SELECT k FROM tailed.t SETTINGS skip_broken_parts = 1",
        "SELECT 'SETTINGS skip_broken_parts = 2' AS skip_broken_parts",
        "CHECK TABLE tailed.t SETTINGS skip_broken_parts = 1",
    ):
        database.sql(text)
    for text, code in (
        ("SELECT 1 SETTINGS skip_broken_parts = 2", "CANNOT_PARSE_BOOL"),
        ("SELECT 1 SETTINGS skip_broken_part = 1", "UNKNOWN_SETTING"),
        ("SELECT 1 SETTINGS executor = 'gpu'", "BAD_ARGUMENTS"),
        ("SELECT * FROM (SELECT k FROM tailed.t SETTINGS skip_broken_parts = 1)", "NOT_IMPLEMENTED.*|of a subquery"),
    ):
        with pytest.raises(MergelakeError, match=code):
            database.sql(text)


def test_the_setting_dedup_token_is_the_token_of_the_insert(database: Database) -> None:
    for _ in range(2):
        database.sql("INSERT INTO tailed.t (k) SETTINGS dedup_token = 'a' VALUES (7)")
        database.sql("INSERT INTO tailed.t (k) SELECT 8 SETTINGS dedup_token = 'b'")
    assert database.sql("SELECT k FROM tailed.t WHERE k > 6 ORDER BY k").rows() == [(7,), (8,)]


def test_readonly_forbids_the_settings_of_a_statement(database: Database) -> None:
    database.sql("SET readonly = 1")
    assert database.sql("SHOW TABLES FROM tailed FORMAT CSV").formatted == b'"t"\n'
    with pytest.raises(MergelakeError, match="Cannot modify 'max_threads'"):
        database.sql("SHOW TABLES FROM tailed SETTINGS max_threads = 1")


def test_a_file_is_written_only_where_statements_are_trusted(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "tables"
    text = f"SHOW TABLES FROM tailed INTO OUTFILE '{path}' FORMAT CSV"
    with pytest.raises(MergelakeError, match="ACCESS_DENIED"):
        database.sql(text)
    with pytest.raises(MergelakeError, match="ACCESS_DENIED"):
        database.sql("DESCRIBE tailed.t FORMAT CSV SETTINGS format_schema = '/etc/passwd'")
    assert not path.exists()
    trusted = Database(database.warehouse, allow_external_access=True)
    trusted.sql(text)
    assert path.read_bytes() == b'"t"\n'
    trusted.sql(f"DROP TABLE IF EXISTS tailed.nope INTO OUTFILE '{path}-2'")
    assert list(tmp_path.iterdir()) == [path]
