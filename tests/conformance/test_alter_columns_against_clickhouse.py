"""The statements of `cases/alter_columns.sql` in ClickHouse and here: rows, columns and names of errors are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from tests.helpers.refusals import clickhouse_error

CASES = (Path(__file__).parents[1] / "cases/alter_columns.sql").read_text()
RUNS = dict(run.removeprefix("-- ").split("\n", 1) for run in CASES.strip().split("\n\n"))
"""Name -> statements, one a line; a line that is indented goes on with the one before."""
COLUMNS = """
SELECT name, type, default_kind, default_expression, comment, compression_codec FROM system.columns
WHERE database = 'default' AND table = 't' ORDER BY position
"""


@pytest.mark.parametrize("run", RUNS)
def test_every_step_is_that_of_clickhouse(tmp_path: Path, oracle: Any, run: str) -> None:
    db = ml.connect(str(tmp_path))
    oracle.query("DROP TABLE IF EXISTS default.t SYNC")
    for statement in RUNS[run].replace("\n    ", " ").splitlines():
        theirs = clickhouse_error(oracle, statement)
        assert _own_error(db, statement) == theirs or theirs == "UNFINISHED", (statement, theirs)
        if theirs == "UNFINISHED":  # a value cannot be converted: ClickHouse has the new type, and cannot read the rows
            with pytest.raises(ml.MergelakeError):
                db.sql(statement)
            return
        rows = "SELECT *, * EXCEPT k APPLY toTypeName FROM t ORDER BY ALL"
        assert db.sql(rows).encoded("TSV").decode() == str(oracle.query(rows, "TSV")), statement
        assert db.sql(COLUMNS).encoded("TSV").decode() == str(oracle.query(COLUMNS, "TSV")), statement
        described = "DESCRIBE TABLE t"
        theirs = str(oracle.query(f"{described} SETTINGS print_pretty_type_names = 0", "TSV"))
        assert db.sql(described).encoded("TSV").decode() == theirs, statement


def _own_error(db: ml.Database, statement: str) -> str:
    try:
        db.sql(statement)
    except ml.MergelakeError as failure:
        return failure.name
    return ""
