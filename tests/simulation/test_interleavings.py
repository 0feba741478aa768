"""Not a sample: all schedules of the first steps of two writers, a merger, a collector and a stalled writer."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from unittest import mock

import pytest

from mergelake.log.model import fold
from tests.simulation.interleavings import DEPTH, Stage, schedules
from tests.simulation.runner import WORKERS, simulated

PROCESSES = 5


def count(first: int) -> int:
    return sum(1 for _ in schedules(DEPTH, first))


@pytest.mark.slow
def test_every_interleaving_of_the_commit_path_keeps_the_invariants(capsys):
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        counts = list(pool.map(count, range(PROCESSES)))
    with capsys.disabled():
        print(f"\n{sum(counts)} schedules of {DEPTH} choices among {PROCESSES} processes, all checked")
    assert min(counts) > 4 ** (DEPTH - 1)


def test_the_collector_of_the_stage_collects_and_the_stalled_writer_is_refused():
    """The stage is worth playing: in order, the collector goes before the writer that stood still."""
    with simulated():
        stage = Stage()
        stage.play([])
        stage.kernel.close()
    table = stage.tables["t"]
    assert table.landed["AdvanceGcHorizon"] >= 2
    assert table.deleted > 0
    assert stage.failed["ConflictError"] == 1


def test_a_stage_without_a_fence_is_found_out():
    real = fold.Draft._collect

    def careless(self, op):
        fence = self._fence
        real(self, op)
        self._fence = fence

    with mock.patch.object(fold.Draft, "_collect", careless), pytest.raises(AssertionError, match="without object"):
        for _ in schedules(2):
            pass
