"""Random sequences of statements whose rows are read, and partly written, by other processes as well.

After each statement this process, another one, Spark and a ClickHouse that attached the published table are asked;
every answer is ClickHouse's. MERGELAKE_MUTATION_SEQUENCES=30 plays so many, MERGELAKE_SEED others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.mutations.doors import Door, all_doors
from tests.helpers.mutations.play import verify
from tests.helpers.mutations.sequences import draw_sequence
from tests.helpers.mutations.sides import Theirs
from tests.helpers.rounds import rounds

pytestmark = [pytest.mark.chdb, pytest.mark.spark]

SEED = os.environ.get("MERGELAKE_SEED", "1")
SEQUENCES = int(os.environ.get("MERGELAKE_MUTATION_SEQUENCES", rounds(2, 30)))
STATEMENTS = (10, 40) if SEQUENCES > 10 else (6, 8)


@pytest.fixture(scope="module")
def session(oracle: Any) -> Iterator[Any]:
    Theirs.prepare(oracle)
    yield oracle
    Theirs.leave(oracle)


@pytest.fixture(scope="module")
def doors(spark: Any) -> Iterator[list[Door]]:
    with all_doors(spark) as doors:
        yield doors


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_every_process_sees_the_rows_of_clickhouse(session: Any, doors: list[Door], number: int) -> None:
    verify(session, draw_sequence(f"mixed {SEED}/{number}", statements=STATEMENTS), schedules=1, doors=doors)
