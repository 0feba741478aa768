"""The sources' learning example in SQL, here and in ClickHouse: the same parts, the same numbers of parts and marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mergelake as ml

CREATE = """CREATE TABLE {name} (a Int32, b Int32, c Int32) ENGINE = MergeTree PARTITION BY a ORDER BY b
    SETTINGS index_granularity = 3"""
THEIRS = """, min_bytes_for_wide_part = 0, min_rows_for_wide_part = 0, add_minmax_index_for_numeric_columns = 0"""
INSERTS = (
    "INSERT INTO {name} VALUES (1, 1, 1)",
    "INSERT INTO {name} VALUES (5, 2, 2), (5, 3, 3)",
    "INSERT INTO {name} VALUES (3, 10, 4), (3, 9, 5), (3, 8, 6), (3, 7, 7), (3, 6, 8), (3, 5, 9), (3, 4, 10)",
)
PARTS = (
    "SELECT name, rows, marks FROM system.parts WHERE database = '{database}' AND table = 'x' AND active ORDER BY name"
)


@pytest.fixture(scope="module")
def ours() -> ml.Database:
    db = ml.connect("memory://learning-example")
    db.sql(CREATE.format(name="x"))
    for statement in INSERTS:
        db.sql(statement.format(name="x"))
    return db


@pytest.fixture(scope="module")
def theirs(oracle: Any) -> Iterator[Any]:
    oracle.query("CREATE DATABASE IF NOT EXISTS learning")
    oracle.query(CREATE.format(name="learning.x") + THEIRS)
    oracle.query("SYSTEM STOP MERGES learning.x")
    for statement in INSERTS:
        oracle.query(statement.format(name="learning.x"))
    yield oracle
    oracle.query("DROP DATABASE learning")


def indexes(lines: list[str]) -> list[str]:
    """The lines under `Indexes:` that tell which index keeps what."""
    plain = [line.strip(" │└─") for line in lines]
    kept = ("Min-Max", "Partition", "PrimaryKey", "Condition:", "Parts:", "Granules:", "Search Algorithm:", "Ranges:")
    found = [line for line in plain[plain.index("Indexes:") :] if line.startswith(kept)]
    return found[: next(i for i, line in enumerate(found) if line.startswith("Ranges:")) + 1]


def explained(db: Any, sql: str) -> list[str]:
    if isinstance(db, ml.Database):
        return indexes([row[0] for row in db.sql(sql).rows()])
    return indexes(str(db.query(sql, "TSVRaw")).splitlines())


def test_parts_have_the_names_of_the_sources_and_clickhouses_marks(ours: ml.Database, theirs: Any) -> None:
    # M-050 M-052
    by_number = sorted(ours.table("x").parts()["name"].to_pylist(), key=lambda name: name.split("_")[1])
    assert by_number == ["1_1_1_0", "5_2_2_0", "3_3_3_0"]
    found = ours.sql(PARTS.format(database="default")).text("TSV")
    assert found == str(theirs.query(PARTS.format(database="learning"), "TSV"))
    assert found == "1_1_1_0\t1\t2\n3_3_3_0\t7\t4\n5_2_2_0\t2\t2\n"  # one more than granules: the final mark


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("a = 3", ["Parts: 1/3", "Granules: 3/5", "Parts: 1/1", "Granules: 3/3", "Parts: 1/1", "Granules: 3/3"]),
        ("b = 5", ["Parts: 3/3", "Granules: 5/5", "Parts: 3/3", "Granules: 5/5", "Parts: 1/3", "Granules: 1/5"]),
        ("a = 3 AND b = 5", None),
        ("c = 9", None),
    ],
)
def test_explain_shows_clickhouses_numbers(
    ours: ml.Database, theirs: Any, where: str, numbers: list[str] | None
) -> None:
    # M-057 M-058
    mine = explained(ours, f"EXPLAIN indexes = 1 SELECT * FROM x WHERE {where}")
    assert mine == explained(theirs, f"EXPLAIN indexes = 1 SELECT * FROM learning.x WHERE {where}")
    if numbers is not None:
        assert [line for line in mine if line.startswith(("Parts:", "Granules:"))] == numbers
        assert mine[-1] == "Ranges: 1"
    rows = f"SELECT a, b, c FROM {{}} WHERE {where} ORDER BY b"
    assert ours.sql(rows.format("x")).text("CSV") == str(theirs.query(rows.format("learning.x"), "CSV"))
