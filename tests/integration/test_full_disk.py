"""A disk that is really full: what fails has not happened and says why; DROP, TRUNCATE and gc get the space back."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import mergelake as ml
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import InvalidInputError, MergelakeError
from mergelake.store import OutcomeUnknown, open_store
from mergelake.store.cache.cache_dir import CacheDir
from mergelake.store.cache.cached import CachedStore
from mergelake.store.objects.reserve import freeing
from tests.helpers.cached import filled

MIB = 1 << 20


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system of 8 MiB."""
    folder = tempfile.mkdtemp()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system takes root")
    yield Path(folder)
    subprocess.run(["umount", "-l", folder], check=True)
    shutil.rmtree(folder)


def _fill(folder: Path) -> None:
    """Not a byte is left."""
    for size in (MIB, 4096):
        with suppress(OSError), (folder / f"filler-{size}").open("wb", buffering=0) as file:
            while file.write(b"x" * size):
                pass
    assert os.statvfs(folder).f_bavail == 0


def _table(folder: Path, name: str = "t") -> ml.Database:
    db = ml.connect(str(folder / "warehouse"))
    keep_nothing = "SETTINGS history_retention_seconds = 0, gc_grace_seconds = 0"
    db.sql(f"CREATE TABLE {name} (k UInt64, s String) ENGINE = MergeTree ORDER BY k {keep_nothing}")
    return db


def _rows(count: int) -> dict[str, object]:
    noise = np.random.default_rng(7).integers(0, 1 << 62, count)
    return {"k": noise.astype(np.uint64), "s": [f"{n:x}" for n in noise[::-1]]}


def test_an_insert_into_a_full_disk_is_refused_with_the_reason_and_leaves_nothing(small: Path) -> None:
    db = _table(small)
    db.table("t").append(_rows(1000))
    before = {meta.key for meta in db.warehouse.store.list("")}
    done = 1000
    with pytest.raises(InvalidInputError, match="No space left on device") as caught:  # noqa: PT012
        while True:
            db.table("t").append(_rows(20_000))
            done += 20_000
    assert (caught.value.name, caught.value.code) == ("NOT_ENOUGH_SPACE", 243)
    assert "not known" not in str(caught.value)
    assert db.sql("SELECT count() FROM t").rows() == [(done,)]
    assert done > 1000
    assert len({meta.key for meta in db.warehouse.store.list("")} - before) == 2 * (done - 1000) // 20_000


def test_a_commit_on_a_full_disk_is_refused_for_certain(small: Path) -> None:
    db = _table(small)
    _fill(small)
    for statement in ("INSERT INTO t VALUES (1, 'a')", "CREATE TABLE u (a Int8) ENGINE = MergeTree ORDER BY a"):
        with pytest.raises(InvalidInputError, match="No space left on device"):
            db.sql(statement)
    assert ml.connect(db.warehouse.url).tables() == ["t"]


def test_drop_truncate_and_gc_work_on_a_full_disk_and_give_the_space_back(small: Path) -> None:
    db = _table(small)
    db.sql("CREATE TABLE u AS t")
    db.sql("CREATE TABLE kept AS t")
    db.table("kept").append(_rows(1000))
    for name in ("t", "u"):
        for _ in range(3):
            db.table(name).append(_rows(40_000))
    _fill(small)
    db = ml.connect(db.warehouse.url)
    db.sql("TRUNCATE TABLE t")
    db.sql("ALTER TABLE t MODIFY SETTING history_retention_seconds = 0")
    db.sql("DROP TABLE u")
    assert db.sql("SELECT count() FROM t").rows() == [(0,)]
    for _ in range(8):
        db.warehouse.gc()
    assert sum(len(d.name) == 32 for d in Path(db.warehouse.url).iterdir()) == 2
    freed = os.statvfs(small)
    assert freed.f_bavail * freed.f_frsize > 2 * MIB
    db.table("t").append(_rows(40_000))
    assert db.sql("SELECT count() FROM t").rows() == [(40_000,)]
    assert db.sql("SELECT count() FROM kept").rows() == [(1000,)]


