"""Random SELECTs spread over tasks, against ClickHouse's own tables."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError
from mergelake.query.context import Context
from mergelake.query.select import run_select
from tests.conformance.test_random_selects import INSERTS, TEXT, _theirs
from tests.helpers.attached import Reading
from tests.helpers.random_selects import TABLES, inserts
from tests.helpers.random_spread import SpreadSelects
from tests.helpers.tasks import TasksHere

SEED = int(os.environ.get("MERGELAKE_SEED", "11"))
STATEMENTS = int(os.environ.get("MERGELAKE_STATEMENTS", "60"))
SPREAD_LEAST = 0.3
"""Of the statements that have an answer."""


@pytest.fixture(scope="module")
def both(read: Reading, oracle: Any) -> Iterator[tuple[Database, Any]]:
    """The same rows here, in several parts, and in ClickHouse."""
    db = connect(read.url)
    oracle.query("CREATE DATABASE random_spread; USE random_spread")
    for create in TABLES:
        db.sql(create + (", min_bytes_for_full_part_storage = 0" if read.plain else ""))
        oracle.query(create)
    oracle.query("SYSTEM STOP MERGES random_spread.r")
    for insert in inserts(random.Random(SEED), INSERTS):
        db.sql(insert)
        oracle.query(insert)
    yield db, oracle
    oracle.query("USE default; DROP DATABASE random_spread")


@pytest.mark.parametrize("block", range(2))
def test_random_selects_in_tasks_answer_as_clickhouse_does(both: tuple[Database, Any], block: int) -> None:
    db, oracle = both
    draw = SpreadSelects(random.Random(SEED * 1000 + block))
    differ, failed, reasons = {}, 0, Counter[str]()
    for _ in range(STATEMENTS // 2):
        query = draw.statement()
        expected = _theirs(oracle, query)
        context = Context(executor="spark", run_tasks=TasksHere(), now_ms=db.warehouse.clock.now_ms())
        try:
            result = run_select(f"{query} FORMAT {TEXT}", db.resolver(), context)
            found = (result.formatted or b"").decode()
            reasons["" if result.stats.executor == "spark" else result.stats.reason] += 1
        except MergelakeError as failure:
            found = f"error {failure.name}"
        failed += expected.startswith("error")
        if expected != found:
            differ[query] = (expected[:300], found[:300])
    assert not differ, "\n".join(f"{query}\n  {e!r}\n  {f!r}" for query, (e, f) in list(differ.items())[:5])
    assert failed < STATEMENTS // 2 // 3
    assert reasons[""] > SPREAD_LEAST * sum(reasons.values()), reasons.most_common(9)
