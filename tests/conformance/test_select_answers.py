"""A hundred SELECTs over a web-analytics table: names, types and rows as ClickHouse gives them on its own MergeTree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.api.sql.script import split_statements
from mergelake.query.context import Context
from mergelake.query.select import run_select
from mergelake.testing.webanalytics import CREATE_TABLE, generate
from tests.helpers.attached import Reading
from tests.helpers.tasks import TasksHere

ROWS, INSERTS = 12_000, 3
SETTINGS = "SETTINGS index_granularity = 512"
REGIONS = "CREATE TABLE {name} (RegionID UInt32, name String) ENGINE = MergeTree ORDER BY RegionID"
VISITS = """CREATE TABLE {name} (VisitID UInt64, Version UInt32, Pages UInt16, Note LowCardinality(String))
ENGINE = ReplacingMergeTree(Version) ORDER BY VisitID SETTINGS index_granularity = 64"""
TEXT = "TabSeparatedWithNamesAndTypes"


def _queries() -> list[Any]:
    out = []
    for path in sorted(Path(__file__).with_name("queries").glob("*.sql")):
        text = path.read_text()
        for number, (start, end) in enumerate(split_statements(text), 1):
            out.append(pytest.param(text[start:end], id=f"{path.stem}-{number}"))
    return out


def visits(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids = rng.choice(1000, 600, replace=False)
    notes = np.array(["", "paid", "trial", "refund"])
    return pa.table(
        {
            "VisitID": pa.array(ids.astype(np.uint64)),
            "Version": pa.array(np.full(600, seed, np.uint32)),
            "Pages": pa.array(rng.integers(0, 100, 600).astype(np.uint16)),
            "Note": pa.array(notes[rng.integers(0, 4, 600)]),
        }
    )


@pytest.fixture(scope="module")
def both(oracle: Any, read: Reading) -> Iterator[tuple[Database, Any]]:
    db = connect(read.url)
    db.sql("CREATE DATABASE web; USE web")
    oracle.query("DROP DATABASE IF EXISTS web; CREATE DATABASE web")
    for create in (CREATE_TABLE + SETTINGS, REGIONS, VISITS):
        name = {CREATE_TABLE + SETTINGS: "hits", REGIONS: "regions", VISITS: "visits"}[create]
        settings = (", " if "SETTINGS" in create else " SETTINGS ") + "min_bytes_for_full_part_storage = 0"
        db.sql(create.format(name=name) + settings * read.plain)
        oracle.query(create.format(name=f"web.{name}"))
    rows = generate(ROWS, seed=7)
    step = ROWS // INSERTS
    for number in range(INSERTS):
        _insert(db, oracle, "hits", rows.slice(number * step, step))
        _insert(db, oracle, "visits", visits(number + 1))
    names = pa.table({"RegionID": pa.array(range(1, 301), pa.uint32()), "name": [f"Region {i}" for i in range(1, 301)]})
    _insert(db, oracle, "regions", names)
    oracle.query("USE web")
    yield db, oracle
    oracle.query("USE default; DROP DATABASE web")


def _insert(db: Database, oracle: Any, name: str, rows: pa.Table) -> None:
    db.table(f"web.{name}").append(rows)
    oracle.query(f"INSERT INTO web.{name} SELECT * FROM Python(rows)")


def _text(answer: Any) -> str:
    return bytes(answer.bytes()).decode()


@pytest.mark.parametrize("query", _queries())
def test_a_select_answers_as_clickhouse_does(both: tuple[Database, Any], query: str) -> None:
    db, oracle = both
    expected = _text(oracle.query(query, TEXT))
    assert db.sql(f"{query} FORMAT {TEXT}").text() == expected
    found = db.sql(query)
    lines = expected.split("\n")
    assert "\t".join(found.types).replace("'", "\\'") == lines[1]
    if "WITH TOTALS" in query:
        assert found.totals is not None
    else:
        assert len(found) == expected.count("\n") - 2


@pytest.mark.parametrize("query", _queries())
def test_split_over_tasks_it_answers_the_same_or_says_that_it_ran_locally(
    both: tuple[Database, Any], query: str
) -> None:
    db, _ = both

    context = Context(executor="spark", run_tasks=TasksHere(), now_ms=db.warehouse.clock.now_ms())
    found = run_select(query, db.resolver(), context)
    here = run_select(query, db.resolver(), Context(executor="local", now_ms=context.now_ms))
    assert found.table.to_pylist() == here.table.to_pylist()
    assert found.types == here.types
    assert found.stats.executor == "spark" or found.stats.reason


def test_most_of_the_single_table_queries_are_split(both: tuple[Database, Any]) -> None:
    db, _ = both
    context = Context(executor="spark", run_tasks=TasksHere())
    results = [run_select(p.values[0], db.resolver(), context) for p in _queries() if p.id.startswith("01_")]
    split = [result for result in results if result.stats.executor == "spark"]
    assert len(split) >= len(results) - 2  # count() is answered from the parts
