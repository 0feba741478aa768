"""Reads of a far store: how many rounds of requests they take, what is asked for, and what is held meanwhile."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from mergelake.core.base.cancel import CancelToken
from mergelake.core.base.errors import CorruptDataError, MergelakeError
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.flight import CoreSlots, Limits, in_flight
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.scan.read.read import read_items
from tests.helpers.far_store import FarStore
from tests.helpers.scans import ScanTable, make_schema

COLUMNS = {"k": "UInt32", "word": "LowCardinality(String)", "v": "UInt64", "text": "String"}
FULL = {"index_granularity": "100", "min_bytes_for_full_part_storage": "0"}
PACKED = {"index_granularity": "100"}


def table(parts: int, rows: int = 1000, settings: dict[str, str] = FULL, engine: str = "", **options: str) -> ScanTable:
    """Parts whose keys interleave; every row is one of its own."""
    kind: dict[str, Any] = {"engine": engine, "engine_args": ("v",)} if engine else {}
    store = FarStore(**options)
    made = ScanTable(make_schema(COLUMNS, order_by=("k",), settings=settings, **kind), store)
    rng = random.Random(3)
    for part in range(parts):
        keys = range(part, parts * rows, parts)
        block: dict[str, Any] = {
            "k": pa.array(keys, pa.uint32()),
            "word": pa.array([b"w%d" % (i % 7) for i in keys], pa.binary()).dictionary_encode(),
            "v": pa.array([part] * rows, pa.uint64()),
            "text": pa.array([rng.randbytes(40) for _ in keys], pa.binary()),
        }
        made.insert_block(pa.table(block))
    store.start()
    return made


def cold(made: ScanTable) -> FarStore:
    """The store, as if nothing had been read of the table."""
    made.caches = PartCache()
    store = made.store
    assert isinstance(store, FarStore)
    store.start()
    return store


def read(made: ScanTable, request: ScanRequest, **options: Any) -> list[dict[str, Any]]:
    """Plan and read once."""
    plan = plan_scan(made.store, "t", made.handle.snapshot(), request, made.caches, count_steps=False)
    return [
        row for batch in read_items(made.store, "t", plan, caches=made.caches, **options) for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_parts_are_opened_in_one_round_and_read_in_another(threads: int) -> None:
    made = table(12)
    store = cold(made)
    store.gated = True
    rows = read(made, ScanRequest(("k", "word")), threads=threads)
    assert sorted(row["k"] for row in rows) == list(range(12_000))
    assert store.rounds == 2  # marks and dictionaries of all parts; data of all parts
    assert store.repeated() == []
    assert len(store.asked) == 12 * (2 + 2 + 2)  # of `word` marks of codes and of the dictionary, which comes along
    assert not any("columns.txt" in key for key, _, _ in store.asked)
    store.start()
    read(made, ScanRequest(("k", "word")), threads=threads)
    assert (store.rounds, len(store.asked)) == (1, 24)
    assert not any(".dict." in key for key, _, _ in store.asked)


def test_no_more_requests_wait_at_once_than_the_option_says() -> None:
    made = table(20, max_requests_in_flight="8")
    store = cold(made)
    store.gated = True
    assert len(read(made, ScanRequest(("v",)))) == 20_000
    assert store.at_once == 8
    assert store.rounds == 2 * 3


def test_no_more_bytes_are_under_way_than_the_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergelake.scan.read.ahead.JOB_BYTES", (1, 100_000))  # a part a job, as stored and as an array
    for budget in (300_000, 1_000_000):
        made = table(20, read_ahead_bytes=str(budget))
        store = cold(made)
        read(made, ScanRequest(("v",)))  # opens
        store.start()
        store.gated = True
        assert len(read(made, ScanRequest(("text",)))) == 20_000
        assert store.bytes_at_once <= budget
        assert (store.rounds > 5) == (budget == 300_000)
        assert store.repeated() == []


def test_small_parts_are_fetched_whole_and_once() -> None:
    made = table(30, 200, PACKED)
    store = cold(made)
    store.gated = True
    assert len(read(made, ScanRequest(("text",)))) == 6000
    assert (store.rounds, len(store.asked)) == (1, 30)
    read(made, ScanRequest(("k", "word"), where="k % 3 = 1"))
    assert (store.rounds, len(store.asked)) == (1, 30)


def test_small_parts_that_cannot_be_kept_are_read_by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergelake.parts.read.cache.DATA_BYTES", 20_000)
    made = table(30, 200, PACKED)
    store = cold(made)
    assert len(read(made, ScanRequest(("text",)))) == 6000
    assert made.caches.data.bytes <= 20_000
    assert len(store.asked) == 60


@pytest.mark.parametrize("settings", [FULL, PACKED], ids=["full", "packed"])
def test_a_look_up_is_a_round_for_the_index_and_one_for_the_data(settings: dict[str, str]) -> None:
    made = table(5, 20_000 if settings is PACKED else 1000, settings)
    store = cold(made)
    store.gated = True
    request = ScanRequest(("text", "word"), where="k = 2501")
    assert [row["word"] for row in read(made, request)] == [b"w2"]
    assert store.rounds == 2
    store.start()
    assert len(read(made, request)) == 1
    assert store.rounds == 1
    assert store.repeated() == []


def test_columns_of_rows_that_fail_are_not_fetched_where_they_are_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergelake.scan.read.filter.TOGETHER_BYTES", 1000)
    monkeypatch.setattr("mergelake.scan.read.ahead.TOGETHER_BYTES", 1000)
    made = table(1, 5000)
    read(made, ScanRequest())
    store = made.store
    assert isinstance(store, FarStore)
    store.start()
    assert len(read(made, ScanRequest(("text",), where="intDiv(v + k, 100) = 7"))) == 100
    assert sum(end - start for key, start, end in store.asked if "text" in key) < 100_000  # a compressed block
    assert store.repeated() == []


def test_an_ordered_read_with_a_limit_reads_the_first_granules_only() -> None:
    made = table(4, 20_000)
    store = cold(made)
    store.gated = True
    request = ScanRequest(ordered=True, limit=10)
    rows = read(made, request)
    assert [row["k"] for row in rows] == list(range(10))
    assert store.rounds == 2  # indexes and marks, data
    size = sum(part.manifest.bytes_on_disk for part in made.handle.snapshot().parts)
    assert sum(end - start for _, start, end in store.asked) < size / 5
    assert read(made, ScanRequest(ordered=True, limit=3, where="k >= 7777")) == read(
        made, ScanRequest(ordered=True, where="k IN (7777, 7778, 7779)")
    )
    whole = read(made, ScanRequest(("k", "text"), ordered=True))
    for limit in (1, 99, 1234, 79_999, 80_001):
        assert read(made, ScanRequest(("k", "text"), ordered=True, limit=limit)) == whole[:limit]


def test_small_parts_that_the_cache_has_no_room_for_are_not_asked_for_one_after_the_other() -> None:
    made = table(12, settings=PACKED)
    store = cold(made)
    made.caches = PartCache(400 << 10)
    store.gated = True
    rows = read(made, ScanRequest(("k", "text")))
    assert sorted(row["k"] for row in rows) == list(range(12_000))
    assert store.rounds <= 3


def test_final_reads_all_its_parts_at_once() -> None:
    made = table(6, engine="ReplacingMergeTree")
    made.insert([{"k": 3, "word": b"new", "v": 9, "text": b"x"}, {"k": 9999, "word": b"new", "v": 9, "text": b"y"}])
    store = cold(made)
    store.gated = True
    rows = read(made, ScanRequest(("k", "word"), final=True))
    assert store.rounds == 2
    assert store.repeated() == []
    assert sorted(row["k"] for row in rows) == sorted({*range(6000), 9999})
    assert {row["k"] for row in rows if row["word"] == b"new"} == {3, 9999}


def test_a_limit_ends_the_read_early() -> None:
    made = table(40)
    store = cold(made)
    assert len(read(made, ScanRequest(("text",), limit=5))) == 5
    assert len(store.asked) <= 8  # marks of four parts, data of one
    assert len(read(made, ScanRequest(("k",), where="k % 40 = 39", limit=5))) == 5


def damaged(made: ScanTable, name: str) -> str:
    """Flip a byte in the middle of one file of the second part."""
    part = made.handle.snapshot().parts[1]
    (extent,) = part.manifest.file_table()[name].extents
    key = f"t/{extent.key}"
    body = bytearray(made.store.get(key))
    body[extent.offset + extent.length // 2] ^= 0x55
    made.store.put(key, bytes(body))
    return key


@pytest.mark.parametrize("name", ["text.bin", "text.mrk2"])
@pytest.mark.parametrize("settings", [FULL, PACKED], ids=["full", "packed"])
@pytest.mark.parametrize("options", [{}, {"ordered": True}], ids=["", "ordered"])
def test_damage_is_told_with_its_object_its_place_and_its_part(
    name: str, settings: dict[str, str], options: dict[str, bool]
) -> None:
    made = table(3, settings=settings)
    whole = read(made, ScanRequest(ordered=True))
    key = damaged(made, name)
    cold(made)
    if settings is PACKED and name.endswith(".mrk2") and not options:  # parts that are read together need no marks
        assert sorted(map(str, read(made, ScanRequest(**options)))) == sorted(map(str, whole))
        return
    with pytest.raises(CorruptDataError) as caught:
        read(made, ScanRequest(**options))
    problem = caught.value
    assert problem.object_key == key
    assert problem.offset >= 0
    assert "all_2_2_0" in problem.hint


@pytest.mark.parametrize("gone", ["text.bin", "text.mrk2"])
def test_a_lost_object_is_told_with_its_part(gone: str) -> None:
    made = table(3)
    (extent,) = made.handle.snapshot().parts[1].manifest.file_table()[gone].extents
    made.store.delete([f"t/{extent.key}"])
    cold(made)
    with pytest.raises(MergelakeError) as caught:
        read(made, ScanRequest())
    assert "all_2_2_0" in caught.value.hint
    assert extent.key in str(caught.value)


def scan_threads() -> Iterator[str]:
    return (each.name for each in threading.enumerate() if each.name.startswith(("mergelake-scan", "mergelake-layers")))


@pytest.mark.parametrize("options", [{}, {"ordered": True}], ids=["", "ordered"])
def test_a_read_that_is_given_up_leaves_no_thread(monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]) -> None:
    monkeypatch.setattr("mergelake.scan.read.ahead.JOB_BYTES", (1, 20_000))
    monkeypatch.setattr("mergelake.scan.read.layers.LAYER_ROWS", 500)
    made = table(10)
    plan = plan_scan(made.store, "t", made.handle.snapshot(), ScanRequest(**options), made.caches)
    batches = read_items(made.store, "t", plan, caches=made.caches, threads=2)
    next(batches)
    assert any(scan_threads())
    batches.close()
    assert not list(scan_threads())
    cancel = CancelToken()
    batches = read_items(made.store, "t", plan, caches=made.caches, threads=2, cancel=cancel)
    next(batches)
    cancel.set()
    with pytest.raises(MergelakeError, match="cancelled"):
        list(batches)
    assert not list(scan_threads())


def test_who_waits_lends_its_slot() -> None:
    store, slots = FarStore(), CoreSlots(1)
    others = threading.Event()

    def other() -> None:
        with slots.computing():
            others.set()

    def ask(_: int) -> bool:
        thread.start()
        return others.wait(10)

    thread = threading.Thread(target=other)
    with slots.computing():
        assert in_flight(store, ask, [0]) == [True]
    thread.join()


def test_the_limits_are_options_of_the_store() -> None:
    assert Limits.of(FarStore()) == Limits(64, 256 << 20)
    assert Limits.of(FarStore(max_requests_in_flight="3", read_ahead_bytes="5")) == Limits(3, 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_threads_of_its_own() -> None:
    made = table(3)
    assert len(read(made, ScanRequest(("k",)))) == 3000
    child = os.fork()
    if not child:
        os._exit(0 if len(read(made, ScanRequest(("v",)))) == 3000 else 1)
    assert os.waitpid(child, 0)[1] == 0
