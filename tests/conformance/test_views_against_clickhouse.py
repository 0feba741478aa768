"""Views and replaced tables: the same statements here and in ClickHouse, the same answers and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.both import Both, section

pytestmark = pytest.mark.chdb


@pytest.fixture
def both(oracle: Any) -> Iterator[Both]:
    both = Both(oracle, "viewed")
    both.both(section("views.sql", "tables"))
    both.both(section("views.sql", "views"))
    yield both
    oracle.query("USE default")
    oracle.query("DROP DATABASE viewed SYNC")


# M-090
def test_views_give_what_clickhouse_gives(both: Both) -> None:
    assert both.differing(section("views.sql", "selects")) == []


def test_views_and_tables_are_replaced_as_in_clickhouse(both: Both) -> None:
    assert both.differing(section("views.sql", "changes")) == []
