"""What the planner costs, over hours of inserts on a clock that jumps."""

from __future__ import annotations

import pytest

from benchmarks.bench_write_amplification import ARRIVALS, HOUR_S, POLICIES, simulate


def test_merging_on_a_disk_writes_each_row_to_the_store_about_twice():
    # M-001, M-045: 6 MB each second; the first write of a row counts as one
    disk = simulate(POLICIES["2.1"], ARRIVALS["6 MB/s"], HOUR_S / 3)
    store = simulate(POLICIES["direct"], ARRIVALS["6 MB/s"], HOUR_S / 3)
    assert 1.9 < disk.row()["amplification"] <= 2.1 * 1.03
    assert store.row()["amplification"] > 4
    assert disk.uploads * 4 < store.uploads
    # With U inserts to an upload readers see U + 1200 / U parts, up to twice the square root of 2 * 1200.
    assert max(disk.parts) < 110
    assert disk.end < 60


@pytest.mark.parametrize("rate", ["6 MB/min", "an hour a day", "1 % late"])
@pytest.mark.parametrize("target", ["2.1", "3"])
def test_the_target_is_kept_at_every_rate(rate, target):
    found = simulate(POLICIES[target], ARRIVALS[rate], HOUR_S * (12 if rate == "6 MB/min" else 0.2)).row()
    assert found["amplification"] <= float(target) * 1.03
    assert found["most"] < 170


def test_a_lower_target_shows_readers_more_parts_and_a_higher_one_fewer():
    averages = [
        simulate({**POLICIES["2.1"], "write_amplification_target": target}, ARRIVALS["6 MB/s"], 900).row()["average"]
        for target in ("1.5", "2.1", "4")
    ]
    assert averages == sorted(averages, reverse=True)
