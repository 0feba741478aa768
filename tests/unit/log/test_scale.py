"""Ten thousand parts: time, memory and requests that the design promises."""

from __future__ import annotations

import gc
import time
import tracemalloc

from mergelake.core.settings import TABLE_SETTINGS
from mergelake.log.checkpoint import decode_checkpoint, encode_checkpoint
from mergelake.log.encoding import decode_entry, encode_entry
from mergelake.log.fold import fold
from mergelake.log.operations import AddParts, CreateTable, Entry, Publish
from mergelake.log.state import State
from mergelake.store import open_store
from tests.helpers.manifests import SCHEMA, manifest, new_log, open_log

PARTS = 10_000


def entries(count, files=2):
    yield Entry(1, "x", 1, "a", (CreateTable(SCHEMA),))
    for n in range(1, count):
        yield Entry(n + 1, "x", n, "a", (AddParts((manifest(n, f"p{n % 5}", files=files),)),))


def test_ten_thousand_entries_are_read_and_applied_in_two_seconds():
    stored = [encode_entry(entry) for entry in entries(PARTS)]
    started = time.process_time()
    state = fold(State(), map(decode_entry, stored))
    assert time.process_time() - started < 2
    assert state.part_count == PARTS - 1


def test_merges_in_a_large_partition_fold_quickly():
    def mixed():
        yield Entry(1, "x", 1, "a", (CreateTable(SCHEMA),))
        for n in range(2, 6_000):
            op = AddParts((manifest(n),))
            if n % 3 == 2 and n > 2_000:
                op = Publish(manifest(n), tuple(f"{source:032x}" for source in (n - 1, n - 2)))
            yield Entry(n, "x", n, "a", (op,))

    made = list(mixed())
    started = time.process_time()
    state = fold(State(), made)
    assert time.process_time() - started < 4
    assert len(state.retired) > 2_000


def busy():
    """Ten thousand inserts with tokens, five thousand merges of two of them, five thousand inserts more."""
    yield Entry(1, "x", 1, "a", (CreateTable(SCHEMA),))
    ops = [AddParts((manifest(n, f"p{n % 5}", files=22),), dedup_token=f"batch-{n:040d}") for n in range(1, PARTS + 1)]
    for first in range(1, PARTS, 10):  # five merges: of n and n + 5
        for n in range(first, first + 5):
            pair = (f"{n:032x}", f"{n + 5:032x}")
            ops.append(Publish(manifest(2 * PARTS + n, f"p{n % 5}", files=22), pair))
    ops += [AddParts((manifest(4 * PARTS + n, f"p{n % 5}", files=22),)) for n in range(PARTS // 2)]
    for version, op in enumerate(ops, 2):
        yield Entry(version, "x", version, "a", (op,))


def test_ten_thousand_parts_and_as_many_replaced_ones_and_tokens_take_less_than_fifty_megabytes():  # M-072
    made = list(busy())
    started = time.process_time()
    state = fold(State(), made)
    assert time.process_time() - started < 2
    data = encode_checkpoint(state)
    del state, made
    gc.collect()
    tracemalloc.start()
    state = decode_checkpoint(data)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state.part_count == len(state.retired) == len(state.tokens) == PARTS
    assert held < 50e6


def test_a_table_of_ten_thousand_parts_opens_with_three_gets_under_a_second(tmp_path):  # M-072
    assert TABLE_SETTINGS["checkpoint_interval"].default
    store = open_store(str(tmp_path), {"sync": "false"})
    log = new_log(store)
    for first in range(1, PARTS, 1000):
        log.commit(lambda _, first=first: [AddParts(tuple(manifest(first + n, files=22) for n in range(1000)))])
    log.write_checkpoint()
    before = store.counters
    started = time.process_time()
    state = open_log(store).state
    elapsed = time.process_time() - started
    assert state.part_count == PARTS
    assert store.counters.get - before.get == 3
    assert store.counters.list == before.list
    assert elapsed < 1
