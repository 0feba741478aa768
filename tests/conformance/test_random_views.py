"""Random views and unions over random tables, which change: the same answers and errors as ClickHouse's."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.helpers.both import Both
from tests.helpers.random_views import RandomViews

pytestmark = pytest.mark.chdb


# M-090
@pytest.mark.parametrize("seed", range(2))
def test_random_views_give_what_clickhouse_gives(oracle: Any, seed: int) -> None:
    both = Both(oracle, "random_views")
    both.alike = frozenset(("UNKNOWN_TABLE", "UNKNOWN_IDENTIFIER"))
    oracle.query("SET mutations_sync = 1")
    assert both.differing(RandomViews(Random(seed)).steps(40)) == []
    oracle.query("USE default")
    oracle.query("DROP DATABASE random_views SYNC")
