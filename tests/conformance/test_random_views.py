"""Random views and unions over random tables, which change: the same answers and errors as ClickHouse's."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import mergelake as ml
from mergelake.api.python.warehouse import Warehouse
from tests.helpers.both import Both
from tests.helpers.random_views import RandomViews

pytestmark = pytest.mark.chdb


# M-090
@pytest.mark.parametrize("seed", range(2))
def test_random_views_give_what_clickhouse_gives(oracle: Any, seed: int) -> None:
    both = Both(oracle, "random_views")
    both.alike = frozenset(("UNKNOWN_TABLE", "UNKNOWN_IDENTIFIER"))
    oracle.query("SET mutations_sync = 1")
    sequence = RandomViews(Random(seed))
    assert both.differing(sequence.steps(40)) == []
    both.db = ml.Database(Warehouse(both.db.warehouse.store))  # as another process
    both.db.use("random_views")
    assert both.differing([sequence.select() for _ in range(6)]) == []
    oracle.query("USE default")
    oracle.query("DROP DATABASE random_views SYNC")
