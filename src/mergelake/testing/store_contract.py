"""`StoreContract`: tests that every store must pass, as a pytest class to subclass.

::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Store: ...        # an empty one
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mergelake.core.base.errors import CorruptDataError, InvalidInputError, NotFoundError
from mergelake.store.interface.protocol import Lost, Store, Stored

MIB = 1 << 20


class StoreContract:
    """The tests; a subclass has a fixture `store` that returns an empty store."""

    exact_counters = True
    """False for stores whose counters include retries."""
    races = 8
    """Rounds of the concurrency tests."""

    # -- whole objects -------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 1000, 3 * MIB])
    def test_what_was_put_comes_back(self, store: Store, size: int) -> None:
        data = np.arange(size, dtype=np.uint8).tobytes()
        store.put("a/b/c", data)
        assert store.get("a/b/c") == data
        assert store.head("a/b/c").size == size

    def test_a_put_takes_any_buffer(self, store: Store) -> None:
        for data in (b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]):
            store.put("k", data)
            assert store.get("k") == b"abc"

    def test_a_put_overwrites(self, store: Store) -> None:
        store.put("k", b"old and longer")
        store.put("k", b"new")
        assert store.get("k") == b"new"

    def test_a_missing_object_is_not_found(self, store: Store) -> None:
        reads: list[Callable[[], object]] = [
            lambda: store.get("no/such"),
            lambda: store.get_range("no/such", 0, 1),
            lambda: store.head("no/such"),
        ]
        for read in reads:
            with pytest.raises(NotFoundError, match="no/such"):
                read()

    def test_a_directory_is_not_an_object(self, store: Store) -> None:
        store.put("a/b", b"1")
        with pytest.raises(NotFoundError):
            store.get("a")

    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\\b", "a\0b"])
    def test_an_impossible_key_is_refused(self, store: Store, key: str) -> None:
        uses: list[Callable[[], object]] = [
            lambda: store.put(key, b""),
            lambda: store.create(key, b""),
            lambda: store.get(key),
            lambda: store.put_large(key, [b""]),
            lambda: store.delete([key]),
        ]
        for use in uses:
            with pytest.raises(InvalidInputError):
                use()
        assert list(store.list("")) == []

    def test_odd_keys_are_kept_as_they_are(self, store: Store) -> None:
        keys = ["a b/c+d", "50%/x%20y", "k=v&w", "umlaut-ä/日本", "~t/.hidden", "UPPER/lower", "q?x#y"]
        for key in keys:
            store.put(key, key.encode())
        assert [meta.key for meta in store.list("")] == sorted(keys)
        assert all(store.get(key) == key.encode() for key in keys)

    # -- ranges --------------------------------------------------------------------------------

    def test_ranges_come_back_in_the_order_asked(self, store: Store) -> None:
        data = np.random.default_rng(1).integers(0, 256, 5 * MIB, dtype=np.uint8).tobytes()
        store.put("k", data)
        ranges = [(4 * MIB, 1000), (0, 10), (5, 10), (5 * MIB - 7, 7), (100, 0), (0, 10), (2 * MIB, 2 * MIB + 5)]
        views = store.get_ranges("k", ranges)
        assert [bytes(view) for view in views] == [data[start : start + length] for start, length in ranges]
        assert bytes(store.get_range("k", 3, 4)) == data[3:7]

    def test_a_range_is_a_buffer_for_numpy(self, store: Store) -> None:
        store.put("k", np.arange(4 * MIB, dtype=np.uint32).tobytes())
        view = store.get_range("k", 40, 12 * MIB)
        numbers = np.frombuffer(view, dtype=np.uint32)
        assert numbers[0] == 10
        assert numbers[-1] == 3 * MIB + 9
        assert len(view) == 12 * MIB

    @pytest.mark.parametrize(("start", "length"), [(995, 10), (1000, 1), (2000, 5), (0, 1001), (0, 20 * MIB)])
    def test_a_range_beyond_the_end_is_corrupt_data(self, store: Store, start: int, length: int) -> None:
        store.put("k", b"x" * 1000)
        with pytest.raises(CorruptDataError) as caught:
            store.get_range("k", start, length)
        assert caught.value.object_key == "k"
        assert caught.value.offset == start
        with pytest.raises(CorruptDataError):
            store.get_ranges("k", [(0, 10), (start, length)])

    def test_a_negative_range_is_refused(self, store: Store) -> None:
        store.put("k", b"x" * 1000)
        for start, length in [(-1, 5), (0, -1)]:
            with pytest.raises(InvalidInputError):
                store.get_range("k", start, length)

    def test_near_ranges_share_a_request_and_far_ones_do_not(self, store: Store) -> None:
        store.put("k", bytes(8 * MIB))
        before = store.counters
        store.get_ranges("k", [(0, 100), (4 * MIB, 100), (200, 100), (4 * MIB + 1000, 100)])
        used = store.counters - before
        assert used.get == 2 or (not self.exact_counters and used.get % 2 == 0)
        assert used.bytes_get == 300 + 1100
        before = store.counters
        store.get_ranges("k", [(0, 0), (50, 0)])
        assert (store.counters - before).requests == 0

    # -- create --------------------------------------------------------------------------------

    def test_create_stores_once(self, store: Store) -> None:
        assert store.create("_log/1", b"first") == Stored()
        assert store.create("_log/1", b"second") == Lost()
        assert store.get("_log/1") == b"first"
        store.delete(["_log/1"])
        assert store.create("_log/1", b"third") == Stored()

    def test_create_loses_to_a_put(self, store: Store) -> None:
        store.put("k", b"put")
        assert store.create("k", b"create") == Lost()
        assert store.get("k") == b"put"

    @pytest.mark.parametrize("size", [10, MIB])
    def test_of_many_creators_exactly_one_wins(self, store: Store, size: int) -> None:
        writers = 16
        with ThreadPoolExecutor(writers) as pool:
            for round_number in range(self.races):
                key = f"race/{round_number}"
                gate = threading.Barrier(writers)

                def attempt(writer: int, key: str = key, gate: threading.Barrier = gate) -> object:
                    gate.wait()
                    return store.create(key, bytes([writer]) * size)

                outcomes = list(pool.map(attempt, range(writers)))
                winners = [writer for writer, outcome in enumerate(outcomes) if outcome == Stored()]
                assert len(winners) == 1, outcomes
                assert outcomes.count(Lost()) == writers - 1
                assert store.get(key) == bytes(winners) * size

    def test_a_reader_never_sees_a_mixture(self, store: Store) -> None:
        bodies = [bytes([n]) * (300_000 + n) for n in range(self.races)]
        store.put("k", bodies[0])

        def write() -> None:
            for body in bodies * 3:
                store.put("k", body)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not writing.done():
                assert store.get("k") in bodies
            writing.result()
        assert store.get("k") == bodies[-1]

    # -- large puts ----------------------------------------------------------------------------

    @pytest.mark.parametrize("sizes", [[], [0], [5], [MIB] * 3, [9 * MIB, 0, 1, 12 * MIB + 3]])
    def test_a_stream_becomes_one_object(self, store: Store, sizes: list[int]) -> None:
        chunks = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
        assert store.put_large("big", iter(chunks)) == sum(sizes)
        assert store.get("big") == b"".join(chunks)
        assert [meta.key for meta in store.list("")] == ["big"]

    def test_a_stream_that_fails_leaves_nothing(self, store: Store) -> None:
        class SourceError(OSError):
            pass

        def chunks(good: int) -> Iterator[bytes]:
            yield from [bytes(MIB)] * good
            raise SourceError

        for good in (0, 3, 20):
            with pytest.raises(SourceError):
                store.put_large("big", chunks(good))
            assert list(store.list("")) == []

    # -- listing and deleting ------------------------------------------------------------------

    def test_a_listing_is_in_order_of_key(self, store: Store) -> None:
        keys = ["a", "a-b", "a/b", "a/b-c", "a/b/c", "a0", "ab/c", "b/1", "b/10", "b/2", "b/2/x"]
        for key in reversed(keys):
            if key not in ("a", "a/b", "b/2"):  # a store of files cannot hold both a and a/b
                store.put(key, b"12345")
        expected = [key for key in keys if key not in ("a", "a/b", "b/2")]
        listing = list(store.list(""))
        assert [meta.key for meta in listing] == sorted(expected)
        assert all(meta.size == 5 and meta.modified_ms > 1_500_000_000_000 for meta in listing)
        for after in [*keys, "", "zzz", "a/", "b/1/zz"]:
            assert [meta.key for meta in store.list("", after=after)] == [k for k in sorted(expected) if k > after]
            below = [meta.key for meta in store.list("b", after=after)]
            assert below == [k for k in sorted(expected) if k > after and k.startswith("b/")]
            for until in ("a/b", "ab", "b/1", "zzz"):
                between = [meta.key for meta in store.list("", after, until)]
                assert between == [k for k in sorted(expected) if after < k < until]

    def test_a_prefix_is_a_whole_segment(self, store: Store) -> None:
        for key in ("t/_log/1", "t/_log/2", "t/_log2/1", "t2/_log/1"):
            store.put(key, b"")
        assert [meta.key for meta in store.list("t/_log")] == ["t/_log/1", "t/_log/2"]
        assert [meta.key for meta in store.list("t/_log/")] == ["t/_log/1", "t/_log/2"]
        assert [meta.key for meta in store.list("t/_lo")] == []
        assert [meta.key for meta in store.list("nothing/here")] == []

    def test_many_keys_are_listed_and_deleted_by_the_page(self, store: Store) -> None:
        keys = [f"many/{number:05}" for number in range(1234)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), keys))
        before = store.counters
        assert [meta.key for meta in store.list("many")] == keys
        assert [meta.key for meta in store.list("many", after=keys[1000])] == keys[1001:]
        store.delete([*keys[:1200], "many/none"])
        used = store.counters - before
        assert [meta.key for meta in store.list("")] == keys[1200:]
        if self.exact_counters:
            assert (used.list, used.delete) == (3, 2)

    def test_deleting_what_is_missing_is_no_error(self, store: Store) -> None:
        store.put("a/b/c", b"")
        store.put("a/d", b"")
        store.delete(["a/b/c", "a/b/c", "nope", "a/b/nope/x"])
        store.delete([])
        assert [meta.key for meta in store.list("")] == ["a/d"]

    def test_puts_and_deletes_beside_each_other_do_not_fail(self, store: Store) -> None:
        def work(writer: int) -> None:
            for number in range(20):
                store.put(f"shared/dir/{writer}-{number}", b"x")
                store.delete([f"shared/dir/{writer}-{number}"])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert list(store.list("")) == []

    # -- counters, spec ------------------------------------------------------------------------

    def test_requests_and_bytes_are_counted_by_kind_and_class(self, store: Store) -> None:
        before = store.counters
        store.put("t/part/files.packed", b"12345")
        store.create("t/_log/1", b"123")
        store.get("t/_log/1")
        store.head("t/_log/1")
        list(store.list("t"))
        store.delete(["t/_log/1"])
        used = store.counters - before
        if self.exact_counters:
            assert (used.put, used.get, used.head, used.list, used.delete, used.retries) == (2, 1, 1, 1, 1, 0)
        assert used.requests == 6 + used.retries
        assert (used.bytes_put, used.bytes_get) == (8, 3)
        assert used.details["put data"] == 1
        assert used.details["put _log"] == 1
        assert before.put == 0  # a value of its own

    def test_the_spec_opens_the_same_store(self, store: Store) -> None:
        store.put("k", b"seen")
        spec = pickle.loads(pickle.dumps(store.spec))
        again = spec.open()
        assert again.get("k") == b"seen"
        assert spec.open() is again
        assert again.url == store.url
        assert "testtest" not in repr(spec) + str(spec) + store.url
