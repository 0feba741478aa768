"""Random sequences of inserts, mutations, merges and reads: every answer is ClickHouse's, whenever parts are rewritten.

MERGELAKE_MUTATION_SEQUENCES=500 plays so many, MERGELAKE_SEED others; a sequence that fails is shrunk and printed as a
script. `python -m tests.helpers.mutations.play SEED FIRST END` plays without pytest, and goes on after a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mergelake.store import open_store
from tests.helpers.mutations.play import Tally, play, verify
from tests.helpers.mutations.sequences import draw_sequence
from tests.helpers.mutations.sides import Theirs
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

SEED = os.environ.get("MERGELAKE_SEED", "1")
SEQUENCES = int(os.environ.get("MERGELAKE_MUTATION_SEQUENCES", rounds(3, 200)))
STATEMENTS = (10, 60) if SEQUENCES > 10 else (10, 25)


@pytest.fixture(scope="module")
def session(oracle: Any) -> Iterator[Any]:
    Theirs.prepare(oracle)
    yield oracle
    Theirs.leave(oracle)


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_every_answer_is_that_of_clickhouse(session: Any, number: int) -> None:
    verify(session, draw_sequence(f"{SEED}/{number}", statements=STATEMENTS))


def test_another_process_sees_the_same_rows(session: Any, tmp_path: Path) -> None:
    for number in range(10):  # the first that ends with rows
        folder = str(tmp_path / str(number))
        sequence = draw_sequence(f"process/{number}", statements=(8, 8), reads=1)
        # A version that is remembered would be restored at the end.
        sequence = sequence.only(tuple(replace(step, remembers=False) for step in sequence.steps))
        rows = play(session, sequence, store=open_store(folder))
        if rows:
            break
    names = [column.name for column in sequence.table.columns]
    script = (
        "import sys, mergelake as ml; table = ml.connect(sys.argv[1]).table('t'); "
        "print(sum(1 for _ in table.scan(sys.argv[2].split(','))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, folder, ",".join(names)], capture_output=True, text=True, check=True
    )
    assert int(found.stdout) == len(rows) > 0


def test_most_of_what_is_drawn_is_supported(session: Any) -> None:
    tally = Tally()
    for number in range(3):
        play(session, draw_sequence(f"few/{number}", statements=(8, 12), reads=1), tally)
    counts = tally.counts
    assert counts["not implemented"] < 0.1 * counts["statements"], str(tally)
    assert counts["reads not implemented"] < 0.1 * counts["reads"], str(tally)
    assert not counts["abandoned"], str(tally)
