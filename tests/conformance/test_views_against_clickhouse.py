"""Views and replaced tables: the same statements here and in ClickHouse, the same answers and errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.attached import attach_at_once
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


def test_views_over_attached_parts_give_what_clickhouse_gives(
    oracle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach_at_once(monkeypatch)
    both = Both(oracle, "viewed", str(tmp_path))
    both.both(section("views.sql", "tables"))
    both.both(section("views.sql", "views"))
    assert both.differing(section("views.sql", "selects")) == []
    oracle.query("USE default")
    oracle.query("DROP DATABASE viewed SYNC")


def test_views_and_tables_are_replaced_as_in_clickhouse(both: Both) -> None:
    assert both.differing(section("views.sql", "changes")) == []


def test_what_show_create_prints_makes_the_same_again(both: Both) -> None:
    named = both.db.warehouse.catalog.state.virtual["viewed"]
    assert len(named) > 20
    for name, table in list(named.items()):
        text = both.db.sql(f"SHOW CREATE TABLE {name}").scalar()
        both.db.sql(f"DROP VIEW {name}")
        both.db.sql(text)
        again = both.db.warehouse.catalog.refresh().virtual_table("viewed", name)
        assert again is not None
        assert (again.schema, again.query, again.reads) == (table.schema, table.query, table.reads)
