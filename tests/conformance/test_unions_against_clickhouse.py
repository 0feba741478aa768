"""merge() and the engine Merge: the same statements here and in ClickHouse, the same answers and errors."""

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
    both = Both(oracle, "merged")
    both.both(section("unions.sql", "tables"))
    yield both
    oracle.query("USE default")
    oracle.query("DROP DATABASE merged SYNC")


# M-090
def test_unions_give_what_clickhouse_gives(both: Both) -> None:
    assert both.differing(section("unions.sql", "selects")) == []


def test_unions_over_attached_parts_give_what_clickhouse_gives(
    oracle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach_at_once(monkeypatch)
    both = Both(oracle, "merged", str(tmp_path))
    both.both(section("unions.sql", "tables"))
    assert both.differing(section("unions.sql", "selects")) == []
    oracle.query("USE default")
    oracle.query("DROP DATABASE merged SYNC")


def test_unions_follow_the_names_of_their_tables(both: Both) -> None:
    assert both.differing(section("unions.sql", "changes")) == []
