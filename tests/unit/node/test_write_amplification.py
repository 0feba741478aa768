"""What the planner costs, over hours of inserts on a clock that jumps."""

from __future__ import annotations

from benchmarks.bench_write_amplification import simulate

BATCH = 6_000_000


def test_merging_on_a_disk_writes_each_row_to_the_store_twice_and_no_more():
    # M-001, M-045: 6 MB each second; the first write of a row counts as one
    volatile = {"merge_upload_policy": "volatile", "max_bytes_to_merge_volatile": "1000000000"}
    disk = simulate(volatile, 0.3, BATCH, 1)
    store = simulate({"merge_upload_policy": "direct"}, 0.3, BATCH, 1)
    assert 1 + disk.stored / disk.inserted < 2.1
    assert 1 + store.stored / store.inserted > 4
    assert disk.uploads * 10 < store.uploads
    # The node sees as few as ever; others see what lies in the store, which stays within bounds.
    assert max(disk.elements) <= max(store.parts) * 1.5
    assert max(disk.parts) < 300
    assert max(disk.at_risk) <= 1_500_000_000
    assert disk.parts[-1] < 20  # when inserts stop, all of it is uploaded
