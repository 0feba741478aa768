"""Random SELECTs, with JSON, Dynamic and Variant among the columns, against ClickHouse's own tables."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError
from tests.helpers.attached import Reading
from tests.helpers.random_selects import TABLES, Selects, inserts

TEXT = "JSONCompactEachRowWithNamesAndTypes"
SEED = int(os.environ.get("MERGELAKE_SEED", "5"))
INSERTS = int(os.environ.get("MERGELAKE_INSERTS", "4"))
"""Of each table: 170 make some 500 small parts of one."""
STATEMENTS = 2000 if os.environ.get("MERGELAKE_CONFORMANCE") == "long" else 150


@pytest.fixture(scope="module")
def both(read: Reading, oracle: Any) -> Iterator[tuple[Database, Any]]:
    """The same rows here, in several parts, and in ClickHouse."""
    db = connect(read.url)
    oracle.query("CREATE DATABASE random_selects; USE random_selects")
    for create in TABLES:
        settings = ", min_bytes_for_full_part_storage = 0" if read.plain else ""
        db.sql(create + settings)
        oracle.query(create)
    oracle.query("SYSTEM STOP MERGES random_selects.r")
    for insert in inserts(random.Random(SEED), INSERTS):
        db.sql(insert)
        oracle.query(insert)
    db.sql("OPTIMIZE TABLE e PARTITION 1")
    yield db, oracle
    oracle.query("USE default; DROP DATABASE random_selects")


def _theirs(oracle: Any, query: str) -> str:
    try:
        return str(oracle.query(query, TEXT))
    except Exception as failure:
        return f"error {str(failure).rsplit('(', 2)[-2 if 'version' in str(failure) else -1].split(')')[0]}"


def _ours(db: Database, query: str) -> str:
    try:
        return db.sql(f"{query} FORMAT {TEXT}").text()
    except MergelakeError as failure:
        return f"error {failure.name}"


@pytest.mark.parametrize("block", range(5))
def test_random_selects_answer_as_clickhouse_does(both: tuple[Database, Any], block: int) -> None:
    db, oracle = both
    draw = Selects(random.Random(SEED * 1000 + block))
    differ = {}
    failed = 0
    for _ in range(STATEMENTS // 5):
        query = draw.statement()
        expected, found = _theirs(oracle, query), _ours(db, query)
        failed += expected.startswith("error")
        if expected != found:
            differ[query] = (expected[:300], found[:300])
    assert not differ, "\n".join(f"{query}\n  {e!r}\n  {f!r}" for query, (e, f) in list(differ.items())[:5])
    assert failed < STATEMENTS // 5 // 3


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(), sum(x) FROM r FINAL SETTINGS do_not_merge_across_partitions_select_final = 1",
        "SELECT sum(x) FROM r WHERE x > 3 SETTINGS force_primary_key = 1",
        "SELECT sum(x) FROM r WHERE k > 3 SETTINGS force_primary_key = 1",
        "SELECT count() FROM r SETTINGS force_primary_key = 1",
        "SELECT k FROM r WHERE k = 31 AND x = 4 ORDER BY ALL SETTINGS force_index_by_date = 1",
        "SELECT count(s) FROM e WHERE s = 'bee' SETTINGS force_data_skipping_indices = 'si'",
        "SELECT count(k) FROM e WHERE k = 3 SETTINGS force_data_skipping_indices = 'si'",
        "SELECT count(), sum(k) FROM e SETTINGS max_rows_to_read = 10",
        "SELECT count() > 0 FROM (SELECT s FROM e) SETTINGS max_rows_to_read = 100, read_overflow_mode = 'break'",
        "SELECT count() FROM e SETTINGS max_rows_to_read_leaf = 10",
        "SELECT count(s) FROM e SETTINGS max_rows_to_read_leaf = 10",
    ],
)
def test_settings_of_reading_mean_what_they_do_in_clickhouse(both: tuple[Database, Any], query: str) -> None:
    db, oracle = both
    assert _ours(db, query) == _theirs(oracle, query)