def test_the_reserve_is_for_what_gives_space_back_and_comes_back_itself(small: Path) -> None:
    store = open_store(str(small))
    store.create("a", b"1")
    reserve = small / ".reserve"
    whole = reserve.stat().st_size
    assert whole >= 256 << 10
    _fill(small)
    with pytest.raises(InvalidInputError, match="No space"):
        store.create("b", b"1" * 5000)
    with freeing():
        done = 0
        while True:
            try:
                store.create(f"entry-{done}", b"1" * 5000)
            except MergelakeError:
                break
            done += 1
    assert done >= 5
    assert not reserve.exists()
    for file in small.glob("filler-*"):
        file.unlink()
    store.create("c", b"1")
    assert reserve.stat().st_size > whole // 2
    assert [meta.key for meta in store.list("")][:2] == ["a", "c"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "close", "link"])
def test_what_fails_before_the_link_was_made_is_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    store = open_store(str(tmp_path))
    store.create("k/0", b"1")
    real = getattr(os, call)

    def failing(*arguments: object, **more: object) -> object:
        if call == "open" and not (isinstance(arguments[1], int) and arguments[1] & os.O_CREAT):
            return real(*arguments, **more)
        if call == "close":
            real(*arguments, **more)
            if not written.pop():
                return None
        raise OSError(number, os.strerror(number))

    written = [False] * 20
    if call == "close":
        real_write = os.write
        monkeypatch.setattr(os, "write", lambda *a: (written.append(True), real_write(*a))[1])
    monkeypatch.setattr(os, call, failing)
    with pytest.raises(InvalidInputError, match=os.strerror(number)):
        store.create("k/1", b"1")
    monkeypatch.undo()
    assert [meta.key for meta in store.list("")] == ["k/0"]


def test_a_link_whose_answer_is_not_clear_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))

    def timed_out(*_: object, **__: object) -> None:
        raise OSError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(os, "link", timed_out)
    outcome = store.create("k", b"1")
    assert isinstance(outcome, OutcomeUnknown)
    assert "timed out" in outcome.reason


def test_a_warehouse_that_became_read_only_can_be_read_and_says_why_it_cannot_be_written(small: Path) -> None:
    db = _table(small)
    db.table("t").append(_rows(100))
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    db = ml.connect(db.warehouse.url)
    assert db.sql("SELECT count() FROM t").rows() == [(100,)]
    for statement in ("INSERT INTO t VALUES (1, 'a')", "TRUNCATE TABLE t", "DROP TABLE t"):
        with pytest.raises(InvalidInputError, match="Read-only file system"):
            db.sql(statement)
    assert ml.connect(db.warehouse.url).sql("SELECT count() FROM t").rows() == [(100,)]


def test_a_node_whose_local_disk_is_small_goes_on_merging_and_says_so(small: Path, tmp_path: Path) -> None:
    settings = "SETTINGS merge_upload_policy = 'volatile', min_bytes_for_full_part_storage = 0"
    db = ml.connect(str(tmp_path / "warehouse"))
    for name in ("t", "u"):
        db.sql(f"CREATE TABLE {name} (k UInt64, s String) ENGINE = MergeTree ORDER BY k {settings}")
        for _ in range(8):
            db.table(name).append(_rows(30_000))
    (small / "others").write_bytes(b"x" * 6 * MIB)
    node = db.warehouse.node("n", local=str(small))
    for _ in range(2):
        while node.step() or not node.idle():
            pass
        for name in ("t", "u"):
            for _ in range(8):
                db.table(name).append(_rows(1000))
    while node.step() or not node.idle():
        pass
    node.drain()
    assert node.status.merges_failed == 0, node.status.last_error
    assert node.status.merges_past_disk > 0
    for name in ("t", "u"):
        assert db.table(name).parts().num_rows < 8
        assert db.sql(f"SELECT count() FROM {name}").rows() == [(256_000,)]
    assert (small / "others").stat().st_size == 6 * MIB


def test_a_cache_directory_on_a_full_disk_is_no_trouble_to_who_reads(
    small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner, bodies = filled((6 << 20, 70_000, 5))
    clock = ManualClock()
    store = CachedStore(inner, CacheDir(str(small / "cache"), 1 << 30, clock=clock))

    def read_all() -> int:
        before = store.counters
        for key, body in bodies.items():
            for start in range(0, len(body), 500_000):
                size = min(500_000, len(body) - start)
                assert bytes(store.get_range(key, start, size)) == body[start : start + size]
        return (store.counters - before).get

    _fill(small)
    with caplog.at_level(logging.WARNING):
        asked = read_all()
        clock.sleep_s(100)
        assert read_all() == asked
    assert len([record for record in caplog.records if "cache directory" in record.message]) == 1
    for path in small.glob("filler-*"):
        path.unlink()
    clock.sleep_s(100)
    assert read_all() > 0
    assert read_all() == 0
