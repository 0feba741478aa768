"""Statements of ClickHouse's grammar: each is done, or refused by its name, never with a SYNTAX_ERROR."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

import mergelake
from mergelake.core.base.errors import MergelakeError
from tests.helpers.oracle import oracle

_CASES = Path(__file__).parents[1] / "cases/statement_kinds.txt"
"""Statements that ClickHouse's parser takes, one a line."""
_KINDS = {
    word: list(lines)
    for word, lines in groupby(_CASES.read_text().splitlines(), lambda line: line.lstrip("(").split(None, 1)[0])
}
_NO_STATEMENT = ("SELCT 1", "DROP", "SHOW", "CREATE TABLE (", "1 + 1", "nonsense", "OPTIMIZE TABLE", "RENAME TABLE a b")
_NAMED = (
    ("CREATE MATERIALIZED VIEW v TO t AS SELECT 1", "CREATE MATERIALIZED VIEW", "INSERT INTO … SELECT"),
    ("CREATE LIVE VIEW v AS SELECT 1", "CREATE LIVE VIEW", "INSERT INTO … SELECT"),
    ("CREATE WINDOW VIEW v AS SELECT 1", "CREATE WINDOW VIEW", "INSERT INTO … SELECT"),
    ("DROP TABLE t ON CLUSTER c", "DROP TABLE", "Leave ON CLUSTER out"),
    ("SHOW PROCESSLIST", "SHOW", "system"),
    ("EXPLAIN QUERY TREE SELECT 1", "EXPLAIN QUERY TREE", "EXPLAIN SYNTAX"),
    ("EXPLAIN ESTIMATE SELECT 1", "EXPLAIN ESTIMATE", "indexes = 1"),
    ("EXPLAIN PIPELINE SELECT 1", "EXPLAIN PIPELINE", "EXPLAIN shows"),
    ("EXPLAIN SYNTAX run_query_tree_passes = 1 SELECT 1", "run_query_tree_passes", "Leave the option out"),
    ("WITH 1 AS a INSERT INTO t SELECT a", "ClickHouse cannot read", "INSERT INTO t WITH"),
    ("SELECT _partition_value FROM t", "virtual column _partition_value", "_partition_id"),
    ("SELECT a._block_number FROM t AS a", "virtual column _block_number", "_partition_id"),
)


def _refusal(path: Path, text: str) -> MergelakeError | None:
    with mergelake.connect(path) as db:
        db.sql("CREATE TABLE IF NOT EXISTS t (k UInt8) ENGINE = MergeTree ORDER BY k")
        try:
            db.sql(text)
        except MergelakeError as failure:
            return failure
    return None


@pytest.mark.parametrize("first", _KINDS)
def test_what_clickhouse_reads_is_no_syntax_error(tmp_path: Path, first: str) -> None:
    for text in _KINDS[first]:
        quoted = text.replace("\\", "\\\\").replace("'", "\\'")
        oracle().query(f"SELECT formatQuery('{quoted}') SETTINGS implicit_select = 0")
        failure = _refusal(tmp_path, text)
        assert failure is None or failure.name != "SYNTAX_ERROR", text
        if failure is not None and failure.name == "NOT_IMPLEMENTED":
            assert failure.hint, text


@pytest.mark.parametrize("text", _NO_STATEMENT)
def test_what_nobody_reads_is_a_syntax_error(tmp_path: Path, text: str) -> None:
    failure = _refusal(tmp_path, text)
    assert failure is not None
    assert failure.name == "SYNTAX_ERROR"


@pytest.mark.parametrize(("text", "named", "way_out"), _NAMED)
def test_a_refusal_has_the_name_and_the_way_out(tmp_path: Path, text: str, named: str, way_out: str) -> None:
    failure = _refusal(tmp_path, text)
    assert failure is not None
    assert failure.name == "NOT_IMPLEMENTED"
    assert named in failure.message
    assert way_out in failure.hint


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN SYNTAX SELECT k, k + 1 AS n FROM t WHERE k = 1",
        "EXPLAIN SYNTAX oneline = 1 SELECT k FROM t AS a JOIN t AS b USING k",
        "EXPLAIN AST SELECT k FROM t WHERE k IN (SELECT 1)",
        "EXPLAIN AST SELECT k FROM t SETTINGS max_threads = 1",
    ],
)
def test_explain_syntax_and_ast_are_those_of_clickhouse(tmp_path: Path, text: str) -> None:
    with mergelake.connect(tmp_path) as db:
        db.sql("CREATE TABLE t (k UInt8) ENGINE = MergeTree ORDER BY k")
        assert db.sql(f"{text} FORMAT TSVRaw").text() == str(oracle().query(text, "TSVRaw"))
