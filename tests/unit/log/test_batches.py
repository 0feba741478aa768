"""Several entries in one object: where they begin, how they are read, what damage does."""

from __future__ import annotations

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import CorruptDataError
from mergelake.log.backends import batches
from mergelake.log.backends.backend import EVERY, ObjectBackend
from mergelake.log.backends.batches import BATCH_MAX, Damaged, decode, encode, longest, reach, starts
from mergelake.store.objects.memory import MemoryStore

ENTRIES = [b'{"version":%d}' % version for version in range(1, 201)]


def filled(last, cut=BATCH_MAX):
    """A bucket with entries up to `last`, in batches of up to `cut`."""
    store, first = MemoryStore(), 1
    while first <= last:
        count = min(longest(first, [1] * (last - first + 1)), cut)
        store.create(f"t/{first:020d}.json", encode(ENTRIES[first - 1 : first - 1 + count]))
        first += count
    return store


def bucket(store, batched=EVERY):
    return ObjectBackend(store, "t", clock=ManualClock(), threads=2, batched=batched)


def test_an_object_begins_where_a_reader_looks_for_it():
    for first in range(1, 300):
        count = longest(first, [1] * 100)
        for version in range(first, first + count):
            assert first in starts(version)
        assert longest(first + count, [1]) == 1
    assert all(len(starts(version)) <= 7 for version in range(1, 200))


def test_large_entries_share_no_object():
    assert longest(1, [3 << 20, 1 << 20, 1, 1]) == 2
    assert longest(1, [3 << 20, 2 << 20, 1, 1]) == 1


def test_every_beginning_reads_every_entry_and_no_more():
    for last in (1, 2, 63, 64, 65, 100, 130):
        store = filled(last)
        for first in range(1, last + 2):
            found = bucket(store).read_all(range(first, last + 3))
            assert found == [*ENTRIES[first - 1 : last], None, None]
            assert bucket(store).read(first) == (ENTRIES[first - 1] if first <= last else None)


def test_who_follows_pays_a_request_an_object_and_one_for_the_end():
    store = filled(192)
    reader = bucket(store)
    before, version, got = store.counters, 1, []
    while (found := reader.read_on(version, max(len(got), 1)))[0] is not None:
        got += [data for data in found if data is not None]
        version = len(got) + 1
    assert got == ENTRIES[:192]
    assert (store.counters - before).get == 4
    assert (store.counters - before).list == 0


def test_a_log_that_was_always_in_the_bucket_is_asked_once_for_an_entry_that_is_not_there():
    store = filled(5, cut=1)
    for reader, requests in ((bucket(store, batched=0), 1), (bucket(store), 4)):
        before = store.counters
        assert reader.read(8) is None
        assert (store.counters - before).get == requests


def test_a_reader_at_the_end_asks_once_for_what_follows_what_it_read():
    store = filled(6)
    reader = bucket(store)
    assert reader.read_all(range(5, 8)) == [*ENTRIES[4:6], None]
    before = store.counters
    assert reader.read_many([7]) == [None]
    assert reader.read(7) is None
    assert (store.counters - before).get == 2


def test_who_follows_from_a_checkpoint_looks_around_once():
    store = filled(70)
    reader = bucket(store)
    before = store.counters
    assert [reader.read_on(71, 1) for _ in range(5)] == [[None]] * 5
    assert not reader.wait(71, 0)
    assert (store.counters - before).get == 5 + len(starts(71)[1:]) + 1
    store.create(reader.key(71), ENTRIES[70])
    assert reader.read_on(71, 1) == [ENTRIES[70]]


def test_the_object_of_an_entry_is_found():
    store = filled(100)
    assert bucket(store).sealed_key(70) == bucket(store).key(65)
    assert bucket(store).sealed_key(65) == bucket(store).key(65)
    before = store.counters
    assert bucket(store, batched=0).sealed_key(70) == bucket(store).key(70)
    assert store.counters == before


def test_a_batch_goes_with_its_last_entry():
    store = filled(130)
    backend = bucket(store)
    assert backend.truncate(64) == 0
    assert backend.truncate(65) == 64
    assert backend.truncate(100) == 0
    assert bucket(store).read(65) == ENTRIES[64]
    assert backend.truncate(129) == 64
    assert bucket(store).read_all([128, 129, 130]) == [None, *ENTRIES[128:130]]


@pytest.mark.parametrize("at", [0, 3, 8, 9, 12, 20, -1])
def test_a_damaged_batch_is_neither_an_entry_nor_an_end(at):
    whole = encode(ENTRIES[64:68])
    at %= len(whole)
    store = MemoryStore()
    store.create(bucket(store).key(65), whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for version in (65, 66, 68):
        data = bucket(store).read(version)
        assert data is not None
        assert data not in ENTRIES or data == ENTRIES[version - 1]
    if at != 20:
        with pytest.raises(CorruptDataError):
            bucket(store).object_at(65)


@pytest.mark.parametrize("length", [1, 8, 30, 60])
def test_a_batch_that_was_cut_off_is_damaged(length):
    whole = encode(ENTRIES[:4])
    if length >= len(b"#batch "):
        with pytest.raises(Damaged):
            decode(1, whole[:length])
    with pytest.raises(Damaged):
        decode(2, whole)
    with pytest.raises(Damaged):
        decode(1, whole.replace(b"#batch [", b"#batch {"))


def test_one_entry_is_what_it_always_was():
    assert encode([b"one"]) == b"one"
    assert decode(7, b"one") == [b"one"]
    assert reach(7, b"one") == 7
    assert reach(1, b"#batch ?") == 64
    assert reach(67, b"#batch ?") == 68
    assert decode(5, encode(ENTRIES[4:8])) == ENTRIES[4:8]
    assert batches.BATCH_MAX == 64
