"""A store over a cache directory: what it keeps, what it never keeps, and who may use the directory."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import InvalidInputError, NotFoundError
from mergelake.store import Store, StoreSpec, open_store
from mergelake.store.cache import cached as cached_module
from mergelake.store.cache.cache_dir import CacheDir
from mergelake.store.cache.cached import CachedStore, beneath, is_part_object
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore
from mergelake.testing.store_contract import StoreContract
from tests.helpers.cached import KEYS, files, filled, over

KEY = KEYS[0]
BUCKET = {"access_key_id": "id", "secret_access_key": "hidden-one", "endpoint": "http://127.0.0.1:1"}


class TestCached(StoreContract):
    """With whatever key, as if nothing but parts were stored."""

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
        monkeypatch.setattr(cached_module, "is_part_object", lambda _: True)
        return CachedStore(MemoryStore(), CacheDir(str(tmp_path / "cache"), 1 << 30))

    def test_the_spec_opens_the_same_store(self, store: Store) -> None:
        """Not one in memory, which has no such options: see below."""


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        (f"{'5f' * 16}/{'a0' * 16}/ts.bin", True),
        (f"{'5f' * 16}/{'a0' * 16}/_x.bin", True),
        (f"{'5f' * 16}/{'a0' * 16}/p.proj/x.bin", True),
        (f"{'5f' * 16}/{'a0' * 16}/4711.packed", True),
        (f"{'5f' * 16}/_log/0000000042.json", False),
        (f"{'5f' * 16}/_log/checkpoints/{'a0' * 16}", False),
        (f"{'5f' * 16}/_gc/{'a0' * 16}", False),
        (f"{'5f' * 16}/__meta/{'a0' * 16}/prefix.path", False),
        (f"{'5f' * 16}/plain-{'a0' * 16}/ts.bin", False),
        ("_catalog/log/1.json", False),
        ("all_1_1_0/ts.bin", False),
        (f"{'5f' * 16}/{'a0' * 16}", False),
    ],
)
def test_objects_of_parts_alone_are_kept(tmp_path: Path, key: str, kept: bool) -> None:
    inner, _ = filled()
    inner.put(key, b"0123456789")
    store = over(inner, tmp_path)
    for _ in range(2):
        assert [bytes(body) for body in store.get_ranges(key, [(2, 3), (7, 1)])] == [b"234", b"7"]
    assert is_part_object(key) == kept
    assert store.counters.get == (2 if kept else 4)
    assert (store.held(key, [(2, 3)]) is not None) == kept
    assert store.counters.cached == (3 if kept else 0)


def test_what_is_missing_is_asked_for_in_one_call_and_not_a_byte_more(tmp_path: Path) -> None:
    inner, bodies = filled()
    store = over(inner, tmp_path)
    store.get_ranges(KEY, [(100, 50), (1000, 10)])
    inner.asked.clear()
    found = store.get_ranges(KEY, [(90, 100), (995, 5), (1000, 5), (1010, 0), (1008, 4)])
    assert sorted(inner.asked) == [(KEY, 90, 10), (KEY, 150, 40), (KEY, 995, 5), (KEY, 1010, 2)]
    assert bytes(found[0]) == bodies[KEY][90:190]
    assert bytes(found[4]) == bodies[KEY][1008:1012]


def test_another_process_finds_it_and_credentials_are_nowhere(tmp_path: Path) -> None:
    inner, bodies = filled()
    over(inner, tmp_path / "c").get_range(KEY, 0, len(bodies[KEY]))
    inner.asked.clear()
    again = over(inner, tmp_path / "c")
    assert bytes(again.get_range(KEY, 5, 200_000)) == bodies[KEY][5:200_005]
    assert inner.asked == []
    assert (again.counters.cached, again.counters.bytes_cached) == (1, 200_000)
    for path in [tmp_path / "c", *(tmp_path / "c").rglob("*")]:
        mode = path.stat().st_mode
        assert stat.S_IMODE(mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_file_under_the_name_of_another_object_is_none(tmp_path: Path) -> None:
    inner, bodies = filled()
    over(inner, tmp_path).get_range(KEYS[0], 0, 50_000)
    (first,) = files(tmp_path)
    held = first.read_bytes()
    over(inner, tmp_path).get_range(KEYS[1], 0, 50_000)
    for path in files(tmp_path):
        path.write_bytes(held)
    again = over(inner, tmp_path)
    assert bytes(again.get_range(KEYS[1], 0, 50_000)) == bodies[KEYS[1]][:50_000]
    assert bytes(again.get_range(KEYS[0], 0, 50_000)) == bodies[KEYS[0]][:50_000]
    assert again.counters.cached == 1


def test_two_threads_ask_once(tmp_path: Path) -> None:
    inner, bodies = filled()
    store = over(inner, tmp_path)
    inner.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(store.get_range, KEY, 1000 * at, 5000) for at in (0, 1, 2, 3, 0, 2, 7, 1)]
        # Those that begin first ask for what they want, later ones for what sticks out of it: how many depends on their
        # order. The others wait.
        deadline = time.monotonic() + 1
        while len(inner.asked) < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        inner.gate.set()
        found = [bytes(each.result()) for each in asked]
    assert found == [bodies[KEY][1000 * at : 1000 * at + 5000] for at in (0, 1, 2, 3, 0, 2, 7, 1)]
    assert not inner.repeated()
    assert store._flights == {}


def test_what_was_stored_since_it_was_looked_for_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, bodies = filled()
    store = over(inner, tmp_path)
    store.get_range(KEY, 100, 100)
    inner.asked.clear()
    real, looks = store.cache.find, []

    def find(name, wanted):
        looks.append(wanted)
        return [[(start, end, None)] for start, end in wanted] if len(looks) == 1 else real(name, wanted)

    monkeypatch.setattr(store.cache, "find", find)
    assert bytes(store.get_range(KEY, 100, 150)) == bodies[KEY][100:250]
    assert inner.asked == [(KEY, 200, 50)]


def test_who_waited_for_a_request_that_failed_asks_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, bodies = filled()
    store = over(inner, tmp_path)
    real, failing, waits = inner.get_ranges, threading.Event(), threading.Event()

    def once(key, ranges):
        if not failing.is_set():
            failing.set()
            waits.wait(10)
            time.sleep(0.05)
            raise NotFoundError("gone")
        return real(key, ranges)

    monkeypatch.setattr(inner, "get_ranges", once)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(store.get_range, KEY, 0, 100)
        failing.wait(10)
        second = pool.submit(store.get_range, KEY, 50, 100)
        waits.set()
        with pytest.raises(NotFoundError):
            first.result()
        assert bytes(second.result()) == bodies[KEY][50:150]


def test_the_least_recently_read_goes_first(tmp_path: Path) -> None:
    inner, bodies = MemoryStore(), {}
    clock = ManualClock(time.time_ns() // 1_000_000)
    keys = [f"{'5f' * 16}/{number:032x}/x.bin" for number in range(30)]
    for number, key in enumerate(keys):
        bodies[key] = bytes([number]) * 10_000
        inner.put(key, bodies[key])
    store = CachedStore(inner, CacheDir(str(tmp_path), 100_000, clock=clock))
    for key in keys:
        store.get_range(key, 0, 10_000)
        clock.sleep_s(20)
        store.get_range(keys[0], 0, 10_000)  # often
        time.sleep(0.002)
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 100_000 + 100_000 // 8
    asked = store.counters.get
    store.get_range(keys[0], 0, 10_000)
    store.get_range(keys[-1], 0, 10_000)
    assert store.counters.get == asked == 30
    assert store.held(keys[1], [(0, 1)]) is None
    assert 70_000 <= sum(path.stat().st_size for path in files(tmp_path)) <= 101_000


def test_processes_bound_the_directory_together(tmp_path: Path) -> None:
    inner = MemoryStore()
    keys = [f"{'5f' * 16}/{number:032x}/x.bin" for number in range(60)]
    for key in keys:
        inner.put(key, b"x" * 10_000)
    stores = [CachedStore(inner, CacheDir(str(tmp_path), 200_000)) for _ in range(3)]
    for number, key in enumerate(keys):
        stores[number % 3].get_range(key, 0, 10_000)
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 230_000
    assert sum(path.stat().st_size for path in files(tmp_path)) >= 100_000


@pytest.mark.parametrize("written", [0, 100, -1])
def test_a_full_disk_is_told_once_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, written: int
) -> None:
    inner, bodies = filled()
    clock = ManualClock()
    store = CachedStore(inner, CacheDir(str(tmp_path), 1 << 30, clock=clock))
    store.get_range(KEY, 0, 100)
    real = os.pwritev

    def full(fd, buffers, offset):
        if written < 0:
            raise OSError(errno.EDQUOT, "quota")
        return real(fd, [b"".join(buffers)[:written]], offset)

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        for start in range(0, 5000, 500):
            clock.sleep_s(45)
            assert bytes(store.get_range(KEY, start, 500)) == bodies[KEY][start : start + 500]
    assert len([record for record in caplog.records if "cache directory" in record.message]) == 1
    clock.sleep_s(100)
    inner.asked.clear()
    for _ in range(2):
        assert bytes(store.get_range(KEY, 0, 1000)) == bodies[KEY][:1000]
    assert inner.asked == [(KEY, 100, 900)]


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inner, bodies = filled()
    over(inner, tmp_path).get_range(KEY, 0, 100)
    (tmp_path / "mergelake-1").chmod(0o777)
    inner.asked.clear()
    with caplog.at_level(logging.WARNING):
        store = over(inner, tmp_path)
        assert bytes(store.get_range(KEY, 0, 100)) == bodies[KEY][:100]
    assert inner.asked == [(KEY, 0, 100)]
    assert "this user alone" in caplog.text
    inside = tmp_path / "links"
    inside.mkdir()
    (inside / "mergelake-1").symlink_to(tmp_path)
    assert bytes(over(inner, inside).get_range(KEY, 0, 100)) == bodies[KEY][:100]


def test_what_is_deleted_here_is_not_kept(tmp_path: Path) -> None:
    inner, _ = filled()
    store, other = over(inner, tmp_path), over(inner, tmp_path / "other")
    for each in (store, other):
        each.get_range(KEY, 0, 100)
    store.delete([KEY])
    with pytest.raises(NotFoundError):
        store.get_range(KEY, 0, 100)
    other.get_range(KEY, 0, 100)  # another machine has it all, or
    with pytest.raises(NotFoundError):
        other.get_range(KEY, 50, 100)  # misses some of it


def _read_at_random(root: str, folder: str, seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    inner = DirectoryStore(root, sync=False)
    bodies = {key: inner.get(key) for key in KEYS}
    store = CachedStore(inner, CacheDir(folder, 400_000))
    for _ in range(rounds):
        key = KEYS[rng.integers(0, 3)]
        starts = rng.integers(0, len(bodies[key]), 3)
        ranges = [(int(at), int(rng.integers(0, min(40_000, len(bodies[key]) - at) + 1))) for at in starts]
        found = store.get_ranges(key, ranges)
        assert [bytes(body) for body in found] == [bodies[key][at : at + size] for at, size in ranges]


def test_processes_share_it_and_may_be_killed(tmp_path: Path) -> None:
    """Some are killed while they read and write; the others, and who comes after them, see the right bytes."""
    _, bodies = filled((2_000_000, 70_000, 5))
    root, folder = str(tmp_path / "root"), str(tmp_path / "cache")
    inner = DirectoryStore(root, sync=False)
    for key, body in bodies.items():
        inner.put(key, body)
    spawn = multiprocessing.get_context("spawn")
    with_end = [spawn.Process(target=_read_at_random, args=(root, folder, seed, 400)) for seed in range(2)]
    for process in with_end:
        process.start()
    for seed in range(10, 13):
        killed = spawn.Process(target=_read_at_random, args=(root, folder, seed, 1 << 30))
        killed.start()
        time.sleep(1.0)
        os.kill(killed.pid or 0, signal.SIGKILL)
        killed.join()
    for process in with_end:
        process.join(100)
        assert process.exitcode == 0
    _read_at_random(root, folder, 99, 200)


def test_options_open_it_and_travel_with_the_spec(tmp_path: Path) -> None:
    store = open_store("s3://bucket/p", {**BUCKET, "cache_dir": f"{tmp_path}/c/", "cache_bytes": "5000000"})
    assert isinstance(store, CachedStore)
    assert (store.cache.path, store.cache.max_bytes) == (f"{tmp_path}/c", 5_000_000)
    options = dict(store.spec.options)
    assert (options["cache_dir"], options["cache_bytes"]) == (f"{tmp_path}/c", "5000000")
    other = StoreSpec("s3://bucket/p", store.spec.options).open()
    assert isinstance(other, CachedStore)
    assert other.spec == store.spec
    assert beneath(store) is store.inner
    assert beneath(store.inner) is store.inner
    assert not any("cache" in name for name, _ in store.inner.spec.options)
    assert not (tmp_path / "c").exists()
    assert open_store("s3://b", {**BUCKET, "cache_dir": "/c"}).spec.options.count(("cache_bytes", str(10 << 30))) == 1


def test_the_environment_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGELAKE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MERGELAKE_CACHE_BYTES", "2000000")
    found = open_store("s3://bucket", BUCKET)
    assert isinstance(found, CachedStore)
    assert (found.cache.path, found.cache.max_bytes) == (str(tmp_path), 2_000_000)
    given = open_store("s3://bucket", {**BUCKET, "cache_dir": "/other", "cache_bytes": "3000000"})
    assert isinstance(given, CachedStore)
    assert (given.cache.path, given.cache.max_bytes) == ("/other", 3_000_000)
    assert not isinstance(open_store("s3://bucket", {**BUCKET, "cache_dir": ""}), CachedStore)
    assert isinstance(open_store(str(tmp_path / "w")), DirectoryStore)


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("s3://b", {"cache_dir": "c"}, "not an absolute path"),
        ("s3://b", {"cache_dir": "~/c"}, "~ is not replaced"),
        ("s3://b", {"cache_dir": "file:///c"}, "not an absolute path"),
        ("s3://b", {"cache_dir": "/a\0b"}, "not an absolute path"),
        ("s3://b", {"cache_dir": "/etc/passwd"}, "no directory"),
        ("s3://b", {"cache_bytes": "5000000"}, "no cache_dir"),
        ("s3://b", {"cache_dir": "/c", "cache_bytes": "10GiB"}, "not a whole number"),
        ("s3://b", {"cache_dir": "/c", "cache_bytes": "-1"}, "not a whole number"),
        ("s3://b", {"cache_dir": "/c", "cache_bytes": "0"}, "1 MiB at least"),
        ("s3://b", {"cache_dirs": "/c"}, "cache_dirs"),
        ("memory://x", {"cache_dir": "/c"}, "no option cache_dir"),
        ("/tmp/x", {"cache_dir": "/c", "cache_bytes": "5000000"}, "no option cache_bytes, cache_dir"),
    ],
)
def test_a_wrong_option_is_refused(url: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        open_store(url, {**BUCKET, **options} if url.startswith("s3") else options)
