"""Ten thousand parts: work, memory and requests that the design promises."""

from __future__ import annotations

import gc
import tracemalloc

from mergelake.core.model.settings import TABLE_SETTINGS
from mergelake.log.model.fold import fold
from mergelake.log.model.operations import AddParts, CreateTable, Entry, Publish
from mergelake.log.model.state import State
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint
from mergelake.log.storage.encoding import decode_entry, encode_entry
from mergelake.store import open_store
from tests.helpers.manifests import SCHEMA, manifest, new_log, open_log
from tests.helpers.work import bytecodes

PARTS = 10_000


def entries(count, files=2):
    yield Entry(1, "x", 1, "a", (CreateTable(SCHEMA),))
    for n in range(1, count):
        yield Entry(n + 1, "x", n, "a", (AddParts((manifest(n, f"p{n % 5}", files=files),)),))


def folding(made):
    """Bytecodes of decoding and folding so many entries, for each."""
    stored = [encode_entry(entry) for entry in made]
    return bytecodes(lambda: fold(State(), map(decode_entry, stored))) / len(stored)


def test_reading_and_applying_an_entry_takes_the_same_work_after_many_as_after_few():
    few, many = folding(entries(250)), folding(entries(2000))
    assert many < 1.1 * few
    assert many < 1500


def test_a_merge_in_a_large_partition_takes_little_more_work_than_in_a_small_one():
    def mixed(count):
        yield Entry(1, "x", 1, "a", (CreateTable(SCHEMA),))
        for n in range(2, count):
            op = AddParts((manifest(n),))
            if n % 3 == 2 and n > count // 3:
                op = Publish(manifest(n), tuple(f"{source:032x}" for source in (n - 1, n - 2)))
            yield Entry(n, "x", n, "a", (op,))

    # A merge looks once at the id of each part of the partition: a few bytecodes.
    assert folding(mixed(1000)) - folding(mixed(250)) < 1.2 * (1000 - 250)
    assert len(fold(State(), mixed(1000)).retired) > 350


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
    data = encode_checkpoint(fold(State(), busy()))
    gc.collect()
    tracemalloc.start()
    state = decode_checkpoint(data)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state.part_count == len(state.retired) == len(state.tokens) == PARTS
    assert held < 50e6


def test_a_table_of_ten_thousand_parts_opens_with_three_gets_and_one_for_its_segment(tmp_path):  # M-072
    assert TABLE_SETTINGS["checkpoint_interval"].default
    store = open_store(str(tmp_path), {"sync": "false"})
    log = new_log(store)
    for first in range(1, PARTS, 1000):
        log.commit(lambda _, first=first: [AddParts(tuple(manifest(first + n, files=22) for n in range(1000)))])
    log.write_checkpoint()
    before = store.counters
    state = open_log(store).state
    assert state.part_count == PARTS
    assert store.counters.get - before.get == 4
    assert store.counters.list == before.list
    assert bytecodes(lambda: open_log(store)) < PARTS * 800
