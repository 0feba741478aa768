"""A directory store follows no symbolic link: nothing outside it is read, listed, overwritten or deleted."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mergelake.core.base.errors import CorruptDataError, InvalidInputError, MergelakeError, NotFoundError
from mergelake.store import Lost, Stored, open_store
from mergelake.store.interface.protocol import Store


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files that are nobody's business, old enough for every sweep."""
    folder = tmp_path / "outside"
    (folder / "inner").mkdir(parents=True)
    for name in ("a", "inner/b"):
        (folder / name).write_bytes(b"precious")
        os.utime(folder / name, (1e9, 1e9))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


def _untouched(outside: Path) -> bool:
    files = {str(f.relative_to(outside)): f.read_bytes() for f in outside.rglob("*") if f.is_file()}
    return files == {"a": b"precious", "inner/b": b"precious"}


def test_links_are_not_listed(root: Path, outside: Path) -> None:
    store = open_store(str(root))
    store.put("t/p/a", b"1")
    (root / "file").symlink_to(outside / "a")
    (root / "folder").symlink_to(outside)
    (root / "t" / "folder").symlink_to(outside)
    (root / "t" / "p" / "loop").symlink_to(root / "t")
    (root / "t" / "p" / "dangling").symlink_to(root / "none")
    os.mkfifo(root / "t" / "p" / "pipe")
    assert [meta.key for meta in store.list("")] == ["t/p/a"]
    with pytest.raises(CorruptDataError, match="symbolic link"):
        list(store.list("folder"))
    with pytest.raises(CorruptDataError, match="symbolic link"):
        list(store.list("t/folder/inner"))


USES: dict[str, Callable[[Store, str], Any]] = {
    "get": lambda store, key: store.get(key),
    "get_range": lambda store, key: store.get_range(key, 0, 1),
    "head": lambda store, key: store.head(key),
    "create": lambda store, key: store.create(key, b"x"),
}
ANY: dict[str, Callable[[Store, str], Any]] = {
    **USES,
    "put": lambda store, key: store.put(key, b"new"),
    "put_large": lambda store, key: store.put_large(key, [b"new"]),
    "delete": lambda store, key: store.delete([key]),
    "delete what is listed": lambda store, key: store.delete([meta.key for meta in store.list(key)]),
    "delete all": lambda store, _: store.delete([meta.key for meta in store.list("")]),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("what", ["file", "dangling", "loop", "folder/a", "folder/inner/b", "t/folder/a"])
def test_a_link_is_an_error_that_names_it(root: Path, outside: Path, use: str, what: str) -> None:
    (root / "file").symlink_to(outside / "a")
    (root / "dangling").symlink_to(root / "none")
    (root / "loop").symlink_to(root / "loop")
    (root / "folder").symlink_to(outside)
    (root / "t").mkdir()
    (root / "t" / "folder").symlink_to(outside, target_is_directory=True)
    with pytest.raises(CorruptDataError, match="symbolic link") as caught:
        USES[use](open_store(str(root)), what)
    assert caught.value.object_key == what
    assert _untouched(outside)


def test_a_put_takes_the_place_of_a_link_and_writes_nothing_where_it_leads(root: Path, outside: Path) -> None:
    store = open_store(str(root))
    (root / "k").symlink_to(outside / "a")
    store.put("k", b"mine")
    assert store.get("k") == b"mine"
    assert not (root / "k").is_symlink()
    (root / "d").symlink_to(outside)
    for write in (store.put, lambda key, data: store.put_large(key, [data])):
        with pytest.raises(CorruptDataError, match="symbolic link"):
            write("d/new", b"x")
    assert _untouched(outside)


def test_a_delete_takes_a_link_away_and_nothing_behind_one(root: Path, outside: Path) -> None:
    store = open_store(str(root))
    (root / "k").symlink_to(outside / "a")
    (root / "d").symlink_to(outside)
    store.delete(["k"])
    assert not (root / "k").is_symlink()
    with pytest.raises(CorruptDataError, match="symbolic link"):
        store.delete(["d/a"])
    assert _untouched(outside)


def test_temporary_files_are_not_swept_through_a_link(root: Path, outside: Path) -> None:
    (root / ".tmp").symlink_to(outside)
    with pytest.raises(CorruptDataError, match="symbolic link"):
        open_store(str(root)).put("a", b"")
    assert _untouched(outside)


def test_the_root_may_be_a_link_and_is_resolved_once(tmp_path: Path, root: Path, outside: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    store = open_store(str(link))
    store.put("a", b"1")
    link.unlink()
    link.symlink_to(outside)
    assert store.get("a") == b"1"
    store.put("b", b"2")
    assert sorted(meta.key for meta in store.list("")) == ["a", "b"]
    assert store.create("c", b"3") == Stored()
    store.delete(["a", "b", "c"])
    assert _untouched(outside)


def test_a_hard_link_is_a_file_whose_other_name_stays(root: Path, outside: Path) -> None:
    store = open_store(str(root))
    (root / "k").hardlink_to(outside / "a")
    assert store.get("k") == b"precious"
    assert store.create("k", b"x") == Lost()
    store.put("k", b"new")
    assert _untouched(outside)
    (root / "k2").hardlink_to(outside / "a")
    store.delete(["k", "k2"])
    assert _untouched(outside)


def test_a_backup_that_links_the_temporary_file_does_not_make_a_lost_race_ours(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def backed_up(source: str, target: str, **where: Any) -> None:
        real(source, f"{source}.backup", src_dir_fd=where["src_dir_fd"], dst_dir_fd=where["src_dir_fd"])
        (root / target).write_bytes(b"theirs")
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", backed_up)
    assert open_store(str(root)).create("k", b"mine") == Lost()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_is_no_file_is_told_and_does_not_hang(root: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(root / "k")
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(root / "k"))
    store = open_store(str(root))
    with pytest.raises(CorruptDataError, match=f"a {kind}.* lies in .* in place of a file"):
        store.get("k")
    assert list(store.list("")) == []


def test_whatever_links_there_are_nothing_outside_is_touched(root: Path, outside: Path) -> None:
    """Random trees with links at every level, random operations: coded errors or answers, and all is left as it was."""
    draw = random.Random(5)
    names = ["a", "b", "inner"]
    for _ in range(60):
        store = open_store(str(root))
        for _ in range(6):
            key = "/".join(draw.choices(names, k=draw.randint(1, 3)))
            path = root / key
            try:
                if draw.random() < 0.6:
                    target = draw.choice([outside, outside / "a", outside / "inner", root, Path("."), root / "gone"])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if path.parent.resolve().is_relative_to(root):
                        path.symlink_to(target)
                else:
                    store.put(key, b"x")
            except (OSError, MergelakeError):
                pass
        for _ in range(12):
            key = "/".join(draw.choices(names, k=draw.randint(1, 3)))
            try:
                assert draw.choice([*ANY.values()])(store, key) != b"precious"
            except (CorruptDataError, NotFoundError, InvalidInputError) as refused:
                assert key in str(refused) or "'" in str(refused)  # noqa: PT017
        assert _untouched(outside)
