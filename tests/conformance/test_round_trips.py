"""Whole random tables both ways: see `tests/helpers/round_trip.py`. `make conformance` makes ten thousand trips."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.random_tables import random_table
from tests.helpers.round_trip import SEED, prepare, trip
from tests.helpers.rounds import rounds

BATCH = 50
TRIPS = rounds(150, 10_000)
made: list[int] = []
"""Numbers of the trips that went well."""


@pytest.fixture(scope="module")
def clickhouse(oracle: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    before = str(oracle.query("SELECT currentDatabase()", "TSV")).strip()
    prepare(oracle)
    started = time.monotonic()
    yield oracle
    oracle.query(f"USE {before}")
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{len(made)} round trips of seed {SEED} in {time.monotonic() - started:.0f} s")


@pytest.mark.parametrize("first", range(0, TRIPS, BATCH))
def test_random_tables_go_both_ways(clickhouse: Any, tmp_path: Path, first: int) -> None:
    # M-049 M-051 M-052 M-053 M-055
    for number in range(first, first + BATCH):
        table = random_table(np.random.default_rng([SEED, number]))
        try:
            trip(clickhouse, table, tmp_path)
            made.append(number)
        except Exception as problem:
            problem.add_note(f"python -m tests.helpers.round_trip {SEED} {number} {number + 1}")
            raise
