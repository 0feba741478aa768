"""Random sequences of schema changes, partitions that move and changes of rows: every answer is ClickHouse's.

MERGELAKE_ALTERATION_SEQUENCES=3000 plays so many, MERGELAKE_SEED others; a sequence that differs is shrunk and printed
as a script. `python -m tests.helpers.alterations.play SEED FIRST END` goes on after one that differs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.alterations.elsewhere import AnotherProcess, OnSpark
from tests.helpers.alterations.play import prepared, verify
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

SEED = os.environ.get("MERGELAKE_SEED", "1")
SEQUENCES = int(os.environ.get("MERGELAKE_ALTERATION_SEQUENCES", rounds(6, 300)))


@pytest.fixture(scope="module")
def session(oracle: Any) -> Iterator[Any]:
    with prepared(oracle):
        yield oracle


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_every_answer_is_that_of_clickhouse(session: Any, number: int) -> None:
    verify(session, f"{SEED}/{number}", statements=25)


def test_another_process_takes_part(session: Any) -> None:
    other = AnotherProcess()
    try:
        for number in range(rounds(2, 30)):
            verify(session, f"{SEED}/process {number}", 20, elsewhere=[other])
    finally:
        other.close()


def test_spark_reads_what_was_altered(session: Any, spark: Any) -> None:
    for number in range(rounds(1, 10)):
        verify(session, f"{SEED}/spark {number}", 12, elsewhere=[OnSpark(spark)])


def test_most_of_what_is_drawn_is_supported(session: Any) -> None:
    tally = Counter[str]()
    for number in range(3):
        verify(session, f"few/{number}", 15, tally=tally)
    assert tally["not implemented"] < 0.1 * tally["statements"], tally
    assert not tally["abandoned"], tally
