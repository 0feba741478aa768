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


def test_ten_thousand_parts_take_less_than_fifty_megabytes():  # M-072
    data = encode_checkpoint(fold(State(), entries(PARTS + 1, files=22)))
    gc.collect()
    tracemalloc.start()
    state = decode_checkpoint(data)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state.part_count == PARTS
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
