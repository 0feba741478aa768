"""SELECTs that are hard to cut: each as text from here and from ClickHouse's own tables, on both executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.api.sql.script import split_statements
from mergelake.query.context import Context
from mergelake.query.select import run_select
from tests.helpers.attached import Reading
from tests.helpers.tasks import TasksHere

TABLE = """(`date` Date, `final` UInt8, `format` String, `a b` Int32, `n.x` Array(UInt8), `n.y` Array(UInt8),
    arr Array(UInt8), tup Tuple(p UInt8, q String), m Map(String, UInt8), ts DateTime64(3, 'UTC'), nn Nullable(UInt8))
    ENGINE = MergeTree ORDER BY `a b`"""
ROWS = """('2026-01-01', 1, 'it\'\'s', 1, [1, 2], [3, 4], [1], (1, 'x'), map('k', 1), '2026-01-01 00:00:00.123', NULL),
    ('2026-01-02', 0, 'b', -2, [], [], [5, 6], (2, 'y'), map(), '2026-01-02 00:00:00.5', 7)"""
TEXT = "TabSeparatedWithNamesAndTypes"


def _queries() -> list[str]:
    text = Path(__file__).with_name("corners.sql").read_text()
    return [text[start:end] for start, end in split_statements(text)]


@pytest.fixture(scope="module")
def both(oracle: Any, read: Reading) -> Iterator[tuple[Database, Any]]:
    db = connect(read.url)
    oracle.query("DROP DATABASE IF EXISTS corners; CREATE DATABASE corners; USE corners")
    for statement in (
        f"CREATE TABLE `my t` {TABLE}",
        f"INSERT INTO `my t` VALUES {ROWS}",
        "CREATE TABLE u (k UInt8, arr UInt8) ENGINE = MergeTree ORDER BY k",
        "INSERT INTO u VALUES (1, 5), (2, 6)",
    ):
        db.sql(statement + " SETTINGS min_bytes_for_full_part_storage = 0" * (read.plain and "CREATE" in statement))
        oracle.query(statement)
    yield db, oracle
    oracle.query("USE default; DROP DATABASE corners")


@pytest.mark.parametrize("query", _queries())
def test_a_corner_answers_as_clickhouse_does(both: tuple[Database, Any], query: str) -> None:
    db, oracle = both
    expected = bytes(oracle.query(query, TEXT).bytes()).decode()
    asked = f"{query}\nFORMAT {TEXT}"
    assert db.sql(asked).text() == expected
    split = Context(executor="spark", run_tasks=TasksHere())
    found = run_select(asked, db.resolver(), split)
    assert found.formatted is not None
    assert found.formatted.decode().split("\n")[2:] == expected.split("\n")[2:]
    db.sql(query).rows()
