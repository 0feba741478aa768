"""What only a directory has: files, crashes, other processes, permissions."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mergelake.core.base.errors import InvalidInputError, NotFoundError, UnavailableError
from mergelake.store import Lost, OutcomeUnknown, Stored, open_store


def _create_all(root: str, writer: int, rounds: int) -> list[int]:
    store = open_store(root)
    return [n for n in range(rounds) if store.create(f"_log/{n:05}", bytes([writer]) * 5000) == Stored()]


def test_of_many_processes_exactly_one_creates_each_key(tmp_path: Path) -> None:
    rounds, writers = 40, 3
    with multiprocessing.get_context("spawn").Pool(writers) as pool:
        won = pool.starmap(_create_all, [(str(tmp_path), writer, rounds) for writer in range(writers)])
    assert sorted(n for keys in won for n in keys) == list(range(rounds))
    store = open_store(str(tmp_path))
    for writer, keys in enumerate(won):
        assert all(store.get(f"_log/{n:05}") == bytes([writer]) * 5000 for n in keys)


def test_a_killed_writer_leaves_whole_objects_only(tmp_path: Path) -> None:
    code = (
        "import sys; from mergelake.store import open_store; s = open_store(sys.argv[1], {'sync': 'false'}); n = 0\n"
        "while True:\n"
        "    s.put(f'put/{n}', b'p' * 400_000); s.create(f'create/{n}', b'c' * 400_000)\n"
        "    s.put_large(f'large/{n}', [b'l' * 200_000] * 2); n += 1\n"
    )
    for round_number in range(3):
        root = tmp_path / str(round_number)
        process = subprocess.Popen([sys.executable, "-c", code, str(root)])
        while not (root / "large" / "3").exists():
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        listed = list(open_store(str(root)).list(""))
        assert len(listed) > 9
        assert {meta.size for meta in listed} == {400_000}
        assert not [meta.key for meta in listed if meta.key.startswith(".")]


def test_temporary_files_are_gone_and_never_listed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("a", b"1")
    store.create("a", b"2")
    store.create("b", b"2")
    with pytest.raises(ZeroDivisionError):
        store.put_large("c", (b"x" * (1 // n) for n in (1, 0)))
    assert list((tmp_path / ".tmp").iterdir()) == []
    (tmp_path / ".tmp" / "left by a crash").write_bytes(b"half")
    assert [meta.key for meta in store.list("")] == ["a", "b"]
    with pytest.raises(InvalidInputError):
        store.get(".tmp/left by a crash")


def test_temporary_files_of_long_ago_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".tmp").mkdir()
    for name, age_days in (("old", 8), ("young", 6)):
        path = tmp_path / ".tmp" / name
        path.write_bytes(b"")
        os.utime(path, (time.time() - age_days * 86400,) * 2)
    open_store(str(tmp_path)).put("a", b"")
    assert [path.name for path in (tmp_path / ".tmp").iterdir()] == ["young"]


def test_a_deleted_object_takes_its_empty_directories_along(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("t/part/a.bin", b"1")
    store.put("t/keep", b"1")
    store.delete(["t/part/a.bin"])
    assert not (tmp_path / "t" / "part").exists()
    assert (tmp_path / "t" / "keep").exists()


def test_a_mapped_range_outlives_the_object(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("k", b"a" * (20 << 20))
    view = store.get_range("k", 5, 16 << 20)
    store.put("k", b"b" * 10)
    store.delete(["k"])
    assert bytes(view[:3]) == b"aaa"
    assert view[-1] == ord("a")


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="not a directory"):
        open_store(str(tmp_path / "file"))


def test_a_directory_that_does_not_exist_is_empty_and_is_not_made_by_reading(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "none"))
    assert list(store.list("")) == []
    with pytest.raises(NotFoundError):
        store.get("a")
    assert not (tmp_path / "none").exists()


def test_a_file_system_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(InvalidInputError, match="no hard links"):
        open_store(str(tmp_path)).create("k", b"")


def test_a_link_that_was_made_twice_by_the_network_counts_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def retransmitted(source: str, target: str, **where: Any) -> None:
        real(source, target, **where)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", retransmitted)
    store = open_store(str(tmp_path))
    assert store.create("k", b"mine") == Stored()
    assert store.create("k", b"other") == Lost()


def test_a_create_that_cannot_be_synced_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.put("warm/up", b"")
    real, calls = os.fsync, []

    def failing(fd: int) -> None:
        calls.append(fd)
        if len(calls) > 1:  # the first is the file itself
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", failing)
    assert isinstance(store.create("warm/k", b"x"), OutcomeUnknown)
    with pytest.raises(UnavailableError, match="Input/output error"):
        store.put("warm/k2", b"x")


def test_an_object_and_a_directory_cannot_share_a_name(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("a/b", b"1")
    for key in ("a", "a/b/c"):
        with pytest.raises(InvalidInputError, match="cannot be an object"):
            store.put(key, b"2")
        with pytest.raises(NotFoundError):
            store.get(key)
    assert store.create("a", b"2") == Lost()
    assert list((tmp_path / ".tmp").iterdir()) == []
